"""Diagonals of matrices that are known by their products only, estimated from probes.

With z of ±1, z ∘ Xz has mean diag(X) and an error due to the entries off the diagonal. Most of that error is shared
with matrices whose diagonals are known exactly: S, S² and the projection on what the Laplacian maps to 0. So at every
node the estimate is corrected by a regression on theirs, which takes a few dozen probes where many hundreds would be
needed without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.moments.operator import LaplacianOperator
    from graphmatern.sparse import Rows

    Floats = NDArray[np.float64]

__all__ = ["Diagonal", "estimate_diagonal", "estimate_diagonals"]

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

    def relative_error(self, rows: Rows) -> float:
        """Root mean square of the relative standard errors, over all nodes."""
        sound = self.values > 1e-9 * rows.largest(float(self.values.max(initial=0.0)))
        ratios = self.errors[sound] / self.values[sound]
        squares, count = rows.total(np.array([ratios @ ratios, len(ratios)]))
        return float(np.sqrt(squares / count)) if count else 0.0


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
    return estimate_diagonals(operator, lambda columns: times(columns)[None], [known], least)[0]


def estimate_diagonals(
    operator: LaplacianOperator,
    times: Callable[[Floats], Floats],
    known: Sequence[Floats | float],
    least: Floats | float = 0.0,
) -> list[Diagonal]:
    """Estimate the diagonals of several such matrices from the same probes; see `estimate_diagonal`.

    Parameters
    ----------
    operator : LaplacianOperator
        Polynomials of the Laplacian.
    times : callable
        Products of the matrices with columns of shape (n_nodes, k); shape (n_matrices, n_nodes, k).
    known : sequence of float or ndarray, shape (n_nodes,)
        For each matrix.
    least : float or ndarray, shape (n_nodes,)
        What no diagonal can be below.
    """
    rows, controls = operator.rows, _Controls(operator)
    width = int(np.clip(_ENTRIES // (rows.n_each * len(known)), 8, _ROUND))
    regression = _Regression(rows.n_here, len(known), len(controls.means))
    while True:
        for start in range(0, _ROUND, width):
            probes = rows.signs(min(width, _ROUND - start), _SEED, first=regression.count)
            regression.add(probes * times(probes), controls.of(probes))
        every = regression.solve()
        every = [
            one._replace(values=np.maximum(one.values, least) + own) for one, own in zip(every, known, strict=True)
        ]
        if regression.count >= _MOST or all(one.relative_error(rows) <= _ENOUGH for one in every):
            return every


class _Controls:
    """Estimates of diagonals that are known exactly, from the same probes."""

    def __init__(self, operator: LaplacianOperator) -> None:
        products = operator.products.single
        self._products, self._along_null = products, operator.along_null
        self.means = (products.diagonal, products.squared_diagonal, operator.null_vectors**2)

    def of(self, probes: Floats) -> list[Floats]:
        """Deviations from the known diagonals; each of shape (n_nodes, n_probes)."""
        once, twice = self._products.polynomials(_POWERS, probes)
        along = self._along_null(probes)
        found = []
        for image, mean in zip((once, twice, along), self.means, strict=True):
            image *= probes
            image -= mean[:, None]
            found.append(image)
        return found


class _Regression:
    """At every node, the means of several y given that those of controls are 0."""

    def __init__(self, n: int, n_means: int, n_controls: int) -> None:
        self.count = 0
        self._y, self._yy = np.zeros((n_means, n)), np.zeros((n_means, n))
        self._c, self._cy = np.zeros((n, n_controls)), np.zeros((n, n_controls, n_means))
        self._cc = np.zeros((n, n_controls, n_controls))

    def add(self, y: Floats, controls: list[Floats]) -> None:
        """Add samples: y of shape (n_means, n, k), controls of shape (n, k) each."""
        self.count += y.shape[2]
        self._y += y.sum(axis=2)
        self._yy += np.einsum("mij,mij->mi", y, y)
        for a, one in enumerate(controls):
            self._c[:, a] += one.sum(axis=1)
            self._cy[:, a] += np.einsum("ij,mij->im", one, y)
            for b in range(a + 1):
                self._cc[:, a, b] += np.einsum("ij,ij->i", one, controls[b])
                self._cc[:, b, a] = self._cc[:, a, b]

    def solve(self) -> list[Diagonal]:
        s, n_controls = self.count, self._c.shape[1]
        y, c = self._y / s, self._c / s
        yy = self._yy / s - y**2
        cy = self._cy / s - c[:, :, None] * y.T[:, None, :]
        cc = self._cc / s - c[:, :, None] * c[:, None, :]
        # Controls that do not vary, as at isolated nodes, or that say the same, get no weight.
        scale = np.einsum("naa->na", cc)
        cc[:, np.arange(n_controls), np.arange(n_controls)] += 1e-9 * scale + 1e-30
        slopes = np.linalg.solve(cc, cy)
        left = np.maximum(yy - np.einsum("nam,nam->mn", slopes, cy), 0.0)
        errors = np.sqrt(left / max(s - 1 - n_controls, 1))
        values = y - np.einsum("nam,na->mn", slopes, c)
        return [Diagonal(own, error, s) for own, error in zip(values, errors, strict=True)]
