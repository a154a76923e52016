"""What the results were computed with; nothing that names the machine or its owner."""

from __future__ import annotations

import datetime as dt
import os
import platform
from importlib.metadata import version
from pathlib import Path

from graphmatern import __version__

__all__ = ["environment"]

_PACKAGES = ("numpy", "scipy", "torch", "numba", "scikit-learn", "pandas", "matplotlib")


def environment() -> dict[str, object]:
    """Date, versions, processor, cores and memory.

    Examples
    --------
    >>> sorted(environment())
    ['cores', 'date', 'memory_gib', 'processor', 'python', 'system', 'versions']
    """
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "python": platform.python_version(),
        "versions": {"graphmatern": __version__} | {name: version(name) for name in _PACKAGES},
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": _memory(),
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _memory() -> float | None:
    names = getattr(os, "sysconf_names", {})
    if "SC_PHYS_PAGES" not in names or "SC_PAGE_SIZE" not in names:
        return None
    return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)
