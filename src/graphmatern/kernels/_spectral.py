"""The four kernels of the paper, one formula each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch

from graphmatern._parameters import Parameter, from_plain, half_open_unit, positive, to_plain
from graphmatern._validation import FaultList, check_whole
from graphmatern.errors import KernelError
from graphmatern.kernels._areal import BYM2, ICAR, Leroux
from graphmatern.kernels._base import ScaledKernel, SpectralKernel, SumKernel
from graphmatern.kernels._features import CosineFeatures, Interaction, LinearFeatures, RBFFeatures

if TYPE_CHECKING:
    from collections.abc import Iterable

    from graphmatern.kernels._base import Kernel

_START_NU = 1.5  # where a fit is to choose it

__all__ = ["Diffusion", "InverseCosine", "Matern", "RandomWalk", "kernel_from_plain", "kernel_to_plain"]


class Matern(SpectralKernel):
    """Matérn kernel, Ψ(λ) = (2ν/κ² + λ)^(−ν).

    Parameters
    ----------
    nu : float or None
        Smoothness ν > 0. On a graph that approximates a d-dimensional space, ν − d/2 is the smoothness
        of the Matérn kernel there. None leaves the choice to the fit: ν is learned starting from 1.5, or, with the
        Markov engine, is the best of 1, 2 and 3, as other values would take longer.
    lengthscale : float
        Lengthscale κ > 0. See `BoundKernel.range` for what it means on a given graph.
    variance : float
        Prior variance σ² > 0, averaged over the nodes.
    fixed : iterable of str
        Parameters that are held fixed while the others are learned.

    Examples
    --------
    >>> import graphmatern as gm
    >>> gm.Matern(nu=2.5, lengthscale=3.0, fixed=("nu",))
    Matern(nu=2.5, lengthscale=3, variance=1, fixed=('nu',))
    """

    nu = Parameter(positive)
    lengthscale = Parameter(positive)

    def __init__(
        self, nu: float | None = 1.5, lengthscale: float = 1.0, variance: float = 1.0, fixed: Iterable[str] = ()
    ) -> None:
        start = _START_NU if nu is None else nu
        super().__init__(nu=start, lengthscale=lengthscale, variance=variance, fixed=fixed)
        self.__dict__["_chooses_nu"] = nu is None
        if nu is None and "nu" in self.fixed:
            faults = FaultList("no Matern was made", KernelError)
            raise faults.raise_now("fixed", "must not hold `nu` if that is None", "'nu'", "Give `nu` a value.")

    @property
    def chooses_nu(self) -> bool:
        """Whether ν was left open, for a fit to choose; setting `nu` ends that."""
        return bool(self.__dict__["_chooses_nu"])

    def _check_parameter(self, parameter: Parameter, value: Any) -> float:
        number = super()._check_parameter(parameter, value)
        if parameter.name == "nu":
            self.__dict__["_chooses_nu"] = False
        return number

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments, as scikit-learn expects."""
        found = super().get_params(deep)
        return {**found, "nu": None} if self.chooses_nu else found

    def set_params(self, **params: Any) -> Self:
        """Set constructor arguments, as scikit-learn expects; all are checked before any is set."""
        super().set_params(**params)
        if "nu" in params:
            self.__dict__["_chooses_nu"] = params["nu"] is None
        return self

    def extra_repr(self) -> str:
        """Describe the parameters for ``repr``."""
        text = super().extra_repr()
        return text.replace(f"nu={_START_NU:.6g}", "nu=None", 1) if self.chooses_nu else text

    def log_psi(self, eigenvalues: torch.Tensor) -> torch.Tensor:
        """Log Ψ(λ) = −ν log(2ν/κ² + λ); shape as ``eigenvalues``."""
        log_shift = torch.log(2.0 * self.nu) - 2.0 * torch.log(self.lengthscale)
        # log(shift + λ) by its logarithms: no ratio overflows, and where λ is small beside the shift (ν → ∞) no digit
        # of it is lost.
        excess = torch.log(eigenvalues) - log_shift
        return -self.nu * (log_shift + torch.logaddexp(torch.zeros_like(excess), excess))


class Diffusion(SpectralKernel):
    """Diffusion or heat kernel, Ψ(λ) = exp(−κ²λ/2): the Matérn kernel as ν → ∞.

    Parameters
    ----------
    lengthscale : float
        Lengthscale κ > 0; κ²/2 is the time for which heat spreads.
    variance : float
        Prior variance σ² > 0, averaged over the nodes.
    fixed : iterable of str
        Parameters that are held fixed while the others are learned.

    Examples
    --------
    >>> import graphmatern as gm
    >>> gm.Diffusion(lengthscale=2.0)
    Diffusion(lengthscale=2, variance=1)
    """

    lengthscale = Parameter(positive)

    def __init__(self, lengthscale: float = 1.0, variance: float = 1.0, fixed: Iterable[str] = ()) -> None:
        super().__init__(lengthscale=lengthscale, variance=variance, fixed=fixed)

    def log_psi(self, eigenvalues: torch.Tensor) -> torch.Tensor:
        """Log Ψ(λ) = −κ²λ/2; shape as ``eigenvalues``."""
        # Bounded, so that where Ψ has long vanished its derivative is 0 and not 0 · ∞.
        return -(0.5 * self.lengthscale**2 * eigenvalues).clamp_max(1e300)


class _NormalizedKernel(SpectralKernel):
    """A kernel for the normalised Laplacian, whose Ψ may vanish."""

    @property
    def requires_normalized(self) -> bool:
        """True: the formula needs eigenvalues in [0, 2]."""
        return True

    def _relative_psi(self, eigenvalues: torch.Tensor) -> torch.Tensor:
        return self.psi(eigenvalues)


