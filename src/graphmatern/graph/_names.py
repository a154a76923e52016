"""Node names: any hashable Python objects, looked up by the thousand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern._validation import FaultList, abbreviate, name_rows, warn
from graphmatern.errors import GraphMaternWarning, UnknownNodeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

__all__ = ["NodeNames", "end_names", "index_of_names", "join_indexes", "warn_of_lookalikes"]


def index_of_names(names: Any) -> pd.Index[Any]:
    """Return names as a flat pandas index; tuples stay tuples.

    Parameters
    ----------
    names : sequence of hashable
        Strings, integers, tuples, ... or a mixture. A 2-D NumPy array is not a sequence of names.

    Raises
    ------
    TypeError
        Where ``names`` is a single string, is not iterable, or holds something unhashable.
    """
    if isinstance(names, str | bytes):
        raise TypeError("a single string")
    if isinstance(names, pd.Series):
        names = names.array
    if isinstance(names, pd.MultiIndex):
        return names.to_flat_index()
    if isinstance(names, pd.CategoricalIndex | pd.Categorical):
        names = np.asarray(names)
    if isinstance(names, pd.Index):
        index: pd.Index[Any] = names
        return index
    if getattr(names, "ndim", 1) != 1:
        raise TypeError(f"an array of shape {tuple(names.shape)}")
    plain = isinstance(names, np.ndarray) and names.dtype.kind != "O"
    if plain or isinstance(names, range | pd.api.extensions.ExtensionArray):
        made: pd.Index[Any] = pd.Index(names)
        return made
    return _index_of_list(list(names))


def _index_of_list(names: list[Any]) -> pd.Index[Any]:
    for name in names:
        hash(name)
    kinds = {type(name) for name in names}
    if kinds == {str}:
        strings: pd.Index[Any] = pd.Index(names)
        return strings
    if kinds <= {int} or all(issubclass(kind, np.integer) for kind in kinds):
        try:
            return pd.Index(np.array(names, dtype=np.int64))
        except OverflowError:
            pass
    # A mixture of types (1 and "1", say) must not be coerced to one of them.
    return pd.Index(names, dtype=object, tupleize_cols=False)


def join_indexes(first: pd.Index[Any], second: pd.Index[Any]) -> pd.Index[Any]:
    """Return one index after the other, without coercing either: 2**62 is not a float."""
    if first.dtype != second.dtype:
        return pd.Index([*first, *second], dtype=object, tupleize_cols=False)
    return first.append(second)


def end_names(column: Any, argument: str, faults: FaultList) -> pd.Index[Any] | None:
    """Return one column of node names, without missing ones."""
    if column is None:  # noted already
        return None
    try:
        index = index_of_names(column)
    except TypeError as error:
        faults.add(argument, "must hold hashable node names", str(error), "Use strings or numbers.")
        return None
    missing = np.asarray(pd.isna(index), dtype=bool)
    if missing.any():
        received = f"missing names in {name_rows(np.flatnonzero(missing))}"
        faults.add(argument, "must name a node in every row", received, "Fill in or remove these rows.")
        return None
    return index


def warn_of_lookalikes(names: pd.Index[Any]) -> None:
    """Warn of different names that read the same: 2 and "2", "B" and "B "."""
    if names.dtype.kind in "iufb":
        return
    text = pd.Series([str(name).strip() for name in names])
    twins = text.duplicated(keep=False).to_numpy()
    if twins.any():
        warn(
            f"different node names that look the same: {abbreviate(names[twins])}. "
            "Give each node one spelling and one type",
            GraphMaternWarning,
        )


def _lost_zeros(names: Iterable[Any], known: Iterable[str]) -> bool:
    """Whether a name is a known one without the zeros that it begins with, as for 9001 and "09001"."""
    stripped = {name.lstrip("0") for name in known if name.isdigit() and name.startswith("0")}
    return any(str(name) in stripped for name in names)


def _nearest_spellings(names: Iterable[Any], known: list[str]) -> list[str]:
    """Names that are nearly spelt like these; none where numbers differ, which are no slips of the pen."""
    from difflib import get_close_matches

    found = []
    letters = [name for name in known[:20_000] if not name.isdigit()]
    for name in names:
        digits = [sign for sign in str(name) if sign.isdigit()]
        alike = [one for one in letters if [sign for sign in one if sign.isdigit()] == digits]
        found += get_close_matches(str(name), alike, n=1, cutoff=0.75)
    return list(dict.fromkeys(found))


class NodeNames:
    """The names of a graph's nodes, in node order.

    Parameters
    ----------
    index : pandas.Index
        Unique names without missing values.
    """

    def __init__(self, index: pd.Index[Any]) -> None:
        self.index = index.rename(None)

    def _lookup(self, index: pd.Index[Any]) -> NDArray[np.int64]:
        ours = self.index
        if index.inferred_type == "boolean" and ours.inferred_type in ("integer", "floating"):
            # True equals 1: a mask would be looked up as the names 0 and 1.
            raise TypeError("booleans, but names are numbers (for a mask, pass `graph.nodes[mask]`)")
        if ours.dtype.kind != index.dtype.kind:
            # Numbers of different kinds would be compared as floats, in which 2**62 and 2**62 + 1 are equal.
            ours, index = ours.astype(object), index.astype(object)
        return np.asarray(ours.get_indexer(index), dtype=np.int64)

    @classmethod
    def build(
        cls,
        names: Any,
        faults: FaultList,
        argument: str = "nodes",
        remedy: str = "Give each node one name: a string, a number or any other hashable object.",
    ) -> NodeNames | None:
        """Validate names; what is wrong is noted in ``faults`` and None returned."""
        try:
            index = index_of_names(names)
        except TypeError as error:
            faults.add(argument, "must be a 1-D sequence of hashable names", str(error), remedy)
            return None
        missing = np.asarray(pd.isna(index), dtype=bool)
        if missing.any():
            received = f"missing names at positions {abbreviate(np.flatnonzero(missing))}"
            faults.add(argument, "must not contain None or NaN", received, remedy)
        duplicated = index.duplicated()
        if duplicated.any():
            received = f"repeated names {abbreviate(index[duplicated].unique())}"
            faults.add(argument, "must be unique", received, remedy)
        return None if missing.any() or duplicated.any() else cls(index)

    @classmethod
    def default(cls, n_nodes: int) -> NodeNames:
        """Names 0, 1, ..., n_nodes - 1."""
        return cls(pd.RangeIndex(n_nodes))

    def __len__(self) -> int:
        return len(self.index)

    def codes(self, names: Any) -> NDArray[np.int64]:
        """Positions of names, −1 where there is no such node.

        Parameters
        ----------
        names : sequence of hashable
            Names in any order, repeats allowed.

        Returns
        -------
        ndarray of int64, shape (n_names,)
        """
        return self._lookup(index_of_names(names))

    def positions(self, names: Any, argument: str = "nodes") -> NDArray[np.int64]:
        """Positions of names; raises `UnknownNodeError` naming all that are unknown."""
        faults = FaultList("no such nodes", UnknownNodeError)
        try:
            index = index_of_names(names)
            codes = self._lookup(index)
        except (TypeError, pd.errors.InvalidIndexError) as error:
            rule = "must be a 1-D sequence of node names"
            raise faults.raise_now(argument, rule, str(error), "Put names in a list, even a single one.") from None
        if (codes < 0).any():
            self.note_unknown(index[codes < 0], argument, faults)
            faults.raise_if_any()
        return codes

    def note_unknown(self, unknown: Iterable[Any], argument: str, faults: FaultList) -> None:
        """Note names that are not nodes, with a hint where only the type of a name is wrong."""
        different = list(dict.fromkeys(unknown))
        shown = self.index[:3] if len(self) > 5 else self.index
        remedy = f"The graph's {len(self)} nodes are named {abbreviate(shown, len(self))}.{self.hint(different)}"
        faults.add(argument, "must be names of nodes of the graph", abbreviate(different), remedy)

    def hint(self, different: Sequence[Any]) -> str:
        """What may be wrong with names that are not nodes, as a sentence after a space; empty if there is no guess."""
        spelled = {str(name): name for name in self.index[:100_000]}
        twin = next((spelled[str(name)] for name in different if str(name) in spelled), None)
        if twin is not None:
            return f" Names are compared with their type: write {twin!r}, a {type(twin).__name__}."
        if _lost_zeros(different[:3], spelled):
            return " Leading zeros were lost: keep the column as text (in pandas, read it with dtype=str)."
        near = _nearest_spellings(different[:3], list(spelled))
        return f" Did you mean {abbreviate(near)}?" if near else ""

    def equals(self, other: NodeNames) -> bool:
        """Whether both have the same names in the same order."""
        if len(self) != len(other):
            return False
        ours, theirs = self.index, other.index
        if ours.dtype != theirs.dtype:
            ours, theirs = ours.astype(object), theirs.astype(object)
        return bool(np.all(np.asarray(ours == theirs)))
