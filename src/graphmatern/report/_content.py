"""What a page says: values at nodes, layers of colour, words and figures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from graphmatern.graph import Graph

    Floats = NDArray[np.float64]

__all__ = ["Content", "Layer", "counted", "decimals_for", "number", "percent"]


@dataclass(frozen=True)
class Layer:
    """Something to colour the map by.

    Attributes
    ----------
    key : str
        Its name in the page; "exceedance" is computed there.
    name : str
        Its name in the list to choose from.
    label : str
        What the legend says.
    about : str
        A sentence on what is seen.
    array : str
        The array with its values.
    kind : {"numbers", "share", "classes"}
        What values are.
    colours : tuple of str
        Colour maps on light and on dark paper; for classes, ignored.
    limits : tuple of float
        Values at the ends of the scale.
    unit : str
        Unit of the values.
    missing : str
        What the legend calls nodes without a value.
    classes : sequence of str
        Names of classes.
    """

    key: str
    name: str
    label: str
    about: str
    array: str = ""
    kind: str = "numbers"
    colours: tuple[str, str] = ("viridis", "viridis")
    limits: tuple[float, float] = (0.0, 1.0)
    unit: str = ""
    missing: str = "no value"
    classes: Sequence[str] = ()


@dataclass
class Content:
    """Everything on a page.

    Attributes
    ----------
    graph : Graph
        The graph.
    kind : {"numbers", "classes"}
        What is predicted.
    title, subtitle : str
        Its first lines.
    layers : list of Layer
        What the map can show; the first is shown first.
    arrays : dict of str to ndarray
        Values by node, shape (n_nodes,), or by time and node, (n_times, n_nodes): mean, std, observed (NaN where it
        was not), residual, and lower and upper where intervals are not symmetric; of classes label, probability,
        entropy, observed (all as numbers) and shares, (n_classes · n_nodes,). ``informed`` says where data reach.
    unit, length_unit : str
        Units of the values and of the edges' lengths.
    level : float
        Probability of the intervals.
    times : tuple of (list of float, list of str), optional
        Times as numbers and as words.
    classes : list of str
        Names of the classes.
    scores : list of float
        Standard normal scores of ``arrays["quantiles"]``, (n_scores · n_nodes,), where predictions are not normal.
    threshold : float, optional
        Where the slider of thresholds begins; at a typical prediction by default.
    logarithmic : bool
        Whether it is the logarithm that is nearly normal, so that one interpolates that.
    figures : list of dict
        The figures at the top: label, value and a note.
    facts : list of (str, str)
        What was fitted, in words.
    parameters : list of dict
        What was learned: name, meaning, value and interval.
    checks : dict
        As `number_checks`, `class_checks` and `range_check` return them, and a verdict in words.
    warnings : list of str
        What to be careful about.
    notes : str
        Said below the map.
    """

    graph: Graph
    kind: str
    title: str
    subtitle: str
    layers: list[Layer]
    arrays: dict[str, NDArray[Any]]
    unit: str = ""
    length_unit: str = ""
    level: float = 0.95
    times: tuple[list[float], list[str]] | None = None
    classes: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    threshold: float | None = None
    logarithmic: bool = False
    figures: list[dict[str, str]] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    parameters: list[dict[str, str]] = field(default_factory=list)
    checks: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    notes: str = ""


def decimals_for(spread: float) -> int:
    """Decimals with which two digits of a spread are seen.

    Examples
    --------
    >>> decimals_for(3.2), decimals_for(0.04), decimals_for(150.0)
    (1, 3, 0)
    """
    if not np.isfinite(spread) or spread <= 0.0:
        return 2
    return int(np.clip(1 - np.floor(np.log10(spread)), 0, 8))


def counted(count: int, noun: str) -> str:
    """A number of things.

    Examples
    --------
    >>> counted(1, "node"), counted(1200, "node")
    ('1 node', '1,200 nodes')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def percent(share: float) -> str:
    """A share in percent.

    Examples
    --------
    >>> percent(0.953)
    '95 %'
    """
    return f"{100.0 * share:.0f} %".replace("-", "−")


def number(value: float, unit: str = "", digits: int = 3) -> str:
    """A number in a sensible number of digits, with its unit.

    Examples
    --------
    >>> number(1234.5678, "m"), number(0.04567), number(-2.0)
    ('1,235 m', '0.0457', '−2')
    """
    if not np.isfinite(value):
        return "unknown" if np.isnan(value) else ("unlimited" if value > 0 else "−∞")
    if value != 0 and not 1e-4 <= abs(value) < 1e7:
        text = f"{value:.{digits - 1}e}"
    else:
        places = max(0, digits - 1 - int(np.floor(np.log10(abs(value))))) if value else 0
        text = f"{value:,.{places}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    return f"{text.replace('-', '−')} {unit}".rstrip()
