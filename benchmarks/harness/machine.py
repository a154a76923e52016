"""With what results were measured; nothing that names the machine or its owner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphmatern.reproduce._machine import environment as this_environment
from harness.environments import Environments, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["describe"]


def describe(environments: Environments, names: Iterable[str], mode: str, limit: float) -> dict[str, Any]:
    """Date, processor, cores, memory, and the versions in every environment that took part."""
    found: dict[str, Any] = this_environment()
    found.pop("versions")
    versions: dict[str, dict[str, str] | str] = {}
    for name in sorted(names):
        try:
            versions[name] = environments.versions(name)
        except UnavailableError as error:
            versions[name] = str(error)
    return found | {"mode": mode, "limit_seconds": limit, "versions": versions}
