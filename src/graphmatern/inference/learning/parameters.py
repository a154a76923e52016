"""What is known about parameters before the fit: where they may lie, and their priors."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from graphmatern._validation import FaultList, abbreviate
from graphmatern.errors import NumericalError
from graphmatern.inference.learning.priors import Prior
from graphmatern.kernels import parameter_label

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from graphmatern._parameters import Parameterized

    Floats = NDArray[np.float64]
    Objective = Callable[[Floats], tuple[float, Floats]]

__all__ = [
    "START_LENGTHSCALES",
    "Coordinate",
    "PriorsAndBounds",
    "free_parameters",
    "information_with_priors",
    "many_weights",
    "move_parameters",
    "one_by_one",
    "pull_back",
    "spread_parameters",
    "with_priors",
]

#: Lengthscales that suit many data sets, from which searches begin.
START_LENGTHSCALES = (2.0, 8.0, 32.0)
# Default bounds, by the last word of a parameter's label.
_BOUNDS = {
    "nu": (0.05, 100.0),
    "lengthscale": (1e-3, 1e5),
    "variance": (1e-6, 1e6),
    "noise": (1e-6, 1e4),  # with less noise, rounding decides
    "scale": (1e-4, 1e4),
    "df": (2.05, 1e3),
    "dispersion": (1e-6, 1e3),
    "laziness": (3e-7, 1.0 - 3e-7),
    "zeros": (1e-4, 1.0 - 1e-4),
    "mixing": (1e-6, 1.0 - 1e-6),
    "smoothing": (1e-2, 1e5),
    "bandwidth": (1e-2, 1e2),
}


@dataclass(frozen=True)
class Coordinate:
    """One free parameter as the optimiser sees it.

    Attributes
    ----------
    label : str
        Name for reports, such as "lengthscale".
    low, high : float
        Bounds of the unconstrained coordinate: a logarithm, or a logit for a laziness.
    prior : Prior, optional
        Its prior.
    value : callable
        From coordinates to values of the parameter.
    """

    label: str
    low: float
    high: float
    prior: Prior | None = None
    value: Callable[[Floats], Floats] = np.exp

    @property
    def is_variance(self) -> bool:
        """Whether it is the logarithm of something that the covariance of Gaussian observations is linear in."""
        return _word(self.label) in ("variance", "noise")


@dataclass(frozen=True)
class PriorsAndBounds:
    """Priors and bounds that the caller gave, by parameter name; its last word alone stands for every term of a sum.

    Attributes
    ----------
    bounds : mapping of str to (float, float)
        Least and largest value.
    priors : mapping of str to Prior
        Priors.
    """

    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    priors: Mapping[str, Prior] = field(default_factory=dict)

    def concern(self, label: str) -> bool:
        """Whether anything was said about a parameter, of any term."""
        return any(_word(name) == label for name in (*self.bounds, *self.priors))

    def allowed(self, label: str) -> tuple[float, float]:
        """Least and largest value of a parameter."""
        word = _word(label)
        low, high = self.bounds.get(label) or self.bounds.get(word) or _BOUNDS.get(word, (1e-300, 1e300))
        return float(low), float(high)

    def coordinate(
        self,
        label: str,
        free: Callable[[Floats], Any] = np.log,
        value: Callable[[Floats], Floats] = np.exp,
        *,
        low: float = -np.inf,
        high: float = np.inf,
    ) -> Coordinate:
        """Bounds and prior of one parameter.

        Parameters
        ----------
        label : str
            Its name, or path in a sum.
        free : callable
            From the parameter to its unconstrained coordinate.
        value : callable
            And back.
        low, high : float
            Further bounds of the coordinate, which the caller's do not replace.
        """
        least, most = np.asarray(free(np.array(self.allowed(label))), dtype=np.float64).tolist()
        prior = self.priors.get(label) or self.priors.get(_word(label))
        return Coordinate(label, max(low, least), min(high, most), prior, value)

    def check(self, labels: Sequence[str], held: Iterable[str], faults: FaultList) -> None:
        """Note names of no parameter or of held ones, bounds that are none, and priors of another kind.

        Parameters
        ----------
        labels : sequence of str
            Parameters there are; the last word of each is a name as well.
        held : iterable of str
            Those that are held in every term, so that neither bounds nor priors can have an effect.
        faults : FaultList
            Where faults are noted.
        """
        words, held = {_word(label) for label in labels} | set(labels), set(held)
        given = (("bounds", self.bounds), ("priors", self.priors))
        wrong = [(argument, table) for argument, table in given if not isinstance(table, Mapping)]
        for argument, table in wrong:
            rule = "must be a dictionary by parameter name"
            faults.add(argument, rule, f"a {type(table).__name__}", "Such as bounds={'noise': (0.01, 1.0)}.")
        if wrong:
            return
        for argument, table in given:
            unknown = sorted(map(str, set(table) - words))
            if unknown:
                rule = f"must name parameters ({', '.join(sorted(words))})"
                faults.add(argument, rule, abbreviate(unknown), "Correct or remove these names.")
            idle = sorted(map(str, set(table) & held))
            if idle:
                rule = "must name parameters that are learned, not held"
                faults.add(argument, rule, abbreviate(idle), "Remove these names, or take them out of `fixed`.")
        for name, pair in self.bounds.items():
            if not _is_range(pair):
                rule = "must be pairs of positive numbers, the smaller first"
                faults.add("bounds", rule, f"{name!r}: {pair!r}", "Such as {'lengthscale': (1.0, 100.0)}.")
        for name, prior in self.priors.items():
            if name not in words:
                continue  # noted above
            if not isinstance(prior, Prior):
                rule = "must be gm.LogNormal or other priors of this package"
                faults.add("priors", rule, f"{name!r}: {prior!r}", "Such as {'noise': gm.LogNormal(0.1, 1.0)}.")
            elif not prior.suitable(str(name)):
                rule = "must suit their parameters"
                remedy = "gm.Beta is for shares, gm.PCPrior for lengthscales (below=) and variances (above=)."
                faults.add("priors", rule, f"{name!r}: {prior!r}", remedy)


def _word(label: object) -> str:
    """The last word of a label, which says what a parameter is."""
    return str(label).rpartition(".")[2]


def _is_range(pair: Any) -> bool:
    try:
        low, high = (np.nan if isinstance(value, bool | str) else float(value) for value in pair)
    except (TypeError, ValueError):
        return False
    return bool(0.0 < low < high < np.inf)


def with_priors(objective: Objective, coordinates: Sequence[Coordinate]) -> Objective:
    """Add the priors' penalties to a negative log likelihood."""
    informed = [(place, one.prior) for place, one in enumerate(coordinates) if one.prior is not None]
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


