"""What all estimators share: fits that change everything or nothing, checks, files, representations."""

from __future__ import annotations

import html
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from graphmatern._validation import FaultList, warn
from graphmatern.errors import NumericalWarning, TableError
from graphmatern.estimators._conventions import Estimator
from graphmatern.estimators._files import FIELD_ENGINES, SPECTRAL_ENGINES, write_model
from graphmatern.estimators._hyperparameters import hyperparameter_draws, hyperparameter_table, shown_name, table_lines
from graphmatern.inference import eigenpairs_used
from graphmatern.io import check_target
from graphmatern.kernels import current_label
from graphmatern.metrics import half_width
from graphmatern.plotting import plot_hyperparameters
from graphmatern.report import counted, write_page

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from graphmatern.graph import Graph, Spectrum
    from graphmatern.inference import Fit
    from graphmatern.report import Content

__all__ = ["GraphEstimator", "normalisation", "reached_by"]

_GAUSSIAN_MAD = 1.4826  # standard deviation of Gaussian numbers, relative to their median distance from the median
_QUICK_NODES = 1_000  # of which all eigenpairs are found within half a second
_LOST_SHARE = 0.1  # of the prior variance: with more of it lost, intervals are visibly too narrow


class GraphEstimator(Estimator):
    """An estimator on the nodes of a graph.

    A subclass reads its data, learns from them, and adopts what was learned: `_learn` returns every fitted attribute in
    a dictionary and changes nothing, so a fit that fails leaves the last one as it was. Methods of a fitted model
    depend only on these attributes; options set later apply to the next fit.
    """

    graph: Graph
    engine_: str
    engine_reason_: str
    normalized_: bool
    converged_: bool
    n_evaluations_: int
    gradient_norm_: float
    at_bounds_: list[str]
    prior_variance_lost_: NDArray[np.float64]
    informed_: NDArray[np.bool_]
    _data: Any
    _fit: Fit
    _fit_options: dict[str, Any]
    _standard_errors: dict[str, float] | None
    _known_hyperparameters: tuple[Fit, pd.DataFrame] | None = None

    # ------------------------------------------------------------------ fitting
    def _adopt(self, attributes: dict[str, Any], options: dict[str, Any] | None = None) -> Self:
        """Take over what was learned, and the options used; nothing of the previous fit remains."""
        for name in vars(self).get("_adopted", ()):
            self.__dict__.pop(name, None)
        self.__dict__.update(attributes)
        self._adopted = tuple(attributes)
        self._fit_options = dict(self.get_params(deep=False) if options is None else options)
        self._standard_errors = None
        return self

    def _require_fit(self) -> None:
        """Raise unless the estimator is fitted, on the graph that it still has."""
        if "_fit" not in vars(self):
            self._raise_not_fitted("is not fitted yet: call `fit` first")
        if self.graph is not self._fit_options["graph"]:
            self._raise_not_fitted("was fitted on another graph: call `fit` again")

    def __sklearn_is_fitted__(self) -> bool:
        return "_fit" in vars(self)

    def _warn_of_trouble(self) -> None:
        """Warn of problems with the fit."""
        fit = self._fit
        if not fit.converged:
            message = fit.optimum.message if not fit.optimum.converged else "the sites did not converge"
            warn(
                f"the fit stopped early: {message}; raise max_iterations, or start from other values", NumericalWarning
            )
        if hasattr(self, "prior_variance_lost_") and fit.report.get("prior_loss_share", 0.0) > _LOST_SHARE:
            warn(
                f"the eigenpairs used lose up to {fit.report['prior_loss_share']:.0%} of the prior variance: "
                "predictions away from the data are overconfident (variance starvation). Use more eigenpairs, "
                "or engine='markov' with a Matérn kernel",
                NumericalWarning,
            )
        if fit.n_clipped and "history" not in fit.report:
            warn(
                f"negative sites were set to 0 in {fit.n_clipped} steps: the approximation is not the best Gaussian",
                NumericalWarning,
            )

    def standard_errors(self) -> dict[str, float]:
        """Standard errors of the logarithms of the learned parameters, from the curvature of the evidence.

        Returns
        -------
        dict of str to float
            An error of 0.1 means that the parameter is known to about 10 %. NaN, with a warning, if it ended at a bound
            or the evidence has no peak. If the evidence is estimated, errors come from the Fisher information.
        """
        self._require_fit()
        if self._standard_errors is None:
            self._standard_errors = self._fit.standard_errors()
        unknown = [
            f"{name} ({'at a bound' if name in self._fit.at_bounds else 'no peak'})"
            for name, error in self._standard_errors.items()
            if np.isnan(error)
        ]
        if unknown:
            warn(
                f"these parameters have no standard error (it is NaN): {', '.join(unknown)}. "
                "integrate=True shows what is known about them",
                NumericalWarning,
            )
        return dict(self._standard_errors)

    @property
    def _unit(self) -> float:
        """Unit of the normalised values."""
        return float(getattr(self, "y_scale_", 1.0))

    @property
    def hyperparameters_(self) -> pd.DataFrame:
        """What is known about the parameters: mode, mean, standard deviation and quantiles, one row each.

        ``sigma`` is the standard deviation of the process and ``noise`` that of the noise, in the units of the values;
        ``lengthscale`` is the kernel's. ``range``, in the unit of the edges' lengths if these are known, is the
        distance along edges at which correlations, averaged over pairs of nodes that far apart, fall below 0.13 (or the
        longest distance in the graph, if they never do). If eigenpairs are available or cheap, it is measured on pairs
        of 24 nodes with others near and far. Otherwise it is a rule of thumb, about 1.2 mean edges per unit of
        lengthscale, which is up to 40 % off for ν of 1 or 3 and several times too long for ν of 1/2;
        ``table.attrs["range"]`` and `summary` say which. If the parameters were not integrated over, all but the mode
        follow from the curvature there.
        """
        self._require_fit()
        known = self._known_hyperparameters
        if known is None or known[0] is not self._fit:  # measuring ranges takes a while, and summaries ask again
            found = hyperparameter_table(self._fit, self.graph, self._unit, self._spectrum())
            known = self._known_hyperparameters = self._fit, found
        return known[1].copy()

    def _spectrum(self) -> Spectrum | None:
        """Eigenpairs of the Laplacian in use, if available or cheap; for measuring ranges."""
        fit, wanted = self._fit, self._fit_options["n_eigenpairs"]
        if not self.graph.has_lengths:
            return None
        if fit.engine in (*SPECTRAL_ENGINES, *FIELD_ENGINES):
            return self.graph.spectrum(eigenpairs_used(self.graph, wanted), fit.normalized)
        return self.graph.spectrum(None, fit.normalized) if self.graph.n_nodes <= _QUICK_NODES else None

    def hyperparameter_points(self) -> pd.DataFrame:
        """Weighted points that represent the joint distribution of the parameters, which `hyperparameters_` sums up.

        Returns
        -------
        DataFrame, shape (n_points, n_parameters + 1)
            A column for each row of `hyperparameters_`, in the same units, and ``weight``; weights add up to 1.
        """
        self._require_fit()
        values, _, weights = hyperparameter_draws(self._fit, self.graph, self._unit, self._spectrum())
        return pd.DataFrame({**values, "weight": weights})

    @property
    def log_evidence_(self) -> float:
        """Log marginal likelihood of the normalised values, the parameters integrated out.

        For comparing models of the same values; effects of the mean with flat priors must be the same in both. NaN if
        the parameters were not integrated over.
        """
        self._require_fit()
        return float("nan") if self._fit.integrated is None else self._fit.integrated.log_evidence

    def plot_hyperparameters(self, axes: Any = None) -> NDArray[Any]:
        """Draw the distribution of the parameters, every marginal and every pair; see `plotting.plot_hyperparameters`.

        Parameters
        ----------
        axes : ndarray of Axes, optional
            Where to draw; a new figure by default.
        """
        self._require_fit()
        values, mode, weights = hyperparameter_draws(self._fit, self.graph, self._unit, self._spectrum())
        own = {name: one for name, one in values.items() if not name.endswith("range") and np.isfinite(one).all()}
        return plot_hyperparameters(own, weights, axes, mode=mode)

    # ------------------------------------------------------------------ files
    @abstractmethod
    def _state(self) -> dict[str, Any]:
        """Results of the fit: numbers, texts, arrays, tables, kernels, and lists and dictionaries of these."""

    @abstractmethod
    def _attributes_from(self, state: dict[str, Any]) -> dict[str, Any]:
        """Every fitted attribute, from what `_state` returned, on an estimator with the options of the fit."""

    def _restore(self, state: dict[str, Any]) -> None:
        """Restore the fit from what `_state` returned, on a fresh estimator with the same options."""
        self._adopt(self._attributes_from(state))
        errors = state.get("standard_errors")
        if errors is not None:
            errors = {current_label(self._fit.kernel, name): error for name, error in errors.items()}
        self._standard_errors = errors

    def __getstate__(self) -> dict[str, Any]:
        # What was fitted holds factors and closures; pickling stores what a model file would.
        if "_fit" not in vars(self):
            return dict(vars(self))
        return {
            "_options": self.get_params(deep=False),
            "_options_of_fit": dict(self._fit_options),
            "_fitted_state": self._state(),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "_fitted_state" not in state:
            self.__dict__.update(state)
            return
        type(self).__init__(self, **state["_options_of_fit"])
        self._restore(state["_fitted_state"])
        for name, value in state["_options"].items():
            setattr(self, name, value)

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file; `graphmatern.load` reads it.

        Parameters
        ----------
        path : str or Path
            The file, usually ending in ``.gm``. It is written completely or not at all, and holds the graph, the
            options, the observations and the learned parameters, in the safetensors format: numbers and text, no code.
        """
        self._require_fit()
        write_model(path, type(self).__name__, {"options": dict(self._fit_options), "fitted": self._state()})

    # ------------------------------------------------------------------ pages
    def report(
        self,
        path: str | Path,
        *,
        title: str | None = None,
        unit: str = "",
        length_unit: str | None = None,
        level: float = 0.95,
        areas: Any = None,
    ) -> None:
        """Write an interactive page about the fitted model: a single HTML file that opens anywhere.

        It has a map to explore (predictions, uncertainty, exceedance of a threshold, observations, residuals), a table
        of all nodes, a description of the model in plain words, and how far it can be trusted. It needs no server,
        loads nothing from the network, and shows names as text, whatever they contain.

        Parameters
        ----------
        path : str or Path
            The file, usually ending in ``.html``. It is written completely or not at all.
        title : str, optional
            What the page is about.
        unit : str
            Unit of the values, such as ``"mph"``.
        length_unit : str, optional
            Unit of the edges' lengths, such as ``"m"``; inferred if positions are longitudes and latitudes.
        level : float
            Probability of the intervals.
        areas : GeoDataFrame, Series, mapping or path, optional
            Outlines by node name, if nodes are areas and the graph has no outlines; see `Graph.with_areas`.

        Examples
        --------
        >>> import graphmatern as gm, tempfile, pathlib
        >>> road = gm.Graph.from_edges([("a", "b"), ("b", "c")], length=[100.0, 50.0])
        >>> model = gm.GraphGPRegressor(road, gm.Matern(nu=1), optimizer=None).fit(["a", "c"], [31.0, 47.0])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.report(pathlib.Path(folder) / "page.html", title="Speeds", unit="mph", length_unit="m")
        """
        self._require_fit()
        half_width(level)  # refuses what is not a probability
        faults = FaultList("no page was written", TableError)
        for name, words in (("title", title), ("unit", unit), ("length_unit", length_unit)):
            if not (isinstance(words, str) or (words is None and name != "unit")):
                faults.add(name, "must be text", repr(words), "Put it in quotes.")
        faults.raise_if_any()
        check_target(path)
        options = {"unit": unit, "length_unit": length_unit, "areas": areas}
        write_page(path, self._content(title=title, level=level, options=options))

    @abstractmethod
    def _content(self, *, title: str | None, level: float, options: dict[str, Any]) -> Content:
        """What the page says."""

    @property
    def variance_shares_(self) -> pd.Series[Any]:
        """How much of the variance over the observed nodes each part explains, given the data; adds up to 1.

        Parts are the graph, the features, their interaction and, for measurements, the noise. A model without features
        has one part. For classes, shares are averages over their processes.
        """
        self._require_fit()
        found = self._fit.posterior.part_variances() if self._fit.kernel.uses_features else {"graph": 1.0}
        if self._fit.kernel.uses_features and self._fit.likelihood.gaussian:
            found["noise"] = float(self._fit.posterior.likelihood.noise.item())
        shares = pd.Series(found, name="share", dtype=float)
        return shares / shares.sum()

    def _share_lines(self) -> list[str]:
        """A line of a summary about what each part explains."""
        if not self._fit.kernel.uses_features:
            return []
        shares = ", ".join(f"{name} {share:.0%}" for name, share in self.variance_shares_.items())
        return [f"variance  {shares}"]

    # ------------------------------------------------------------------ words
    @abstractmethod
    def summary(self) -> str:
        """Describe the fit in a few lines of text."""

    def _fit_lines(self) -> list[str]:
        """Lines of a summary about the search."""
        fit = self._fit
        state = "converged" if fit.converged else "stopped early"
        lines = [
            f"optimum   {state}, {fit.optimum.n_evaluations} evaluations, largest derivative {fit.gradient_norm:.1e}"
        ]
        if fit.integrated is not None:
            count = len(fit.integrated.components)
            lines.append(
                f"integrated over the parameters: {count} components (effective sample size "
                f"{fit.integrated.effective:.0f}); log evidence {fit.integrated.log_evidence:.4f}"
            )
            share = fit.integrated.share_normalized
            if 0.005 <= share <= 0.995:  # a smaller part would be shown as 0 %
                lines.append(
                    f"Laplacian plain {1.0 - share:.0%}, normalised {share:.0%} of the mixture; the parameters below "
                    f"are for the {'normalised' if fit.normalized else 'plain'} one"
                )
            lines += table_lines(self.hyperparameters_)
        if fit.at_bounds:
            known = "" if fit.integrated is not None else ": no standard error"
            lines.append(f"bounds    {', '.join(fit.at_bounds)} ended at a bound{known}")
        lines += self._doubts()
        if fit.n_clipped:
            lines.append(f"negative sites were set to 0 in {fit.n_clipped} steps")
        report = fit.report
        if "n_fields" in report:
            error, count = report["relative_error"], report["n_fields"]
            fields = f"{count} Markov field{'s' if count > 1 else ''}"
            lines.append(f"any smoothness by {fields}: relative error of the covariance {error:.0e}")
        if report.get("variance_error"):
            error = report["variance_error"]
            lines.append(f"estimated the variance (an average over nodes) has a standard error of {error:.1%}")
        if "evidence_error" in report:
            errors = report.get("parameter_errors", {})
            moved = (f"{name} {error:.1%}" for name, error in errors.items() if name not in fit.at_bounds)
            error, count = report["evidence_error"], report["probes"]
            what = ", ".join(moved) or "nothing"
            lines.append(
                f"estimated the log evidence to ± {error:.1f}, from {count} probes, which may have moved {what}"
            )
        return lines

    def _doubts(self) -> list[str]:
        """Lines of a summary about what the data do not determine."""
        lines = []
        values = getattr(self._data, "y", None)  # labels are no numbers
        if values is not None and np.nanmin(values) == np.nanmax(values):
            lines.append("caution   all values are the same, so how much they vary is unknown")
        if self._fit.unlearned:
            names = ", ".join(map(shown_name, self._fit.unlearned))
            lines.append(f"caution   the data say little about {names}: the priors decide")
        if not self.informed_.all():
            count = int((~self.informed_).sum())
            are = "is in a component" if count == 1 else "are in components"
            lines.append(f"caution   {counted(count, 'node')} {are} without data: predictions there are the prior's")
        return lines

    def _repr_html_(self) -> str:
        text = (
            self.summary() if self.__sklearn_is_fitted__() else f"{type(self).__name__}, not fitted, on {self.graph!r}"
        )
        return f"<pre>{html.escape(text)}</pre>"


def normalisation(values: NDArray[np.float64], *, robust: bool = False) -> tuple[float, float]:
    """Mean and standard deviation of some numbers; if all are equal, that number and its size.

    Parameters
    ----------
    values : ndarray, shape (n,)
        The numbers.
    robust : bool
        Whether outliers are expected: then the median, and the standard deviation of Gaussian numbers with the same
        median distance from it.
    """
    # In units of a power of two next to the largest value: their squares neither overflow nor vanish.
    unit = int(np.frexp(np.abs(values).max())[1])
    moderate = np.ldexp(values, -unit)
    middle, spread = float(moderate.mean()), float(moderate.std())
    if spread <= 1e-12:
        middle = float(np.median(values))
        return middle, abs(middle) or 1.0
    if robust:
        middle = float(np.median(moderate))
        away = _GAUSSIAN_MAD * float(np.median(np.abs(moderate - middle)))
        spread = away or spread  # more than half may be equal
    return float(np.ldexp(middle, unit)), float(np.ldexp(spread, unit))


def reached_by(graph: Graph, nodes: NDArray[np.int64], *, everywhere: bool = False) -> NDArray[np.bool_]:
    """Whether each node shares its component with one of some nodes, or data reach everywhere; shape (n_nodes,)."""
    if everywhere:
        return np.ones(graph.n_nodes, dtype=bool)
    reached = np.zeros(graph.n_components, dtype=bool)
    reached[graph.components[nodes]] = True
    return np.asarray(reached[graph.components])
