"""Kernels with the starting values of a recipe."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from graphmatern.kernels import Diffusion, InverseCosine, Matern, RandomWalk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphmatern.kernels import Kernel

__all__ = ["Protocol", "learned_values", "starting_kernels"]


@dataclass(frozen=True)
class Protocol:
    """How a cell is computed.

    Attributes
    ----------
    recipe : {"fast", "paper"}
        L-BFGS on exact gradients and natural-gradient sites; or the optimiser, starting values and steps of the
        paper's published notebook (Adam, step size 0.001, 20,000 steps).
    n_eigenpairs : int
        Eigenpairs of the Laplacian.
    adam_steps : int
        Steps of the paper's recipe.
    adam_rate : float
        Their size.
    max_iterations : int
        Iterations of L-BFGS on Cora in the fast recipe at most, which converges long before; 0 keeps the starting
        values there.
    walk_steps : sequence of int
        Steps p of the random walk, of which the most likely is taken: they cannot be learned by gradient. All are even,
        so that α may be anything.
    """

    recipe: str = "fast"
    n_eigenpairs: int = 500
    adam_steps: int = 20_000
    adam_rate: float = 0.001
    max_iterations: int = 200
    walk_steps: Sequence[int] = (4, 16, 64, 256)

    def as_arguments(self) -> dict[str, Any]:
        """Return the fields, for a task."""
        return asdict(self)


def starting_kernels(method: str, walk_steps: Sequence[int]) -> list[Kernel]:
    """Kernels to be fitted, of which the most likely is taken.

    The starting values ν = 3/2, κ = 5, σ² = 1 are those of the paper's notebook; the fast recipe needs no others.
    """
    if method == "matern":
        return [Matern(nu=1.5, lengthscale=5.0)]
    if method == "diffusion":
        return [Diffusion(lengthscale=5.0)]
    if method == "random_walk":
        return [RandomWalk(steps=steps, laziness=0.5) for steps in walk_steps]
    return [InverseCosine()]


def learned_values(kernel: Kernel) -> dict[str, float]:
    """Parameters of a fitted kernel, the steps of a random walk included."""
    assert isinstance(kernel, Matern | Diffusion | RandomWalk | InverseCosine)
    steps = {"steps": float(kernel.steps)} if isinstance(kernel, RandomWalk) else {}
    return kernel.values() | steps
