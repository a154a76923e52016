"""Writing files whole or not at all.

A file is written under a temporary name in the folder of its target, flushed to the disk, and renamed. Whoever is
killed on the way leaves the old file, and a temporary one that the next writer of the same target removes.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["check_target", "replacing"]

try:
    import fcntl
except ImportError:  # where there is no flock, a file that is open cannot be removed either
    fcntl = None  # type: ignore[assignment]


def check_target(path: str | Path) -> Path:
    """Return the file that a path leads to; raise `OSError` where it is plain that none can be written there."""
    target = Path(path).resolve()
    if target.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder; give the name of a file")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {str(target.parent)!r}; create it first, or choose another place")
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(f"the folder {str(target.parent)!r} cannot be written to; choose another place")
    return target


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a temporary file to write to; it replaces ``path`` when the block ends well.

    Parameters
    ----------
    path : str or Path
        The file to be replaced or made; its folder must exist. Of a symbolic link, the file it leads to.

    Yields
    ------
    Path
        An empty file in the same folder, to be opened and written by name.

    Raises
    ------
    OSError
        Where the folder is absent or cannot be written to, or ``path`` is a folder.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> target = Path(folder.name) / "numbers.txt"
    >>> with replacing(target) as temporary:
    ...     _ = temporary.write_text("1 2 3")
    >>> target.read_text(), len(list(target.parent.iterdir()))
    ('1 2 3', 1)
    >>> folder.cleanup()
    """
    target = check_target(path)
    stem = _stem(target)
    _remove_litter(target.parent, stem)
    temporary, lock = _create(target.parent, stem)
    try:
        yield temporary
        _flush(temporary)
        if target.exists():
            shutil.copymode(target, temporary)
        if fcntl is None:
            lock = _close(lock)  # what is open cannot be renamed there
        temporary.replace(target)
        _flush(target.parent)
    finally:
        _close(lock)
        temporary.unlink(missing_ok=True)


def _close(descriptor: int) -> int:
    """Close a file, unless it is closed already, and return the number of a closed one."""
    if descriptor >= 0:
        os.close(descriptor)
    return -1


def _stem(target: Path) -> str:
    """How the names of temporary files for one target begin; of a bounded length, without special characters."""
    return f".graphmatern-{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]}-"


def _create(folder: Path, stem: str) -> tuple[Path, int]:
    """Make a temporary file and lock it for as long as it is open: a sign that its writer lives."""
    while True:
        path = folder / f"{stem}{secrets.token_hex(4)}"
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        if fcntl is not None:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return path, lock
        os.close(lock)  # another writer took it for litter before it was locked


def _remove_litter(folder: Path, stem: str) -> None:
    """Remove temporary files whose writers are gone."""
    for path in folder.glob(f"{stem}*"):
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDWR)
            try:
                if fcntl is not None:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while the writer lives
                    path.unlink()
            finally:
                os.close(descriptor)
            if fcntl is None:
                path.unlink()


def _flush(path: Path) -> None:
    """Have the system write a file or a folder's list of files to the disk."""
    with suppress(PermissionError):  # folders cannot be opened everywhere
        descriptor = os.open(path, os.O_RDONLY)
        try:
            with suppress(OSError):  # nor flushed
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
