"""BLAS and LAPACK inside compiled code, through SciPy's Cython interface, on one thread each.

A function pointer that is a global constant would switch numba's disk cache off, because addresses change
from process to process.  Here addresses travel as an argument: `addresses` makes an array of them,
`workspace` turns it into the ``blas`` argument of the wrappers below.  Matrices are given by the address of
their first entry, in Fortran order, as in BLAS itself; see its reference for the other arguments.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern.sparse._compile import inner, intrinsic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Longs = NDArray[np.int64]
    # Addresses, and memory for integers, reals and letters.
    Blas = tuple[Longs, NDArray[np.int32], NDArray[np.float64], NDArray[np.uint8]]

__all__ = [
    "addresses",
    "gemm",
    "lauum",
    "potrf",
    "single_threaded_blas",
    "symm",
    "syrk",
    "trmm",
    "trsm",
    "trtri",
    "workspace",
]

_ROUTINES = (
    ("cython_lapack", "dpotrf"),
    ("cython_lapack", "dtrtri"),
    ("cython_lapack", "dlauum"),
    ("cython_blas", "dtrsm"),
    ("cython_blas", "dsyrk"),
    ("cython_blas", "dsymm"),
    ("cython_blas", "dgemm"),
    ("cython_blas", "dtrmm"),
)
_POTRF, _TRTRI, _LAUUM, _TRSM, _SYRK, _SYMM, _GEMM, _TRMM = range(8)
_L, _N, _R, _T = range(4)  # positions of the letters in the workspace


@cache
def addresses() -> NDArray[np.int64]:
    """Return the addresses of the routines used, as an array (8,)."""
    import scipy.linalg.cython_blas
    import scipy.linalg.cython_lapack  # noqa: F401
    from numba.extending import get_cython_function_address

    found = [get_cython_function_address(f"scipy.linalg.{module}", name) for module, name in _ROUTINES]
    table = np.array(found, dtype=np.int64)
    table.flags.writeable = False
    return table


@intrinsic
def _call(_typing_context: Any, address: Any, *arguments: Any) -> Any:
    """Call the C function at ``address`` with pointers given as integers; it returns nothing."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils

    given = arguments[0] if len(arguments) == 1 and isinstance(arguments[0], types.BaseTuple) else arguments
    signature = types.void(address, types.StarArgTuple(given))  # type: ignore[no-untyped-call]

    def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        pointers = cgutils.unpack_tuple(builder, values[1])  # type: ignore[no-untyped-call]
        word = ir.IntType(64)
        function_type = ir.FunctionType(ir.VoidType(), [word] * len(pointers))
        builder.call(builder.inttoptr(values[0], function_type.as_pointer()), pointers)
        return context.get_dummy_value()

    return signature, generate


@inner
def workspace(table: Longs) -> Blas:
    """Return the ``blas`` argument of the wrappers: addresses, and memory for scalars passed by reference.

    A workspace belongs to one thread.
    """
    letters = np.empty(4, np.uint8)
    letters[_L] = ord("L")
    letters[_N] = ord("N")
    letters[_R] = ord("R")
    letters[_T] = ord("T")
    return table, np.empty(6, np.int32), np.empty(2, np.float64), letters


@inner
def potrf(blas: Blas, n: int, a: int, lda: int) -> int:
    """Overwrite the lower triangle of A (n, n) by its Cholesky factor; return LAPACK's ``info``."""
    table, ints, _, letters = blas
    ints[0] = n
    ints[1] = lda
    ints[2] = 0
    i = ints.ctypes.data
    _call(table[_POTRF], letters.ctypes.data + _L, i, a, i + 4, i + 8)
    return ints[2]


@inner
def trtri(blas: Blas, n: int, a: int, lda: int) -> None:
    """Overwrite the lower triangle L of A (n, n) by that of L⁻¹."""
    table, ints, _, letters = blas
    ints[0] = n
    ints[1] = lda
    ints[2] = 0
    i = ints.ctypes.data
    _call(table[_TRTRI], letters.ctypes.data + _L, letters.ctypes.data + _N, i, a, i + 4, i + 8)


@inner
def lauum(blas: Blas, n: int, a: int, lda: int) -> None:
    """Overwrite the lower triangle L of A (n, n) by that of LᵀL."""
    table, ints, _, letters = blas
    ints[0] = n
    ints[1] = lda
    ints[2] = 0
    i = ints.ctypes.data
    _call(table[_LAUUM], letters.ctypes.data + _L, i, a, i + 4, i + 8)


@inner
def trmm(blas: Blas, m: int, n: int, alpha: float, a: int, lda: int, b: int, ldb: int) -> None:
    """Overwrite B (m, n) by alpha Aᵀ B; A is lower triangular."""
    table, ints, reals, letters = blas
    ints[0] = m
    ints[1] = n
    ints[2] = lda
    ints[3] = ldb
    reals[0] = alpha
    i = ints.ctypes.data
    c = letters.ctypes.data
    _call(table[_TRMM], c + _L, c + _L, c + _T, c + _N, i, i + 4, reals.ctypes.data, a, i + 8, b, i + 12)


