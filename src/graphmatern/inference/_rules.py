"""What is known about parameters before the fit: where they may lie, and log-normal priors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern._validation import FaultList, abbreviate, check_positive
from graphmatern.errors import KernelError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Objective = Callable[[Floats], tuple[float, Floats]]

__all__ = ["LogNormal", "Parameter", "Rules", "with_priors"]

# Defaults, by the last word of a parameter's label.
_BOUNDS = {
    "nu": (0.05, 100.0),
    "lengthscale": (1e-3, 1e5),
    "variance": (1e-6, 1e6),
    "noise": (1e-6, 1e4),  # with less noise, rounding decides
}
_LOGIT_BOUNDS = (-15.0, 15.0)  # of a laziness


@dataclass(frozen=True)
class LogNormal:
    """A log-normal prior: the logarithm of the parameter is normal, and the fit maximises over that logarithm.

    Parameters
    ----------
    median : float
        Median of the parameter, and where the prior alone would put it.
    spread : float
        Standard deviation of its logarithm: 0.7 allows a factor of 2 either way, 2.3 a factor of 10.

    Examples
    --------
    >>> import graphmatern as gm
    >>> city = gm.make_roads(200, seed=0)
    >>> y = gm.Matern(nu=1, lengthscale=5.0).on(city).sample(random_state=0).numpy()[0]
    >>> tight = gm.LogNormal(median=2.0, spread=0.01)
    >>> model = gm.GraphGPRegressor(city, gm.Matern(nu=1, fixed="nu"), priors={"lengthscale": tight})
    >>> round(model.fit(city.nodes, y).kernel_.lengthscale.item(), 1)
    2.0
    """

    median: float
    spread: float

    def __post_init__(self) -> None:
        faults = FaultList("no prior was made", KernelError)
        check_positive("median", self.median, faults, remedy="It is a value of the parameter.")
        check_positive("spread", self.spread, faults, remedy="It is a standard deviation, of the logarithm.")
        faults.raise_if_any()

    def penalty(self, logarithm: float) -> tuple[float, float]:
        """Negative log density of the logarithm, its constant included, and its derivative."""
        z = (logarithm - np.log(self.median)) / self.spread
        return float(0.5 * z**2 + np.log(self.spread) + 0.5 * np.log(2 * np.pi)), float(z / self.spread)


@dataclass(frozen=True)
class Parameter:
    """One free parameter as the optimiser sees it.

    Attributes
    ----------
    label : str
        Name for reports, such as "lengthscale".
    low, high : float
        Bounds of the unconstrained coordinate: a logarithm, or a logit for a laziness.
    prior : LogNormal, optional
        Its prior.
    """

    label: str
    low: float
    high: float
    prior: LogNormal | None = None


@dataclass(frozen=True)
class Rules:
    """Bounds and priors that the caller gave, by parameter name; a name stands for every term of a sum.

    Attributes
    ----------
    bounds : mapping of str to (float, float)
        Least and largest value.
    priors : mapping of str to LogNormal
        Priors.
    """

    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    priors: Mapping[str, LogNormal] = field(default_factory=dict)

    def concerns(self, label: str) -> bool:
        """Whether anything was said about a parameter."""
        return label in self.bounds or label in self.priors

    def parameter(self, label: str, *, low: float = -np.inf, high: float = np.inf) -> Parameter:
        """Bounds and prior of one parameter, by the last word of its label; ``low`` and ``high`` bound its coordinate.

        A bound of the caller's replaces the default, not ``low`` and ``high``.
        """
        word = label.rpartition(".")[2]
        if word == "laziness":
            bounds = _LOGIT_BOUNDS
            if word in self.bounds:
                share = np.clip(self.bounds[word], 1e-12, 1.0 - 1e-12)
                bounds = tuple(np.log(share / (1.0 - share)).tolist())
        else:
            pair = self.bounds.get(word, _BOUNDS.get(word, (1e-300, 1e300)))
            bounds = tuple(np.log(np.array(pair, dtype=float)).tolist())
        return Parameter(label, max(low, bounds[0]), min(high, bounds[1]), self.priors.get(word))

    def check(self, labels: Sequence[str], faults: FaultList) -> None:
        """Note names of no parameter, bounds that are none, and priors of another kind."""
        words = {label.rpartition(".")[2] for label in labels}
        given = (("bounds", self.bounds), ("priors", self.priors))
        wrong = [(argument, rules) for argument, rules in given if not isinstance(rules, Mapping)]
        for argument, rules in wrong:
            rule = "must be a dictionary by parameter name"
            faults.add(argument, rule, f"a {type(rules).__name__}", "Such as bounds={'noise': (0.01, 1.0)}.")
        if wrong:
            return
        for argument, rules in given:
            unknown = sorted(map(str, set(rules) - words))
            if unknown:
                rule = f"must name parameters ({', '.join(sorted(words))})"
                faults.add(argument, rule, abbreviate(unknown), "Correct or remove these names.")
        for name, pair in self.bounds.items():
            if not _is_range(pair):
                rule = "must be pairs of positive numbers, the smaller first"
                faults.add("bounds", rule, f"{name!r}: {pair!r}", "Such as {'lengthscale': (1.0, 100.0)}.")
        for name, prior in self.priors.items():
            if not isinstance(prior, LogNormal) or name == "laziness":
                rule = "must be gm.LogNormal priors, of positive parameters"
                faults.add("priors", rule, f"{name!r}: {prior!r}", "Such as {'noise': gm.LogNormal(0.1, 1.0)}.")


def _is_range(pair: Any) -> bool:
    try:
        low, high = (np.nan if isinstance(value, bool | str) else float(value) for value in pair)
    except (TypeError, ValueError):
        return False
    return bool(0.0 < low < high < np.inf)


def with_priors(objective: Objective, parameters: Sequence[Parameter]) -> Objective:
    """Add the priors' penalties to a negative log likelihood."""
    informed = [(place, one.prior) for place, one in enumerate(parameters) if one.prior is not None]
    if not informed:
        return objective

    def penalised(theta: Floats) -> tuple[float, Floats]:
        value, gradient = objective(theta)
        gradient = gradient.copy()
        for place, prior in informed:
            penalty, slope = prior.penalty(float(theta[place]))
            value += penalty
            gradient[place] += slope
        return value, gradient

    return penalised
