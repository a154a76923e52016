"""Diagonals of matrices that are known by their products only, estimated from probes.

With z of ±1, z ∘ Xz has mean diag(X) and an error due to the entries off the diagonal. Most of that error is shared
with matrices whose diagonals are known exactly: S, S² and the projection on what the Laplacian maps to 0. So at every
node the estimate is corrected by a regression on theirs, which takes a few dozen probes where many hundreds would be
needed without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.sparse import csr_array

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from graphmatern.inference.moments.operator import LaplacianOperator

    Floats = NDArray[np.float64]

__all__ = ["Diagonal", "estimate_diagonal"]

_ENTRIES = 2**24  # of a block of probes
_ROUND, _MOST = 64, 256  # probes
_ENOUGH = 0.02  # relative standard error, root mean square
_POWERS = np.array([[0.0, 0.5], [1.0, 0.0], [0.0, 0.5]])  # S and S² in Chebyshev polynomials
_SEED = 11


class Diagonal(NamedTuple):
    """A diagonal, its standard errors, each of shape (n_nodes,), and how many probes were used."""

    values: Floats
    errors: Floats
    n_probes: int

    @property
    def relative_error(self) -> float:
        """Root mean square of the relative standard errors."""
        sound = self.values > 1e-9 * self.values.max(initial=0.0)
        ratios = self.errors[sound] / self.values[sound]
        return float(np.sqrt(np.mean(ratios**2))) if len(ratios) else 0.0


def estimate_diagonal(
    operator: LaplacianOperator,
    times: Callable[[Floats], Floats],
    known: Floats | float = 0.0,
    least: Floats | float = 0.0,
) -> Diagonal:
    """Estimate the diagonal of a positive semidefinite matrix that is close to a function of the Laplacian.

    Parameters
    ----------
    operator : LaplacianOperator
        Polynomials of the Laplacian.
    times : callable
        Products of the matrix with columns of shape (n_nodes, k).
    known : float or ndarray, shape (n_nodes,)
        Diagonal of what was taken off the matrix because it is known; it is added again.
    least : float or ndarray, shape (n_nodes,)
        What the diagonal cannot be below.
    """
    n, rng = operator.graph.n_nodes, np.random.default_rng(_SEED)
    controls = _Controls(operator)
    width = int(np.clip(_ENTRIES // n, 8, _ROUND))
    sums = _Regression(n, len(controls.means))
    while True:
        for start in range(0, _ROUND, width):
            shape = (n, min(width, _ROUND - start))
            probes = np.asarray(rng.integers(0, 2, shape, dtype=np.int8) * 2.0 - 1.0)
            sums.add(probes * times(probes), controls.of(probes))
        found = sums.solve()
        found = found._replace(values=np.maximum(found.values, least) + known)
        if found.relative_error <= _ENOUGH or found.n_probes >= _MOST:
            return found


class _Controls:
    """Estimates of diagonals that are known exactly, from the same probes."""

    def __init__(self, operator: LaplacianOperator) -> None:
        products, n = operator.products.single, operator.graph.n_nodes
        self._products = products
        # Null vectors as the columns of a sparse matrix, one for each component.
        entries = operator.null_vectors, operator.graph.components, np.arange(n + 1)
        self._null = csr_array(entries, shape=(n, int(operator.graph.components.max()) + 1))
        self.means = (products.diagonal, products.squared_diagonal, operator.null_vectors**2)

    def of(self, probes: Floats) -> list[Floats]:
        """Deviations from the known diagonals; each of shape (n_nodes, n_probes)."""
        once, twice = self._products.polynomials(_POWERS, probes)
        along = self._null @ (self._null.T @ probes)
        found = []
        for image, mean in zip((once, twice, along), self.means, strict=True):
            image *= probes
            image -= mean[:, None]
            found.append(image)
        return found


class _Regression:
    """At every node, the mean of y given that of controls is 0."""

    def __init__(self, n: int, n_controls: int) -> None:
        self._count = 0
        self._y, self._yy = np.zeros(n), np.zeros(n)
        self._c, self._cy = np.zeros((n, n_controls)), np.zeros((n, n_controls))
        self._cc = np.zeros((n, n_controls, n_controls))

    def add(self, y: Floats, controls: list[Floats]) -> None:
        """Add samples, each of shape (n, k)."""
        self._count += y.shape[1]
        self._y += y.sum(axis=1)
        self._yy += np.einsum("ij,ij->i", y, y)
        for a, one in enumerate(controls):
            self._c[:, a] += one.sum(axis=1)
            self._cy[:, a] += np.einsum("ij,ij->i", one, y)
            for b in range(a + 1):
                self._cc[:, a, b] += np.einsum("ij,ij->i", one, controls[b])
                self._cc[:, b, a] = self._cc[:, a, b]

    def solve(self) -> Diagonal:
        s, n_controls = self._count, self._c.shape[1]
        y, c = self._y / s, self._c / s
        yy = self._yy / s - y**2
        cy = self._cy / s - c * y[:, None]
        cc = self._cc / s - c[:, :, None] * c[:, None, :]
        # Controls that do not vary, as at isolated nodes, or that say the same, get no weight.
        scale = np.einsum("naa->na", cc)
        cc[:, np.arange(n_controls), np.arange(n_controls)] += 1e-9 * scale + 1e-30
        slopes = np.linalg.solve(cc, cy[:, :, None])[:, :, 0]
        left = np.maximum(yy - np.einsum("na,na->n", slopes, cy), 0.0)
        errors = np.sqrt(left / max(s - 1 - n_controls, 1))
        return Diagonal(y - np.einsum("na,na->n", slopes, c), errors, s)