def one_by_one(value: Callable[[Floats], float], positions: Floats) -> Floats:
    """A function at many positions, infinite where numbers break down; shape (m,)."""
    found = np.full(len(positions), np.inf)
    for place, position in enumerate(positions):
        with suppress(NumericalError):
            found[place] = value(position)
    return found


def information_with_priors(objective: Any, coordinates: Sequence[Coordinate]) -> Callable[[], Floats] | None:
    """The Fisher information where an objective was last evaluated, and what priors add; None where it is not known."""
    if objective.information is None:
        return None

    def information() -> Floats:
        pairs = zip(coordinates, objective.position, strict=True)
        of_priors = [0.0 if one.prior is None else one.prior.curvature(float(x)) for one, x in pairs]
        return np.asarray(objective.information() + np.diag(of_priors))

    return information


def free_parameters(module: Any, rules: PriorsAndBounds) -> tuple[list[Any], list[Coordinate], Floats]:
    """Free parameters of a kernel or likelihood, and how an optimiser sees them.

    Parameters
    ----------
    module : Kernel or Likelihood
        Whose parameters are moved.
    rules : PriorsAndBounds
        What the caller said about them.

    Returns
    -------
    raw : list of torch.nn.Parameter
        Unconstrained values.
    coordinates : list of Coordinate
        Their names, bounds and priors.
    start : ndarray, shape (n_free,)
        Where they are.
    """
    raw, coordinates = [], []
    for path, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        owner: Parameterized = module.get_submodule(path.rpartition(".")[0])
        domain = type(owner).parameter(path.rpartition(".")[2].removeprefix("raw_")).domain
        raw.append(parameter)
        label = parameter_label(module, path)
        coordinates.append(rules.coordinate(label, domain.free_values, domain.bound_values))
    return raw, coordinates, np.array([parameter.item() for parameter in raw])


