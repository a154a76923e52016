"""Gaussian process regression on a graph that is spread over processes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import pandas as pd

from graphmatern._validation import FaultList, check_positive, note_choice, note_flag
from graphmatern.distributed._checkpoint import Checkpoint
from graphmatern.distributed._engine import SpreadEngine
from graphmatern.distributed._files import write_results
from graphmatern.distributed._graph import DistributedGraph
from graphmatern.distributed._multigrid import MultigridEngine
from graphmatern.distributed._values import read_values, values_of
from graphmatern.errors import KernelError, TableError
from graphmatern.estimators import check_options, documented, rules_of, search_of, uses_normalized
from graphmatern.inference import Observations, Problem, learn, register_engine
from graphmatern.kernels import Matern
from graphmatern.likelihoods import Gaussian

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from graphmatern.distributed._values import SpreadValues
    from graphmatern.inference import Fit, Prior
    from graphmatern.kernels import Kernel

    Floats = NDArray[np.float64]

__all__ = ["GraphGPRegressor"]

_UNEQUAL = 10.0  # largest degree, relative to the mean, from which on the plain Laplacian is a poor guide
_ENGINES: dict[str, type[SpreadEngine] | type[MultigridEngine]] = {
    "moments": SpreadEngine,
    "multigrid": MultigridEngine,
}

for _engine in _ENGINES.values():
    register_engine(_engine)


@documented
class GraphGPRegressor:
    """Gaussian process regression on a graph that is spread over processes: see `graphmatern.GraphGPRegressor`.

    Parameters
    ----------
    graph : DistributedGraph
        The graph.
    kernel : Kernel, optional
        Kernel with starting values, in units in which y has variance 1; by default a Matérn kernel.
    normalized : bool, optional
        Which Laplacian; by default the normalised one if the kernel requires it, or if degrees are very unequal.
    engine : {"auto", "moments", "multigrid"}
        How to multiply with covariances: by polynomials of the Laplacian (any kernel), or by solutions with algebraic
        multigrid, for Matérn kernels whose ν is held at an integer; that is what "auto" does with these on the plain
        Laplacian.
    noise : float, optional
        Starting value of the noise variance, in units in which y has variance 1.
    mean : {"constant", "zero"}
        Mean of the process; a constant is integrated out.
    normalize_y : bool
        Whether first to subtract the mean of y and divide by its standard deviation.
    <optimizer>
    <max_iterations>
    <learning_rate>
    <n_restarts>
    <bounds>
    <priors>
    <random_state>
    verbose : bool, optional
        Whether the first process shows progress; by default, if the error stream is a terminal.

    Attributes
    ----------
    kernel_ : Kernel
        Learned kernel, in normalised units.
    noise_ : float
        Learned noise variance, in normalised units; relative to the known variances if those are given.
    log_marginal_likelihood_ : float
        Of the normalised values, the constant included; estimated, see ``report_["evidence_error"]``.
    engine_, engine_reason_ : str
        Engine used, and why.
    normalized_ : bool
        Which Laplacian was used.
    y_mean_, y_scale_ : float
        Convert normalised units.
    converged_ : bool
        Whether the optimiser converged.
    n_evaluations_ : int
        Evaluations of the marginal likelihood, those of an earlier run included.
    at_bounds_ : list of str
        Parameters that ended at a bound.
    report_ : dict
        Standard errors of what is estimated.
    """

    graph_kind: ClassVar[type] = DistributedGraph

    def __init__(
        self,
        graph: DistributedGraph,
        kernel: Kernel | None = None,
        *,
        normalized: bool | None = None,
        engine: Literal["auto", "moments", "multigrid"] = "auto",
        noise: float | None = None,
        mean: Literal["constant", "zero"] = "constant",
        normalize_y: bool = True,
        optimizer: Literal["quasi-newton", "lbfgs", "adam"] | None = "quasi-newton",
        max_iterations: int = 200,
        learning_rate: float = 0.1,
        n_restarts: int = 0,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        priors: Mapping[str, Prior] | None = None,
        random_state: int | None = None,
        verbose: bool | None = None,
    ) -> None:
        self.graph = graph
        self.kernel = kernel
        self.normalized = normalized
        self.engine = engine
        self.noise = noise
        self.mean = mean
        self.normalize_y = normalize_y
        self.optimizer = optimizer
        self.max_iterations = max_iterations
        self.learning_rate = learning_rate
        self.n_restarts = n_restarts
        self.bounds = bounds
        self.priors = priors
        self.random_state = random_state
        self.verbose = verbose

    # ------------------------------------------------------------------ fitting
    def fit(self, nodes: Any, y: Any, *, noise_variance: Any = None, checkpoint: str | Path | None = None) -> Self:
        """Learn the kernel's parameters and condition on the data; all processes call it together.

        Parameters
        ----------
        nodes : sequence of hashable
            Names of observed nodes; each process gives some, at nodes that any process holds.
        y : array_like, shape (n,)
            Values.
        noise_variance : array_like, shape (n,), optional
            Known noise variance of every value, in the units of y; no noise is learned then.
        checkpoint : str or Path, optional
            File to which the search is saved after every evaluation. If it already exists, the search continues from
            there, on any number of processes.

        Returns
        -------
        self
        """
        self._check_options()
        return self._fit_values(values_of(self.graph, nodes, y, noise_variance), checkpoint)

    def fit_files(
        self,
        path: str | Path,
        *,
        node: str | None = None,
        value: str | None = None,
        noise_std: str | None = None,
        checkpoint: str | Path | None = None,
    ) -> Self:
        """Learn from a table of values, or a folder of tables, of which each process reads a part.

        Parameters
        ----------
        path : str or Path
            CSV, TSV, Parquet or Excel file, or a folder of such files; an empty value means not observed.
        node, value, noise_std : str, optional
            Columns of node names, of values and of the standard deviations of their errors; guessed from names and
            entries if not given (errors are never guessed).
        checkpoint : str or Path, optional
            As in `fit`.

        Returns
        -------
        self
        """
        self._check_options()
        found = read_values(self.graph, path, node=node, value=value, noise_std=noise_std)
        return self._fit_values(found, checkpoint)

    def _check_options(self) -> None:
        faults = FaultList("nothing was fitted", KernelError)
        note_choice("engine", self.engine, ("auto", *_ENGINES), faults)
        note_choice("mean", self.mean, ("constant", "zero"), faults)
        note_flag("normalize_y", self.normalize_y, faults)
        if self.noise is not None:
            check_positive("noise", self.noise, faults, remedy="Leave it out for a value from the data.")
        if self.engine == "multigrid" and not _is_integer(self.kernel):
            remedy = "Such as gm.Matern(nu=2, fixed=('nu',)); engine='moments' serves any kernel."
            rule = "must be a Matérn kernel with nu held at an integer for engine='multigrid'"
            faults.add("kernel", rule, repr(self.kernel), remedy)
        check_options(self, ["noise"], faults)

    def _fit_values(self, values: SpreadValues, checkpoint: str | Path | None) -> Self:
        problem, name, reason, scale = self._problem(values)
        processes = self.graph.processes
        if checkpoint is not None:
            journal = Checkpoint(processes, checkpoint).journal(self._fingerprint(values, name))
            problem = replace(problem, search=replace(problem.search, journal=journal))
        fit = learn(problem, _ENGINES[name].name)
        self._adopt(fit, values, scale, name, reason)
        return self

    def problem(self, nodes: Any, y: Any, *, noise_variance: Any = None) -> tuple[Problem, str]:
        """What `fit` would learn from some values, and the engine's name for `graphmatern.inference.learn`."""
        self._check_options()
        problem, name, _, _ = self._problem(values_of(self.graph, nodes, y, noise_variance))
        return problem, _ENGINES[name].name

    def _problem(self, values: SpreadValues) -> tuple[Problem, str, str, tuple[float, float]]:
        graph, processes = self.graph, self.graph.processes
        if processes.total(len(values.y)) == 0:
            faults = FaultList("nothing was fitted", TableError)
            raise faults.raise_now("values", "must have at least one value", "none", "Check the column.")
        scale = self._scale(values.y) if self.normalize_y else (0.0, 1.0)
        normalized = uses_normalized(self)
        if normalized is None:
            normalized = self._is_unequal()
        name, reason = self._chosen(bool(normalized))
        n_effects = 1 if self.mean == "constant" else 0
        observations = Observations(
            values.places,
            ((values.y - scale[0]) / scale[1])[:, None],
            np.broadcast_to(np.ones((1, n_effects)), (graph.rows.n_here, n_effects)),
            None if values.noise is None else values.noise / scale[1] / scale[1],
        )
        likelihood = Gaussian() if self.noise is None else Gaussian(float(self.noise))
        if values.noise is not None:
            likelihood = Gaussian(1.0, fixed=("noise",))
        search = search_of(self)
        if not processes.is_first:
            search = replace(search, progress=False)
        stand_in: Any = graph
        problem = Problem(
            graph=stand_in,
            kernel=self.kernel,
            likelihood=likelihood,
            observations=observations,
            normalized=normalized,
            rules=rules_of(self),
            search=search,
            settings={"observation_rows": values.rows},
        )
        return problem, name, reason, scale

    def _scale(self, y: Floats) -> tuple[float, float]:
        """Mean and standard deviation over all processes."""
        total = self.graph.processes.total
        count = total(len(y))
        mean = total(float(y.sum())) / count
        spread = float(np.sqrt(total(float(((y - mean) ** 2).sum())) / count))
        return (mean, spread) if spread > 1e-12 * max(abs(mean), 1e-300) else (mean, abs(mean) or 1.0)

    def _is_unequal(self) -> bool:
        processes, degrees = self.graph.processes, self.graph.degrees
        mean = processes.total(float(degrees.sum())) / max(self.graph.n_nodes, 1)
        return bool(processes.largest(float(degrees.max(initial=0.0))) > _UNEQUAL * mean)

    def _chosen(self, normalized: bool) -> tuple[str, str]:
        if self.engine != "auto":
            return self.engine, "asked for"
        if _is_integer(self.kernel) and not normalized:
            return "multigrid", "a Matérn kernel of integer smoothness on the plain Laplacian: solutions by multigrid"
        return "moments", "any kernel: polynomials of the Laplacian"

    def _fingerprint(self, values: SpreadValues, engine: str) -> dict[str, Any]:
        """What a checkpoint must agree with: graph, values and options, not the number of processes."""
        total = self.graph.processes.total
        options = {name: repr(value) for name, value in vars(self).items() if name not in ("graph", "verbose")}
        return {
            "nodes": self.graph.n_nodes,
            "edges": self.graph.n_edges,
            "weights": f"{total(float(self.graph.degrees.sum())):.9e}",
            "values": int(total(len(values.y))),
            "sum of values": f"{total(float(np.abs(values.y).sum())):.9e}",
            "engine": engine,
            "options": {name: text for name, text in options.items() if not name.endswith("_")},
        }

    def _adopt(self, fit: Fit, values: SpreadValues, scale: tuple[float, float], name: str, reason: str) -> None:
        self._fit, self._values = fit, values
        self.y_mean_, self.y_scale_ = scale
        self.kernel_, self.normalized_ = fit.kernel, fit.normalized
        learned: Any = fit.likelihood
        self.noise_ = float(learned.noise.item())
        self.log_marginal_likelihood_ = fit.log_evidence
        self.engine_, self.engine_reason_ = name, reason
        self.converged_, self.at_bounds_ = fit.converged, fit.at_bounds
        self.n_evaluations_ = fit.optimum.n_evaluations
        self.report_ = fit.report

    # ------------------------------------------------------------------ predictions
    def predict_table(self, *, return_std: bool = True) -> pd.DataFrame:
        """Predictions at this process's nodes; all processes call it together.

        Parameters
        ----------
        return_std : bool
            Whether to estimate standard deviations, which takes longer than the means.

        Returns
        -------
        DataFrame
            Indexed by node name: ``mean`` and, if wanted, ``std``, its standard error ``std_error``, and ``informed``:
            whether the node's connected component has data.
        """
        nodes = np.arange(self.graph.rows.n_here)
        posterior = self._fit.posterior
        columns: dict[str, Any] = {"mean": self.y_mean_ + self.y_scale_ * posterior.latent_mean(nodes)[0]}
        if return_std:
            deviation = np.sqrt(np.maximum(posterior.latent_variance(nodes)[0], 0.0))
            errors = posterior.parts[0].predictive.variance_errors(nodes)
            columns["std"] = self.y_scale_ * deviation
            columns["std_error"] = self.y_scale_ * errors / np.maximum(2.0 * deviation, 1e-300)
        columns["informed"] = self.graph.reached_by(self._values.places)
        return pd.DataFrame(columns, index=pd.Index(self.graph.names, name="node"))

    def write(self, folder: str | Path, *, return_std: bool = True) -> None:
        """Write what was learned, and predictions at all nodes, to a new folder; it appears complete or not at all.

        Parameters
        ----------
        folder : str or Path
            With ``model.json``, and ``predictions/part-*.parquet``, one part from each process.
        return_std : bool
            Whether to estimate standard deviations.
        """
        write_results(self.graph.processes, folder, self.predict_table(return_std=return_std), self._learned())

    def _learned(self) -> dict[str, Any]:
        return {
            "kernel": repr(self.kernel_),
            "parameters": self.kernel_.values(),  # type: ignore[operator]
            "noise": self.noise_,
            "y_mean": self.y_mean_,
            "y_scale": self.y_scale_,
            "laplacian": "normalized" if self.normalized_ else "plain",
            "log_marginal_likelihood": self.log_marginal_likelihood_,
            "engine": self.engine_,
            "engine_reason": self.engine_reason_,
            "converged": self.converged_,
            "evaluations": self.n_evaluations_,
            "at_bounds": self.at_bounds_,
            "report": self.report_,
            "nodes": self.graph.n_nodes,
            "edges": self.graph.n_edges,
        }

    def summary(self) -> str:
        """Describe the fit in a few lines of text; the same on all processes."""
        error = self.report_.get("evidence_error", 0.0)
        state = "converged" if self.converged_ else "stopped early"
        evaluations = f"{self.n_evaluations_} evaluations, {state}"
        lines = [
            f"{self.graph.n_nodes:,} nodes, {self.graph.n_edges:,} edges on {self.graph.processes.size} processes",
            f"engine    {self.engine_}: {self.engine_reason_}",
            f"kernel    {self.kernel_!r}, {'normalised' if self.normalized_ else 'plain'} Laplacian",
            f"noise     {self.noise_:.6g}; y = {self.y_mean_:.6g} + {self.y_scale_:.6g} × normalised",
            f"evidence  {self.log_marginal_likelihood_:.4f} ± {error:.1f}, {evaluations}",
        ]
        moved = self.report_.get("parameter_errors", {})
        if moved:
            lines.append("probes    may have moved " + ", ".join(f"{name} {one:.1%}" for name, one in moved.items()))
        return "\n".join(lines)


def _is_integer(kernel: Kernel | None) -> bool:
    """Whether a kernel is Matérn with ν held at an integer."""
    if not isinstance(kernel, Matern) or "nu" not in kernel.fixed:
        return False
    nu = kernel.values()["nu"]
    return bool(nu >= 1.0 and abs(nu - round(nu)) < 1e-9)
