"""Results of a fitted field: predictions, forecasts, filled-in tables, samples, pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import ndtr

from graphmatern._validation import FaultList, check_whole, random_generator
from graphmatern.errors import TableError
from graphmatern.estimators._base import GraphEstimator
from graphmatern.estimators._data import read_thresholds
from graphmatern.estimators._report import field_content
from graphmatern.inference.field import median_gap
from graphmatern.metrics import half_width
from graphmatern.plotting import colour_limits, plot_prediction, plot_series

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpytorch.kernels import Kernel as GPyTorchKernel
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from graphmatern.estimators._covariates import Covariates
    from graphmatern.estimators._field_data import FieldData
    from graphmatern.estimators._times import TimeAxis
    from graphmatern.inference.field import FieldMixture, FieldPosterior
    from graphmatern.inference.weighted import Normals
    from graphmatern.kernels import Kernel
    from graphmatern.report import Content

    Floats = NDArray[np.float64]

__all__ = ["FieldResults"]


class FieldResults(GraphEstimator):
    """Predictions of a fitted field, in the units of the values."""

    posterior_: FieldPosterior | FieldMixture
    time_kernel_: GPyTorchKernel
    log_marginal_likelihood_: float
    log_marginal_likelihood_error_: float
    kernel_: Kernel
    noise_: float
    y_mean_: float
    y_scale_: float
    nodes_: pd.Index[Any]
    times_: pd.Index[Any]
    _data: FieldData
    _axis: TimeAxis
    _covariates: Covariates

    def _marginals(self, *where: Any, observation: bool) -> Normals:
        """Distributions of the field, or of new observations, in normalised units."""
        field = self.posterior_.marginals(*where)
        return field.with_noise(self.posterior_.noises) if observation else field

    def _in_user_units(self, marginals: Normals) -> tuple[Floats, Floats]:
        """Means and standard deviations."""
        return self._values(marginals.mean), self.y_scale_ * np.sqrt(marginals.variance)

    def _values(self, normalised: Floats) -> Floats:
        """From normalised units to those of the values."""
        return self.y_mean_ + self.y_scale_ * normalised

    # ------------------------------------------------------------------ single cells
    def _pairs(self, nodes: Any, times: Any) -> tuple[Floats, NDArray[np.int64], tuple[Any, Any]]:
        """Distinct times and nodes, and which pairs of them are the cells."""
        self._require_fit()
        places, stamps = self.graph.locate(nodes), self._axis.read(times)
        if len(places) != len(stamps):
            faults = FaultList("no prediction", TableError)
            received = f"{len(places)} nodes and {len(stamps)} times"
            remedy = "One time per node; predict_grid takes all pairs."
            raise faults.raise_now("times", "must be as many as there are nodes", received, remedy)
        distinct_times, t = np.unique(self._axis.numbers(stamps), return_inverse=True)
        distinct_nodes, s = np.unique(places, return_inverse=True)
        return distinct_times, distinct_nodes, (t, s)

    @property
    def coefficients_(self) -> pd.DataFrame:
        """Coefficients of the mean in the units of y; a row per covariate, "(constant)" first.

        Mean, sd, 2.5%, 50% and 97.5%.
        """
        self._require_fit()
        every = self.posterior_.components
        means = np.stack([one.coefficients for one in every])
        covariances = np.stack([one.coefficient_covariance for one in every])
        return self._covariates.in_user_units(self.posterior_.weights, means, covariances, self.y_mean_, self.y_scale_)

    def predict(
        self,
        nodes: Any,
        times: Any,
        return_std: bool = False,
        return_cov: bool = False,
        observation: bool = False,
    ) -> Any:
        """Predict at cells: the first node at the first time, the second at the second, and so on.

        Parameters
        ----------
        nodes : sequence of hashable, length n
            Node names.
        times : sequence, length n
            Any times, also between, before or after those observed.
        return_std : bool
            Whether to return standard deviations as well.
        return_cov : bool
            Whether to return the covariance as well.
        observation : bool
            Whether to predict a new noisy observation rather than the field itself.

        Returns
        -------
        mean : ndarray, shape (n,)
        std : ndarray, shape (n,)
            If ``return_std``.
        cov : ndarray, shape (n, n)
            If ``return_cov``.
        """
        where = self._pairs(nodes, times)
        if return_std:
            found = list(self._in_user_units(self._marginals(*where, observation=observation)))
        else:
            found = [self._values(self.posterior_.means(*where))]
        if return_cov:
            noise = float(self.posterior_.weights @ self.posterior_.noises)
            added = noise * np.eye(len(found[0])) if observation else 0.0
            found.append(self.y_scale_**2 * (self.posterior_.covariance(*where) + added))
        return found[0] if len(found) == 1 else tuple(found)

    # ------------------------------------------------------------------ whole grids
    def _grid_of(self, nodes: Any, times: Any) -> tuple[NDArray[np.int64], pd.Index[Any]]:
        """Positions of nodes, all by default, and times, those observed by default."""
        self._require_fit()
        return self.graph.locate(nodes), self.times_ if times is None else self._axis.read(times)

    def predict_grid(
        self, nodes: Any = None, times: Any = None, return_std: bool = False, observation: bool = False
    ) -> Any:
        """Predict at all pairs of some times and some nodes.

        Parameters
        ----------
        nodes : sequence of hashable, optional
            Node names; all nodes by default.
        times : sequence, optional
            Times; those observed by default.
        return_std : bool
            Whether to return standard deviations as well.
        observation : bool
            Whether to predict a new noisy observation rather than the field itself.

        Returns
        -------
        mean : DataFrame
            A row per time, a column per node.
        std : DataFrame
            If ``return_std``.
        """
        places, stamps = self._grid_of(nodes, times)
        where = self._axis.numbers(stamps), places
        if not return_std:
            return self._table(self._values(self.posterior_.means(*where)), places, stamps)
        both = self._in_user_units(self._marginals(*where, observation=observation))
        return tuple(self._table(values, places, stamps) for values in both)

    def _table(self, values: Floats, places: NDArray[np.int64], stamps: pd.Index[Any]) -> pd.DataFrame:
        """A row per time, a column per node."""
        return pd.DataFrame(values, index=stamps, columns=self.graph.nodes[places])

    def predict_table(self, nodes: Any = None, times: Any = None, level: float = 0.95) -> pd.DataFrame:
        """Predictions at all pairs of some times and some nodes, with intervals, one row each.

        Parameters
        ----------
        nodes : sequence of hashable, optional
            Node names; all nodes by default.
        times : sequence, optional
            Times; those observed by default.
        level : float
            Probability of the intervals.

        Returns
        -------
        DataFrame
            Columns time, node, mean, std, lower, upper (of the field), observation_lower, observation_upper (of a new
            observation) and informed (False if the node's component has no data).
        """
        places, stamps = self._grid_of(nodes, times)
        field = self.posterior_.marginals(self._axis.numbers(stamps), places)
        noisy = field.with_noise(self.posterior_.noises)
        mean, std = self._in_user_units(field)
        columns = {"mean": mean, "std": std}
        for name, marginals in (("", field), ("observation_", noisy)):
            columns[f"{name}lower"], columns[f"{name}upper"] = self._interval(marginals, level)
        return pd.DataFrame(
            {
                "time": stamps.repeat(len(places)),
                "node": np.tile(np.asarray(self.graph.nodes[places]), len(stamps)),
                **{name: values.ravel() for name, values in columns.items()},
                "informed": np.tile(self.informed_[places], len(stamps)),
            }
        )

    def _interval(self, marginals: Normals, level: float) -> tuple[Floats, Floats]:
        """Central intervals of given probability."""
        half = half_width(level)
        low, high = (self._values(marginals.quantile(float(ndtr(z)))) for z in (-half, half))
        return low, high

    def exceedance(
        self, threshold: float, nodes: Any = None, times: Any = None, *, observation: bool = False
    ) -> pd.DataFrame:
        """Probability that the field is above a threshold, at all pairs of some times and some nodes.

        Parameters
        ----------
        threshold : float
            In the units of the values.
        nodes : sequence of hashable, optional
            Node names; all nodes by default.
        times : sequence, optional
            Times; those observed by default.
        observation : bool
            Whether a new noisy observation, rather than the field itself, is above it.

        Returns
        -------
        DataFrame
            A row per time, a column per node.
        """
        places, stamps = self._grid_of(nodes, times)
        level = (read_thresholds(threshold) - self.y_mean_) / self.y_scale_
        marginals = self._marginals(self._axis.numbers(stamps), places, observation=observation)
        return self._table(marginals.above(float(level)), places, stamps)

    def forecast(self, n_steps: int, nodes: Any = None, return_std: bool = False, observation: bool = False) -> Any:
        """Predict after the last observed time, in steps of the median gap between observed times.

        Parameters
        ----------
        n_steps : int
            How many steps; `predict_grid` takes any times.
        nodes : sequence of hashable, optional
            Node names; all nodes by default.
        return_std : bool
            Whether to return standard deviations as well.
        observation : bool
            Whether to predict a new noisy observation rather than the field itself.

        Returns
        -------
        mean : DataFrame
            A row per time, a column per node.
        std : DataFrame
            If ``return_std``.
        """
        self._require_fit()
        faults = FaultList("no forecast", TableError)
        check_whole("n_steps", n_steps, faults, minimum=1, remedy="Go at least one step.")
        faults.raise_if_any()
        gap = self._axis.step(median_gap(self._axis.numbers(self.times_)))
        ahead = pd.Index([self.times_[-1] + k * gap for k in range(1, n_steps + 1)])
        return self.predict_grid(nodes, ahead, return_std, observation)

    def fill_in(self, nodes: Any = None) -> pd.DataFrame:
        """The observed table, with its gaps filled in by predictions.

        Parameters
        ----------
        nodes : sequence of hashable, optional
            Node names; those with observations by default.

        Returns
        -------
        DataFrame
            A row per observed time, a column per node; observed values are left unchanged.
        """
        self._require_fit()
        chosen = self.nodes_ if nodes is None else nodes
        table = self.predict_grid(chosen)
        observed = pd.DataFrame(self._data.y, index=self.times_, columns=self.nodes_)
        return observed.reindex(columns=table.columns).where(lambda values: values.notna(), table)

    def sample(self, n_samples: int = 1, nodes: Any = None, times: Any = None, random_state: Any = None) -> Floats:
        """Draw fields from the posterior.

        Parameters
        ----------
        n_samples : int
            How many.
        nodes : sequence of hashable, optional
            Node names; all nodes by default.
        times : sequence, optional
            Times; those observed by default.
        random_state : int or Generator, optional
            Seed.

        Returns
        -------
        ndarray, shape (n_samples, n_times, n_names)
        """
        places, stamps = self._grid_of(nodes, times)
        faults = FaultList("no samples", TableError)
        check_whole("n_samples", n_samples, faults, minimum=1, remedy="Draw at least one.")
        faults.raise_if_any()
        rng = random_generator(random_state, TableError)
        draws = self.posterior_.sample(n_samples, self._axis.numbers(stamps), places, rng)
        return np.asarray(self.y_mean_ + self.y_scale_ * draws)

    # ------------------------------------------------------------------ pictures and words
    def _limits(self) -> tuple[float, float]:
        """Values at the ends of the colour bars of all pictures of this field: those of the observations."""
        return colour_limits(self._data.y)

    def plot_map(
        self, time: Any, axes: Sequence[Axes] | None = None, *, label: str = "", **options: Any
    ) -> NDArray[Any]:
        """Draw the field at one time and, next to it, its uncertainty.

        Parameters
        ----------
        time : number or date
            When.
        axes : sequence of two Axes, optional
            Where to draw; a new figure by default.
        label : str
            What is predicted, with its unit.
        **options
            As `plotting.plot_prediction` takes them, such as ``unit``, ``title``, ``cmap`` and ``limits``.

        Returns
        -------
        ndarray of two Axes
            Mean and standard deviation of the field; nodes with data at that time have a ring.
        """
        mean, std = self.predict_grid(times=[time], return_std=True)
        row = self.times_.get_indexer(mean.index)[0]
        marked = self.nodes_[~np.isnan(self._data.y[row])] if row >= 0 else None
        options = {"limits": self._limits(), "title": str(mean.index[0]), "marked": marked, **options}
        return plot_prediction(self.graph, mean.iloc[0], std.iloc[0], axes, label=label, **options)

    def plot_node(
        self, node: Any, times: Any = None, ax: Axes | None = None, *, level: float = 0.95, label: str = ""
    ) -> Axes:
        """Draw one node over time: the field with a band of given probability, and the observations.

        Parameters
        ----------
        node : hashable
            Name of the node.
        times : sequence, optional
            Increasing times; by default 300 from the first to the last observed one.
        ax : Axes, optional
            Where to draw; a new figure by default.
        level : float
            Probability of the band.
        label : str
            What is predicted, with its unit.

        Returns
        -------
        Axes
        """
        self._require_fit()
        if times is None:
            first, last = self.times_[0], self.times_[-1]
            times = pd.Index([first + (last - first) * (k / 299) for k in range(300)])
        places, stamps = self._grid_of([node], times)
        marginals = self._marginals(self._axis.numbers(stamps), places, observation=False)
        band = [end[:, 0] for end in self._interval(marginals, level)]
        observed = None
        if node in self.nodes_:
            values = self._data.y[:, self.nodes_.get_indexer(pd.Index([node], tupleize_cols=False))[0]]
            known = ~np.isnan(values)
            observed = (self.times_[known], values[known])
        mean = self._values(marginals.mean)[:, 0]
        ax = plot_series(stamps, mean, None, ax, band=(band[0], band[1]), observed=observed, level=level, label=label)
        ax.set_title(str(node))
        return ax

    def _content(self, *, title: str | None, level: float, options: dict[str, Any]) -> Content:
        return field_content(self, title=title, level=level, options=options)

    def summary(self) -> str:
        """Describe the fit in a few lines of text."""
        self._require_fit()
        noise = self.y_scale_ * np.sqrt(self.noise_)
        n_times, n_nodes = self._data.y.shape
        missing = float(np.isnan(self._data.y).mean())
        unit = f", in units of {self._axis.unit!r}" if self._axis.origin is not None else ""
        lines = [
            f"{n_times:,} times × {n_nodes:,} nodes, {missing:.1%} of the cells missing, on {self.graph!r}",
            f"engine    {self.engine_} ({self.engine_reason_})",
            f"kernel    {self.kernel_!r}",
            f"time      {self.posterior_.mode.time.describe()}{unit}",
            f"noise     {self.noise_:.4g} (standard deviation {noise:.4g} in the units of the values)",
        ]
        if hasattr(self, "log_marginal_likelihood_"):
            error = getattr(self, "log_marginal_likelihood_error_", 0.0)
            spelled = f" ± {error:.2g}" if error else ""
            lines.append(f"log marginal likelihood {self.log_marginal_likelihood_:.4f}{spelled}")
        return "\n".join([*lines, *self._fit_lines()])
