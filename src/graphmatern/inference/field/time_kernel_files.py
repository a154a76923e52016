"""GPyTorch kernels on time as plain values, for model files, and back."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch import constraints, kernels

from graphmatern.errors import ModelFileError

__all__ = ["time_kernel_from_plain", "time_kernel_to_plain"]

# Kernels of one input, and those arguments of their constructors that are not parameters.
_KNOWN = {
    "ConstantKernel": (),
    "CosineKernel": (),
    "LinearKernel": (),
    "MaternKernel": ("nu",),
    "PeriodicKernel": (),
    "PiecewisePolynomialKernel": ("q",),
    "RBFKernel": (),
    "RQKernel": (),
    "SpectralMixtureKernel": ("num_mixtures",),
}
_JOINS = ("AdditiveKernel", "ProductKernel")
_CONSTRAINTS = ("Positive", "GreaterThan", "LessThan", "Interval")


def time_kernel_to_plain(kernel: Any) -> dict[str, Any]:
    """Return a GPyTorch kernel as texts, numbers and lists; parameters with all their digits.

    Examples
    --------
    >>> from gpytorch.kernels import MaternKernel, PeriodicKernel, ScaleKernel
    >>> kernel = ScaleKernel(MaternKernel(nu=0.5) * PeriodicKernel()).double()
    >>> again, times = time_kernel_from_plain(time_kernel_to_plain(kernel)), torch.arange(3.0).double()
    >>> bool((again(times).to_dense() == kernel(times).to_dense()).all())
    True
    """
    name = type(kernel).__name__
    if list(kernel.named_priors()):
        raise ModelFileError("a time kernel with priors cannot be stored in a model file")
    if name in _JOINS:
        return {"kernel": name, "parts": [time_kernel_to_plain(part) for part in kernel.kernels]}
    if type(kernel) is kernels.ScaleKernel:
        parts = [time_kernel_to_plain(kernel.base_kernel)]
        return {"kernel": name, "parts": parts, "parameters": _parameters(kernel)}
    if name not in _KNOWN or type(kernel) is not getattr(kernels, name, None):
        raise ModelFileError(
            f"a time kernel of type {name} cannot be stored in a model file; {', '.join(_KNOWN)}, their multiples "
            "(ScaleKernel), sums and products can be"
        )
    settings = {key: getattr(kernel, key) for key in _KNOWN[name]}
    return {"kernel": name, "settings": settings, "parameters": _parameters(kernel)}


def _parameters(kernel: Any) -> list[Any]:
    """Name, values, whether it is learned, and constraint of every parameter of the kernel itself."""
    described = []
    for name, parameter in kernel.named_parameters(recurse=False):
        bound = kernel.constraint_for_parameter_name(name)
        kind = None if bound is None else [type(bound).__name__, float(bound.lower_bound), float(bound.upper_bound)]
        described.append([name, parameter.detach().double().numpy().copy(), parameter.requires_grad, kind])
    return described


def time_kernel_from_plain(plain: dict[str, Any]) -> Any:
    """Return the kernel, in float64, that `time_kernel_to_plain` was given."""
    name = plain["kernel"]
    if name in _JOINS:
        return getattr(kernels, name)(*(time_kernel_from_plain(part) for part in plain["parts"]))
    if name == "ScaleKernel":
        kernel = kernels.ScaleKernel(time_kernel_from_plain(plain["parts"][0])).double()
    elif name in _KNOWN:
        kernel = getattr(kernels, name)(**{key: plain["settings"][key] for key in _KNOWN[name]}).double()
    else:
        raise ModelFileError(
            f"the model file holds a time kernel called {name!r:.60}, which this version does not know"
        )
    own = dict(kernel.named_parameters(recurse=False))
    for key, values, is_learned, bound in plain["parameters"]:
        if key not in own or own[key].shape != values.shape:
            raise ModelFileError(f"the model file's {name} has a parameter {key!r:.60} that does not fit")
        if bound is not None:
            kernel.register_constraint(key, _constraint(*bound))
        with torch.no_grad():
            own[key].copy_(torch.from_numpy(values.copy()))
        own[key].requires_grad_(bool(is_learned))
    return kernel


def _constraint(kind: str, low: float, high: float) -> Any:
    if kind not in _CONSTRAINTS:
        raise ModelFileError(f"the model file holds a constraint called {kind!r:.60}, which this version does not know")
    arguments = {"Positive": (), "GreaterThan": (low,), "LessThan": (high,), "Interval": (low, high)}[kind]
    return getattr(constraints, kind)(*arguments).double()
