"""Inner products of smoothed features between observed nodes, as a function of the filter's lengthscale.

Over a range of lengthscales, Φ is a combination of a dozen functions P_r that depend on none: Φ = Σ a_r P_r. So the
observed nodes are smoothed once, for a grid of lengthscales, which gives Y_r = P_r(Δ)[x, :] X; from then on
zᵀz′ = Σ a_r a_s Y_r Y_sᵀ, exact to rounding, with exact derivatives in the lengthscale, for n × n numbers each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from graphmatern.errors import NumericalError, ResourceError
from graphmatern.sparse import available_memory, format_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.inference.features.smoothing import Smoother
    from graphmatern.kernels import FeatureKernel

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["ObservedFeatures"]

# Lengthscales of the grid per logarithm: as functions of it, filters are analytic in a strip, so that errors fall like
# exp(−πk) with k of these for the Matérn filter, and half as fast for the diffusion's.
_PER_LOGARITHM = {"matern": 9.0, "diffusion": 16.0}
_EIGENVALUES, _SMALLEST = 400, 1e-7  # at which functions are compared, and the smallest relative to the largest
_KEPT = 1e-13  # relative size of functions that are left out
_ENTRIES_OF_PAIRS = 2**27  # of inner products that are kept


class ObservedFeatures:
    """zᵀz′ between observed nodes.

    Parameters
    ----------
    smoother : Smoother
        The filter, and the features.
    nodes : ndarray of int64, shape (n,)
        Observed nodes, each once.
    kernel : FeatureKernel
        Whose lengthscale moves.
    """

    def __init__(self, smoother: Smoother, nodes: Longs, kernel: FeatureKernel) -> None:
        self.smoother, self._nodes, self.kernel = smoother, nodes, kernel
        self.spread = smoother.matrix.spread(kernel.takes_differences)
        self._low, self._high = np.inf, 0.0
        points = np.append(0.0, np.geomspace(_SMALLEST, 1.0, _EIGENVALUES)) * smoother.high
        self._points = torch.from_numpy(points)
        self._directions = torch.zeros(0)
        self._pairs: torch.Tensor | None = None
        self._rows: torch.Tensor | None = None

    def _cover(self, smoothing: float) -> None:
        """Make ready for a range of lengthscales."""
        if self._low <= smoothing <= self._high:
            return
        longest = self.smoother.longest
        if smoothing > longest * (1.0 + 1e-9):
            raise NumericalError(
                f"smoothing={smoothing:.3g} needs polynomials of too high a degree on this graph. Likely causes: (a) a "
                "long lengthscale: bound it; (b) degrees over many orders of magnitude: use normalized=True."
            )
        wider = self.smoother.wider
        self._low, self._high = min(self._low, smoothing / wider), max(self._high, min(wider * smoothing, longest))
        if self.kernel.filter == "none":
            self._low, self._high = 0.0, np.inf
            grid = np.ones(1)
        else:
            count = 2 + int(np.ceil(_PER_LOGARITHM[self.kernel.filter] * np.log(self._high / self._low)))
            ends = np.log(self._low), np.log(self._high)
            angles = np.pi * (np.arange(count) + 0.5) / count
            grid = np.exp(0.5 * (ends[0] + ends[1]) + 0.51 * (ends[1] - ends[0]) * np.cos(angles))
            grid = np.minimum(grid, longest)
        with torch.no_grad():
            values = np.stack([self.kernel.phi(self._points, float(one)).numpy() for one in grid], axis=1)
        left, sizes, right = np.linalg.svd(values, full_matrices=False)
        keep = sizes > _KEPT * sizes[0]
        self._directions = torch.from_numpy(left[:, keep].T.copy())
        self._smooth(grid, right[keep].T / sizes[keep])

    def _smooth(self, grid: Floats, combinations: Floats) -> None:
        """Features of the observed nodes by all functions P_r, combinations of those of a grid; inner products."""
        n, count, matrix = len(self._nodes), combinations.shape[1], self.smoother.matrix
        p, every = matrix.n_features, self.smoother.n_nodes
        pairs = count * (count + 1) // 2
        direct = pairs * n**2 > _ENTRIES_OF_PAIRS
        wide = p if direct or p <= every else every
        needed = 8.0 * n * (wide * (len(grid) + count) + (0 if direct else pairs * n))
        if needed > 0.7 * available_memory():
            raise ResourceError(
                f"smoothed features of {n:,} observed nodes need about {format_bytes(needed)} of memory, of "
                f"{format_bytes(available_memory())} available. Use fewer observations or fewer features."
            )
        # Y_r = L_r X with weights L_r of all nodes: what has fewer columns is kept.
        if wide == p:
            found = self.smoother.rows(self._nodes, grid.tolist())
        else:
            found = np.empty((len(grid), n, every))
            width = max(32, self.smoother.width // len(grid))
            for start in range(0, n, width):
                part = slice(start, start + width)
                found[:, part] = self.smoother.weights(self._nodes[part], grid.tolist()).transpose(0, 2, 1)
        left = (combinations.T @ found.reshape(len(grid), -1)).reshape(count, n, wide)
        self._pairs = self._rows = None
        if direct:
            self._rows = torch.from_numpy(left.reshape(count, -1))
            return
        inner = np.empty((pairs, n, n))
        place = 0
        for s in range(count):
            own = left[s].T
            right = own if wide == p else matrix.times(matrix.transposed_times(own))
            for r in range(s + 1):
                product = left[r] @ right
                inner[place] = 0.5 * (product + product.T) if r == s else product + product.T
                place += 1
        self._pairs = torch.from_numpy(inner.reshape(pairs, -1))

    def inner(self) -> torch.Tensor:
        """zᵀz′, differentiable in the kernel's parameters; shape (n, n)."""
        n = len(self._nodes)
        self._cover(float(self.kernel.smoothing.item()))
        weights = self._directions @ self.kernel.phi(self._points)
        if self._rows is not None:
            features = (weights @ self._rows).reshape(n, -1)
            return features @ features.T
        assert self._pairs is not None
        first, second = np.tril_indices(len(weights))
        return ((weights[first] * weights[second]) @ self._pairs).reshape(n, n)
