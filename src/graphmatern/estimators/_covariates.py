"""Linear covariates of the mean: from the caller's table to a well-scaled design, and back to the caller's units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from graphmatern._validation import FaultList, abbreviate, as_numbers
from graphmatern.errors import TableError
from graphmatern.inference import Normal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from graphmatern.graph import Graph
    from graphmatern.inference import Prior

    Floats = NDArray[np.float64]

__all__ = ["Covariates", "OwnCovariates", "mixture_quantile", "own_covariates", "read_covariates"]

_INTERCEPT, _ALL = "(constant)", "coefficients"
_WIDE = 100.0  # standard deviation of coefficients without a prior where others have one, in units of y and x


@dataclass(frozen=True, eq=False)
class OwnCovariates:
    """Covariates of single observations.

    Attributes
    ----------
    names : list of str
        Of the columns.
    values : ndarray, shape (n, n_covariates)
        In the caller's units.
    """

    names: list[str]
    values: Floats


@dataclass(frozen=True, eq=False)
class Covariates:
    """Covariates of nodes and of observations, standardised so that their units do not affect accuracy.

    Attributes
    ----------
    names : list of str
        Of the columns of the design: the constant first, where there is one, those of observations last.
    design : ndarray, shape (n_nodes, n_covariates)
        Standardised values at the nodes; the constant is a column of ones, and covariates of observations are at their
        mean.
    shift, scale : ndarray, shape (n_covariates,)
        Standardised values are (value − shift) / scale.
    back : ndarray, shape (n_covariates, n_covariates)
        From coefficients of the design to those of the caller's covariates.
    own_names : list of str
        Of covariates of observations.
    informed : bool
        Whether the caller gave priors; the coefficients of the design then have prior variance 1.
    placed : bool
        Whether the caller gave the constant a prior, so that its level is not taken from the data.
    """

    names: list[str]
    design: Floats
    shift: Floats
    scale: Floats
    back: Floats
    own_names: list[str]
    informed: bool = False
    placed: bool = False

    def design_of(self, nodes: NDArray[np.int64], own: Floats | None) -> Floats | None:
        """Design of observations at some nodes with covariates of their own; None where they have none.

        Parameters
        ----------
        nodes : ndarray of int64, shape (n,)
            Positions of the nodes.
        own : ndarray, shape (n, n_own), optional
            In the caller's units.
        """
        if own is None:
            return None
        found = self.design[nodes].copy()
        k = len(self.own_names)
        found[:, -k:] = (own - self.shift[-k:]) / self.scale[-k:]
        return found

    def precision(self, usual: float) -> float:
        """Prior precision of the coefficients of the design, given the usual one."""
        return 1.0 if self.informed else usual

    def check(self, observed: NDArray[np.int64], own: Floats | None = None) -> None:
        """Refuse covariates whose coefficients cannot be determined from observations at these nodes."""
        design = self.design_of(observed, own)
        seen = self.design[np.unique(observed)] if design is None else design
        n_own = len(self.names) - (_INTERCEPT in self.names)
        if n_own and np.linalg.matrix_rank(seen, tol=1e-8 * max(1.0, np.sqrt(len(seen)))) < len(self.names):
            faults = FaultList("nothing was fitted", TableError)
            received = f"{abbreviate(self.names)} at {len(seen)} observed nodes"
            remedy = "Drop columns that are constant or combinations of others at these nodes, or observe more nodes."
            raise faults.raise_now(
                "covariates", "must not be linearly dependent at the observed nodes", received, remedy
            )

    def in_user_units(
        self, weights: Floats, means: Floats, covariances: Floats, y_mean: float, y_scale: float
    ) -> pd.DataFrame:
        """Coefficients in the caller's units, y = Σ coefficient × covariate: mean, sd and quantiles.

        Parameters
        ----------
        weights : ndarray, shape (n_components,)
            Of the normal distributions whose mixture is known.
        means : ndarray, shape (n_components, n_covariates)
            Of the coefficients of the design.
        covariances : ndarray, shape (n_components, n_covariates, n_covariates)
            Of these.
        y_mean, y_scale : float
            Units of y.
        """
        offset = np.zeros(len(self.names))
        if self.names and self.names[0] == _INTERCEPT:
            offset[0] = y_mean
        own = offset + y_scale * (means @ self.back.T)
        spread = y_scale**2 * np.einsum("ij,kjl,il->ki", self.back, covariances, self.back)
        mean = weights @ own
        variance = weights @ (np.maximum(spread, 0.0) + (own - mean) ** 2)
        columns = {"mean": mean, "sd": np.sqrt(variance)}
        for level, name in ((0.025, "2.5%"), (0.5, "50%"), (0.975, "97.5%")):
            columns[name] = mixture_quantile(level, weights, own, np.sqrt(np.maximum(spread, 0.0)))
        return pd.DataFrame(columns, index=pd.Index(self.names))


def mixture_quantile(level: float, weights: Floats, means: Floats, stds: Floats) -> Floats:
    """Quantile of mixtures of normal distributions, by bisection; means and stds (n_components, n) give (n,)."""
    ends = means + float(ndtri(level)) * stds
    low, high = ends.min(axis=0), ends.max(axis=0)
    narrow = np.maximum(stds, 1e-300)
    for _ in range(60):
        middle = 0.5 * (low + high)
        below = weights @ ndtr((middle - means) / narrow) < level
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray(0.5 * (low + high))


def read_covariates(
    graph: Graph,
    covariates: Any,
    *,
    constant: bool,
    priors: Mapping[str, Prior] | None = None,
    y_scale: float = 1.0,
    own: OwnCovariates | None = None,
) -> Covariates:
    """Check covariates; every fault is reported at once.

    Parameters
    ----------
    graph : Graph
        The graph.
    covariates : DataFrame, Series or array_like, optional
        One row per node: a table indexed by node name, in any order, or an array in the order of the nodes.
    constant : bool
        Whether a column of ones comes first.
    priors : mapping of str to Prior, optional
        Of which those that are `Normal` are of coefficients: by name, or "coefficients" for all.
    y_scale : float
        Unit of y.
    own : OwnCovariates, optional
        Covariates of the observations.
    """
    faults = FaultList("nothing was fitted", TableError)
    n = graph.n_nodes
    names: list[str] = []
    values = np.zeros((n, 0))
    if covariates is not None:
        names, values = _values(graph, covariates, faults)
    own_names = [] if own is None else own.names
    twice = [name for name in own_names if name in names or name == _INTERCEPT]
    if twice:
        remedy = "Rename them in one of the two tables."
        faults.add("covariates", "of nodes and of observations must have different names", abbreviate(twice), remedy)
    faults.raise_if_any()
    shift, scale = _standards(values, constant)
    if own is not None:
        own_shift, own_scale = _standards(own.values, constant)
        middle = own.values.mean(axis=0)
        names, shift, scale = [*names, *own_names], np.append(shift, own_shift), np.append(scale, own_scale)
        values = np.hstack([values, np.broadcast_to(middle, (n, len(middle)))])
    back = np.diag(1.0 / scale)
    if constant:
        names = [_INTERCEPT, *names]
        values = np.column_stack([np.ones(n), values])
        shift, scale = np.append(0.0, shift), np.append(1.0, scale)
        back = np.diag(1.0 / scale)
        back[0, 1:] = -shift[1:] / scale[1:]
    given = {name: prior.scale for name, prior in (priors or {}).items() if isinstance(prior, Normal)}
    if not given:
        return Covariates(names, (values - shift) / scale, shift, scale, back, own_names)
    known = {_ALL, *names}
    if not set(given) <= known:
        rule = f"must name covariates ({', '.join(names)}) or {_ALL!r} where they are gm.Normal"
        faults.add("priors", rule, abbreviate(sorted(set(given) - known)), "Correct or remove these names.")
    faults.raise_if_any()
    # Coefficients of the caller's own covariates, as the priors are of these, in units of their standard deviations.
    wide = _WIDE / scale
    widths = np.array([given.get(name, given.get(_ALL, 0.0)) / y_scale for name in names])
    widths = np.where(widths > 0.0, widths, wide)
    placed = constant and (_INTERCEPT in given or _ALL in given)
    nothing, units = np.zeros(len(names)), 1.0 / widths
    return Covariates(names, values * widths, nothing, units, np.diag(widths), own_names, informed=True, placed=placed)


def _standards(values: Floats, constant: bool) -> tuple[Floats, Floats]:
    """What to subtract from covariates and to divide them by; without a constant, a shift would change the model."""
    shift = values.mean(axis=0) if constant else np.zeros(values.shape[1])
    scale = (values - shift).std(axis=0) if constant else np.sqrt(np.mean(values**2, axis=0))
    return shift, np.where(scale > 1e-12 * np.abs(values).max(axis=0, initial=0.0), scale, 1.0)


def own_covariates(
    given: Any, count: int, faults: FaultList, needed: NDArray[np.bool_] | None = None
) -> OwnCovariates | None:
    """Covariates of observations, or of predictions; faults are noted.

    Parameters
    ----------
    given : DataFrame, Series or array_like
        One row for each, in their order.
    count : int
        How many there are.
    faults : FaultList
        Where faults are noted.
    needed : ndarray of bool, shape (count,), optional
        Which of them must be known; all by default.
    """
    if given is None:
        return None
    if isinstance(given, pd.Series):
        given = given.to_frame("covariate" if given.name is None else given.name)
    if not isinstance(given, pd.DataFrame):
        array = np.asarray(given)
        given = pd.DataFrame(array[:, None] if array.ndim == 1 else array)
        given.columns = pd.Index([f"x{k}" for k in range(given.shape[1])])
    if len(given) != count or not given.shape[1]:
        rule = f"must have a row for each of {count} values, and a column for each covariate"
        faults.add("covariates", rule, f"shape {given.shape}", "One row per value.")
        return None
    before = len(faults)
    if needed is not None:
        given = given.set_axis(range(count)).where(pd.Series(needed), 0.0)
    columns = [as_numbers(given.iloc[:, k], f"covariates[{name!r}]", faults) for k, name in enumerate(given.columns)]
    if len(faults) > before:
        return None
    return OwnCovariates([str(name) for name in given.columns], np.column_stack(columns))


def _values(graph: Graph, covariates: Any, faults: FaultList) -> tuple[list[str], Floats]:
    if isinstance(covariates, pd.Series):
        covariates = covariates.to_frame("covariate" if covariates.name is None else covariates.name)
    if not isinstance(covariates, pd.DataFrame):
        values = as_numbers(covariates, "covariates", faults)
        values = values[:, None] if values.ndim == 1 else values
        if values.ndim != 2 or len(values) != graph.n_nodes:
            rule = f"must have a row for each of the {graph.n_nodes} nodes, or be a table indexed by node name"
            raise faults.raise_now("covariates", rule, f"shape {np.shape(covariates)}", "Complete it.")
        return [f"x{k}" for k in range(values.shape[1])], values
    codes = graph.names.codes(covariates.index)
    missing = np.setdiff1d(np.arange(graph.n_nodes), codes)
    if len(missing):
        received = f"none for {abbreviate(graph.nodes[missing])}"
        faults.add("covariates", "must have a row for every node", received, "Predictions need them everywhere.")
    known = codes >= 0
    if len(np.unique(codes[known])) < known.sum():
        twice = covariates.index[known & pd.Index(codes).duplicated(keep=False)].unique()
        faults.add("covariates", "must have one row per node", f"several for {abbreviate(twice)}", "Keep one.")
    faults.raise_if_any()
    values = np.empty((graph.n_nodes, covariates.shape[1]))
    for k, name in enumerate(covariates.columns):
        values[codes[known], k] = as_numbers(covariates.iloc[:, k], f"covariates[{name!r}]", faults)[known]
    return [str(name) for name in covariates.columns], values
