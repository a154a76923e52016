"""From what a caller passes to `fit` to nodes and numbers, all faults reported at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern._validation import FaultList, abbreviate, as_numbers, describe_rows, plain_array
from graphmatern.errors import TableError
from graphmatern.estimators._covariates import OwnCovariates, own_covariates
from graphmatern.graph import index_of_names
from graphmatern.likelihoods import join_trials

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.graph import Graph

    Floats = NDArray[np.float64]

__all__ = [
    "TrainingData",
    "aligned",
    "join_observations",
    "names_and_values",
    "node_codes",
    "read_observations",
    "read_thresholds",
]


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Observations in the caller's units.

    Attributes
    ----------
    nodes : ndarray of int64, shape (n,)
        Positions of the observed nodes.
    y : ndarray, shape (n, n_replicates)
        Values; NaN where a replicate was not observed.
    noise : ndarray, shape (n,), optional
        Known noise variances.
    exposure : ndarray, shape (n,), optional
        The time, population or area that each count refers to.
    covariates : ndarray, shape (n, n_covariates), optional
        Covariates of each observation.
    covariate_names : list of str, optional
        What these are called.
    """

    nodes: NDArray[np.int64]
    y: Floats
    noise: Floats | None
    exposure: Floats | None = None
    covariates: Floats | None = None
    covariate_names: list[str] | None = None

    @property
    def own(self) -> OwnCovariates | None:
        """Covariates of the observations."""
        if self.covariates is None:
            return None
        return OwnCovariates(list(self.covariate_names or []), self.covariates)


def names_and_values(nodes: Any, y: Any, faults: FaultList) -> tuple[Any, Any]:
    """Node names and values: both as given, or those of a Series or DataFrame indexed by node name.

    Parameters
    ----------
    nodes : sequence of hashable, Series or DataFrame
        What the caller passed first.
    y : array_like, optional
        What the caller passed second.
    faults : FaultList
        Where faults are noted; raises if it cannot continue.
    """
    if y is not None:
        if isinstance(nodes, pd.DataFrame) or getattr(nodes, "ndim", 1) == 2:
            shape = tuple(nodes.shape)
            remedy = (
                "Pass the names of the nodes, such as table['node'] or X[:, 0]; covariates belong in the constructor."
            )
            raise faults.raise_now("nodes", "must be a 1-D sequence of node names", f"shape {shape}", remedy)
        return nodes, aligned(y, nodes, "y", faults)
    if isinstance(nodes, pd.DataFrame) and isinstance(nodes.index, pd.RangeIndex) and nodes.shape[1] == 2:
        first, second = map(str, nodes.columns)
        rule = "must be indexed by node name, or be given as two columns"
        remedy = f"Use fit(table[{first!r}], table[{second!r}]), or table.set_index({first!r})[{second!r}]."
        raise faults.raise_now("nodes", rule, f"a table with columns {first!r} and {second!r}", remedy)
    if not isinstance(nodes, pd.Series | pd.DataFrame):
        received = f"a {type(nodes).__name__} and no `y`"
        remedy = "Pass node names and values, or a Series indexed by node name."
        raise faults.raise_now("nodes", "must be given with `y`, or be a Series or DataFrame", received, remedy)
    return nodes.index, nodes


def node_codes(graph: Graph, nodes: Any, faults: FaultList) -> tuple[pd.Index[Any], NDArray[np.int64]]:
    """Node names as an index, and their positions; unknown ones are noted, and have position −1."""
    try:
        names = index_of_names(nodes)
        codes = graph.names.codes(names)
    except (TypeError, pd.errors.InvalidIndexError) as error:
        raise faults.raise_now("nodes", "must be a 1-D sequence of node names", str(error), "Use a list.") from None
    if (codes < 0).any():
        graph.names.note_unknown(names[codes < 0], "nodes", faults)
    return names, codes


