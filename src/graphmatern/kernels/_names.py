"""What parameters are called wherever users see them: ``nu``, and in sums ``graph.nu`` and ``features.smoothing``."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from graphmatern.kernels._base import ScaledKernel, SumKernel
from graphmatern.kernels._features import Interaction

if TYPE_CHECKING:
    from graphmatern.kernels._base import Kernel

__all__ = ["current_label", "parameter_label", "part_named", "term_names"]


def term_names(kernel: SumKernel) -> list[str]:
    """Names of the terms of a sum: what they are about, or their kinds; numbered where several have the same.

    Examples
    --------
    >>> import graphmatern as gm
    >>> term_names(gm.Matern() + gm.RBFFeatures())
    ['graph', 'features']
    >>> term_names(gm.Matern() + 0.5 * gm.Diffusion() + gm.Matern())
    ['matern1', 'diffusion', 'matern2']
    """
    kinds = [_kind(term, by_subject=kernel.uses_features) for term in kernel.terms]
    total, seen = Counter(kinds), Counter[str]()
    found = []
    for kind in kinds:
        seen[kind] += 1
        found.append(kind if total[kind] == 1 else f"{kind}{seen[kind]}")
    return found


def _kind(term: Kernel, *, by_subject: bool) -> str:
    while isinstance(term, ScaledKernel):
        term = term.kernel
    if by_subject:
        return "interaction" if isinstance(term, Interaction) else "features" if term.uses_features else "graph"
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(term).__name__).lower()


def parameter_label(module: Any, path: str) -> str:
    """Name of a parameter that torch has under a path, of a kernel or of anything else that has parameters.

    Examples
    --------
    >>> import graphmatern as gm
    >>> parameter_label(gm.Matern() + gm.RBFFeatures(), "_terms.1.raw_smoothing")
    'features.smoothing'
    """
    *owners, word = path.replace("raw_", "").split(".")
    found, places = [], iter(owners)
    for place in places:
        if isinstance(module, SumKernel):
            number = int(next(places))
            found.append(term_names(module)[number])
            module = module.terms[number]
        elif isinstance(module, ScaledKernel):
            module = module.kernel
        else:
            found.append(place)
            module = getattr(module, place)
    return ".".join([*found, word])


def part_named(kernel: Kernel, prefix: str) -> Kernel:
    """The kernel that has the parameters whose labels begin so; without a prefix, all of it."""
    for name in filter(None, prefix.split(".")):
        while isinstance(kernel, ScaledKernel):
            kernel = kernel.kernel
        assert isinstance(kernel, SumKernel)
        kernel = kernel.terms[term_names(kernel).index(name)]
    while isinstance(kernel, ScaledKernel):
        kernel = kernel.kernel
    return kernel


def current_label(kernel: Any, label: str) -> str:
    """Name of a parameter that a model file of an earlier version calls by its place: ``terms.0.nu``."""
    for path, _ in getattr(kernel, "named_parameters", list)():
        if path.replace("raw_", "").replace("_terms", "terms") == label:
            return parameter_label(kernel, path)
    return label
