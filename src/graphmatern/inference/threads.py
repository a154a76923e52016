"""How many threads dense linear algebra should use."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from graphmatern.sparse import single_threaded_blas

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["small_matrix_threads"]

_SMALL_MATRIX = 1200  # two threads gain nothing below, as NumPy, SciPy and torch each have their own, which wait busily


@contextmanager
def small_matrix_threads(n: int) -> Iterator[None]:
    """Hold BLAS and torch at one thread for matrices of n rows and columns that are small.

    Waking others takes longer than the work, and where another program has their core, waiting for them takes longest.
    """
    if n > _SMALL_MATRIX:
        yield
        return
    usual = torch.get_num_threads()
    with single_threaded_blas():
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(usual)