def aligned(given: Any, nodes: Any, argument: str, faults: FaultList) -> Any:
    """What was given per node, in the order of the nodes: a Series goes by its index, always.

    Parameters
    ----------
    given : Series or array_like
        One entry per node.
    nodes : sequence of hashable
        Node names; a Series of them has an index of its own, which may be shared.
    argument : str
        Name of the argument, for messages.
    faults : FaultList
        Where faults are noted; raises where the index says neither.
    """
    if not isinstance(given, pd.Series | pd.DataFrame):
        return given
    index = given.index
    if isinstance(nodes, pd.Series):
        if index.equals(nodes.index):
            return given
        if index.is_unique and nodes.index.isin(index).all():
            return given.reindex(nodes.index)
    names = index_of_names(nodes)
    if len(index) == len(names) and index.equals(names):
        return given
    unnamed = isinstance(index, pd.RangeIndex) and len(index) == len(names) and (index.start, index.step) == (0, 1)
    if not unnamed and index.is_unique and index.isin(names).any():
        return given.reindex(names)  # missing entries are reported where they are needed
    if unnamed and not (names.is_unique and names.isin(index).all()):
        return given  # numbered, not named
    rule = "must have the index of the nodes, each of them once"
    received = f"an index that begins {abbreviate(index[:3], len(index))} for nodes {abbreviate(names[:3], len(names))}"
    raise faults.raise_now(argument, rule, received, "Index it by node name, or pass `.to_numpy()` to go by position.")


def read_observations(
    graph: Graph,
    nodes: Any,
    y: Any,
    noise: Any = None,
    exposure: Any = None,
    trials: Any = None,
    covariates: Any = None,
    *,
    subject: str = "nothing was fitted",
) -> TrainingData:
    """Check what was passed to ``fit`` and its like; every fault is reported at once.

    Parameters
    ----------
    graph : Graph
        The graph.
    nodes : sequence of hashable, Series or DataFrame
        Node names; or values indexed by node name, where ``y`` is None.
    y : array_like, shape (n,) or (n, n_replicates), optional
        Values; NaN, None and NA mean not observed.
    noise, exposure, trials : array_like, shape (n,), optional
        Known noise variances, exposures of counts, and trials of which values are successes; a Series is matched by its
        index. Trials are joined to the values.
    covariates : DataFrame or array_like, shape (n, n_covariates), optional
        Covariates of each observation.
    subject : str
        What was not done, if something is wrong.
    """
    faults = FaultList(subject, TableError)
    nodes, y = names_and_values(nodes, y, faults)
    names, codes = node_codes(graph, nodes, faults)
    values, wrong = _values(y)
    if values.ndim != 2 or len(values) != len(codes):
        rule = f"must have shape ({len(codes)},) or ({len(codes)}, n_replicates)"
        raise faults.raise_now("y", rule, f"shape {np.shape(values)}", "One value per node named.")
    if wrong.any():
        shown = np.reshape(np.asarray(_plain(y)), values.shape)
        received = describe_rows(wrong[:, 0], shown[:, 0]) if shown.shape[1] == 1 else describe_rows(wrong, shown)
        rule = "must hold numbers, or NaN for what was not observed"
        faults.add("y", rule, received, "Correct them.")
    kept = np.asarray(~np.isnan(values).all(axis=1))
    original = nodes if isinstance(nodes, pd.Series) else names
    variances = _positive(aligned(noise, original, "noise_variance", faults), "noise_variance", kept, faults)
    exposures = _exposures(aligned(exposure, original, "exposure", faults), values, kept, names, faults)
    own = own_covariates(aligned(covariates, original, "covariates", faults), len(codes), faults, kept)
    if trials is not None:
        attempts = _positive(aligned(trials, original, "trials", faults), "trials", kept, faults)
        faults.raise_if_any()
        negative = values[kept] < 0
        values[kept] = np.where(negative, values[kept], join_trials(values[kept], np.asarray(attempts)[:, None]))
    faults.raise_if_any()
    if exposures is not None:
        observable = exposures > 0.0  # no cases where there are no people carries no information
        kept[kept], exposures = observable, exposures[observable]
        variances = None if variances is None else variances[observable]
    if not kept.any():
        raise faults.raise_now("y", "must hold at least one value", "none", "NaN means not observed.")
    beside = (None, None) if own is None else (own.values[kept], own.names)
    return TrainingData(codes[kept], values[kept], variances, exposures, *beside)


