"""Learnable parameters: numbers with a domain, stored unconstrained so that any optimiser can move them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, overload

import numpy as np
import torch

from graphmatern._validation import FaultList, abbreviate
from graphmatern.errors import InputError, ModelFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

if hasattr(os, "register_at_fork"):
    # The threads of OpenMP do not survive a fork, and torch would wait for them forever.
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))

__all__ = ["Domain", "Parameter", "Parameterized", "from_plain", "half_open_unit", "positive", "to_plain"]


@dataclass(frozen=True)
class Domain:
    """Range of a parameter, and the change of variables that makes it unconstrained.

    Attributes
    ----------
    rule : str
        In words, for messages: "must be ...".
    contains : callable
        Whether a number lies in the domain.
    free : callable
        From the parameter to an unconstrained number (of a float).
    bound : callable
        Back again (of a tensor, differentiable).
    """

    rule: str
    contains: Callable[[float], bool]
    free: Callable[[torch.Tensor], torch.Tensor]
    bound: Callable[[torch.Tensor], torch.Tensor]

    def free_values(self, values: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Unconstrained numbers of some values; shape as ``values``."""
        return self.free(torch.as_tensor(values, dtype=torch.float64)).numpy()

    def bound_values(self, free: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Values of some unconstrained numbers; shape as ``free``."""
        return self.bound(torch.as_tensor(free, dtype=torch.float64)).numpy()


positive = Domain(
    "must be a positive number, from 1e-100 to 1e100",  # so that squares and ratios are numbers, too
    lambda value: 1e-100 <= value <= 1e100,
    torch.log,
    torch.exp,
)
# α = 1 − 1 / (1 + e^x): 0 is x = −∞, which a float holds and exp maps back exactly.
half_open_unit = Domain(
    "must lie in [0, 1)",
    lambda value: 0.0 <= value < 1.0,
    torch.logit,
    torch.sigmoid,
)


class Parameter:
    """A parameter of a `Parameterized` module: reads as a tensor, is set with a number, is stored unconstrained.

    Parameters
    ----------
    domain : Domain
        Its range.

    Notes
    -----
    The unconstrained value is the ``torch.nn.Parameter`` called ``raw_<name>``, a scalar in float64.
    """

    def __init__(self, domain: Domain) -> None:
        self.domain = domain

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.raw_name = f"raw_{name}"

    @overload
    def __get__(self, holder: None, owner: type) -> Parameter: ...
    @overload
    def __get__(self, holder: Parameterized, owner: type) -> torch.Tensor: ...
    def __get__(self, holder: Parameterized | None, owner: type) -> Any:
        if holder is None:
            return self
        return self.domain.bound(getattr(holder, self.raw_name))

    def __set__(self, holder: Parameterized, value: float | torch.Tensor) -> None:
        number = holder._check_parameter(self, value)
        raw = getattr(holder, self.raw_name)
        with torch.no_grad():
            raw.copy_(self.domain.free(torch.as_tensor(number, dtype=torch.float64)))

    def create(self, holder: Parameterized, value: float, *, fixed: bool) -> None:
        """Register the unconstrained value with the module."""
        free = self.domain.free(torch.as_tensor(value, dtype=torch.float64))
        holder.register_parameter(self.raw_name, torch.nn.Parameter(free, requires_grad=not fixed))


class Parameterized(torch.nn.Module):
    """A module with named scalar parameters, declared as class attributes, and with scikit-learn's way of setting them.

    Parameters
    ----------
    fixed : iterable of str
        Parameters that are held fixed while others are learned.
    **values : float
        The parameters.
    """

    _error: ClassVar[type[InputError]] = InputError
    _settings: ClassVar[tuple[str, ...]] = ()  # constructor arguments that are not learnable
    _parameter_names: ClassVar[tuple[str, ...]]

    def __init__(self, *, fixed: Iterable[str], **values: float) -> None:
        super().__init__()
        faults = FaultList(f"no {type(self).__name__} was made", self._error)
        held = self._held(fixed, faults)
        numbers = {name: self._number(self.parameter(name), value, faults) for name, value in values.items()}
        self._check_settings(numbers, faults)
        faults.raise_if_any()
        for name, number in numbers.items():
            self.parameter(name).create(self, number, fixed=name in held)

    @classmethod
    def _held(cls, fixed: Any, faults: FaultList) -> set[str]:
        """Names of parameters to hold; others are noted."""
        try:
            held = {fixed} if isinstance(fixed, str) else set(fixed or ())
        except TypeError:
            held = {repr(fixed)}
        unknown = held - set(cls.parameter_names())
        if unknown:
            rule = f"must name parameters ({', '.join(cls.parameter_names())})"
            faults.add("fixed", rule, abbreviate(sorted(map(str, unknown))), "Correct or remove these names.")
        return held

    @classmethod
    def parameter_names(cls) -> tuple[str, ...]:
        """Names of the parameters, a class's own before those of its bases."""
        known: tuple[str, ...] | None = cls.__dict__.get("_parameter_names")
        if known is None:
            every = [(name, value) for base in cls.__mro__ for name, value in vars(base).items()]
            known = cls._parameter_names = tuple(name for name, value in every if isinstance(value, Parameter))
        return known

    @classmethod
    def parameter(cls, name: str) -> Parameter:
        """Return the declaration of one parameter."""
        parameter = getattr(cls, name)
        assert isinstance(parameter, Parameter)
        return parameter

    def _check_settings(self, numbers: dict[str, float], faults: FaultList) -> None:
        """Note faults beyond a parameter's own domain; nothing by default."""

    @staticmethod
    def _number(parameter: Parameter, value: Any, faults: FaultList) -> float:
        try:
            number = float("nan") if isinstance(value, bool | np.bool_ | str) else float(value)
        except (TypeError, ValueError, OverflowError, RuntimeError):
            number = float("nan")
        if not parameter.domain.contains(number):
            faults.add(parameter.name, parameter.domain.rule, repr(value), "Choose a value in this range.")
        return number

    def _check_parameter(self, parameter: Parameter, value: Any) -> float:
        faults = FaultList(f"the {type(self).__name__} was left as it was", self._error)
        number = self._number(parameter, value, faults)
        self._check_settings({parameter.name: number}, faults)
        faults.raise_if_any()
        return number

    @property
    def fixed(self) -> tuple[str, ...]:
        """Names of the parameters that are held fixed while others are learned."""
        return tuple(name for name in self.parameter_names() if not getattr(self, f"raw_{name}").requires_grad)

    def values(self) -> dict[str, float]:
        """Return the parameters as plain numbers, to 15 digits: what was set to 3 reads 3."""
        return {name: float(f"{getattr(self, name).item():.15g}") for name in self.parameter_names()}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments, as scikit-learn expects."""
        del deep
        settings = {name: getattr(self, name) for name in self._settings}
        held = {"fixed": self.fixed} if self.parameter_names() else {}
        return {**settings, **self.values(), **held}

    def set_params(self, **params: Any) -> Self:
        """Set constructor arguments, as scikit-learn expects; all are checked before any is set."""
        unknown = set(params) - set(self.get_params())
        if unknown:
            faults = FaultList(f"the {type(self).__name__} was left as it was", self._error)
            rule = f"must be among {', '.join(self.get_params())}"
            raise faults.raise_now("params", rule, abbreviate(sorted(unknown)), "Correct these names.")
        try:
            fresh = type(self)(**{**self.get_params(), **params})
        except self._error as error:
            raise self._error(f"the {type(self).__name__} was left as it was", error.faults) from None
        for name in self._settings:
            self.__dict__[f"_{name}"] = getattr(fresh, name)
        for name in self.parameter_names():
            ours, theirs = getattr(self, f"raw_{name}"), getattr(fresh, f"raw_{name}")
            with torch.no_grad():
                ours.copy_(theirs)
            ours.requires_grad_(theirs.requires_grad)
        return self

    def extra_repr(self) -> str:
        """Describe settings and parameters for ``repr``."""
        settings = [f"{name}={getattr(self, name)!r}" for name in self._settings]
        numbers = [f"{name}={value:.6g}" for name, value in self.values().items()]
        held = [f"fixed={self.fixed!r}"] if self.fixed else []
        return ", ".join(settings + numbers + held)


def to_plain(module: Parameterized, word: str, known: dict[str, Any]) -> dict[str, Any]:
    """Return a kernel or likelihood as texts, numbers and lists, for model files; parameters with all their digits.

    Parameters
    ----------
    module : Parameterized
        The kernel or likelihood.
    word : {"kernel", "likelihood"}
        What it is.
    known : dict of str to type
        Those that can be stored, by name.
    """
    name = type(module).__name__
    if known.get(name) is not type(module):
        raise ModelFileError(f"a {word} of type {name} cannot be stored in a model file; {', '.join(known)} can be")
    return {
        word: name,
        "settings": {setting: getattr(module, setting) for setting in module._settings},
        # Unconstrained, as they are held: no rounding on the way.
        "raw": {parameter: getattr(module, f"raw_{parameter}").item() for parameter in module.parameter_names()},
        "fixed": list(module.fixed),
    }


def from_plain(plain: dict[str, Any], word: str, known: dict[str, Any], **options: Any) -> Any:
    """Return what `to_plain` was given; ``options`` are further arguments of its constructor."""
    kind = known.get(plain[word])
    if kind is None:
        raise ModelFileError(
            f"the model file holds a {word} called {plain[word]!r:.60}, which this version does not know"
        )
    held: dict[str, Any] = {"fixed": tuple(plain["fixed"])} if kind.parameter_names() else {}
    module = kind(**plain["settings"], **held, **options)
    for name in module.parameter_names():
        with torch.no_grad():
            getattr(module, f"raw_{name}").fill_(float(plain["raw"][name]))
        if not kind.parameter(name).domain.contains(getattr(module, name).item()):
            raise ModelFileError(f"the model file holds a {plain[word]} whose {name} lies out of bounds")
    return module
