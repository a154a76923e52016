"""What the search moves: the lengthscale, as far as rounding allows, and the scale of the process.

The scale is the variance, or an amplitude that stands in for it and needs no traces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphmatern._validation import FaultList
from graphmatern.errors import KernelError

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from graphmatern.inference.learning.parameters import Coordinate, PriorsAndBounds
    from graphmatern.inference.learning.problem import Problem

__all__ = ["lengthscale_coordinate", "moves_variance", "scale_coordinate"]


def lengthscale_coordinate(rules: PriorsAndBounds, longest: float, where: str, remedy: str) -> Coordinate:
    """Bounds and prior of the lengthscale, which rounding keeps from becoming too long.

    Parameters
    ----------
    rules : PriorsAndBounds
        What the user said of it.
    longest : float
        The longest that rounding leaves something of.
    where : str
        Of which process that is so, for the message.
    remedy : str
        What to do if the bounds allow longer ones only.
    """
    found = rules.coordinate("lengthscale", high=float(np.log(longest)))
    if found.low >= found.high:
        faults = FaultList("nothing was fitted", KernelError)
        rule = f"must allow lengthscales below {longest:.4g}: beyond, rounding decides{where}"
        received = f"'lengthscale': {rules.bounds.get('lengthscale')!r}"
        raise faults.raise_now("bounds", rule, received, remedy)
    return found


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
