"""Gaussian noise, with every evaluation written down."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphmatern.errors import NumericalError
from graphmatern.inference.sites.gaussian import GaussianObjective

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.inference.learning.optimize import Optimum
    from graphmatern.inference.learning.parameters import Objective
    from graphmatern.inference.learning.problem import Problem
    from graphmatern.inference.process import Engine

    Floats = NDArray[np.float64]

__all__ = ["RecordedObjective"]


class RecordedObjective(GaussianObjective):
    """A `GaussianObjective` that keeps a journal, and answers from it what was asked before.

    Parameters
    ----------
    engine : Engine
        The prior.
    problem : Problem
        What to fit; its search has a journal.
    """

    def __init__(self, engine: Engine, problem: Problem) -> None:
        super().__init__(engine, problem)
        assert problem.search.journal is not None
        self._journal, self._here = problem.search.journal, np.zeros(0)

    def __call__(self, theta: Floats) -> tuple[float, Floats]:
        """Value and gradient."""
        self._here = theta.copy()
        known = self._journal.recall("evaluation", theta)
        if known is None:
            try:
                value, gradient = super().__call__(theta)
            except NumericalError as error:
                self._journal.add("evaluation", theta, failed=str(error))
                raise
            self._journal.add("evaluation", theta, value=value, gradient=gradient.tolist())
            return value, gradient
        self._latest = None
        if "failed" in known:
            raise NumericalError(known["failed"])
        return float(known["value"]), np.array(known["gradient"])

    @property
    def position(self) -> Floats:
        """Where the objective was last evaluated."""
        return self._here

    def _information(self) -> Floats:
        known = self._journal.recall("information", self._here)
        if known is not None:
            return np.array(known["matrix"])
        if self._latest is None:
            super().__call__(self._here)
        found = super()._information()
        self._journal.add("information", self._here, matrix=found.tolist())
        return found

    def restart(self, optimum: Optimum, objective: Objective) -> bool:
        """Whether the engine wants another search, with better estimates."""
        del objective  # which would be written down as an evaluation of the search
        known = self._journal.recall("refinement", optimum.position)
        if known is not None:
            self._engine.refine_as(known["engine"])
            return bool(known["again"])
        again = super().restart(optimum, super().__call__)
        self._journal.add("refinement", optimum.position, again=again, engine=self._engine.refinement())
        return again
