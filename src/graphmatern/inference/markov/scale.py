"""The scale of a process: its variance, or an amplitude that stands in for it and needs no traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from graphmatern.inference.learning.parameters import Coordinate
    from graphmatern.inference.learning.problem import Problem

__all__ = ["moves_variance", "scale_coordinate"]


def moves_variance(problem: Problem, held: AbstractSet[str]) -> bool:
    """Whether the variance itself is held, or moved because something is said of it; the names in ``held`` are kept."""
    if problem.likelihood.scale_invariant:
        return False
    return "variance" in held or problem.rules.concern("variance") or problem.in_variance


def scale_coordinate(problem: Problem, held: AbstractSet[str], amplitude: Coordinate) -> Coordinate | None:
    """What is moved: the variance, the ``amplitude`` in its stead, or nothing.

    Where the likelihood does not see the scale, the amplitude is held: no trace is needed.
    """
    if problem.likelihood.scale_invariant or "variance" in held:
        return None
    return problem.rules.coordinate("variance") if moves_variance(problem, held) else amplitude
