"""How well a fitted regression predicts: observations left out, held back, and compared between models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from graphmatern._validation import FaultList
from graphmatern.errors import TableError
from graphmatern.estimators._asked import offset_asked, posterior_asked
from graphmatern.estimators._data import read_observations
from graphmatern.estimators._results import RegressionResults
from graphmatern.likelihoods import Binomial, split_trials
from graphmatern.metrics import crps_from_draws, r2, regression_report

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from graphmatern.estimators._data import TrainingData

    Floats = NDArray[np.float64]

__all__ = ["RegressionScores"]

_CRPS_DRAWS = 1_000  # from which the CRPS is computed where predictions are not normal


class RegressionScores(RegressionResults):
    """Scores of a fitted regression, in the units of y."""

    def loo(self) -> pd.DataFrame:
        """Leave-one-out predictions of the observations, in closed form.

        Returns
        -------
        DataFrame
            One row per observation, replicate by replicate: node, replicate, y, mean, std (of the observation given all
            others), log_density (of y; its exponential is the conditional predictive ordinate, CPO) and pit (the
            probability of a value below y: uniform if the model is calibrated). Without an observation the parameters
            are known a little less well, which is accounted for if they were integrated over. If the other observations
            do not determine a coefficient of the mean, nothing can be predicted: mean is NaN and std infinite.
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
        """Scores for comparing models of the same data, in the units of y: leave-one-out, WAIC and DIC.

        Returns
        -------
        dict
            ``elpd_loo`` is the sum of the log densities of `loo` (larger is better), ``looic`` is −2 times that;
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
        f = self._seen().latent_mean(data.nodes) + offset
        y = (data.y.T - self.y_mean_) / self.y_scale_
        known = ~np.isnan(y)
        if data.noise is not None:  # each observation has its own
            noise = np.broadcast_to(self.noise_ * data.noise / self.y_scale_**2, y.shape)[known]
            return np.asarray(-0.5 * (np.log(2.0 * np.pi * noise) + (y - f)[known] ** 2 / noise))
        likelihood: Any = self._fit.likelihood
        with torch.no_grad():
            found: Floats = likelihood.log_prob(torch.from_numpy(y[known]), torch.from_numpy(f[known])[None]).numpy()
        return found

    def score(
        self,
        nodes: Any,
        y: ArrayLike | None = None,
        sample_weight: None = None,
        *,
        exposure: Any = None,
        covariates: Any = None,
    ) -> float:
        """R² of predictions; NaN in ``y`` is ignored.

        Parameters
        ----------
        nodes : sequence of hashable, Series or DataFrame
            Node names; or true values indexed by node name.
        y : array_like, shape (n,) or (n, n_replicates), optional
            True values.
        sample_weight : None
            Not supported.
        exposure : array_like, shape (n,), optional
            Exposures of counts; needed if the model was fitted with exposures.
        covariates : DataFrame or array_like, shape (n, n_covariates), optional
            Covariates of observations; needed if the model was fitted with such.
        """
        self._require_fit()
        if sample_weight is not None:
            faults = FaultList("no score", TableError)
            raise faults.raise_now("sample_weight", "must be None", type(sample_weight).__name__, "Leave it out.")
        held_back = self._held_back(nodes, y, exposure, covariates)
        asked = posterior_asked(self, held_back.nodes, held_back.covariates, "no score")
        mean, _ = asked.moments(held_back.nodes, offset=self._held_offset(held_back))
        return r2(held_back.y, self.y_mean_ + self.y_scale_ * mean.T)

    def _held_back(self, nodes: Any, y: Any, exposure: Any, covariates: Any) -> TrainingData:
        """Values to compare predictions with."""
        held_back = read_observations(self.graph, nodes, y, None, exposure, None, covariates, subject="no score")
        faults = FaultList("no score", TableError)
        if isinstance(self.likelihood_, Binomial):
            rule = "must not be binomial for this"
            raise faults.raise_now("likelihood", rule, "Binomial", "See `loo` for scores of shares.")
        if held_back.y.shape[1] != self._data.y.shape[1]:
            rule = f"must have as many columns as there are replicates, {self._data.y.shape[1]}"
            faults.add("y", rule, str(held_back.y.shape[1]), "NaN where there is nothing to compare with.")
        if self._data.exposure is not None and exposure is None:
            rule = "must be given if the model was fitted with exposures"
            faults.add("exposure", rule, "none", "Counts are rates times exposures; pass those of these counts.")
        if held_back.covariate_names != (self._covariates.own_names or None):
            rule = f"must be those of `fit`: {', '.join(self._covariates.own_names) or 'none'}"
            faults.add("covariates", rule, ", ".join(held_back.covariate_names or []) or "none", "In the same order.")
        faults.raise_if_any()
        return held_back

    def _held_offset(self, held_back: TrainingData) -> Floats | float:
        return offset_asked(self, held_back.nodes, held_back.exposure, "no score")

    def evaluate(
        self, nodes: Any, y: ArrayLike | None = None, *, exposure: Any = None, covariates: Any = None
    ) -> dict[str, float]:
        """Score predictions of new observations: RMSE, R², NLPD, CRPS and coverage.

        Parameters
        ----------
        nodes : sequence of hashable, Series or DataFrame
            Node names; or true values indexed by node name.
        y : array_like, shape (n,) or (n, n_replicates), optional
            True values; NaN is ignored.
        exposure : array_like, shape (n,), optional
            Exposures of counts; needed if the model was fitted with exposures.
        covariates : DataFrame or array_like, shape (n, n_covariates), optional
            Covariates of observations; needed if the model was fitted with such.

        Returns
        -------
        dict
            See `metrics.regression_report`.
        """
        self._require_fit()
        held_back = self._held_back(nodes, y, exposure, covariates)
        places, offset = held_back.nodes, self._held_offset(held_back)
        asked = posterior_asked(self, places, held_back.covariates, "no score")
        mean, variance = asked.moments(places, observation=True, offset=offset)
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
            values = None if held_back.covariates is None else held_back.covariates[rows]
            asked = posterior_asked(self, places, values, "no score")
            own = offset[rows] if isinstance(offset, np.ndarray) and offset.ndim else offset
            unit = (y - self.y_mean_) / self.y_scale_
            densities.append(asked.log_density(places, unit, replicate=k, offset=own) - np.log(self.y_scale_))
            for percent, hits in inside.items():
                low, high = self._interval(places, percent / 100, True, own, k, asked)
                hits.append((low <= y) & (y <= high))
            draws = asked.draw_observations(_CRPS_DRAWS, places, np.random.default_rng(0), replicate=k, offset=own)
            losses.append(len(y) * self.y_scale_ * crps_from_draws(unit, draws))
        found = {"nlpd": -float(np.concatenate(densities).mean()), "crps": float(sum(losses) / known.sum())}
        return found | {f"coverage_{percent}": float(np.concatenate(hits).mean()) for percent, hits in inside.items()}
