"""Linear covariates of the mean: from the caller's table to a well-scaled design, and back to the caller's units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern._validation import FaultList, abbreviate, as_numbers
from graphmatern.errors import TableError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.graph import Graph

    Floats = NDArray[np.float64]

__all__ = ["Covariates", "read_covariates"]

_INTERCEPT = "(constant)"


@dataclass(frozen=True, eq=False)
class Covariates:
    """Covariates at every node, standardised so that no unit of theirs harms the arithmetic.

    Attributes
    ----------
    names : list of str
        Of the columns of the design: the constant first, where there is one.
    design : ndarray, shape (n_nodes, n_covariates)
        Standardised values; the constant is a column of ones.
    shift, scale : ndarray, shape (n_covariates,)
        What was subtracted, and then divided by.
    """

    names: list[str]
    design: Floats
    shift: Floats
    scale: Floats

    def check(self, observed: NDArray[np.int64]) -> None:
        """Refuse covariates whose coefficients the observed nodes cannot tell apart."""
        seen = self.design[np.unique(observed)]
        n_own = len(self.names) - (_INTERCEPT in self.names)
        if n_own and np.linalg.matrix_rank(seen, tol=1e-8 * max(1.0, np.sqrt(len(seen)))) < len(self.names):
            faults = FaultList("nothing was fitted", TableError)
            received = f"{abbreviate(self.names)} at {len(seen)} observed nodes"
            remedy = "Drop columns that are constant or combinations of others there, or observe more nodes."
            raise faults.raise_now(
                "covariates", "must not be linearly dependent at the observed nodes", received, remedy
            )

    def in_user_units(self, mean: Floats, covariance: Floats, y_mean: float, y_scale: float) -> pd.DataFrame:
        """Coefficients with standard deviations, for y = Σ coefficient × covariate in the caller's units."""
        p = len(self.names)
        back = np.diag(1.0 / self.scale)
        offset = np.zeros(p)
        if p and self.names[0] == _INTERCEPT:
            back[0, 1:] = -self.shift[1:] / self.scale[1:]
            offset[0] = y_mean
        std = y_scale * np.sqrt(np.maximum(np.diag(back @ covariance @ back.T), 0.0))
        return pd.DataFrame({"mean": offset + y_scale * (back @ mean), "std": std}, index=pd.Index(self.names))


def read_covariates(graph: Graph, covariates: Any, *, constant: bool) -> Covariates:
    """Check covariates; every fault is reported at once.

    Parameters
    ----------
    graph : Graph
        The graph.
    covariates : DataFrame, Series or array_like, optional
        One row per node: a table indexed by node name, in any order, or an array in the order of the nodes.
    constant : bool
        Whether a column of ones comes first.
    """
    faults = FaultList("nothing was fitted", TableError)
    n = graph.n_nodes
    names: list[str] = []
    values = np.zeros((n, 0))
    if covariates is not None:
        names, values = _values(graph, covariates, faults)
    faults.raise_if_any()
    # Without a constant, to shift a covariate would change what is modelled.
    shift = values.mean(axis=0) if constant else np.zeros(values.shape[1])
    scale = (values - shift).std(axis=0) if constant else np.sqrt(np.mean(values**2, axis=0))
    scale = np.where(scale > 1e-12 * np.abs(values).max(axis=0, initial=0.0), scale, 1.0)
    standardised = (values - shift) / scale
    if constant:
        names = [_INTERCEPT, *names]
        standardised = np.column_stack([np.ones(n), standardised])
        shift, scale = np.append(0.0, shift), np.append(1.0, scale)
    return Covariates(names, standardised, shift, scale)


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