def join_observations(had: TrainingData, more: TrainingData, subject: str) -> TrainingData:
    """Join two sets of observations; if only one has exposures, those of the other are 1.

    Parameters
    ----------
    had, more : TrainingData
        Data of `fit`, and further data.
    subject : str
        What was not done, if the two do not fit together.
    """
    faults = FaultList(subject, TableError)
    if more.y.shape[1] != had.y.shape[1]:
        rule = f"must have as many replicates as before, {had.y.shape[1]}"
        faults.add("y", rule, str(more.y.shape[1]), "Use NaN for what was not observed.")
    if (more.noise is None) != (had.noise is None):
        rule = "must be given if, and only if, it was given to `fit`"
        received = "none" if more.noise is None else "some"
        faults.add("noise_variance", rule, received, "Or fit again with all data.")
    if more.covariate_names != had.covariate_names:
        rule = f"must be those of `fit`: {', '.join(had.covariate_names or []) or 'none'}"
        received = ", ".join(more.covariate_names or []) or "none"
        faults.add("covariates", rule, received, "In the same order; or fit again with all data.")
    faults.raise_if_any()
    exposure = None
    if had.exposure is not None or more.exposure is not None:
        exposure = np.concatenate([np.ones(len(x.nodes)) if x.exposure is None else x.exposure for x in (had, more)])
    noise = None if had.noise is None or more.noise is None else np.concatenate([had.noise, more.noise])
    own = None if had.covariates is None or more.covariates is None else np.vstack([had.covariates, more.covariates])
    nodes, y = np.concatenate([had.nodes, more.nodes]), np.vstack([had.y, more.y])
    return TrainingData(nodes, y, noise, exposure, own, had.covariate_names)


def _values(y: Any) -> tuple[Floats, NDArray[np.bool_]]:
    """Values as columns, NaN where there is none, and which are neither finite numbers nor missing."""
    raw = _plain(y)
    values = as_numbers(y.to_numpy() if isinstance(y, pd.Series | pd.DataFrame) else y, "y", FaultList("", TableError))
    wrong = np.isinf(values)
    if raw is not None and raw.dtype.kind not in "buif":
        wrong |= np.isnan(values) & ~np.asarray(pd.isna(raw))
    return (values[:, None], wrong[:, None]) if values.ndim == 1 else (values, wrong)


def _plain(y: Any) -> NDArray[Any] | None:
    return plain_array(y.to_numpy() if isinstance(y, pd.Series | pd.DataFrame) else y)


def _exposures(
    given: Any, y: Floats, kept: NDArray[np.bool_], names: pd.Index[Any], faults: FaultList
) -> Floats | None:
    """Exposures of the values that were observed; 0 only for counts of 0."""
    if given is None:
        return None
    numbers = as_numbers(given, "exposure", FaultList("", TableError))
    if numbers.shape != kept.shape:
        faults.add("exposure", f"must have shape {kept.shape}", f"shape {numbers.shape}", "One per value.")
        return None
    numbers[~kept] = 1.0
    found = as_numbers(numbers, "exposure", faults, minimum=0.0)[kept]
    bare = (numbers == 0.0) & (np.nan_to_num(y) > 0.0).any(axis=1)
    if bare.any():
        rule = "must be above 0 for counts above 0"
        faults.add(
            "exposure", rule, f"0 for {abbreviate(names[bare])}", "Correct these exposures, or leave out the counts."
        )
    return found


def _positive(given: Any, argument: str, kept: NDArray[np.bool_], faults: FaultList) -> Floats | None:
    """Positive numbers, one per observed value; entries for others are ignored."""
    if given is None:
        return None
    numbers = as_numbers(given, argument, FaultList("", TableError))
    if numbers.shape != kept.shape:
        faults.add(argument, f"must have shape {kept.shape}", f"shape {numbers.shape}", "One per value.")
        return None
    numbers[~kept] = 1.0
    return as_numbers(numbers, argument, faults, minimum=0.0, above=True)[kept]


def read_thresholds(given: Any, shape: tuple[int, ...] = ()) -> Floats:
    """One threshold, or one for each of some nodes; all faults are reported at once.

    Parameters
    ----------
    given : float or array_like
        What the caller gave.
    shape : tuple of int
        Its shape where there is one for each.
    """
    faults = FaultList("no probabilities", TableError)
    numbers = as_numbers(given, "threshold", faults)
    if numbers.shape not in ((), shape):
        rule = "must be a single number" + (f", or have shape {shape}" if shape else "")
        faults.add("threshold", rule, f"shape {numbers.shape}", "One for all nodes, or one for each.")
    faults.raise_if_any()
    return numbers
