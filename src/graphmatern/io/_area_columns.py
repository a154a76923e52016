"""Columns beside the values of areas: exposures, trials and covariates, with all their faults at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern._validation import abbreviate
from graphmatern.tables import read_numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern._validation import FaultList
    from graphmatern.graph import Graph

    Floats = NDArray[np.float64]

__all__ = ["AreaColumns"]

_CORRECT = "Correct these cells."


class AreaColumns:
    """What a table says of areas beside their values.

    Parameters
    ----------
    table : DataFrame
        The table.
    codes : ndarray of int64, shape (n_rows,)
        Position of the node of every row; negative where there is none.
    graph : Graph
        The graph.
    faults : FaultList
        Where faults are noted.
    node : str
        Column of node names.
    """

    def __init__(self, table: pd.DataFrame, codes: NDArray[np.int64], graph: Graph, faults: FaultList, node: str):
        self._table, self._codes, self._graph, self._faults, self._node = table, codes, graph, faults, node

    def _names(self, rows: NDArray[np.bool_]) -> str:
        """Names of the areas of some rows."""
        return abbreviate(self._graph.nodes[self._codes[rows & (self._codes >= 0)]])

    def exposures(self, column: Any, values: NDArray[Any], *, counts: bool, value: str) -> Floats | None:
        """Exposures of all rows, and the counts checked against them; None where there is no such column."""
        numeric = values.dtype.kind == "f"
        if counts and numeric:
            wrong = np.isfinite(values) & ((values < 0) | (values != np.round(values)))
            if wrong.any():
                shown = abbreviate(values[wrong].tolist())
                rule = "must hold counts, whole numbers of at least 0"
                remedy = "Name the column of counts with --value, or use another --likelihood."
                self._faults.add(value, rule, f"{shown} at {self._names(wrong)}", remedy)
        if column is None:
            return None
        rule = "must hold exposures, numbers of at least 0, where there are values"
        observed = ~pd.isna(values) & (self._codes >= 0)
        needed = self._table[column].astype(object).where(observed, 1)
        found = read_numbers(needed, rule, self._faults, remedy=_CORRECT, minimum=0.0)
        bare = observed & (found == 0.0) & (np.nan_to_num(values.astype(float)) > 0.0) if numeric else observed[:0]
        if bare.any():
            rule = f"must be above 0 where {value!r} is"
            remedy = "Correct these cells, or empty the counts."
            self._faults.add(str(column), rule, f"0 at {self._names(bare)}", remedy)
        return found

    def trials(self, column: Any, values: NDArray[Any], *, value: str) -> Floats | None:
        """Trials of all rows, and the successes checked against them; None where there is no such column."""
        if column is None:
            return None
        observed = ~pd.isna(values) & (self._codes >= 0)
        needed = self._table[column].astype(object).where(observed, 1)
        rule = "must hold numbers of trials, whole and at least 1, where there are values"
        found = read_numbers(needed, rule, self._faults, remedy=_CORRECT, minimum=1.0)
        broken = observed & (found != np.round(found)) & np.isfinite(found)
        if broken.any():
            self._faults.add(str(column), rule, f"{abbreviate(found[broken].tolist())}", _CORRECT)
        more = observed & (np.nan_to_num(values.astype(float)) > found) if values.dtype.kind == "f" else observed[:0]
        if more.any():
            rule = f"must hold at most as many successes as {str(column)!r} has trials"
            self._faults.add(value, rule, f"more at {self._names(more)}", "Correct these cells.")
        return found

    def covariates(self, columns: list[Any]) -> pd.DataFrame | None:
        """Covariates of every node, from rows that may have no value; None where there are no such columns."""
        if not columns:
            return None
        rule = "must hold numbers, to be a covariate"
        known = self._codes >= 0
        found = {
            str(column): read_numbers(
                self._table[column].astype(object).where(known, 0), rule, self._faults, remedy=_CORRECT
            )
            for column in columns
        }
        whole = pd.DataFrame(found)[known]
        codes = self._codes[known]
        without = np.setdiff1d(np.arange(self._graph.n_nodes), codes)
        if len(without):
            rule = "must have a row for every node of the graph, as covariates are needed everywhere"
            received = f"none for {abbreviate(self._graph.nodes[without])}"
            self._faults.add(self._node, rule, received, "Add rows for these; their values may be empty.")
        by_node = whole.groupby(codes)
        differ = by_node.nunique(dropna=False).max(axis=1)
        if (differ > 1).any():
            places = differ.index[differ > 1].to_numpy()
            rule = "must have one value per node"
            received = f"several at {abbreviate(self._graph.nodes[places])}"
            self._faults.add(str(columns[0]), rule, received, "Keep one each.")
        table = by_node.first().reindex(np.arange(self._graph.n_nodes))
        return pd.DataFrame(table.set_index(pd.Index(self._graph.nodes)))
