"""Features of all nodes, sparse or dense, as the engine multiplies with them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csc_array, csr_array, issparse

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["FeatureMatrix"]

_NARROW = 16_000  # features


@dataclass(frozen=True, eq=False)
class FeatureMatrix:
    """Features X, one row for each node; those that no node has are left out.

    Attributes
    ----------
    values : csr_array or ndarray, shape (n_nodes, n_features)
        X. Sparse ones are never made dense, but for a few columns or rows at a time.
    """

    values: csr_array[Any] | Floats

    @property
    def sparse(self) -> bool:
        """Whether the features are kept sparse."""
        return bool(issparse(self.values))

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.values.shape[1])

    @property
    def n_entries(self) -> int:
        """Number of entries that are kept."""
        return int(self.values.nnz if issparse(self.values) else self.values.size)

    @cached_property
    def _columns(self) -> Any:
        return csc_array(self.values) if self.sparse else self.values

    @property
    def narrow(self) -> bool:
        """Whether a block with a row for each feature stays in cache."""
        return self.n_features <= _NARROW

    @cached_property
    def _transposed(self) -> Any:
        # Node by node, sums of narrow features are near at hand: ten times as fast as looking for nodes.
        return self.values.T if self.narrow or not self.sparse else csr_array(self.values.T)

    def transposed_times(self, columns: Floats) -> Floats:
        """Xᵀ V; shape (n_features, k)."""
        return np.asarray(self._transposed @ columns)

    def times(self, columns: Floats) -> Floats:
        """X V; shape (n_nodes, k)."""
        return np.asarray(self.values @ columns)

    def block(self, start: int, stop: int) -> Floats:
        """Some columns, dense; shape (n_nodes, stop − start)."""
        found = self._columns[:, start:stop]
        return np.asarray(found.toarray() if self.sparse else found, dtype=np.float64)

    @cached_property
    def average_square(self) -> float:
        """Average squared norm of a row; 1 where all are 0."""
        values = self.values.data if self.sparse else self.values
        return float(np.sum(np.asarray(values) ** 2)) / self.values.shape[0] or 1.0

    @cached_property
    def average_distance(self) -> float:
        """Average squared distance of a row from the mean of all; 1 where all are the same."""
        mean = np.asarray(self.values.mean(axis=0)).ravel()
        found = self.average_square - float(mean @ mean)
        return found if found > 1e-12 * self.average_square else 1.0

    def spread(self, differences: bool) -> float:
        """What squares, or squared distances, are relative to."""
        return self.average_distance if differences else self.average_square
