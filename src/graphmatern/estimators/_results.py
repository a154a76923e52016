"""What a fitted regression can tell: predictions, tables, samples, scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import ndtr
from sklearn.exceptions import NotFittedError

from graphmatern._validation import FaultList, check_flag, check_whole, random_generator
from graphmatern.errors import TableError
from graphmatern.estimators._data import read_observations
from graphmatern.inference._responses import ResponsePosterior
from graphmatern.metrics import half_width, r2, regression_report
from graphmatern.plotting import plot_prediction

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike, NDArray

    from graphmatern.estimators._covariates import Covariates
    from graphmatern.estimators._data import TrainingData
    from graphmatern.graph import Graph
    from graphmatern.inference._posterior import Posterior

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["RegressionResults"]

_STREAM_BYTES = 2**28  # of one block of samples


class RegressionResults:
    """Predictions of a fitted regression, in the units of y."""

    graph: Graph
    posterior_: Posterior | ResponsePosterior
    noise_: float
    y_mean_: float
    y_scale_: float
    informed_: NDArray[np.bool_]
    _data: TrainingData
    _covariates: Covariates
    _fit_options: dict[str, Any]

    def _require_fit(self) -> None:
        if not hasattr(self, "posterior_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call `fit` first")
        if self.graph is not self._fit_options["graph"]:
            raise NotFittedError(f"this {type(self).__name__} was fitted on another graph: call `fit` again")

    @property
    def _observation_noise(self) -> float:
        """Noise variance of a new observation, in normalised units: where variances were given, their average."""
        known = self._data.noise
        return self.noise_ if known is None else self.noise_ * float(known.mean()) / self.y_scale_ / self.y_scale_

    def _added_variance(self, places: Longs) -> Floats | float:
        """What the noise of a new observation adds to the variance, in normalised units; shape () or (n, 1)."""
        posterior = self.posterior_
        return posterior.noise(places) if isinstance(posterior, ResponsePosterior) else self._observation_noise

    def _in_user_units(self, mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
        """Means and standard deviations, one column per replicate unless there is only one."""
        found = self.y_mean_ + self.y_scale_ * mean, self.y_scale_ * np.sqrt(variance)
        return (found[0][:, 0], found[1][:, 0]) if mean.shape[1] == 1 else found

    def predict(
        self,
        nodes: Any = None,
        return_std: bool = False,
        return_cov: bool = False,
        observation: bool = False,
    ) -> Any:
        """Predict at nodes.

        Parameters
        ----------
        nodes : sequence of hashable, optional
            Node names; all nodes by default.
        return_std : bool
            Whether to return standard deviations as well.
        return_cov : bool
            Whether to return the covariance as well (of the first replicate).
        observation : bool
            Whether these are those of a new noisy observation, rather than of the process itself.

        Returns
        -------
        mean : ndarray, shape (n_names,) or (n_names, n_replicates)
        std : ndarray, shape as ``mean``
            If ``return_std``.
        cov : ndarray, shape (n_names, n_names)
            If ``return_cov``.
        """
        self._require_fit()
        flags = {"return_std": return_std, "return_cov": return_cov, "observation": observation}
        for name, value in flags.items():
            check_flag(name, value, TableError)
        places = self.graph.locate(nodes)
        mean = self.posterior_.mean(places)
        variance = self.posterior_.variance(places) if return_std else np.zeros_like(mean)
        added = self._added_variance(places) if observation else 0.0
        in_units, std = self._in_user_units(mean, variance + added)
        found = [in_units]
        if return_std:
            found.append(std)
        if return_cov:
            covariance = self.posterior_.covariance(places) + added * np.eye(len(places))
            found.append(self.y_scale_ * (self.y_scale_ * covariance))
        return found[0] if len(found) == 1 else tuple(found)

    def predict_on_edges(
        self,
        points: Any,
        *,
        edge: str = "edge",
        distance: str | None = None,
        fraction: str | None = None,
        return_std: bool = False,
        observation: bool = False,
    ) -> Any:
        """Predict at points that lie on edges, where the process is taken to be linear between the two ends.

        Parameters
        ----------
        points : DataFrame
            One row per point.
        edge : str
            Column with the id of the edge (see `Graph.edges`).
        distance, fraction : str, optional
            Column with the distance from the edge's source, or with the share of the edge between the two; one of them.
        return_std : bool
            Whether to return standard deviations as well.
        observation : bool
            Whether these are those of a new noisy observation, rather than of the process itself.

        Returns
        -------
        mean : ndarray, shape (n_points,) or (n_points, n_replicates)
        std : ndarray, shape as ``mean``
            If ``return_std``.

        Notes
        -----
        The standard deviation follows exactly from the joint distribution at the two ends. What the process may do in
        between is not part of the model; where edges are long beside the correlation range, insert points before
        fitting (`Graph.subdivide`), so that it is.

        Examples
        --------
        >>> import graphmatern as gm, pandas as pd
        >>> road = gm.Graph.from_edges([("a", "b"), ("b", "c")], length=[100.0, 50.0])
        >>> model = gm.GraphGPRegressor(road, gm.Matern(nu=1), optimizer=None).fit(["a", "c"], [1.0, 3.0])
        >>> points = pd.DataFrame({"edge": [0, 0, 0], "at": [0.0, 50.0, 100.0]})
        >>> first, middle, last = model.predict_on_edges(points, distance="at")
        >>> bool(abs(middle - (first + last) / 2) < 1e-12)
        True
        """
        self._require_fit()
        places = self.graph.locate_on_edges(points, edge=edge, distance=distance, fraction=fraction)
        mean, variance = self.posterior_.on_edges(*places)
        mean, std = self._in_user_units(mean, variance + (self._observation_noise if observation else 0.0))
        return (mean, std) if return_std else mean

    def predict_table(self, level: float = 0.95) -> pd.DataFrame:
        """Predictions at every node (of the first replicate), with intervals, in a table indexed by node name.

        Parameters
        ----------
        level : float
            Probability of the intervals.

        Returns
        -------
        DataFrame
            Columns mean, std, lower, upper (of the process), observation_lower, observation_upper (of a new
            observation) and informed (False where no data reach the node's component).
        """
        self._require_fit()
        half = half_width(level)
        places = np.arange(self.graph.n_nodes)
        mean = self.y_mean_ + self.y_scale_ * self.posterior_.mean(places)[:, 0]
        std = self.y_scale_ * np.sqrt(self.posterior_.variance(places)[:, 0])
        columns = {"mean": mean, "std": std}
        for name, observation in (("", False), ("observation_", True)):
            columns[f"{name}lower"], columns[f"{name}upper"] = self._interval(places, mean, std, half, observation)
        return pd.DataFrame({**columns, "informed": self.informed_}, index=self.graph.nodes)

    def _interval(
        self, places: Longs, mean: Floats, std: Floats, half: float, observation: bool
    ) -> tuple[Floats, Floats]:
        """Central intervals, ``half`` standard deviations of a normal variable to either side, in the units of y."""
        posterior = self.posterior_
        if isinstance(posterior, ResponsePosterior):
            levels = (float(ndtr(-half)), float(ndtr(half)))
            low, high = (posterior.quantile(places, level, observation=observation) for level in levels)
            return self.y_mean_ + self.y_scale_ * low, self.y_mean_ + self.y_scale_ * high
        if observation:
            std = np.sqrt(std**2 + self.y_scale_**2 * self._observation_noise)
        return mean - half * std, mean + half * std

    def sample(self, n_samples: int = 1, nodes: Any = None, random_state: int | None = None) -> Floats:
        """Draw functions from the posterior (of the first replicate).

        Parameters
        ----------
        n_samples : int
            How many.
        nodes : sequence of hashable, optional
            Node names; all nodes by default.
        random_state : int or Generator, optional
            Seed.

        Returns
        -------
        ndarray, shape (n_samples, n_names)
        """
        return np.concatenate(list(self.iter_samples(n_samples, nodes, random_state)))

    def iter_samples(
        self,
        n_samples: int,
        nodes: Any = None,
        random_state: int | None = None,
        *,
        batch_size: int | None = None,
    ) -> Iterator[Floats]:
        """Draw functions from the posterior a few at a time, for more of them than memory holds.

        Parameters
        ----------
        n_samples : int
            How many in all.
        nodes : sequence of hashable, optional
            Node names; all nodes by default.
        random_state : int or Generator, optional
            Seed. For one seed and one ``batch_size`` the draws are the same each time.
        batch_size : int, optional
            Draws per step; by default about 256 MiB of them.

        Yields
        ------
        ndarray, shape (up to batch_size, n_names)

        Examples
        --------
        >>> import graphmatern as gm
        >>> graph = gm.Graph.from_edges([("a", "b"), ("b", "c")])
        >>> model = gm.GraphGPRegressor(graph, gm.Matern(nu=1), optimizer=None).fit(["a", "c"], [1.0, 3.0])
        >>> sum(len(block) for block in model.iter_samples(10, random_state=0, batch_size=4))
        10
        """
        self._require_fit()
        faults = FaultList("no samples", TableError)
        check_whole("n_samples", n_samples, faults, minimum=1, remedy="Draw at least one.")
        if batch_size is not None:
            check_whole("batch_size", batch_size, faults, minimum=1, remedy="Leave it out for a good size.")
        faults.raise_if_any()
        places = self.graph.locate(nodes)
        size = batch_size or max(1, _STREAM_BYTES // (8 * self.graph.n_nodes))
        draws = self.posterior_.samples(n_samples, places, random_generator(random_state, TableError), 0, size)
        return (self.y_mean_ + self.y_scale_ * block for block in draws)

    def loo(self) -> pd.DataFrame:
        """Leave-one-out predictions of the observations, in closed form.

        Returns
        -------
        DataFrame
            One row per observation, replicate by replicate: node, replicate, y, mean, std (of the observation given all
            others). Where the others leave a coefficient of the mean undetermined, nothing can be predicted: mean is
            NaN and std infinite.
        """
        self._require_fit()
        tables = {}
        observed = ~np.isnan(self._data.y)
        for columns, means, variances in self.posterior_.leave_one_out():
            rows = np.flatnonzero(observed[:, columns[0]])
            for k, column in enumerate(columns):
                tables[column] = pd.DataFrame(
                    {
                        "node": self.graph.nodes[self._data.nodes[rows]],
                        "replicate": column,
                        "y": self._data.y[rows, column],
                        "mean": self.y_mean_ + self.y_scale_ * means[:, k],
                        "std": self.y_scale_ * np.sqrt(variances),
                    }
                )
        return pd.concat([tables[column] for column in sorted(tables)], ignore_index=True)

    def plot(self, axes: Sequence[Axes] | None = None, *, label: str = "") -> NDArray[Any]:
        """Draw the predictions (of the first replicate) and, beside them, how sure they are.

        Parameters
        ----------
        axes : sequence of two Axes, optional
            Where to draw; a new figure by default.
        label : str
            What is predicted, with its unit.

        Returns
        -------
        ndarray of two Axes
            Mean and standard deviation of the process; nodes with data have a ring.
        """
        self._require_fit()
        table = self.predict_table()
        observed = np.unique(self._data.nodes[~np.isnan(self._data.y[:, 0])])
        marked = self.graph.nodes[observed]
        return plot_prediction(self.graph, table["mean"], table["std"], axes, label=label, marked=marked)

    @property
    def coefficients_(self) -> pd.DataFrame:
        """Coefficients of the mean in the units of y: columns mean and std, a row per covariate, "(constant)" first."""
        self._require_fit()
        posterior = self.posterior_
        return self._covariates.in_user_units(
            posterior.coefficients, posterior.coefficient_covariance, self.y_mean_, self.y_scale_
        )

    def score(self, nodes: Any, y: ArrayLike | None = None, sample_weight: None = None) -> float:
        """R² of predictions; NaN in ``y`` is passed over.

        Parameters
        ----------
        nodes : sequence of hashable, Series or DataFrame
            Node names; or true values indexed by node name.
        y : array_like, shape (n,) or (n, n_replicates), optional
            True values.
        sample_weight : None
            Not supported.
        """
        self._require_fit()
        if sample_weight is not None:
            faults = FaultList("no score", TableError)
            raise faults.raise_now("sample_weight", "must be None", type(sample_weight).__name__, "Leave it out.")
        held_back = self._held_back(nodes, y)
        return r2(held_back.y, self.y_mean_ + self.y_scale_ * self.posterior_.mean(held_back.nodes))

    def _held_back(self, nodes: Any, y: Any) -> TrainingData:
        """Values to compare predictions with."""
        found = read_observations(self.graph, nodes, y, subject="no score")
        if found.y.shape[1] != self._data.y.shape[1]:
            faults = FaultList("no score", TableError)
            rule = f"must have as many columns as there are replicates, {self._data.y.shape[1]}"
            raise faults.raise_now("y", rule, str(found.y.shape[1]), "NaN where there is nothing to compare with.")
        return found

    def evaluate(self, nodes: Any, y: ArrayLike | None = None) -> dict[str, float]:
        """Score predictions of new observations: RMSE, R², NLPD, CRPS and coverage.

        Parameters
        ----------
        nodes : sequence of hashable, Series or DataFrame
            Node names; or true values indexed by node name.
        y : array_like, shape (n,) or (n, n_replicates), optional
            True values; NaN is passed over.

        Returns
        -------
        dict
            See `metrics.regression_report`.
        """
        self._require_fit()
        held_back = self._held_back(nodes, y)
        places, y = held_back.nodes, held_back.y if held_back.y.shape[1] > 1 else held_back.y[:, 0]
        mean, std = self.predict(self.graph.nodes[places], return_std=True, observation=True)
        found = regression_report(y, mean, std)
        if isinstance(self.posterior_, ResponsePosterior):
            # Not normal: densities and intervals are those of the likelihood.
            density = self.posterior_.log_density(places, (y - self.y_mean_) / self.y_scale_)
            found["nlpd"] = float(np.log(self.y_scale_) - density.mean())
            for percent in (50, 90, 95):
                low, high = self._interval(places, mean, std, half_width(percent / 100), True)
                found[f"coverage_{percent}"] = float(np.mean((low <= y) & (y <= high)))
        return found