def move_parameters(raw: Sequence[Any], position: Floats) -> None:
    """Set unconstrained parameters."""
    for parameter, value in zip(raw, position, strict=True):
        parameter.data.fill_(float(value))


@contextmanager
def spread_parameters(raw: Sequence[Any], columns: Floats) -> Iterator[None]:
    """Let unconstrained parameters stand for many values at once: functions of them then have the shapes of these.

    Parameters
    ----------
    raw : sequence of torch.nn.Parameter
        Unconstrained parameters, scalars before and after.
    columns : ndarray, shape (n_parameters, ...)
        Values for each.
    """
    own = [parameter.data for parameter in raw]
    try:
        for parameter, values in zip(raw, columns, strict=True):
            parameter.data = torch.tensor(values, dtype=parameter.dtype, device=parameter.device)
        with torch.no_grad():
            yield
    finally:
        for parameter, value in zip(raw, own, strict=True):
            parameter.data = value


def many_weights(weights: Callable[[], torch.Tensor], raw: Sequence[Any], positions: Floats) -> Floats:
    """Weights on eigenvectors at many positions, all at once where the kernel's formula allows it; shape (m, n).

    Parameters
    ----------
    weights : callable
        Returns the weights, shape (n,), at the parameters as they are.
    raw : sequence of torch.nn.Parameter
        Unconstrained parameters; left as they were.
    positions : ndarray, shape (m, n_parameters)
        Their values.
    """

    def at(position: Floats) -> Floats:
        with spread_parameters(raw, position):
            return np.asarray(weights().cpu().numpy(), dtype=np.float64)

    known = at(positions[-1])
    with spread_parameters(raw, positions.T[:, :, None]):
        try:
            found = np.broadcast_to(weights().cpu().numpy(), (len(positions), len(known)))
        except (RuntimeError, ValueError):  # a kernel whose formula is for one value of each parameter
            found = np.full((len(positions), len(known)), np.nan)
    if np.allclose(found[-1], known, rtol=1e-9, atol=1e-300):
        return found
    return np.stack([at(position) for position in positions])


def pull_back(outputs: Sequence[torch.Tensor], cotangents: Sequence[Floats], free: Sequence[torch.Tensor]) -> Floats:
    """Derivatives of Σ output · cotangent in scalar parameters; shape (n_free,).

    Parameters
    ----------
    outputs : sequence of Tensor
        Functions of the parameters.
    cotangents : sequence of ndarray
        Of the shapes of the outputs.
    free : sequence of Tensor
        The parameters.
    """
    if not free:
        return np.zeros(0)
    with torch.enable_grad():
        # Of a sum, because for derivatives of anything else torch imports sympy, which takes as long as a small fit.
        total = torch.zeros((), dtype=torch.float64)
        for output, cotangent in zip(outputs, cotangents, strict=True):
            total = total + (output * torch.as_tensor(np.ascontiguousarray(cotangent), device=output.device)).sum()
    pulled = torch.autograd.grad(total, free, retain_graph=True, allow_unused=True)
    return np.array([0.0 if one is None else one.item() for one in pulled])
