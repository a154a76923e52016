"""Products on another device than the processor, through torch."""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from graphmatern.errors import ResourceError
from graphmatern.sparse import ChebyshevProducts, format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from scipy.sparse import csr_array

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["DeviceProducts"]

_SHARE, _KEPT_SHARE = 0.5, 0.2  # of the memory: for blocks, and for those that are kept to go on from
_BLOCKS = 5  # of a polynomial at a time, temporaries included
_MOST_COLUMNS = 512
_FASTER = 0.01  # times the seconds of one processor, about


class DeviceProducts(ChebyshevProducts):
    """Chebyshev polynomials of a symmetric matrix on a torch device; everything else stays in host memory.

    Parameters
    ----------
    matrix : csr_array, shape (n, n)
        Symmetric.
    low, high : float
        Between which its eigenvalues lie.
    device : torch.device
        Where to compute.
    dtype : torch.dtype
        float64, or float32 for half the memory and errors of about 1e-6.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, torch
    >>> matrix = sp.csr_array(np.diag([0.0, 1.0, 2.0]))
    >>> products = DeviceProducts(matrix, 0.0, 2.0, torch.device("cpu"))
    >>> products.apply(np.array([0.0, 0.0, 1.0]), np.ones((3, 1)))[:, 0]
    array([ 1., -1.,  1.])
    """

    #: Wide blocks keep a device busy.
    block_entries = 2**27

    def __init__(
        self,
        matrix: csr_array[Any],
        low: float,
        high: float,
        device: torch.device,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self._device = device
        self._dtype: torch.dtype = dtype
        super().__init__(matrix, low, high, 1)

    def _hold(self, scaled: csr_array[Any]) -> None:
        needed = self.nnz * (4 + self._size) + 4 * self.n + _BLOCKS * self.n * self._size
        if self._device.type == "cuda" and needed > torch.cuda.mem_get_info(self._device)[0]:
            free = format_bytes(torch.cuda.mem_get_info(self._device)[0])
            raise ResourceError(
                f"products with this graph need at least {format_bytes(needed)} on {self._device}, of {free} that are "
                'free. Use dtype="float32", a larger device, or leave device out.'
            )
        with warnings.catch_warnings():
            for message in ("Sparse CSR tensor support is in beta state", "Sparse invariant checks are implicitly"):
                warnings.filterwarnings("ignore", message=message)
            self._matrix = torch.sparse_csr_tensor(
                torch.from_numpy(scaled.indptr.astype(np.int32)).to(self._device),
                torch.from_numpy(scaled.indices.astype(np.int32)).to(self._device),
                torch.from_numpy(scaled.data).to(self._device, self._dtype),
                size=(self.n, self.n),
                check_invariants=False,
            )
            # Products make sparse tensors of their own, which torch warns of, once: here, rather than at the first use.
            torch.addmm(self._zeros(self.n, 1), self._matrix, self._zeros(self.n, 1))

    @property
    def _size(self) -> int:
        return self._dtype.itemsize

    def _block(self, columns: Floats) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(columns)).to(self._device, self._dtype, copy=True)

    def block(self, columns: Floats) -> Any:
        """Columns on the device; shape (n, k)."""
        return self._block(columns)

    def row_dots(self, a: Any, b: Any) -> Floats:
        """Inner products of the rows of two blocks; shape (n,)."""
        return self._numbers((a * b).sum(1))

    def polynomials(self, coefficients: Floats, columns: Any) -> Any:
        """See `ChebyshevProducts.polynomials`; what is on the device stays there."""
        if isinstance(columns, torch.Tensor):
            return self._summed(coefficients, columns.clone(), None)
        return super().polynomials(coefficients, columns)

    def along(self, vector: Floats, labels: Longs, block: Any) -> Any:
        """Project a block on vectors of length 1, one for each set of nodes with the same label; shape (n, k)."""
        column, places = self._block(vector[:, None]), self._rows(labels)
        sums = self._zeros(int(labels.max(initial=-1)) + 1, block.shape[1]).index_add_(0, places, column * block)
        return column * sums[places]

    @property
    def single(self) -> ChebyshevProducts:
        """The same: what is gained on a processor does not pay here for a second copy of the matrix."""
        return self

    def _zeros(self, *shape: int) -> torch.Tensor:
        return torch.zeros(shape, device=self._device, dtype=self._dtype)

    def _numbers(self, block: torch.Tensor) -> Floats:
        return np.asarray(block.to("cpu", torch.float64).numpy())

    def _own_dots(self, a: torch.Tensor, b: torch.Tensor) -> Floats:
        return self._numbers((a * b).sum(0, dtype=torch.float64))

    def _rows(self, nodes: Longs) -> torch.Tensor:
        return torch.from_numpy(np.array(nodes, dtype=np.int64)).to(self._device)  # a graph's own cannot be written

    def _advance(
        self,
        current: torch.Tensor,
        previous: torch.Tensor,
        k: int,
        totals: torch.Tensor | None = None,
        coefficients: Sequence[float] = (),
        crew: Any = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        del crew
        torch.addmm(previous, self._matrix, current, beta=-1.0, alpha=1.0 if k == 1 else 2.0, out=previous)
        for number, coefficient in enumerate(coefficients):
            if totals is not None and coefficient != 0.0:
                totals[number].add_(previous, alpha=coefficient)
        self._count(current.shape[1])
        return previous, current

    def project(self, current: Any, previous: Any, kept: Floats, scale: Floats, crew: Any) -> Floats:
        """See `ChebyshevProducts.project`."""
        del crew
        previous.mul_(self._block(kept))
        torch.addmm(previous, self._matrix, current, out=previous)
        previous.mul_(self._block(scale))
        return self._own_dots(previous, current)

    def subtract(
        self,
        current: Any,
        previous: Any,
        factors: Floats,
        totals: Any = None,
        coefficients: Floats | None = None,
        crew: Any = None,
    ) -> Floats:
        """See `ChebyshevProducts.subtract`."""
        del crew
        previous.addcmul_(current, self._block(factors), value=-1.0)
        if totals is not None and coefficients is not None:
            for total, own in zip(totals, coefficients, strict=True):
                total.addcmul_(previous, self._block(own))
        return self._own_dots(previous, previous)

    def seconds(self, n_columns: float, degree: float) -> float:
        """Seconds that products are expected to take."""
        seconds = super().seconds(n_columns, degree)
        return seconds if self._device.type == "cpu" else _FASTER * seconds

    def _may_keep(self, n_columns: int) -> bool:
        """Whether there is memory on the device to keep two blocks of so many columns."""
        if self._device.type != "cuda":
            return super()._may_keep(n_columns)
        return 2.0 * self.n * n_columns * self._size <= _KEPT_SHARE * torch.cuda.mem_get_info(self._device)[1]

    @cached_property
    def _width(self) -> int:
        """Columns of a block: the same at all times, as blocks are gone on from."""
        if self._device.type != "cuda":
            return _MOST_COLUMNS
        free = _SHARE * torch.cuda.mem_get_info(self._device)[0]
        return int(np.clip(free // (_BLOCKS * self.n * self._size), 1, _MOST_COLUMNS))

    def _in_blocks(self, count: int, work: Callable[[slice, Any], None]) -> None:
        for start in range(0, count, self._width):
            work(slice(start, min(start + self._width, count)), None)
