"""What a fitted field can tell: predictions, forecasts, filled-in tables, samples, scores, pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import ndtr

from graphmatern._validation import FaultList, check_whole, random_generator
from graphmatern.errors import TableError
from graphmatern.estimators._base import GraphEstimator
from graphmatern.estimators._field_data import read_field
from graphmatern.estimators._report import field_content
from graphmatern.inference.field import median_gap
from graphmatern.metrics import half_width, regression_report
from graphmatern.plotting import colour_limits, plot_prediction, plot_series

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike, NDArray

    from graphmatern.estimators._field_data import FieldData
    from graphmatern.estimators._times import TimeAxis
    from graphmatern.inference.field import FieldPosterior
    from graphmatern.inference.field.systems import Cells
    from graphmatern.kernels import Kernel
    from graphmatern.report import Content

    Floats = NDArray[np.float64]

__all__ = ["FieldResults"]


class FieldResults(GraphEstimator):
    """Predictions of a fitted field, in the units of the values."""

    posterior_: FieldPosterior
    kernel_: Kernel
    noise_: float
    y_mean_: float
    y_scale_: float
    nodes_: pd.Index[Any]
    times_: pd.Index[Any]
    engine_: str
    engine_reason_: str
    converged_: bool
    n_evaluations_: int
    gradient_norm_: float
    at_bounds_: list[str]
    _data: FieldData
    _axis: TimeAxis

    def _moments(self, cells: Cells, observation: bool, with_std: bool) -> tuple[Floats, Floats | None]:
        """Means and, where wanted, standard deviations at cells, in the units of the values."""
        mean = self.y_mean_ + self.y_scale_ * self.posterior_.mean(cells)
        if not with_std:
            return mean, None
        variance = self.posterior_.variance(cells) + (self.noise_ if observation else 0.0)
        return mean, self.y_scale_ * np.sqrt(variance)

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
            Times: any, between, before or after those observed.
        return_std : bool
            Whether to return standard deviations as well.
        return_cov : bool
            Whether to return the covariance as well.
        observation : bool
            Whether these are those of a new noisy observation, rather than of the field itself.

        Returns
        -------
        mean : ndarray, shape (n,)
        std : ndarray, shape (n,)
            If ``return_std``.
        cov : ndarray, shape (n, n)
            If ``return_cov``.
        """
        where = self._pairs(nodes, times)
        mean, std = self._moments(self.posterior_.cells(*where), observation, return_std)
        found = [mean] if std is None else [mean, std]
        if return_cov:
            added = self.noise_ * np.eye(len(mean)) if observation else 0.0
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
            Whether these are those of a new noisy observation, rather than of the field itself.

        Returns
        -------
        mean : DataFrame
            A row per time, a column per node.
        std : DataFrame
            If ``return_std``.
        """
        places, stamps = self._grid_of(nodes, times)
        cells = self.posterior_.cells(self._axis.numbers(stamps), places)
        mean, std = self._moments(cells, observation, return_std)
        tables = [
            pd.DataFrame(values, index=stamps, columns=self.graph.nodes[places])
            for values in (mean, std)
            if values is not None
        ]
        return tuple(tables) if return_std else tables[0]

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
            observation) and informed (False where no data reach the node's component).
        """
        half = half_width(level)
        places, stamps = self._grid_of(nodes, times)
        mean, std = self.predict_grid(nodes, times, return_std=True)
        means, stds = mean.to_numpy().ravel(), std.to_numpy().ravel()
        noisy = np.sqrt(stds**2 + self.noise_ * self.y_scale_**2)
        return pd.DataFrame(
            {
                "time": stamps.repeat(len(places)),
                "node": np.tile(np.asarray(self.graph.nodes[places]), len(stamps)),
                "mean": means,
                "std": stds,
                "lower": means - half * stds,
                "upper": means + half * stds,
                "observation_lower": means - half * noisy,
                "observation_upper": means + half * noisy,
                "informed": np.tile(self.informed_[places], len(stamps)),
            }
        )

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
            Whether these are those of a new noisy observation, rather than of the field itself.

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
        """The table that was observed, its holes filled with predictions.

        Parameters
        ----------
        nodes : sequence of hashable, optional
            Node names; those with observations by default.

        Returns
        -------
        DataFrame
            A row per observed time, a column per node; values that were observed stay as they are.
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

    # ------------------------------------------------------------------ scores and pictures
    def loo(self, n_cells: int | None = None, random_state: Any = 0) -> pd.DataFrame:
        """Leave-one-out predictions of observed cells, in closed form, the parameters kept.

        Parameters
        ----------
        n_cells : int, optional
            How many cells at most, chosen at random; all by default.
        random_state : int or Generator, optional
            Seed of that choice.

        Returns
        -------
        DataFrame
            One row per cell: time, node, y, mean, std (of the observation given all others), log_density and pit (the
            probability of less than y: uniform where the model is calibrated).
        """
        self._require_fit()
        faults = FaultList("nothing was left out", TableError)
        if n_cells is not None:
            check_whole("n_cells", n_cells, faults, minimum=1, remedy="Leave it out for all of them.")
        faults.raise_if_any()
        rows, columns = self._data.cells()
        if n_cells is not None and n_cells < len(rows):
            rng = random_generator(random_state, TableError)
            chosen = np.sort(rng.permutation(len(rows))[:n_cells])
            rows, columns = rows[chosen], columns[chosen]
        y = self._data.y[rows, columns]
        names, stamps = self.graph.nodes[self._data.nodes[columns]], self.times_[rows]
        mean, std = self.predict(names, stamps, return_std=True)
        noise = self.noise_ * self.y_scale_**2
        # Dividing the observation's own term out of the posterior leaves this share of what it did not explain.
        left = np.maximum(1.0 - std**2 / noise, 1e-12)
        without, spread = y - (y - mean) / left, np.sqrt(noise / left)
        z = (y - without) / spread
        return pd.DataFrame(
            {
                "time": stamps,
                "node": np.asarray(names),
                "y": y,
                "mean": without,
                "std": spread,
                "log_density": -0.5 * z**2 - np.log(spread) - 0.5 * np.log(2.0 * np.pi),
                "pit": ndtr(z),
            }
        )

    def evaluate(
        self,
        data: Any,
        times: Any = None,
        y: ArrayLike | None = None,
        *,
        node: str = "node",
        time: str = "time",
        value: str = "value",
    ) -> dict[str, float]:
        """Score predictions of new observations: RMSE, R², NLPD, CRPS and coverage.

        Parameters
        ----------
        data, times, y, node, time, value
            True values, as in `fit`.

        Returns
        -------
        dict
            See `metrics.regression_report`.
        """
        self._require_fit()
        held_back = read_field(self.graph, data, times, y, node=node, time=time, value=value)
        rows, columns = held_back.cells()
        names, stamps = self.graph.nodes[held_back.nodes[columns]], held_back.times[rows]
        mean, std = self.predict(names, stamps, return_std=True, observation=True)
        return regression_report(held_back.y[rows, columns], mean, std)

    def _limits(self) -> tuple[float, float]:
        """Values at the ends of the colour bars of all pictures of this field: those of the observations."""
        return colour_limits(self._data.y)

    def plot_map(
        self, time: Any, axes: Sequence[Axes] | None = None, *, label: str = "", **options: Any
    ) -> NDArray[Any]:
        """Draw the field at one time and, beside it, how sure that is.

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
        """Draw one node over time: the field in a band of given probability, and what was observed.

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
        mean, std = self.predict_grid([node], times, return_std=True)
        observed = None
        if node in self.nodes_:
            values = self._data.y[:, self.nodes_.get_indexer(pd.Index([node], tupleize_cols=False))[0]]
            known = ~np.isnan(values)
            observed = (self.times_[known], values[known])
        ax = plot_series(mean.index, mean.iloc[:, 0], std.iloc[:, 0], ax, observed=observed, level=level, label=label)
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
            f"time      {self.posterior_.time.describe()}{unit}",
            f"noise     {self.noise_:.4g} (standard deviation {noise:.4g} in the units of the values)",
        ]
        if hasattr(self, "log_marginal_likelihood_"):
            error = getattr(self, "log_marginal_likelihood_error_", 0.0)
            spelled = f" ± {error:.2g}" if error else ""
            lines.append(f"log marginal likelihood {self.log_marginal_likelihood_:.4f}{spelled}")
        return "\n".join([*lines, *self._fit_lines()])