@inner
def trsm(blas: Blas, right: bool, transpose: bool, m: int, n: int, a: int, lda: int, b: int, ldb: int) -> None:
    """Overwrite B (m, n) by op(A)⁻¹ B, or by B op(A)⁻¹ if ``right``; A is lower triangular."""
    table, ints, reals, letters = blas
    ints[0] = m
    ints[1] = n
    ints[2] = lda
    ints[3] = ldb
    reals[0] = 1.0
    i = ints.ctypes.data
    c = letters.ctypes.data
    side = c + (_R if right else _L)
    op = c + (_T if transpose else _N)
    _call(table[_TRSM], side, c + _L, op, c + _N, i, i + 4, reals.ctypes.data, a, i + 8, b, i + 12)


@inner
def syrk(blas: Blas, n: int, k: int, alpha: float, a: int, lda: int, beta: float, c: int, ldc: int) -> None:
    """Overwrite the lower triangle of C (n, n) by alpha A Aᵀ + beta C; A is (n, k)."""
    table, ints, reals, letters = blas
    ints[0] = n
    ints[1] = k
    ints[2] = lda
    ints[3] = ldc
    reals[0] = alpha
    reals[1] = beta
    i = ints.ctypes.data
    x = reals.ctypes.data
    letter = letters.ctypes.data
    _call(table[_SYRK], letter + _L, letter + _N, i, i + 4, x, a, i + 8, x + 8, c, i + 12)


@inner
def symm(
    blas: Blas,
    m: int,
    n: int,
    alpha: float,
    a: int,
    lda: int,
    b: int,
    ldb: int,
    beta: float,
    c: int,
    ldc: int,
) -> None:
    """Overwrite C (m, n) by alpha A B + beta C; A is symmetric, in its lower triangle."""
    table, ints, reals, letters = blas
    ints[0] = m
    ints[1] = n
    ints[2] = lda
    ints[3] = ldb
    ints[4] = ldc
    reals[0] = alpha
    reals[1] = beta
    i = ints.ctypes.data
    x = reals.ctypes.data
    letter = letters.ctypes.data
    _call(table[_SYMM], letter + _L, letter + _L, i, i + 4, x, a, i + 8, b, i + 12, x + 8, c, i + 16)


@inner
def gemm(
    blas: Blas,
    transpose_a: bool,
    transpose_b: bool,
    m: int,
    n: int,
    k: int,
    alpha: float,
    a: int,
    lda: int,
    b: int,
    ldb: int,
    beta: float,
    c: int,
    ldc: int,
) -> None:
    """Overwrite C (m, n) by alpha op(A) op(B) + beta C, where op(A) is (m, k)."""
    table, ints, reals, letters = blas
    ints[0] = m
    ints[1] = n
    ints[2] = k
    ints[3] = lda
    ints[4] = ldb
    ints[5] = ldc
    reals[0] = alpha
    reals[1] = beta
    i = ints.ctypes.data
    x = reals.ctypes.data
    letter = letters.ctypes.data
    op_a = letter + (_T if transpose_a else _N)
    op_b = letter + (_T if transpose_b else _N)
    _call(table[_GEMM], op_a, op_b, i, i + 4, i + 8, x, a, i + 12, b, i + 16, x + 8, c, i + 20)


class _Pin:
    """Counts the computations under way; BLAS is held at one thread while there are any.

    The number of BLAS threads belongs to the process, so the first computation to begin changes it and
    the last to end restores it.  Two BLAS threads inside a front are slower than one (they wait for
    each other at every call); this package works on several fronts at once instead.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._libraries: list[Any] | None = None
        self._before: list[int] = []

    def _find(self) -> list[Any]:
        """Return the BLAS libraries of this process: that of SciPy, and NumPy's, which is another in their wheels."""
        from threadpoolctl import ThreadpoolController

        return [lib for lib in ThreadpoolController().lib_controllers if lib.user_api == "blas"]

    @staticmethod
    def _set(library: Any, threads: int) -> None:
        """Set the number of threads of a library.

        Recent versions of threadpoolctl ignore all Python threads but the first that sets a number, so
        that they do not fight; here the counter sees to that.
        """
        getattr(library, "_real_set_num_threads", library.set_num_threads)(threads)

    def enter(self) -> None:
        with self._lock:
            if self._libraries is None:
                import scipy.linalg.cython_blas  # noqa: F401 - loads the library, if nothing else has

                self._libraries = self._find()
            self._users += 1
            if self._users == 1:
                self._before = [lib.get_num_threads() or 1 for lib in self._libraries]
                for library, threads in zip(self._libraries, self._before, strict=True):
                    if threads != 1:
                        self._set(library, 1)

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                for library, threads in zip(self._libraries or [], self._before, strict=True):
                    if threads != 1:
                        self._set(library, threads)

    def reset(self) -> None:
        """Forget the computations of the parent process, and give BLAS its threads back."""
        self._lock = threading.Lock()
        if self._users:
            self._users = 1
            self.leave()


_PIN = _Pin()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_PIN.reset)


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Hold BLAS at one thread; may be nested, and entered from several threads at once."""
    _PIN.enter()
    try:
        yield
    finally:
        _PIN.leave()
