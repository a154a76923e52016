"""The processes that work together, and what they say to each other: all through MPI and PETSc."""

from __future__ import annotations

import sys
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from graphmatern.errors import GraphMaternError, MissingLibraryError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Longs = NDArray[np.int64]

__all__ = ["Processes", "ending_together", "load_petsc", "world"]

_Item = TypeVar("_Item")

_INSTALL = "see 'Beyond one machine' in the guide, or run: make mpi"


def _load_mpi() -> Any:
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # the latter where there is no MPI library to load
        raise MissingLibraryError(
            f"graphs over several processes need mpi4py and an MPI library ({error}); {_INSTALL}"
        ) from None
    return MPI


def load_petsc() -> Any:
    """PETSc, ready for use; raises where it is not installed."""
    _load_mpi()  # first: whoever starts MPI ends it
    try:
        import petsc4py

        petsc4py.init(["graphmatern", "-no_signal_handler"])
        from petsc4py import PETSc
    except ImportError as error:
        raise MissingLibraryError(f"graphs over several processes need petsc4py ({error}); {_INSTALL}") from None
    return PETSc


def world() -> Processes:
    """All processes that were started together; one where there was no ``mpiexec``."""
    return Processes(_load_mpi().COMM_WORLD)


class Processes:
    """Processes that run the same program together, each with a part of the data.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
        The communicator.
    """

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self.rank, self.size = int(comm.Get_rank()), int(comm.Get_size())

    @property
    def is_first(self) -> bool:
        """Whether this is the process that speaks for all."""
        return self.rank == 0

    # ------------------------------------------------------------------ numbers
    def total(self, found: Any) -> Any:
        """Sum of what every process has: a number, or an array of one shape; the same to the last bit everywhere."""
        if self.size == 1:
            return found
        return self._reduced(found, _load_mpi().SUM)

    def largest(self, found: Any) -> Any:
        """The largest of what every process has; elementwise for arrays."""
        return found if self.size == 1 else self._reduced(found, _load_mpi().MAX)

    def _reduced(self, found: Any, operation: Any) -> Any:
        # To one process and from there to all: where each sums for itself, last bits may differ, and with them paths.
        own = np.ascontiguousarray(found)
        reduced = np.empty_like(own)
        self._comm.Reduce(own, reduced if self.is_first else None, op=operation, root=0)
        self._comm.Bcast(reduced, root=0)
        return reduced if isinstance(found, np.ndarray) else reduced.item()

    def before(self, count: int) -> int:
        """Sum of what the processes before this one have."""
        return int(self._comm.scan(count)) - count

    # ------------------------------------------------------------------ things
    def gathered(self, item: _Item) -> list[_Item]:
        """What every process has, in their order."""
        return list(self._comm.allgather(item))

    def from_first(self, item: _Item) -> _Item:
        """What the first process has."""
        found: _Item = self._comm.bcast(item, root=0)
        return found

    def joined(self, array: NDArray[Any]) -> NDArray[Any]:
        """Arrays of all processes, one after the other."""
        return np.concatenate(self.gathered(array))

    def wait(self) -> None:
        """Wait for all others."""
        self._comm.Barrier()

    # ------------------------------------------------------------------ to whom it belongs
    def send(self, arrays: Sequence[NDArray[Any]], to: Longs) -> tuple[list[NDArray[Any]], Sent]:
        """Send rows of arrays to the processes that they belong to.

        Parameters
        ----------
        arrays : sequence of ndarray, each of length n
            What to send; rows keep their order among those from one process to another.
        to : ndarray of int64, shape (n,)
            Numbers of processes.

        Returns
        -------
        received : list of ndarray
            What came, in the order of the processes it came from.
        sent : Sent
            To send answers back.
        """
        order = np.argsort(to, kind="stable")
        counts = np.bincount(to, minlength=self.size).astype(np.int64)
        incoming = np.empty(self.size, dtype=np.int64)
        self._comm.Alltoall(counts, incoming)
        received = [self._exchanged(array[order], counts, incoming) for array in arrays]
        return received, Sent(self, order, counts, incoming)

    def _exchanged(self, ordered: NDArray[Any], counts: Longs, incoming: Longs) -> NDArray[Any]:
        if self.size == 1:
            return ordered
        if ordered.dtype.kind not in "biuf":
            pieces = self._comm.alltoall(np.split(ordered, np.cumsum(counts)[:-1]))
            return np.concatenate(pieces)
        ordered = np.ascontiguousarray(ordered)
        found = np.empty((int(incoming.sum()), *ordered.shape[1:]), dtype=ordered.dtype)
        width = int(np.prod(ordered.shape[1:], dtype=np.int64))
        self._comm.Alltoallv((ordered, width * counts), (found, width * incoming))
        return found

    def swap(self, sent: NDArray[Any], counts: Longs, received: NDArray[Any], incoming: Longs) -> None:
        """Send rows to some processes, and receive others from them.

        Parameters
        ----------
        sent, received : ndarray, each of shape (n, k)
            Contiguous rows, in the order of the processes.
        counts, incoming : ndarray of int64, shape (size,)
            Rows for each process, and from each; those that are 0 cost nothing.
        """
        requests = []
        for block, sizes, begin in ((received, incoming, self._comm.Irecv), (sent, counts, self._comm.Isend)):
            parts = np.split(block, np.cumsum(sizes)[:-1])
            requests += [begin(parts[other], other) for other in np.flatnonzero(sizes).tolist()]
        _load_mpi().Request.Waitall(requests)

    def abort(self) -> None:
        """End all processes, now."""
        self._comm.Abort(1)


class Sent:
    """Rows that were sent, for which answers may come back.

    Attributes
    ----------
    counts, incoming : ndarray of int64, shape (size,)
        How many went to each process, and came from each.
    """

    def __init__(self, processes: Processes, order: Longs, counts: Longs, incoming: Longs) -> None:
        self._processes, self._order, self.counts, self.incoming = processes, order, counts, incoming

    def answer(self, array: NDArray[Any]) -> NDArray[Any]:
        """Send a row back for every row that came; returns those for the rows that were sent, in their order."""
        back = self._processes._exchanged(array, self.incoming, self.counts)
        found = np.empty_like(back)
        found[self._order] = back
        return found


@contextmanager
def ending_together(processes: Processes) -> Iterator[None]:
    """End all processes if one of them fails, with its message; otherwise the others would wait forever.

    An error that all of them raise alike (a `GraphMaternError`) is printed once, by the first.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, SystemExit):  # all of them were asked the wrong thing
            raise
        known = isinstance(error, GraphMaternError)
        text = f"{type(error).__name__}: {error}" if known else traceback.format_exc()
        who = f"process {processes.rank} of {processes.size}: " if processes.size > 1 else ""
        # Those that fail for another's reason wait a moment, so that the reason is what is read.
        if getattr(error, "said_together", False) and not processes.is_first:
            import time

            time.sleep(5.0)
        sys.stderr.write(f"error: {'' if getattr(error, 'said_together', False) else who}{text}\n")
        sys.stderr.flush()
        if processes.size == 1:
            raise SystemExit(1) from None
        processes.abort()
        raise
