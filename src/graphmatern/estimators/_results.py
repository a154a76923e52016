"""What a fitted regression can tell: predictions, tables, samples, scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from scipy.special import ndtr
from sklearn.base import RegressorMixin

from graphmatern._validation import FaultList, as_numbers, check_flag, check_whole, random_generator
from graphmatern.errors import KernelError, TableError
from graphmatern.estimators._base import GraphEstimator
from graphmatern.estimators._data import aligned, read_observations
from graphmatern.likelihoods import Binomial, Counts, Numeric, split_trials
from graphmatern.metrics import crps_from_draws, half_width, r2, regression_report
from graphmatern.plotting import plot_prediction

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike, NDArray

    from graphmatern.estimators._covariates import Covariates
    from graphmatern.estimators._data import TrainingData
    from graphmatern.inference import Mixture, Posterior
    from graphmatern.likelihoods import Likelihood

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["RegressionResults", "noise_of"]

_STREAM_BYTES = 2**28  # of one block of samples
_CRPS_DRAWS = 1_000  # from which the CRPS is computed where predictions are not normal


class RegressionResults(RegressorMixin, GraphEstimator):  # type: ignore[misc]
    """Predictions of a fitted regression, in the units of y."""

    posterior_: Posterior | Mixture
    likelihood_: Likelihood
    noise_: float
    y_mean_: float
    y_scale_: float
    _data: TrainingData
    _covariates: Covariates
    _level: float

    def _offset(self, places: Longs, exposure: Any, subject: str) -> Floats | float:
        """Known part of the latent process: the level of counts, and the logarithm of an exposure per node."""
        if exposure is None:
            return self._level
        faults = FaultList(subject, TableError)
        if not isinstance(self.likelihood_, Counts):
            rule = "must be left out unless the model is one of counts"
            raise faults.raise_now("exposure", rule, "some", "Use likelihood='poisson'.")
        given = aligned(exposure, self.graph.nodes[places], "exposure", faults)
        numbers = as_numbers(given, "exposure", faults, minimum=0.0)
        if numbers.shape not in ((), places.shape):
            faults.add("exposure", f"must have shape {places.shape}", f"shape {numbers.shape}", "One per node.")
        faults.raise_if_any()
        return np.asarray(self._level + np.log(np.maximum(numbers, 1e-300)))  # nobody: no cases

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
        exposure : array_like or Series, shape () or (n_names,), optional
            Exposures of counts, by which rates are multiplied; 1 by default.

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
        offset = self._offset(places, exposure, "no prediction")
        mean, variance = self.posterior_.moments(places, observation=observation, offset=offset)
        in_units, std = self._in_user_units(mean, variance)
        found = [in_units]
        if return_std:
            found.append(std)
        if return_cov:
            covariance = self.posterior_.covariance(places, offset=offset)
            if observation:
                own = self.posterior_.moments(places, offset=offset)[1]
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
            observation) and informed (False where no data reach the node's component).
        """
        self._require_fit()
        places = np.arange(self.graph.n_nodes)
        mean, variance = (one[0] for one in self.posterior_.moments(places, offset=self._level))
        columns = {"mean": self.y_mean_ + self.y_scale_ * mean, "std": self.y_scale_ * np.sqrt(variance)}
        for name, observation in (("", False), ("observation_", True)):
            columns[f"{name}lower"], columns[f"{name}upper"] = self._interval(places, level, observation, self._level)
        return pd.DataFrame({**columns, "informed": self.informed_}, index=self.graph.nodes)

    def _interval(
        self, places: Longs, level: float, observation: bool, offset: Floats | float, replicate: int = 0
    ) -> tuple[Floats, Floats]:
        """Central intervals of given probability, in the units of y."""
        half = half_width(level)
        options: dict[str, Any] = {"observation": observation, "offset": offset, "replicate": replicate}
        ends = (self.posterior_.quantile(places, float(ndtr(z)), **options) for z in (-half, half))
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
        rng = random_generator(random_state, TableError)
        draws = self.posterior_.samples(n_samples, places, rng, 0, size, offset=self._level)
        return (self.y_mean_ + self.y_scale_ * block for block in draws)

    def loo(self) -> pd.DataFrame:
        """Leave-one-out predictions of the observations, in closed form.

        Returns
        -------
        DataFrame
            One row per observation, replicate by replicate: node, replicate, y, mean, std (of the observation given all
            others), log_density (of y; its exponential is the conditional predictive ordinate, CPO) and pit (the
            probability of less than y: uniform where the model is calibrated). Without an observation the parameters
            are known a little less well, which is accounted for where they were integrated over. Where the others
            leave a coefficient of the mean undetermined, nothing can be predicted: mean is NaN and std infinite.
        """
        self._require_fit()
        tables = {}
        observed = ~np.isnan(self._data.y)
        for column, found in self.posterior_.left_out().items():
            rows = np.flatnonzero(observed[:, column])
            tables[column] = pd.DataFrame(
                {
                    "node": self.graph.nodes[self._data.nodes[rows]],
                    "replicate": column,
                    "y": self._plain(self._data.y[rows, column]),
                    "mean": self.y_mean_ + self.y_scale_ * found.mean,
                    "std": self.y_scale_ * np.sqrt(found.variance),
                    "log_density": found.log_density - np.log(self.y_scale_),
                    "pit": found.pit,
                }
            )
        return pd.concat([tables[column] for column in sorted(tables)], ignore_index=True)

    def _plain(self, y: Floats) -> Floats:
        """Observations as they were given: of successes among trials, their share, as what is predicted is one."""
        if not isinstance(self.likelihood_, Binomial):
            return y
        successes, trials = split_trials(y)
        return np.asarray(successes / trials)

    def information_criteria(self) -> dict[str, float]:
        """Scores for comparing models of the same data, in the units of y: by leaving out, and WAIC.

        Returns
        -------
        dict
            ``elpd_loo`` is the sum of the log densities of `loo` (the larger the better), ``looic`` −2 times that;
            ``elpd_waic``, ``p_waic`` (the effective number of parameters) and ``waic`` are those of Watanabe (2010);
            ``dic`` and ``p_dic`` those of Spiegelhalter et al. (2002), with the latent process at its mean.

        Examples
        --------
        >>> import graphmatern as gm
        >>> graph = gm.Graph.from_edges([("a", "b"), ("b", "c"), ("c", "d")])
        >>> model = gm.GraphGPRegressor(graph, gm.Matern(nu=1), optimizer=None).fit(list("abcd"), [1.0, 2.0, 2.0, 3.0])
        >>> sorted(model.information_criteria())
        ['dic', 'elpd_loo', 'elpd_waic', 'looic', 'p_dic', 'p_waic', 'waic']
        """
        self._require_fit()
        left_out = float(self.loo()["log_density"].sum())
        each = self.posterior_.pointwise()
        penalty = float((each.mean_squared_log - each.mean_log**2).sum())
        unit = len(each.mean_log) * float(np.log(self.y_scale_))
        elpd = float(each.log_expected.sum()) - penalty - unit
        deviance, at_mean = -2.0 * float(each.mean_log.sum()), -2.0 * float(self._log_likelihood_at_mean().sum())
        return {
            "dic": 2.0 * deviance - at_mean + 2.0 * unit,
            "p_dic": deviance - at_mean,
            "elpd_loo": left_out,
            "looic": -2.0 * left_out,
            "elpd_waic": elpd,
            "p_waic": penalty,
            "waic": -2.0 * elpd,
        }

    def _log_likelihood_at_mean(self) -> Floats:
        """Log-likelihoods of all observations, in normalised units, with the latent process at its posterior mean."""
        data = self._data
        offset = self._level + (0.0 if data.exposure is None else np.log(data.exposure))
        f = self.posterior_.latent_mean(data.nodes) + offset
        y = (data.y.T - self.y_mean_) / self.y_scale_
        known = ~np.isnan(y)
        if data.noise is not None:  # each observation has its own
            noise = np.broadcast_to(self.noise_ * data.noise / self.y_scale_**2, y.shape)[known]
            return np.asarray(-0.5 * (np.log(2.0 * np.pi * noise) + (y - f)[known] ** 2 / noise))
        likelihood: Any = self._fit.likelihood
        with torch.no_grad():
            found: Floats = likelihood.log_prob(torch.from_numpy(y[known]), torch.from_numpy(f[known])[None]).numpy()
        return found

    def exceedance(
        self, threshold: ArrayLike, nodes: Any = None, *, observation: bool = False, exposure: Any = None
    ) -> pd.Series[float]:
        """Probability that the process (of the first replicate) is above a threshold at each node.

        Parameters
        ----------
        threshold : float or array_like, shape (n_names,)
            In the units of y: a value, or a rate of counts; one for all nodes, or one for each.
        nodes : sequence of hashable, optional
            Node names; all nodes by default.
        observation : bool
            Whether a new observation, rather than the process, is above it.
        exposure : array_like or Series, optional
            Exposures of counts, as in `predict`.

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
        level = (self._thresholds(threshold, places.shape) - self.y_mean_) / self.y_scale_
        offset = self._offset(places, exposure, "no probabilities")
        found = self.posterior_.exceedance(places, level, observation=observation, offset=offset)
        return pd.Series(found, index=self.graph.nodes[places], name="exceedance")

    def joint_exceedance(
        self, threshold: float, nodes: Any = None, *, n_samples: int = 10_000, random_state: Any = None
    ) -> float:
        """Probability that the process (of the first replicate) is above a threshold at all of some nodes at once.

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
        level, hits, total = self._thresholds(threshold), 0, 0
        for block in self.iter_samples(n_samples, nodes, random_state):
            hits, total = hits + int((block > level).all(axis=1).sum()), total + len(block)
        return hits / total

    @staticmethod
    def _thresholds(given: Any, shape: tuple[int, ...] = ()) -> Floats:
        faults = FaultList("no probabilities", TableError)
        numbers = as_numbers(given, "threshold", faults)
        if numbers.shape not in ((), shape):
            rule = "must be a single number" + (f", or have shape {shape}" if shape else "")
            faults.add("threshold", rule, f"shape {numbers.shape}", "One for all nodes, or one for each.")
        faults.raise_if_any()
        return numbers

    def plot(self, axes: Sequence[Axes] | None = None, *, label: str = "", **options: Any) -> NDArray[Any]:
        """Draw the predictions (of the first replicate) and, beside them, how sure they are.

        Parameters
        ----------
        axes : sequence of two Axes, optional
            Where to draw; a new figure by default.
        label : str
            What is predicted, with its unit.
        **options
            As `plotting.plot_prediction` takes them, such as ``cmap`` and ``limits``.

        Returns
        -------
        ndarray of two Axes
            Mean and standard deviation of the process; nodes with data have a ring.
        """
        self._require_fit()
        table = self.predict_table()
        observed = np.unique(self._data.nodes[~np.isnan(self._data.y[:, 0])])
        marked = self.graph.nodes[observed]
        return plot_prediction(self.graph, table["mean"], table["std"], axes, label=label, marked=marked, **options)

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

    def score(
        self, nodes: Any, y: ArrayLike | None = None, sample_weight: None = None, *, exposure: Any = None
    ) -> float:
        """R² of predictions; NaN in ``y`` is passed over.

        Parameters
        ----------
        nodes : sequence of hashable, Series or DataFrame
            Node names; or true values indexed by node name.
        y : array_like, shape (n,) or (n, n_replicates), optional
            True values.
        sample_weight : None
            Not supported.
        exposure : array_like, shape (n,), optional
            Exposures of counts; needed where the model was fitted with some.
        """
        self._require_fit()
        if sample_weight is not None:
            faults = FaultList("no score", TableError)
            raise faults.raise_now("sample_weight", "must be None", type(sample_weight).__name__, "Leave it out.")
        held_back = self._held_back(nodes, y, exposure)
        mean, _ = self.posterior_.moments(held_back.nodes, offset=self._held_offset(held_back))
        return r2(held_back.y, self.y_mean_ + self.y_scale_ * mean.T)

    def _held_back(self, nodes: Any, y: Any, exposure: Any) -> TrainingData:
        """Values to compare predictions with."""
        held_back = read_observations(self.graph, nodes, y, None, exposure, subject="no score")
        faults = FaultList("no score", TableError)
        if isinstance(self.likelihood_, Binomial):
            rule = "must not be binomial for this"
            raise faults.raise_now("likelihood", rule, "Binomial", "See `loo` for scores of shares.")
        if held_back.y.shape[1] != self._data.y.shape[1]:
            rule = f"must have as many columns as there are replicates, {self._data.y.shape[1]}"
            faults.add("y", rule, str(held_back.y.shape[1]), "NaN where there is nothing to compare with.")
        if self._data.exposure is not None and exposure is None:
            rule = "must be given where the model was fitted with exposures"
            faults.add("exposure", rule, "none", "Counts are rates times exposures; pass those of these counts.")
        faults.raise_if_any()
        return held_back

    def _held_offset(self, held_back: TrainingData) -> Floats | float:
        return self._offset(held_back.nodes, held_back.exposure, "no score")

    def evaluate(self, nodes: Any, y: ArrayLike | None = None, *, exposure: Any = None) -> dict[str, float]:
        """Score predictions of new observations: RMSE, R², NLPD, CRPS and coverage.

        Parameters
        ----------
        nodes : sequence of hashable, Series or DataFrame
            Node names; or true values indexed by node name.
        y : array_like, shape (n,) or (n, n_replicates), optional
            True values; NaN is passed over.
        exposure : array_like, shape (n,), optional
            Exposures of counts; needed where the model was fitted with some.

        Returns
        -------
        dict
            See `metrics.regression_report`.
        """
        self._require_fit()
        held_back = self._held_back(nodes, y, exposure)
        places, offset = held_back.nodes, self._held_offset(held_back)
        mean, variance = self.posterior_.moments(places, observation=True, offset=offset)
        scores = regression_report(
            held_back.y, *(one.reshape(held_back.y.shape) for one in self._in_user_units(mean, variance))
        )
        if not self._fit.likelihood.gaussian or self._fit.integrated is not None:
            scores |= self._scores_of_likelihood(held_back, offset)
        return scores

    def _scores_of_likelihood(self, held_back: TrainingData, offset: Floats | float) -> dict[str, float]:
        """NLPD, CRPS and coverage where predictions are not normal: densities and quantiles are the likelihood's."""
        known = ~np.isnan(held_back.y)
        densities, inside, losses = [], {50: [], 90: [], 95: []}, []  # type: ignore[var-annotated]
        for k in range(held_back.y.shape[1]):
            rows = np.flatnonzero(known[:, k])
            places, y = held_back.nodes[rows], held_back.y[rows, k]
            own = offset[rows] if isinstance(offset, np.ndarray) and offset.ndim else offset
            unit = (y - self.y_mean_) / self.y_scale_
            densities.append(self.posterior_.log_density(places, unit, replicate=k, offset=own) - np.log(self.y_scale_))
            for percent, hits in inside.items():
                low, high = self._interval(places, percent / 100, True, own, k)
                hits.append((low <= y) & (y <= high))
            draws = self.posterior_.draw_observations(
                _CRPS_DRAWS, places, np.random.default_rng(0), replicate=k, offset=own
            )
            losses.append(len(y) * self.y_scale_ * crps_from_draws(unit, draws))
        found = {"nlpd": -float(np.concatenate(densities).mean()), "crps": float(sum(losses) / known.sum())}
        return found | {f"coverage_{percent}": float(np.concatenate(hits).mean()) for percent, hits in inside.items()}


def noise_of(likelihood: Likelihood) -> float:
    """Variance of the noise, in normalised units; NaN for counts, where it follows the rate."""
    if not isinstance(likelihood, Numeric) or likelihood.in_own_units:
        return float("nan")
    nothing = torch.zeros((1, 1), dtype=torch.float64)
    with torch.no_grad():
        return float(likelihood.observation_moments(nothing, nothing)[1].item())
