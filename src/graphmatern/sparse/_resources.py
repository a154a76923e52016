"""What the machine has, and what a factorisation would need of it."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from graphmatern.errors import ResourceError

__all__ = ["Cost", "available_memory", "available_threads", "bytes_needed", "check_cost"]

#: Part of the memory available that one factorisation may plan to use.
MEMORY_SHARE = 0.8

# Seconds of one factorisation on one thread, fitted to roads, grids and nearest-neighbour graphs.
_SECONDS_PER_FLOP = 1 / 30e9
_SECONDS_PER_ENTRY = 6e-9
_SECONDS_PER_COLUMN = 1e-7
# A thread more helps less than in proportion: the top of the tree is not shared evenly.
_PARALLEL_SHARE = 0.8


@dataclass(frozen=True)
class Cost:
    """Predicted cost of a factorisation and its selected inverse.

    Attributes
    ----------
    ordering : str
        Name of the ordering it was predicted for.
    nnz_factor : int
        Entries of the factor, diagonal included.
    flops : float
        Floating-point operations of one numeric factorisation.
    memory_bytes : int
        Memory for factor, selected inverse, their structure and working memory.
    seconds : float
        Rough time of one numeric factorisation; the selected inverse takes about as long again.
    """

    ordering: str
    nnz_factor: int
    flops: float
    memory_bytes: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.nnz_factor:,} entries in the factor, {self.flops:.3g} operations, "
            f"{format_bytes(self.memory_bytes)} of memory, about {self.seconds:.2g} s per factorisation "
            f"({self.ordering} ordering)"
        )


def predicted_seconds(n: int, nnz_factor: int, flops: float, n_threads: int) -> float:
    """Return a rough prediction of the time of one numeric factorisation."""
    alone = flops * _SECONDS_PER_FLOP + nnz_factor * _SECONDS_PER_ENTRY + n * _SECONDS_PER_COLUMN
    return alone * (1.0 - _PARALLEL_SHARE + _PARALLEL_SHARE / max(1, n_threads))


def bytes_needed(n: int, nnz: int, nnz_factor: int) -> int:
    """Return about how much memory a factorisation takes: factor and inverse, a fifth more for panels, structure."""
    return int(2 * 1.2 * 8 * nnz_factor) + 12 * nnz + 40 * n


def format_bytes(count: float) -> str:
    """Return a count of bytes in readable units.

    Examples
    --------
    >>> format_bytes(3 * 2**30)
    '3.0 GiB'
    """
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.4g} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _read_number(path: str) -> int | None:
    """Return the number in a file, or None where there is none."""
    try:
        return int(Path(path).read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        return None


def available_memory() -> int:
    """Return the bytes of memory that this process can still take; within a container, those of its limit."""
    candidates = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        candidates += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    limit = _read_number("/sys/fs/cgroup/memory.max")
    used = _read_number("/sys/fs/cgroup/memory.current")
    if limit is not None and used is not None:
        candidates.append(max(limit - used, 0))
    if not candidates and hasattr(os, "sysconf"):
        with contextlib.suppress(OSError, ValueError):
            candidates.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min(candidates, default=8 * 2**30)


def available_threads() -> int:
    """Return the number of processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def check_cost(cost: Cost, memory_limit: float | None, max_seconds: float | None) -> None:
    """Raise `ResourceError` if a cost exceeds a limit; without a memory limit, that of the machine."""
    if memory_limit is None:
        memory_limit = MEMORY_SHARE * available_memory()
    if cost.memory_bytes > memory_limit:
        raise ResourceError(
            f"the factorisation was not started: it needs {cost}, "
            f"and the limit is {format_bytes(memory_limit)}. Use a smaller or sparser graph, "
            "a smaller power, or raise `memory_limit`."
        )
    if max_seconds is not None and cost.seconds > max_seconds:
        raise ResourceError(
            f"the factorisation was not started: it needs {cost}, and the limit is {max_seconds:g} s. "
            "Use a smaller or sparser graph, a smaller power, or raise `max_seconds`."
        )
