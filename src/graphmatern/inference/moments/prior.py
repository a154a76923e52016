"""A process given by moments on all nodes, before any data: polynomials of the Laplacian applied to vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg as la

from graphmatern.inference.moments.diagonal import Diagonal, estimate_diagonals
from graphmatern.inference.observations import sum_by_node

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.moments.operator import LaplacianOperator

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["NodePrior", "PriorField", "in_masses"]

_KEPT_ENTRIES = 2**27  # of covariances between all nodes and those observed
_LANDMARKS = 1_000  # observed nodes, at most, whose columns help to estimate prior variances
_RANK = 1e-8  # relative size of eigenvalues that count
_EXACT_NODES = 4_000  # prior variances of so many nodes are computed one by one
_SMALL = 1e-4  # error of what probes are multiplied with, relative to the average prior variance
_AT_ONCE = 64
_SECONDS, _MOST = 0.5, 1_024  # for estimates better than they must be: time, and probes


class NodePrior(ABC):
    """A process on all nodes before any data: what predictions under any sites need of it."""

    n_nodes: int

    @abstractmethod
    def spread(self, nodes: Longs, columns: Floats, at: Longs) -> Floats:
        """K between nodes ``at`` and some, each once, times columns; shape (n_at, k)."""

    @abstractmethod
    def row_squares(self, nodes: Longs, columns: Floats) -> Floats:
        """Sums of the squares of the rows of K between all nodes and some, each once, times columns; (n_nodes,)."""

    @abstractmethod
    def times(self, nodes: Longs, weights: Floats) -> Floats:
        """K between all nodes and some, repeats allowed, times weights; shape (n_nodes, k)."""

    @abstractmethod
    def between(self, left: Longs, right: Longs, *, keep: bool) -> Floats:
        """K between some nodes and others; shape (n_left, n_right)."""

    @abstractmethod
    def draw(self, count: int, rng: np.random.Generator) -> Floats:
        """Draws of the process; shape (n_nodes, count)."""

    @abstractmethod
    def variances(self, nodes: Longs) -> Floats:
        """Prior variances of some nodes; shape (n,)."""

    @abstractmethod
    def variance_errors(self, nodes: Longs) -> Floats:
        """Standard errors of `variances` of the same nodes; shape (n,)."""

    @abstractmethod
    def join(self, others: Sequence[Any]) -> None:
        """Share work with processes of other parameters."""


class PriorField(NodePrior):
    """The process on all nodes before any data, and what predictions under different sites share.

    Parameters
    ----------
    operator : LaplacianOperator
        Polynomials of the Laplacian.
    coefficients, root : ndarray, shape (degree + 1,)
        Chebyshev coefficients of the kernel's function, and of its square root.
    """

    def __init__(self, operator: LaplacianOperator, coefficients: Floats, root: Floats) -> None:
        self.operator, self.coefficients, self._root = operator, coefficients, root
        self.rows = operator.rows
        self.n_nodes = self.rows.n_here
        self._cross: dict[bytes, Floats] = {}
        self._exact: dict[bytes, Floats] = {}  # prior variances of the nodes that were last asked for
        self._times: dict[bytes, Floats] = {}  # K times the column that was last asked for
        self._family: list[PriorField] = [self]

    def spread(self, nodes: Longs, columns: Floats, at: Longs) -> Floats:
        """K between nodes ``at`` and some, each once, times columns; shape (n_at, k)."""
        known = self.kept_columns(nodes)
        if known is not None:
            return np.asarray(known[at] @ columns)
        full = np.zeros((self.n_nodes, columns.shape[1]))
        full[nodes] = columns
        return self.apply(full)[at]

    def apply(self, columns: Floats) -> Floats:
        """K times columns; shape (n_nodes, k)."""
        return self.operator.apply(self.coefficients, columns)

    def roughly(self, share: float) -> PriorField:
        """The same in single precision, off by no more than a share of the average prior variance."""
        return PriorField(self.operator.single, self.operator.leading(self.coefficients, share), self._root)

    @property
    def smallest(self) -> float:
        """The kernel's function at the largest eigenvalue: mostly K's smallest."""
        return float(self.coefficients.sum())

    def row_squares(self, nodes: Longs, columns: Floats) -> Floats:
        """Sums of the squares of the rows of K between all nodes and some, each once, times columns; (n_nodes,)."""
        known = self.kept_columns(nodes)
        if known is None:
            return self.operator.row_squares(nodes, self.coefficients, columns)
        found = np.zeros(self.n_nodes)
        for start in range(0, columns.shape[1], _AT_ONCE):
            images = known @ columns[:, start : start + _AT_ONCE]
            found += np.einsum("ij,ij->i", images, images)
        return found

    def times(self, nodes: Longs, weights: Floats) -> Floats:
        """K between all nodes and some, repeats allowed, times weights, by products alone; shape (n_nodes, k)."""
        columns = sum_by_node(nodes, weights, self.n_nodes)
        if weights.shape[1] != 1 or not self.rows.whole:
            return self.apply(columns)
        # One column at a time is what designs ask for: every class and every member of the family for the same one.
        key = nodes.tobytes() + weights.tobytes()
        if key not in self._times:
            found = self._polynomials(self.operator.polynomials, columns)
            for one, own in zip(self._family, found, strict=True):
                one._times = {key: own}
        return self._times[key].copy()

    def columns(self, keys: Longs) -> Floats:
        """Columns of K; shape (n_nodes, n)."""
        return self.apply(self.rows.units(keys))

    def join(self, others: Sequence[PriorField]) -> None:
        """Let processes of other parameters on the same graph share products with this one, all for the same columns.

        That takes the time of the one that needs the highest degree, and a little more.
        """
        family = [self, *(one for one in others if one is not self)]
        for one in family:
            one._family = family

    def kept_columns(self, nodes: Longs) -> Floats | None:
        """Columns of K, computed once, for the whole family; None where they would be too many. Shape (n_nodes, n)."""
        key, most = nodes.tobytes(), _KEPT_ENTRIES // self.n_nodes // len(self._family)
        if key not in self._cross and len(nodes) <= most and self.rows.whole:
            units = self.rows.units(nodes)
            for one, found in zip(self._family, self._polynomials(self.operator.polynomials, units), strict=True):
                if len(nodes) + sum(len(known) for known in one._cross) // nodes.itemsize > most:
                    one._cross.clear()
                one._cross[key] = found
        return self._cross.get(key)

    def _polynomials(self, apply: Callable[[Floats, Floats], Floats], columns: Floats, share: float = 0.0) -> Floats:
        """Polynomials of all members of the family, applied to the same columns; shape (n_members, n_nodes, k).

        ``share`` is what their errors may be, relative to the average prior variance.
        """
        every = [self.operator.leading(one.coefficients, share) for one in self._family]
        coefficients = np.zeros((max(len(own) for own in every), len(every)))
        for place, own in enumerate(every):
            coefficients[: len(own), place] = own
        return apply(coefficients, columns)

    def between(self, left: Longs, right: Longs, *, keep: bool) -> Floats:
        """K between some nodes and others; shape (n_left, n_right).

        ``keep`` keeps the columns of ``right``, where they are not too many, for other nodes on the left.
        """
        known = self.kept_columns(right) if keep else None
        if known is not None:
            return known[left]
        found = np.empty((len(left), len(right)))
        for start in range(0, len(right), _AT_ONCE):
            found[:, start : start + _AT_ONCE] = self.columns(right[start : start + _AT_ONCE])[left]
        return found

    def draw(self, count: int, rng: np.random.Generator) -> Floats:
        """Draws of the process; shape (n_nodes, count)."""
        return self.operator.apply_root(self._root, rng.standard_normal((self.n_nodes, count)))

    def variances(self, nodes: Longs) -> Floats:
        """Prior variances of some nodes: one by one for few, else all of them from probes; shape (n,)."""
        if self._are_many(nodes):
            return self.estimated_variances.values[nodes]
        every = self.rows.every(nodes)
        if every.tobytes() not in self._exact:
            self._find_variances(every)
        return self._exact[every.tobytes()][np.searchsorted(every, self.rows.keys[nodes])]

    def _find_variances(self, every: Longs) -> None:
        """Find the prior variances of some nodes, for the whole family; classes ask for the same nodes in turn."""
        family = self._family
        size = int(np.clip(_KEPT_ENTRIES // (self.n_nodes * len(family)), 1, _AT_ONCE))
        found = np.empty((len(family), len(every)))
        for start in range(0, len(every), size):
            part = every[start : start + size]
            columns = self._polynomials(self.operator.polynomials, self.rows.units(part))
            for place, own in enumerate(columns):
                found[place, start : start + size] = np.diag(self.rows.taken(part, own))
        for one, own in zip(family, found, strict=True):
            one._exact = {every.tobytes(): own}

    def variance_errors(self, nodes: Longs) -> Floats:
        """Standard errors of `variances` of the same nodes; shape (n,)."""
        return self.estimated_variances.errors[nodes] if self._are_many(nodes) else np.zeros(len(nodes))

    def _are_many(self, nodes: Longs) -> bool:
        return self.rows.total(len(np.unique(nodes))) > _EXACT_NODES

    @cached_property
    def estimated_variances(self) -> Diagonal:
        """Prior variances of all nodes from probes.

        What kept columns K_·x explain, K_·x K_xx⁻¹ K_x·, is exact: only the rest, which is what data at x leave open at
        most, is estimated. So no posterior variance is negative, and those near data are not lost in the error.
        """
        operator, family = self.operator, self._family
        roots = [one._explained_root for one in family]
        if operator.graph.masses is not None:
            roots = [root * np.sqrt(operator.graph.masses)[:, None] for root in roots]
        products = operator.products
        roots = [products.block(root) for root in roots]

        def times(columns: Any) -> Any:
            # Probes differ by far more than single precision.
            found = self._polynomials(operator.products.single.polynomials, columns, _SMALL)
            for image, root in zip(found, roots, strict=True):
                if root.shape[1]:
                    image -= root @ (root.T @ columns)
            return found

        known = [products.row_dots(root, root) for root in roots]
        affordable = _SECONDS / products.seconds(1, max(len(one.coefficients) for one in family))
        every = estimate_diagonals(operator, times, known, affordable=min(affordable, _MOST))
        every = [in_masses(one, operator) for one in every]
        for one, found in zip(family, every, strict=True):
            one.__dict__["estimated_variances"] = found  # as if each had been asked
        return every[family.index(self)]

    @property
    def _explained_root(self) -> Floats:
        """Φ with ΦΦᵀ = K_·x K_xx⁻¹ K_x· for the largest set x of which columns are kept; shape (n_nodes, rank)."""
        sets = [np.frombuffer(key, dtype=np.int64) for key in self._cross]
        x = max((one for one in sets if len(one) <= _LANDMARKS), key=len, default=None)
        if x is None:
            return np.zeros((self.n_nodes, 0))
        columns = self._cross[x.tobytes()]
        values, vectors = la.eigh(0.5 * (columns[x] + columns[x].T))
        keep = values > _RANK * values.max()
        return np.asarray(columns @ (vectors[:, keep] / np.sqrt(values[keep])))


def in_masses(found: Diagonal, operator: LaplacianOperator) -> Diagonal:
    """The diagonal of A^(−½) X A^(−½), from that of X."""
    masses = operator.graph.masses
    inverse = 1.0 if masses is None else 1.0 / masses
    return Diagonal(found.values * inverse, found.errors * inverse, found.n_probes)
