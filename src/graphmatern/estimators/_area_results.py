"""Results for counts by area: relative risks, fitted counts and residuals, and the two parts of BYM2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import ndtr

from graphmatern._validation import FaultList
from graphmatern.errors import KernelError
from graphmatern.graph import intrinsic_structure
from graphmatern.inference.markov.areal import AreaPredictive, shares_of
from graphmatern.kernels import BYM2, ICAR
from graphmatern.metrics import half_width
from graphmatern.plotting import plot_field, plot_risk, two_axes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from graphmatern.estimators._data import TrainingData
    from graphmatern.graph import Graph, IntrinsicStructure
    from graphmatern.inference import Fit, Mixture, Posterior
    from graphmatern.kernels import Kernel

    Floats = NDArray[np.float64]

__all__ = ["AreaResults"]

_EXPECTED = 10.0  # times as many counts as expected, or as few: exposures are then not expected counts


class AreaResults:
    """Tables of a fitted regression for mapping diseases, crimes and accidents."""

    graph: Graph
    posterior_: Posterior | Mixture
    kernel_: Any
    y_mean_: float
    y_scale_: float
    _data: TrainingData
    _fit: Fit
    _level: float

    def _require_fit(self) -> None: ...
    def _plain(self, y: Floats) -> Floats: ...  # type: ignore[empty-body]
    def _seen(self) -> Posterior | Mixture: ...  # type: ignore[empty-body]

    def risk_table(self, threshold: float = 1.0, level: float = 0.95, replicate: int = 0) -> pd.DataFrame:
        """Relative risk of every area; of values other than counts, what is predicted for them.

        If exposures are expected counts, it is relative to them. If they are populations or the like, of which counts
        are a tiny part, it is relative to the rate of all areas together, ``table.attrs["reference"]``.

        Parameters
        ----------
        threshold : float
            Risk for the column ``above``, the probability of exceeding it.
        level : float
            Probability of the intervals.
        replicate : int
            Which replicate.

        Returns
        -------
        DataFrame
            Indexed by node name: mean, sd, lower, median, upper and above.

        Examples
        --------
        >>> import graphmatern as gm
        >>> graph = gm.Graph.from_edges([("a", "b"), ("b", "c")])
        >>> model = gm.GraphGPRegressor(graph, gm.BYM2(0.3, 0.5), likelihood="poisson", optimizer=None)
        >>> table = model.fit(["a", "b", "c"], [9, 4, 1], exposure=[4.0, 4.0, 4.0]).risk_table()
        >>> bool(table.loc["a", "above"] > 0.9 > 0.1 > table.loc["c", "above"])
        True
        """
        self._require_fit()
        half = half_width(level)
        reference = self._reference_rate(replicate)
        places, posterior = np.arange(self.graph.n_nodes), self.posterior_
        mean, variance = (one[replicate] for one in posterior.moments(places, offset=self._level))
        ends = [
            posterior.quantile(places, float(ndtr(z)), observation=False, replicate=replicate, offset=self._level)
            for z in (-half, 0.0, half)
        ]
        above = posterior.exceedance(
            places, (threshold * reference - self.y_mean_) / self.y_scale_, replicate=replicate, offset=self._level
        )
        low, middle, high = ((self.y_mean_ + self.y_scale_ * end) / reference for end in ends)
        columns = {
            "mean": (self.y_mean_ + self.y_scale_ * mean) / reference,
            "sd": self.y_scale_ * np.sqrt(variance) / reference,
            "lower": low,
            "median": middle,
            "upper": high,
            "above": above,
        }
        table = pd.DataFrame(columns, index=self.graph.nodes)
        table.attrs["reference"] = reference
        return table

    def _reference_rate(self, replicate: int = 0) -> float:
        """The rate at a relative risk of 1: 1 if exposures are expected counts, else that of all areas together."""
        exposure, y = self._data.exposure, self._data.y[:, replicate]
        known = ~np.isnan(y)
        if exposure is None or not y[known].sum() > 0.0:
            return 1.0
        rate = float(y[known].sum() / exposure[known].sum())
        return 1.0 if 1.0 / _EXPECTED < rate < _EXPECTED else rate

    def plot_risks(
        self,
        axes: Sequence[Axes] | None = None,
        *,
        threshold: float = 1.0,
        largest: float | None = None,
        areas: Any = None,
        title: str = "",
        replicate: int = 0,
    ) -> NDArray[Any]:
        """Draw the relative risk of every area and, beside it, the probability that it is above a threshold.

        Parameters
        ----------
        axes : sequence of two Axes, optional
            Where to draw; a new figure by default.
        threshold : float
            The threshold.
        largest : float, optional
            Risk at the upper end of the colour bar; see `plotting.plot_risk`.
        areas : GeoDataFrame, Series, mapping or path, optional
            Outlines by node name, where the graph has none; see `Graph.with_areas`. Without any, nodes are dots.
        title : str
            What the map shows, and when.
        replicate : int
            Which replicate.

        Returns
        -------
        ndarray of two Axes

        Examples
        --------
        >>> import graphmatern as gm, shapely
        >>> graph = gm.Graph.from_polygons([shapely.box(k, 0, k + 1, 1) for k in range(3)])
        >>> model = gm.GraphGPRegressor(graph, gm.BYM2(0.3, 0.5), likelihood="poisson", optimizer=None)
        >>> left, right = model.fit([0, 1, 2], [9, 4, 1], exposure=[4.0, 4.0, 4.0]).plot_risks()
        """
        self._require_fit()
        graph = self.graph if areas is None else self.graph.with_areas(areas)
        table = self.risk_table(threshold, replicate=replicate)
        pair = two_axes(axes)
        plot_risk(graph, table["mean"], pair[0], largest=largest, title=title or "relative risk", label="")
        above = f"probability that it is above {threshold:g}"
        plot_field(graph, table["above"], pair[1], limits=(0.0, 1.0), cmap="RdBu_r", title=above)
        return pair

    def fitted_table(self) -> pd.DataFrame:
        """Observations with their fitted values and residuals.

        Returns
        -------
        DataFrame
            One row per observation, replicate by replicate: node, replicate, y, exposure (of counts), fitted (its
            expected value), sd (of a new observation there), residual (y − fitted) and pearson (residual / sd).
            `loo` has predictions without the observation itself.
        """
        self._require_fit()
        data = self._data
        offset = self._level + (0.0 if data.exposure is None else np.log(data.exposure))
        offset = np.broadcast_to(offset, data.nodes.shape)
        means, variances = self._seen().moments(data.nodes, observation=True, offset=offset)
        tables = []
        for k in range(data.y.shape[1]):
            rows = np.flatnonzero(~np.isnan(data.y[:, k]))
            fitted = self.y_mean_ + self.y_scale_ * means[k, rows]
            sd = self.y_scale_ * np.sqrt(variances[k, rows])
            y = self._plain(data.y[rows, k])
            columns: dict[str, Any] = {"node": self.graph.nodes[data.nodes[rows]], "replicate": k, "y": y}
            if data.exposure is not None:
                columns["exposure"] = data.exposure[rows]
            tables.append(pd.DataFrame({**columns, "fitted": fitted, "sd": sd, "residual": y - fitted,
                                        "pearson": (y - fitted) / sd}))  # fmt: skip
        return pd.concat(tables, ignore_index=True)

    def area_parts(self, replicate: int = 0) -> pd.DataFrame:
        """The part that neighbours share and the part of each area alone, for kernel `BYM2` (or `ICAR`).

        Parameters
        ----------
        replicate : int
            Which replicate.

        Returns
        -------
        DataFrame
            Indexed by node name: structured, structured_sd, unstructured and unstructured_sd, of the latent process
            (the logarithm of the risk, for counts). The structured part sums to zero in every component.

        Examples
        --------
        >>> import graphmatern as gm
        >>> graph = gm.Graph.from_edges([("a", "b"), ("b", "c")])
        >>> model = gm.GraphGPRegressor(graph, gm.BYM2(0.3, 0.5), likelihood="poisson", optimizer=None)
        >>> parts = model.fit(["a", "b", "c"], [9, 4, 1], exposure=[4.0, 4.0, 4.0]).area_parts()
        >>> bool(abs(parts["structured"].sum()) < 1e-12)
        True
        """
        self._require_fit()
        if not isinstance(self.kernel_, BYM2 | ICAR):
            faults = FaultList("no parts", KernelError)
            raise faults.raise_now("kernel", "must be BYM2 or ICAR for this", repr(self.kernel_), "Use gm.BYM2().")
        structure = intrinsic_structure(self.graph)
        posterior, integrated = self.posterior_, self._fit.integrated
        every = getattr(posterior, "components", [posterior])
        kernels = [self.kernel_] if integrated is None else [one.kernel for one in integrated.components]
        weights = getattr(posterior, "weights", np.ones(1))
        pairs = [_parts(one, kernel, structure, replicate) for one, kernel in zip(every, kernels, strict=True)]
        means, variances = np.stack([pair[0] for pair in pairs]), np.stack([pair[1] for pair in pairs])
        mean = np.tensordot(weights, means, 1)
        sd = self.y_scale_ * np.sqrt(np.tensordot(weights, variances + (means - mean) ** 2, 1))
        mean = self.y_scale_ * mean
        columns = {"structured": mean[0], "structured_sd": sd[0], "unstructured": mean[1], "unstructured_sd": sd[1]}
        return pd.DataFrame(columns, index=self.graph.nodes)


def _parts(
    posterior: Posterior, kernel: Kernel, structure: IntrinsicStructure, replicate: int
) -> tuple[Floats, Floats]:
    """Means and variances of both parts at given parameters; each of shape (2, n_nodes)."""
    part = next(one for one in posterior.parts if replicate in one.group.columns)
    own = list(part.group.columns).index(replicate)
    predictive = AreaPredictive(structure, *shares_of(kernel), part.group.nodes, part.precision)
    right = np.column_stack([part.potentials[:, own], part.precision[:, None] * part.group.design])
    effects = posterior.effects[part.latent]
    means, variances = [], []
    for found, variance in zip(predictive.part_means(right), predictive.part_variances(), strict=True):
        mean, slopes = found[:, 0], found[:, 1:]
        if effects.count:
            mean = mean - slopes @ effects.mean
            variance = variance + np.einsum("ni,ij,nj->n", slopes, effects.covariance, slopes)
        means.append(mean)
        variances.append(variance)
    return np.stack(means), np.stack(variances)