class RandomWalk(_NormalizedKernel):
    """Random-walk kernel, Ψ(λ) = (1 − (1−α)λ)^p, on the normalised Laplacian.

    Parameters
    ----------
    steps : int
        Steps p ≥ 1 of the walk; not learned.
    laziness : float
        Probability α in [0, 1) of staying put at each step. Unless p is even, it must be at least ½ to
        give a covariance, and cannot be learned below that.
    variance : float
        Prior variance σ² > 0, averaged over the nodes.
    fixed : iterable of str
        Parameters that are held fixed while the others are learned.

    Examples
    --------
    >>> import graphmatern as gm
    >>> gm.RandomWalk(steps=3, laziness=0.5)
    RandomWalk(steps=3, laziness=0.5, variance=1)
    """

    laziness = Parameter(half_open_unit)
    _settings: ClassVar[tuple[str, ...]] = ("steps",)

    def __init__(self, steps: int = 2, laziness: float = 0.5, variance: float = 1.0, fixed: Iterable[str] = ()) -> None:
        self.__dict__["_steps"] = steps  # before the checks, which need it
        super().__init__(laziness=laziness, variance=variance, fixed=fixed)
        self.__dict__["_steps"] = int(steps)

    @property
    def steps(self) -> int:
        """Number of steps; `set_params` changes it."""
        steps: int = self.__dict__["_steps"]
        return steps

    def _check_settings(self, numbers: dict[str, float], faults: FaultList) -> None:
        before = len(faults)
        check_whole(
            "steps", self.steps, faults, minimum=1, maximum=10**9, remedy="Use 2 or more steps for a smoother process."
        )
        laziness = numbers.get("laziness", 1.0)
        if len(faults) == before and self.steps % 2 == 1 and laziness < 0.5:
            rule = "must be at least 1/2 if `steps` is odd, or the kernel is not positive semi-definite"
            faults.add("laziness", rule, f"{laziness!r} with steps={self.steps}", "Raise it, or use an even number.")

    def psi(self, eigenvalues: torch.Tensor) -> torch.Tensor:
        """Ψ(λ) = (1 − (1−α)λ)^p with λ clipped to [0, 2]; shape as ``eigenvalues``."""
        base = 1.0 - (1.0 - self.laziness) * eigenvalues.clamp(0.0, 2.0)
        if self.steps % 2 == 1:
            # An optimiser that strays below α = 1/2 meets a covariance all the same; rounding, too, may
            # leave −1e-17 at λ = 2.
            base = base.clamp_min(0.0)
        return base**self.steps


class InverseCosine(_NormalizedKernel):
    """Inverse-cosine kernel, Ψ(λ) = cos(πλ/4), on the normalised Laplacian.

    Parameters
    ----------
    variance : float
        Prior variance σ² > 0, averaged over the nodes.
    fixed : iterable of str
        ``("variance",)`` holds it fixed.

    Examples
    --------
    >>> import graphmatern as gm
    >>> gm.InverseCosine(variance=2.0)
    InverseCosine(variance=2)
    """

    def __init__(self, variance: float = 1.0, fixed: Iterable[str] = ()) -> None:
        super().__init__(variance=variance, fixed=fixed)

    def psi(self, eigenvalues: torch.Tensor) -> torch.Tensor:
        """Ψ(λ) = cos(πλ/4) with λ clipped to [0, 2]; shape as ``eigenvalues``."""
        return torch.cos(0.25 * math.pi * eigenvalues.clamp(0.0, 2.0)).clamp_min(0.0)


_ON_GRAPHS = (Matern, Diffusion, RandomWalk, InverseCosine, ICAR, Leroux, BYM2)
_ON_FEATURES = (LinearFeatures, CosineFeatures, RBFFeatures, Interaction)
_STORED: dict[str, type[Kernel]] = {kind.__name__: kind for kind in (*_ON_GRAPHS, *_ON_FEATURES)}


def kernel_to_plain(kernel: Kernel) -> dict[str, Any]:
    """Return a kernel as texts, numbers and lists, for model files.

    Examples
    --------
    >>> import graphmatern as gm
    >>> kernel_from_plain(kernel_to_plain(gm.Matern(nu=2.5, fixed=("nu",)) + 2.0 * gm.Diffusion()))
    Matern(nu=2.5, lengthscale=1, variance=1, fixed=('nu',)) + 2 * Diffusion(lengthscale=1, variance=1)
    """
    if isinstance(kernel, SumKernel):
        return {"sum": [kernel_to_plain(term) for term in kernel.terms]}
    if isinstance(kernel, ScaledKernel):
        return {"scaled": kernel_to_plain(kernel.kernel), "factor": kernel.factor}
    plain = to_plain(kernel, "kernel", _STORED)  # type: ignore[arg-type]
    return {**plain, "chooses_nu": isinstance(kernel, Matern) and kernel.chooses_nu}


def kernel_from_plain(plain: dict[str, Any]) -> Kernel:
    """Return the kernel that `kernel_to_plain` was given."""
    if "sum" in plain:
        return SumKernel(*(kernel_from_plain(term) for term in plain["sum"]))
    if "scaled" in plain:
        return ScaledKernel(kernel_from_plain(plain["scaled"]), plain["factor"])
    left_open: dict[str, Any] = {"nu": None} if plain["chooses_nu"] else {}
    kernel: Kernel = from_plain(plain, "kernel", _STORED, **left_open)
    return kernel
