"""Where to put sensors, and which of the existing ones could be removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from tqdm import tqdm

from graphmatern._progress import hidden
from graphmatern._validation import FaultList, abbreviate, check_choice, check_whole, warn
from graphmatern.design._criteria import CRITERIA
from graphmatern.design._wishes import read_measurable, read_nodes, read_noise, read_wishes
from graphmatern.errors import NumericalWarning, TableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from graphmatern.design._belief import Belief
    from graphmatern.design._criteria import Criterion
    from graphmatern.design._measurable import HasMeasurable, Measurable
    from graphmatern.kernels import BoundKernel

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["place_sensors", "remove_sensors"]

_TRIES = 20  # candidates whose estimated gains are put right before one is chosen
_ERROR = 1e-6  # of gains by difference quotients, relative, beyond which they are warned of


def place_sensors(
    model: HasMeasurable | BoundKernel,
    n: int | None = None,
    *,
    criterion: Literal["entropy", "mutual_information", "variance"] = "entropy",
    candidates: Any = None,
    targets: Any = None,
    existing: Any = None,
    noise: Any = None,
    costs: Any = None,
    budget: float | None = None,
) -> pd.DataFrame:
    """Choose nodes to measure at, one at a time, each the best given the data and the previous choices.

    Gains are exact, up to rounding. Each choice takes one or two solves, after which all candidates are compared. If an
    engine estimates the variances of many nodes (moments, beyond 4,000), leading candidates are recomputed, so that the
    gains reported are exact there too.

    Parameters
    ----------
    model : GraphGPRegressor or BoundKernel
        What is known so far: a fitted model with its data; an unfitted one with a kernel and a noise variance, if there
        are no data yet (its mean then counts as known); or a kernel on a graph. Use ``model.kernel_.on(graph)`` if the
        data belong to the past and the sensors are for days to come.
    n : int, optional
        How many to choose (with a budget, at most); by default as many as the budget allows.
    criterion : {"entropy", "mutual_information", "variance"}
        What a measurement at s is worth, with C the covariance of the process f given all that is known and r the noise
        variances.

        "entropy": ½ log(1 + C_ss / r_s), the information that it has about the whole process, in nats. The sum is
        submodular and grows with every sensor, so that this choice has at least 1 − 1/e ≈ 63 % of the information of
        the best choice of n.

        "mutual_information": ½ log [var(y_s | y_A) / var(y_s | y_B)], with A the sensors chosen, B all other candidates
        and y their measurements, all given the data and ``existing``; in nats. It is the increase of the mutual
        information of y_A and the measurements at all other candidates (Krause, Singh and Guestrin 2008). Unlike
        entropy it avoids the edge of the graph, where a sensor says little about other nodes. It is submodular, and
        grows while few of the candidates are chosen: the guarantee is then nearly the same.

        "variance": the mean of C_ts² / (C_ss + r_s) over the targets t, by which the average variance of f at them
        falls, in the squared unit of the measurements. It is not submodular; no guarantee is known.
    candidates : sequence of hashable, optional
        Names of nodes to choose from; by default all without data that are not in ``existing``.
    targets : sequence of hashable, optional
        Names of nodes at which the process matters, for "variance" and for the standard deviations reported; all by
        default.
    existing : sequence of hashable, optional
        Names of nodes that will be measured anyway.
    noise : float, Series or array_like, optional
        Noise variance of a measurement: one for all, one for each node by name, or in the order of the candidates (then
        ``existing``). By default the model's. For counts, whose noise follows their rate, that of their logarithm.
    costs : Series, mapping or array_like, optional
        Cost of each candidate, by node name or in the order of the candidates; by default all equal. Candidates are
        then compared by gain per cost. The better of that choice and the best single candidate has at least 39 % of the
        information that the budget can buy; a warning says so if it is the single one.
    budget : float, optional
        Total cost allowed; without costs, each sensor costs 1.

    Returns
    -------
    DataFrame
        One row per sensor: node, order (from 1), gain, cost, and the remaining standard deviation of the process over
        the targets, on average (mean_std) and at most (max_std), in the unit of the measurements. ``attrs`` holds
        both before the first sensor, and ``error``, the largest relative error of the gains that is not rounding: 0
        unless "variance" had to compare more than 5,000 candidates.

    Notes
    -----
    If parameters were integrated over, gains and variances are averages over the parameters, weighted by how likely
    they are: expected gains. Replicates that were observed at different nodes are averaged over in the same way.

    Examples
    --------
    >>> import graphmatern as gm
    >>> city = gm.make_roads(300, seed=0)
    >>> table = gm.place_sensors(gm.Matern(1.5, 4.0).on(city), 3, noise=0.1)
    >>> list(table.columns)
    ['node', 'order', 'gain', 'cost', 'mean_std', 'max_std']
    >>> bool((table["gain"].diff().dropna() <= 0).all())
    True
    """
    check_choice("criterion", criterion, tuple(CRITERIA), TableError)
    subject = "no sensors were placed"
    measurable = read_measurable(model, subject)
    wishes = read_wishes(
        measurable,
        n,
        candidates=candidates,
        targets=targets,
        existing=existing,
        noise=noise,
        costs=costs,
        budget=budget,
        subject=subject,
    )
    nodes = np.unique(np.concatenate([wishes.candidates, wishes.targets, wishes.existing]))
    places, aims, there = (np.searchsorted(nodes, one) for one in (wishes.candidates, wishes.targets, wishes.existing))
    beliefs = [
        one.belief(nodes).under(there, noise)
        for one, noise in zip(measurable.versions, wishes.existing_noise, strict=True)
    ]
    search = _Search(measurable, beliefs, criterion, places, aims, wishes.noise)
    prices = np.ones(len(places)) if wishes.costs is None else wishes.costs
    first = search.gains()
    rows, left, chosen = [], wishes.budget, np.zeros(len(places), dtype=bool)
    for _ in tqdm(range(wishes.most), desc="placing sensors", unit="sensor", disable=hidden(), leave=False):
        open_ = ~chosen & (prices <= left)
        if not open_.any():
            break
        best, gains = search.best(open_, prices)
        search.measure(best)
        chosen[best], left = True, left - prices[best]
        rows.append((best, float(gains[best]), float(prices[best]), *search.spread()))
    table = search.table(rows, ["gain", "cost", "mean_std", "max_std"], criterion)
    if wishes.costs is not None:
        single = int(np.argmax(np.where(prices <= wishes.budget, first, -np.inf)))
        if search.in_units(first[single], criterion) > float(table["gain"].sum()):
            name = measurable.graph.nodes[wishes.candidates[single]]
            warn(
                f"a single sensor at node {name!r} gains more than all that were chosen by gain per cost; name it in "
                "`existing` and spend the rest of the budget on others",
                NumericalWarning,
            )
    return table


def remove_sensors(
    model: HasMeasurable | BoundKernel,
    n: int = 1,
    *,
    criterion: Literal["entropy", "variance"] = "entropy",
    sensors: Any = None,
    targets: Any = None,
    noise: Any = None,
) -> pd.DataFrame:
    """Choose sensors to remove, one at a time, each the one missed least given those already removed.

    Parameters
    ----------
    model : GraphGPRegressor or BoundKernel
        As `place_sensors` takes it.
    n : int
        How many to remove; at least one stays.
    criterion : {"entropy", "variance"}
        What is lost: information about the process, in nats, or accuracy at the targets, as the increase of their
        average variance. It equals the gain that `place_sensors` reports for the same sensor, given those that stay.
    sensors : sequence of hashable, optional
        Names of the nodes with sensors; by default those of the model's data. Must be given if there are no data.
    targets : sequence of hashable, optional
        Names of nodes at which the process matters; all by default.
    noise : float, Series or array_like, optional
        Noise variance of the sensors, as in `place_sensors`; not for sensors of a fitted model, which has it.

    Returns
    -------
    DataFrame
        One row per sensor: node, order, loss, and the standard deviations without it and those removed before it,
        mean_std and max_std; see `place_sensors`.

    Examples
    --------
    >>> import graphmatern as gm
    >>> city = gm.make_roads(300, seed=0)
    >>> there = city.nodes[::20]
    >>> gone = gm.remove_sensors(gm.Matern(1.5, 4.0).on(city), 2, sensors=there, noise=0.1)
    >>> bool(gone["node"].isin(there).all())
    True
    """
    check_choice("criterion", criterion, ("entropy", "variance"), TableError)
    subject = "no sensors were removed"
    measurable = read_measurable(model, subject)
    graph, faults = measurable.graph, FaultList(subject, TableError)
    observed = measurable.observed
    there = observed if sensors is None else read_nodes(graph, sensors, "sensors", faults)
    aims = np.arange(graph.n_nodes) if targets is None else read_nodes(graph, targets, "targets", faults)
    strange = graph.nodes[np.setdiff1d(there, observed)]
    if len(observed) and len(strange):
        rule = "must be nodes with data, if the model has data"
        faults.add("sensors", rule, abbreviate(strange), "Leave them out.")
    if len(observed) and noise is not None:
        faults.add("noise", "must be left out if the model has data", "a value", "The model knows it.")
    if not len(there) and not len(faults):
        faults.add("sensors", "must be given if the model has no data", "none", "Name the nodes with sensors.")
    most = len(there) if len(there) < len(observed) else len(there) - 1  # others that have data may be what stays
    if len(there) == 1 and most == 0:
        faults.add("sensors", "must be at least two, of which one stays", "one", "There is nothing to choose.")
    check_whole("n", n, faults, minimum=1, maximum=max(1, most), remedy="At least one sensor stays.")
    own = [] if len(observed) else read_noise(measurable, noise, there, faults)
    faults.raise_if_any()
    nodes = np.unique(np.concatenate([there, aims]))
    places, aims = np.searchsorted(nodes, there), np.searchsorted(nodes, aims)
    beliefs, away = [], []
    for k, one in enumerate(measurable.versions):
        belief = one.belief(nodes)
        if len(observed):
            precision = np.bincount(one.observed, weights=one.precision, minlength=graph.n_nodes)[there]
            with np.errstate(divide="ignore"):
                away.append(-1.0 / precision)
        else:
            belief = belief.under(places, own[k])
            away.append(-own[k])
        beliefs.append(belief)
    # To take a measurement away is to add one with the same noise, negative, and its gain is a loss.
    search = _Search(measurable, beliefs, criterion, places, aims, away)
    rows, gone = [], np.zeros(len(places), dtype=bool)
    for _ in tqdm(range(n), desc="removing sensors", unit="sensor", disable=hidden(), leave=False):
        least, gains = search.best(~gone, np.ones(len(places)))
        search.measure(least)
        gone[least] = True
        rows.append((least, -float(gains[least]), *search.spread()))
    return search.table(rows, ["loss", "mean_std", "max_std"], criterion)


class _Search:
    """One criterion, averaged over all versions of the process.

    Parameters
    ----------
    measurable : Measurable
        The process.
    beliefs : sequence of Belief
        What is known, for each version.
    criterion : str
        Its name.
    candidates, targets : ndarray of int64
        Places among the nodes that the beliefs look at.
    noise : sequence of ndarray, shape (n_candidates,)
        For each version.
    """

    def __init__(
        self,
        measurable: Measurable,
        beliefs: Sequence[Belief],
        criterion: str,
        candidates: Longs,
        targets: Longs,
        noise: Sequence[Floats],
    ) -> None:
        self._measurable, self._candidates, self._targets = measurable, candidates, targets
        self._weights = np.array([one.weight for one in measurable.versions])
        kind = CRITERIA[criterion]
        self._parts: list[Criterion] = [
            kind(belief, candidates, targets, own) for belief, own in zip(beliefs, noise, strict=True)
        ]
        self.error = max(one.error for one in self._parts)
        if self.error > _ERROR:
            warn(
                f"gains have an estimated relative error of {self.error:.0e}: variances of the candidates differ too "
                "much for difference quotients. Name at most 5,000 candidates",
                NumericalWarning,
            )
        self._before = self.spread()

    def gains(self) -> Floats:
        """Of all candidates, averaged over the versions; shape (n_candidates,)."""
        return np.asarray(sum(w * one.gains() for w, one in zip(self._weights, self._parts, strict=True)))

    def best(self, allowed: NDArray[np.bool_], prices: Floats) -> tuple[int, Floats]:
        """The allowed candidate with the largest gain per cost, and gains of all; shape (n_candidates,).

        Estimated gains are recomputed when they come out on top, until one of them stays there.
        """
        for _ in range(_TRIES):
            gains = self.gains()
            found = int(np.argmax(np.where(allowed, gains / prices, -np.inf)))
            right = [one.verify(found) for one in self._parts]
            if all(right):
                break
        return found, gains

    def measure(self, chosen: int) -> None:
        """Measure at a candidate."""
        for one in self._parts:
            one.measure(chosen)

    def spread(self) -> tuple[float, float]:
        """Standard deviation over the targets, on average and at most, in the unit of measurements."""
        pairs = zip(self._weights, self._parts, strict=True)
        variance = sum(w * one.belief.variances[self._targets] for w, one in pairs)
        deviation = self._measurable.unit * np.sqrt(variance)
        return float(deviation.mean()), float(deviation.max())

    def in_units(self, gain: float, criterion: str) -> float:
        """A gain in the unit of measurements, if it has one."""
        return float(gain) * (self._measurable.unit**2 if criterion == "variance" else 1.0)

    def table(self, rows: Sequence[tuple[Any, ...]], columns: list[str], criterion: str) -> pd.DataFrame:
        """What was chosen, with node names."""
        graph, looked_at = self._measurable.graph, self._parts[0].belief.nodes
        found = pd.DataFrame([row[1:] for row in rows], columns=columns)
        found[columns[0]] = [self.in_units(row[1], criterion) for row in rows]
        found.insert(0, "node", graph.nodes[looked_at[self._candidates[[row[0] for row in rows]]]])
        found.insert(1, "order", np.arange(1, len(rows) + 1))
        mean_std, max_std = self._before
        found.attrs = {"criterion": criterion, "error": self.error, "mean_std": mean_std, "max_std": max_std}
        return found
