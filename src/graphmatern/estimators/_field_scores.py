"""How well a fitted field predicts: observations left out, and held back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import ndtr

from graphmatern._validation import FaultList, check_whole, random_generator
from graphmatern.errors import TableError
from graphmatern.estimators._field_data import read_field
from graphmatern.estimators._field_results import FieldResults
from graphmatern.metrics import regression_report

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["FieldScores"]


class FieldScores(FieldResults):
    """Scores of a fitted field, in the units of the values."""

    def loo(self, n_cells: int | None = None, random_state: Any = 0) -> pd.DataFrame:
        """Leave-one-out predictions of observed cells, in closed form, with the same parameters.

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
            probability of a value below y: uniform if the model is calibrated).
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
        where = self._pairs(self.graph.nodes[held_back.nodes[columns]], held_back.times[rows])
        marginals, y = self._marginals(*where, observation=True), held_back.y[rows, columns]
        scores = regression_report(y, *self._in_user_units(marginals))
        if self._fit.integrated is not None:  # predictions are not normal
            unit = (y - self.y_mean_) / self.y_scale_
            scores["nlpd"] = float(np.log(self.y_scale_) - marginals.log_density(unit).mean())
            scores["crps"] = self.y_scale_ * float(marginals.crps(unit).mean())
            for percent in (50, 90, 95):
                low, high = self._interval(marginals, percent / 100)
                scores[f"coverage_{percent}"] = float(((low <= y) & (y <= high)).mean())
        return scores
