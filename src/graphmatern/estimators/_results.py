"""Results of a fitted regression: predictions, tables, samples, scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from scipy.special import ndtr

from graphmatern._validation import FaultList, check_flag, check_whole, random_generator
from graphmatern.design import of_posterior
from graphmatern.errors import KernelError, TableError
from graphmatern.estimators._asked import offset_asked, posterior_asked
from graphmatern.estimators._base import GraphEstimator
from graphmatern.estimators._data import read_thresholds
from graphmatern.estimators._report import regression_content
from graphmatern.likelihoods import Numeric
from graphmatern.metrics import half_width
from graphmatern.plotting import colour_limits, plot_prediction

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike, NDArray

    from graphmatern.design import Measurable
    from graphmatern.estimators._covariates import Covariates
    from graphmatern.estimators._data import TrainingData
    from graphmatern.inference import Mixture, Posterior
    from graphmatern.likelihoods import Likelihood
    from graphmatern.report import Content

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["RegressionResults", "noise_of"]

_STREAM_BYTES = 2**28  # of one block of samples


class RegressionResults(GraphEstimator):
    """Predictions of a fitted regression, in the units of y."""

    _estimator_type = "regressor"

    posterior_: Posterior | Mixture
    likelihood_: Likelihood
    log_marginal_likelihood_: float
    noise_: float
    y_mean_: float
    y_scale_: float
    _data: TrainingData
    _covariates: Covariates
    _effect_precision: Any
    _level: float

    def _seen(self) -> Posterior | Mixture:
        """What to ask about the observations' nodes, in their order: with covariates of their own."""
        design = self._covariates.design_of(self._data.nodes, self._data.covariates)
        return self.posterior_ if design is None else self.posterior_.given(design)

    def measurable(self) -> Measurable:
        """The process as `place_sensors` sees it: given the data of the fit."""
        self._require_fit()
        return of_posterior(self.graph, self.posterior_, self._level, self.y_scale_)

    def _in_user_units(self, mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
        """Means and standard deviations, one column per replicate unless there is only one."""
        found = self.y_mean_ + self.y_scale_ * mean.T, self.y_scale_ * np.sqrt(variance.T)
        return (found[0][:, 0], found[1][:, 0]) if len(mean) == 1 else found

    def predict(
        self,
        nodes: Any = None,
        return_std: bool = False,
        return_cov: bool = False,
        observation: bool = False,
        *,
        exposure: Any = None,
        covariates: Any = None,
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
            Whether to predict a new noisy observation rather than the process itself.
        exposure : array_like or Series, shape () or (n_names,), optional
            Exposures of counts, by which rates are multiplied; 1 by default.
        covariates : DataFrame, mapping or array_like, optional
            If `fit` was given covariates of observations: their values, one row per name or one for all. By default
            the mean of those observed.

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
        offset = offset_asked(self, places, exposure, "no prediction")
        posterior = posterior_asked(self, places, covariates, "no prediction")
        mean, variance = posterior.moments(places, observation=observation, offset=offset)
        in_units, std = self._in_user_units(mean, variance)
        found = [in_units]
        if return_std:
            found.append(std)
        if return_cov:
            covariance = posterior.covariance(places, offset=offset)
            if observation:
                own = posterior.moments(places, offset=offset)[1]
                covariance[np.diag_indices_from(covariance)] += variance[0] - own[0]
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
        """Predict at points on edges, along which the process is taken to be linear between the two ends.

        Parameters
        ----------
        points : DataFrame
            One row per point.
        edge : str
            Column with the id of the edge (see `Graph.edges`).
        distance, fraction : str, optional
            Column with the distance from the edge's source, or with that distance as a share of the edge; one of the
            two.
        return_std : bool
            Whether to return standard deviations as well.
        observation : bool
            Whether to predict a new noisy observation rather than the process itself.

        Returns
        -------
        mean : ndarray, shape (n_points,) or (n_points, n_replicates)
        std : ndarray, shape as ``mean``
            If ``return_std``.

        Notes
        -----
        The standard deviation follows exactly from the joint distribution at the two ends. Variation in between is not
        part of the model; if edges are long compared with the correlation range, insert points before fitting
        (`Graph.subdivide`).

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
        if isinstance(self.likelihood_, Numeric) and self.likelihood_.in_own_units:
            faults = FaultList("no predictions on edges", KernelError)
            received = type(self.likelihood_).__name__
            raise faults.raise_now("likelihood", "must be of measurements for this", received, "Use Graph.subdivide.")
        mean, std = self._in_user_units(*self.posterior_.edge_moments(*places, observation=observation))
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
            observation) and informed (False if the node's component has no data). If the moments engine estimates
            variances from probes, std_error is the resulting standard error of std.
        """
        self._require_fit()
        places = np.arange(self.graph.n_nodes)
        mean, variance = (one[0] for one in self.posterior_.moments(places, offset=self._level))
        columns = {"mean": self.y_mean_ + self.y_scale_ * mean, "std": self.y_scale_ * np.sqrt(variance)}
        errors = self.posterior_.variance_errors(places, offset=self._level)[0]
        if errors.any():
            columns["std_error"] = self.y_scale_ * errors / (2.0 * np.sqrt(np.maximum(variance, 1e-300)))
        for name, observation in (("", False), ("observation_", True)):
            columns[f"{name}lower"], columns[f"{name}upper"] = self._interval(places, level, observation, self._level)
        return pd.DataFrame({**columns, "informed": self.informed_}, index=self.graph.nodes)

    def _interval(
        self,
        places: Longs,
        level: float,
        observation: bool,
        offset: Floats | float,
        replicate: int = 0,
        posterior: Posterior | Mixture | None = None,
    ) -> tuple[Floats, Floats]:
        """Central intervals of given probability, in the units of y."""
        asked = self.posterior_ if posterior is None else posterior
        half = half_width(level)
        options: dict[str, Any] = {"observation": observation, "offset": offset, "replicate": replicate}
        ends = (asked.quantile(places, float(ndtr(z)), **options) for z in (-half, half))
        low, high = (self.y_mean_ + self.y_scale_ * end for end in ends)
        return low, high

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
        """Draw functions from the posterior a few at a time, if memory does not hold all of them.

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
            check_whole("batch_size", batch_size, faults, minimum=1, remedy="Leave it out for the default.")
        faults.raise_if_any()
        places = self.graph.locate(nodes)
        size = batch_size or max(1, _STREAM_BYTES // (8 * self.graph.n_nodes))
        rng = random_generator(random_state, TableError)
        draws = self.posterior_.samples(n_samples, places, rng, 0, size, offset=self._level)
        return (self.y_mean_ + self.y_scale_ * block for block in draws)

    def exceedance(
        self,
        threshold: ArrayLike,
        nodes: Any = None,
        *,
        observation: bool = False,
        exposure: Any = None,
        covariates: Any = None,
    ) -> pd.Series[float]:
        """Probability that the process (of the first replicate) is above a threshold at each node.

        Parameters
        ----------
        threshold : float or array_like, shape (n_names,)
            In the units of y: a value, or the rate of counts; one for all nodes, or one for each.
        nodes : sequence of hashable, optional
            Node names; all nodes by default.
        observation : bool
            Whether a new observation, rather than the process, is above it.
        exposure : array_like or Series, optional
            Exposures of counts, as in `predict`.
        covariates : DataFrame, mapping or array_like, optional
            Covariates of observations, as in `predict`.

        Returns
        -------
        Series
            Indexed by node name.

        Examples
        --------
        >>> import graphmatern as gm
        >>> road = gm.Graph.from_edges([("a", "b"), ("b", "c")])
        >>> model = gm.GraphGPRegressor(road, gm.Matern(nu=1), optimizer=None).fit(["a", "c"], [1.0, 3.0])
        >>> above = model.exceedance(2.0)
        >>> bool(above["a"] < 0.5 < above["c"])
        True
        """
        self._require_fit()
        places = self.graph.locate(nodes)
        level = (read_thresholds(threshold, places.shape) - self.y_mean_) / self.y_scale_
        offset = offset_asked(self, places, exposure, "no probabilities")
        posterior = posterior_asked(self, places, covariates, "no probabilities")
        found = posterior.exceedance(places, level, observation=observation, offset=offset)
        return pd.Series(found, index=self.graph.nodes[places], name="exceedance")

    def joint_exceedance(
        self, threshold: float, nodes: Any = None, *, n_samples: int = 10_000, random_state: Any = None
    ) -> float:
        """Probability that the process (of the first replicate) is above a threshold at all the given nodes together.

        Parameters
        ----------
        threshold : float
            In the units of y.
        nodes : sequence of hashable, optional
            Node names; all nodes by default.
        n_samples : int
            Draws from which it is estimated, to a standard error of at most 0.5 / √n_samples.
        random_state : int or Generator, optional
            Seed.
        """
        level, hits, total = read_thresholds(threshold), 0, 0
        for block in self.iter_samples(n_samples, nodes, random_state):
            hits, total = hits + int((block > level).all(axis=1).sum()), total + len(block)
        return hits / total

    def _limits(self) -> tuple[float, float]:
        """Values at the ends of the colour bars of all pictures of this model: those of the observations."""
        y, exposure = self._data.y[:, 0], self._data.exposure
        return colour_limits(y if exposure is None else y / exposure)

    def plot(self, axes: Sequence[Axes] | None = None, *, label: str = "", **options: Any) -> NDArray[Any]:
        """Draw the predictions (of the first replicate) and, next to them, their uncertainty.

        Parameters
        ----------
        axes : sequence of two Axes, optional
            Where to draw; a new figure by default.
        label : str
            What is predicted, with its unit.
        **options
            As `plotting.plot_prediction` takes them, such as ``unit``, ``title``, ``cmap`` and ``limits``.

        Returns
        -------
        ndarray of two Axes
            Mean and standard deviation of the process; nodes with data have a ring.
        """
        self._require_fit()
        table = self.predict_table()
        observed = np.unique(self._data.nodes[~np.isnan(self._data.y[:, 0])])
        options = {"limits": self._limits(), "marked": self.graph.nodes[observed], **options}
        return plot_prediction(self.graph, table["mean"], table["std"], axes, label=label, **options)

    def _content(self, *, title: str | None, level: float, options: dict[str, Any]) -> Content:
        return regression_content(self, title=title, level=level, options=options)

    @property
    def coefficients_(self) -> pd.DataFrame:
        """Coefficients of the mean in the units of y, or of f for counts; a row per covariate, "(constant)" first.

        Mean, sd, 2.5%, 50% and 97.5%.
        """
        self._require_fit()
        every = getattr(self.posterior_, "components", [self.posterior_])
        means = np.stack([one.coefficients[0] for one in every])
        covariances = np.stack([one.coefficient_covariance[0] for one in every])
        weights = getattr(self.posterior_, "weights", np.ones(1))
        return self._covariates.in_user_units(weights, means, covariances, self.y_mean_ + self._level, self.y_scale_)


def noise_of(likelihood: Likelihood) -> float:
    """Variance of the noise, in normalised units; NaN for counts, where it follows the rate."""
    if not isinstance(likelihood, Numeric) or likelihood.in_own_units:
        return float("nan")
    nothing = torch.zeros((1, 1), dtype=torch.float64)
    with torch.no_grad():
        return float(likelihood.observation_moments(nothing, nothing)[1].item())
