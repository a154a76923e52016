"""Inner products of smoothed features between observed nodes, as a function of the filter's lengthscale.

In the logarithm of the lengthscale, filters are analytic, and so are smoothed features and their inner products: some
fifty lengthscales, the Chebyshev nodes of a range, determine all in between to rounding. So the observed nodes are
smoothed once, for those; from then on zᵀz′ is interpolated, with its derivative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.polynomial import chebyshev

from graphmatern.errors import NumericalError, ResourceError
from graphmatern.sparse import available_memory, format_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.inference.features.smoothing import Smoother
    from graphmatern.kernels import FeatureKernel

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["ObservedFeatures"]

# How far from the real line, in logarithms of the lengthscale, the first singularities of filters are. The diffusion's
# has none, but grows from there on.
_STRIP = {"matern": 0.5 * np.pi, "diffusion": 0.25 * np.pi}
_DIGITS = 14  # of interpolated numbers, relative to the largest in the range
_ENTRIES_OF_PAIRS = 2**27  # of inner products that are kept; where there are more, smoothed features are


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
        self._lagrange: Floats = np.ones((1, 1))  # Chebyshev coefficients of the polynomials that are 1 at one node
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
        self._low = min(self._low, smoothing / self.smoother.shorter)
        self._high = max(self._high, min(smoothing * self.smoother.longer, longest))
        grid = np.ones(1)
        if self.kernel.filter == "none":
            self._low, self._high = 0.0, np.inf
        else:
            middle, half = self._range()
            scaled = _STRIP[self.kernel.filter] / half
            count = 1 + int(np.ceil(_DIGITS * np.log(10.0) / np.arcsinh(scaled)))
            nodes = chebyshev.chebpts1(count)
            grid = np.minimum(np.exp(middle + half * nodes), longest)  # but for rounding they are below
            self._lagrange = np.asarray(chebyshev.chebvander(nodes, count - 1).T * (2.0 / count), dtype=np.float64)
            self._lagrange[0] *= 0.5
        self._smooth(grid.tolist())

    def _range(self) -> tuple[float, float]:
        """Middle and half length, in logarithms."""
        low, high = np.log(self._low), np.log(self._high)
        return float(0.5 * (low + high)), float(0.5 * (high - low))

    def _smooth(self, grid: list[float]) -> None:
        """Features of the observed nodes for a grid of lengthscales, and their inner products unless those are many."""
        n, matrix = len(self._nodes), self.smoother.matrix
        p, every = matrix.n_features, self.smoother.n_nodes
        direct = len(grid) * n**2 > _ENTRIES_OF_PAIRS
        wide = p if direct or p <= every else every
        needed = 8.0 * n * len(grid) * (wide + (0 if direct else n))
        if needed > 0.7 * available_memory():
            raise ResourceError(
                f"smoothed features of {n:,} observed nodes need about {format_bytes(needed)} of memory, of "
                f"{format_bytes(available_memory())} available. Use fewer observations or fewer features."
            )
        self._pairs = self._rows = None
        if wide == p:
            rows = self.smoother.rows(self._nodes, grid)
            if direct:
                self._rows = torch.from_numpy(rows.reshape(len(grid), -1))
                return
            inner = rows @ rows.transpose(0, 2, 1)
        else:  # weights of all nodes have fewer columns
            weights = np.empty((len(grid), n, every))
            width = max(32, self.smoother.width // len(grid))
            for start in range(0, n, width):
                part = slice(start, start + width)
                weights[:, part] = self.smoother.weights(self._nodes[part], grid).transpose(0, 2, 1)
            inner = np.stack([one @ matrix.times(matrix.transposed_times(one.T)) for one in weights])
        self._pairs = torch.from_numpy(inner.reshape(len(grid), -1))

    def _weights(self) -> torch.Tensor:
        """Of the lengthscales of the grid, differentiable; shape (n_grid,)."""
        if self.kernel.filter == "none":
            return torch.ones(1, dtype=torch.float64)
        middle, half = self._range()
        place = (self.kernel.smoothing.log() - middle) / half
        at = place.item()
        slopes = chebyshev.chebval(at, chebyshev.chebder(self._lagrange))
        return torch.from_numpy(chebyshev.chebval(at, self._lagrange)) + torch.from_numpy(slopes) * (place - at)

    def inner(self) -> torch.Tensor:
        """zᵀz′, differentiable once in the kernel's parameters; shape (n, n)."""
        n = len(self._nodes)
        self._cover(float(self.kernel.smoothing.item()))
        if self._rows is not None:
            features = (self._weights() @ self._rows).reshape(n, -1)
            return features @ features.T
        assert self._pairs is not None
        return (self._weights() @ self._pairs).reshape(n, n)
