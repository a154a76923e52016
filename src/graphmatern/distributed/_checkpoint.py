"""Checkpoints: a search written down by the first process, and read again by whoever goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphmatern._validation import FaultList
from graphmatern.errors import InputError
from graphmatern.inference.learning.journal import Journal
from graphmatern.io import check_target, replacing

if TYPE_CHECKING:
    from graphmatern.distributed._processes import Processes

__all__ = ["Checkpoint"]

_FORMAT = 1


class Checkpoint:
    """A file that holds what a search has been told.

    Parameters
    ----------
    processes : Processes
        All of them; the first reads and writes.
    path : str or Path
        The file.
    """

    def __init__(self, processes: Processes, path: str | Path) -> None:
        self._processes, self._path = processes, Path(path)

    def journal(self, fingerprint: dict[str, Any]) -> Journal:
        """A journal that goes on from the file, if that is of the same fit.

        Parameters
        ----------
        fingerprint : dict
            What identifies the fit.

        Raises
        ------
        InputError
            Where the file belongs to another fit, or is damaged.
        """
        found: list[dict[str, Any]] | InputError | OSError = []
        if self._processes.is_first:
            try:
                found = self._entries(fingerprint)
            except (InputError, OSError) as error:
                found = error
        found = self._processes.from_first(found)
        if isinstance(found, Exception):
            found.said_together = True  # type: ignore[union-attr]
            raise found
        first = self._processes.is_first

        def save(entries: list[dict[str, Any]]) -> None:
            if first:
                with replacing(self._path) as temporary:
                    temporary.write_text(json.dumps({"format": _FORMAT, "fit": fingerprint, "entries": entries}))

        return Journal(found, save)

    def _entries(self, fingerprint: dict[str, Any]) -> list[dict[str, Any]]:
        check_target(self._path)
        if not self._path.exists():
            return []
        faults = FaultList("nothing was fitted", InputError)
        remedy = "Remove it, or name another."
        try:
            stored = json.loads(self._path.read_text())
            known, entries = stored["fit"], stored["entries"]
        except (ValueError, KeyError, TypeError):
            raise faults.raise_now("checkpoint", "must be a checkpoint", str(self._path), remedy) from None
        differ = [name for name in fingerprint if known.get(name) != fingerprint[name]]
        if stored.get("format") != _FORMAT or differ:
            received = f"{self._path}, which differs in {', '.join(differ) or 'format'}"
            raise faults.raise_now("checkpoint", "must be of the same graph, values and options", received, remedy)
        return list(entries)

    def remove(self) -> None:
        """Remove the file, when it has served its purpose."""
        if self._processes.is_first:
            self._path.unlink(missing_ok=True)
