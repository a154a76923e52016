"""Kernels as plain values, for model files, and back."""

from __future__ import annotations

from typing import Any

import torch

from graphmatern.errors import ModelFileError
from graphmatern.kernels._base import Kernel, ScaledKernel, SpectralKernel, SumKernel
from graphmatern.kernels._spectral import Diffusion, InverseCosine, Matern, RandomWalk

__all__ = ["kernel_from_plain", "kernel_to_plain"]

_KNOWN: dict[str, type[SpectralKernel]] = {
    kind.__name__: kind for kind in (Matern, Diffusion, RandomWalk, InverseCosine)
}


def kernel_to_plain(kernel: Kernel) -> dict[str, Any]:
    """Return a kernel as texts, numbers and lists; parameters with all their digits.

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
    name = type(kernel).__name__
    if _KNOWN.get(name) is not type(kernel) or not isinstance(kernel, SpectralKernel):
        raise ModelFileError(
            f"a kernel of type {name} cannot be stored in a model file; "
            f"{', '.join(_KNOWN)}, their sums and multiples can be"
        )
    return {
        "kernel": name,
        "settings": {setting: getattr(kernel, setting) for setting in kernel._settings},
        "chooses_nu": isinstance(kernel, Matern) and kernel.chooses_nu,
        # Unconstrained, as they are held: no rounding on the way.
        "raw": {parameter: getattr(kernel, f"raw_{parameter}").item() for parameter in kernel.parameter_names()},
        "fixed": list(kernel.fixed),
    }


def kernel_from_plain(plain: dict[str, Any]) -> Kernel:
    """Return the kernel that `kernel_to_plain` was given."""
    if "sum" in plain:
        return SumKernel(*(kernel_from_plain(term) for term in plain["sum"]))
    if "scaled" in plain:
        return ScaledKernel(kernel_from_plain(plain["scaled"]), plain["factor"])
    kind = _KNOWN.get(plain["kernel"])
    if kind is None:
        raise ModelFileError(f"the model file holds a kernel called {plain['kernel']!r:.60}, which is not known here")
    left_open: dict[str, Any] = {"nu": None} if plain["chooses_nu"] else {}
    kernel = kind(**plain["settings"], **left_open, fixed=tuple(plain["fixed"]))
    for parameter in kernel.parameter_names():
        raw = getattr(kernel, f"raw_{parameter}")
        with torch.no_grad():
            raw.fill_(float(plain["raw"][parameter]))
        if not kind._parameter(parameter).domain.contains(getattr(kernel, parameter).item()):
            raise ModelFileError(f"the model file holds a {plain['kernel']} whose {parameter} lies out of bounds")
    return kernel
