"""Likelihoods as plain values, for model files, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from graphmatern.errors import ModelFileError
from graphmatern.likelihoods._classes import Bernoulli, RobustMax, Softmax
from graphmatern.likelihoods._numbers import Gaussian, NegativeBinomial, Poisson, StudentT

if TYPE_CHECKING:
    from graphmatern.likelihoods._base import Likelihood

__all__ = ["likelihood_from_plain", "likelihood_to_plain"]

_KNOWN: dict[str, type[Likelihood]] = {
    kind.__name__: kind for kind in (Bernoulli, RobustMax, Softmax, Gaussian, NegativeBinomial, Poisson, StudentT)
}


def likelihood_to_plain(likelihood: Likelihood) -> dict[str, Any]:
    """Return a likelihood as texts, numbers and lists; parameters with all their digits.

    Examples
    --------
    >>> from graphmatern.likelihoods import StudentT
    >>> likelihood_from_plain(likelihood_to_plain(StudentT(0.1, 3.0, fixed=("df",))))
    StudentT(scale=0.1, df=3, fixed=('df',))
    """
    name = type(likelihood).__name__
    if _KNOWN.get(name) is not type(likelihood):
        raise ModelFileError(
            f"a likelihood of type {name} cannot be stored in a model file; {', '.join(_KNOWN)} can be"
        )
    return {
        "likelihood": name,
        "settings": {setting: getattr(likelihood, setting) for setting in likelihood._settings},
        "raw": {name: getattr(likelihood, f"raw_{name}").item() for name in likelihood.parameter_names()},
        "fixed": list(likelihood.fixed),
    }


def likelihood_from_plain(plain: dict[str, Any]) -> Likelihood:
    """Return the likelihood that `likelihood_to_plain` was given."""
    kind = _KNOWN.get(plain["likelihood"])
    if kind is None:
        raise ModelFileError(f"the model file holds a likelihood {plain['likelihood']!r:.60}, which is not known here")
    held: dict[str, Any] = {"fixed": tuple(plain["fixed"])} if kind.parameter_names() else {}
    likelihood = kind(**plain["settings"], **held)
    for name in likelihood.parameter_names():
        with torch.no_grad():
            getattr(likelihood, f"raw_{name}").fill_(float(plain["raw"][name]))
        if not kind._parameter(name).domain.contains(getattr(likelihood, name).item()):
            raise ModelFileError(f"the model file holds a {plain['likelihood']} whose {name} lies out of bounds")
    return likelihood
