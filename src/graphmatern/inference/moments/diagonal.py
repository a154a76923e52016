"""Diagonals of matrices that are known by their products only, estimated from probes.

With z of ±1, z ∘ Xz has mean diag(X) and an error due to the entries off the diagonal. Most of that error is shared
with matrices whose diagonals are known exactly: S, S², S³ where triangles are soon counted, and the projection on what
the Laplacian maps to 0. So at every node the estimate is corrected by a regression on theirs, which takes a few dozen
probes where many hundreds would be needed without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.moments.operator import LaplacianOperator
    from graphmatern.sparse import ChebyshevProducts, Rows

    Floats = NDArray[np.float64]

__all__ = ["Diagonal", "estimate_diagonal", "estimate_diagonals"]

_ROUND, _MOST = 64, 256  # probes
_ENOUGH, _FINE = 0.02, 0.004  # relative standard errors, root mean square
_POWERS = np.array([[0.0, 0.5, 0.0], [1.0, 0.0, 0.75], [0.0, 0.5, 0.0], [0.0, 0.0, 0.25]])  # S, S², S³ from T_k(S)
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
    times: Callable[[Any], Any],
    known: Floats | float = 0.0,
    least: Floats | float = 0.0,
    affordable: float = 0.0,
) -> Diagonal:
    """Estimate the diagonal of a positive semidefinite matrix that is close to a function of the Laplacian.

    Parameters
    ----------
    operator : LaplacianOperator
        Polynomials of the Laplacian.
    times : callable
        Products of the matrix with a block of columns (`ChebyshevProducts.block`), of shape (n_nodes, k).
    known : float or ndarray, shape (n_nodes,)
        Diagonal of what was taken off the matrix because it is known; it is added again.
    least : float or ndarray, shape (n_nodes,)
        What the diagonal cannot be below.
    affordable : float
        How many probes may be taken to make errors smaller than they must be.
    """
    return estimate_diagonals(operator, lambda columns: times(columns)[None], [known], least, affordable)[0]


def estimate_diagonals(
    operator: LaplacianOperator,
    times: Callable[[Any], Any],
    known: Sequence[Floats | float],
    least: Floats | float = 0.0,
    affordable: float = 0.0,
) -> list[Diagonal]:
    """Estimate the diagonals of several such matrices from the same probes; see `estimate_diagonal`.

    Parameters
    ----------
    operator : LaplacianOperator
        Polynomials of the Laplacian.
    times : callable
        Products of the matrices with a block of columns, of shape (n_nodes, k); shape (n_matrices, n_nodes, k).
    known : sequence of float or ndarray, shape (n_nodes,)
        For each matrix.
    least : float or ndarray, shape (n_nodes,)
        What no diagonal can be below.
    affordable : float
        How many probes may be taken to make errors smaller than they must be.
    """
    rows, controls = operator.rows, _Controls(operator)
    width = int(np.clip(operator.products.block_entries // (rows.n_each * len(known)), 16, _ROUND))
    regression = _Regression(operator.products, controls.means, len(known))
    while True:
        for start in range(0, _ROUND, width):
            signs = rows.signs(min(width, _ROUND - start), _SEED, first=regression.count)
            probes = operator.products.block(signs)
            regression.add(probes, times(probes), controls.of(probes))
        every = regression.solve()
        every = [
            one._replace(values=np.maximum(one.values, least) + own) for one, own in zip(every, known, strict=True)
        ]
        error = max(one.relative_error(rows) for one in every)
        must = error > _ENOUGH and regression.count < _MOST
        if not must and (error <= _FINE or regression.count + _ROUND > affordable):
            return every


class _Controls:
    """Matrices whose diagonals are known exactly."""

    def __init__(self, operator: LaplacianOperator) -> None:
        products = operator.products.single
        self._products, self._along_null = products, operator.along_null
        powers = [products.diagonal, products.squared_diagonal, operator.cubed_diagonal]
        self._n_powers = 2 if powers[-1] is None else 3
        means = [one for one in (*powers, operator.null_vectors**2) if one is not None]
        self.means: Floats = np.stack(means, axis=1)  # (n_nodes, n_controls)

    def of(self, probes: Any) -> list[Any]:
        """Their products with a block of probes."""
        powers = _POWERS[: self._n_powers + 1, : self._n_powers]
        return [*self._products.polynomials(powers, probes), self._along_null(probes)]


class _Regression:
    """At every node, the means of several z ∘ Xz given those of z ∘ Cz for controls C.

    Sums of products are all that is kept; in products of two samples, signs cancel.
    """

    def __init__(self, products: ChebyshevProducts, means: Floats, n_matrices: int) -> None:
        n, n_controls = means.shape
        self.count, self._products, self._means = 0, products, means
        self._y, self._yy = np.zeros((n_matrices, n)), np.zeros((n_matrices, n))
        self._c, self._cy = np.zeros((n, n_controls)), np.zeros((n, n_controls, n_matrices))
        self._cc = np.zeros((n, n_controls, n_controls))

    def add(self, probes: Any, images: Any, controls: list[Any]) -> None:
        """Add samples: probes and controls of shape (n, k) each, images of shape (n_matrices, n, k)."""
        self.count += probes.shape[1]
        dots = self._products.row_dots
        for m, image in enumerate(images):
            self._y[m] += dots(probes, image)
            self._yy[m] += dots(image, image)
        for a, one in enumerate(controls):
            self._c[:, a] += dots(probes, one)
            for m, image in enumerate(images):
                self._cy[:, a, m] += dots(one, image)
            for b in range(a + 1):
                self._cc[:, a, b] += dots(one, controls[b])
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
        values = y - np.einsum("nam,na->mn", slopes, c - self._means)
        return [Diagonal(own, error, s) for own, error in zip(values, errors, strict=True)]
