"""From what a page says to the HTML file."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from datetime import UTC, datetime
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern import __version__
from graphmatern.graph import centres_of
from graphmatern.io import replacing
from graphmatern.metrics import half_width
from graphmatern.plotting import CLASS_COLOURS, carriageway_shifts, find_colours, find_layout, map_scale
from graphmatern.report._content import decimals_for
from graphmatern.report._pack import pack_block

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from graphmatern.graph import Graph
    from graphmatern.report._content import Content

    Floats = NDArray[np.float64]

__all__ = ["write_page"]

# In the order in which one needs the other: their imports and exports are taken out, and they become one script.
_MODULES = ("format", "data", "colours", "map", "hand", "charts", "table", "finder", "legend", "main")
_IMPORT = re.compile(r"^import .*?;\n", re.MULTILINE | re.DOTALL)
_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const) )", re.MULTILINE)
_STEPS = 200  # of the slider of thresholds


def write_page(path: str | Path, content: Content) -> None:
    """Write one HTML file that holds everything it needs.

    Parameters
    ----------
    path : str or Path
        The file; it is written whole or not at all.
    content : Content
        What it says.

    Notes
    -----
    The page draws on a canvas with its own script, which is part of this package. A content security policy lets it run
    that script and nothing else, and load nothing; names of nodes travel inside a block of bytes and are only ever set
    as text.
    """
    style, script = _asset("page.css"), _script()
    places, arrays = _geometry(content)
    block = pack_block(_words(content, places), {**arrays, **content.arrays, **_colours(content)})
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    # The title is the only text from outside in the HTML itself.
    filled = {"POLICY": policy, "TITLE": html.escape(content.title), "STYLE": style, "DATA": block, "SCRIPT": script}
    page = re.sub(r"@([A-Z]+)@", lambda found: filled[found[1]], _asset("page.html"))
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _asset(name: str) -> str:
    return (resources.files("graphmatern.report") / "assets" / name).read_text(encoding="utf-8")


def _script() -> str:
    """The modules as one."""
    texts = [_EXPORT.sub("", _IMPORT.sub("", _asset(f"{name}.js"))) for name in _MODULES]
    return "\n" + "\n".join(texts)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# ---------------------------------------------------------------------- geometry
def _geometry(content: Content) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Where everything lies: words about it, and arrays of coordinates relative to the middle of the map."""
    graph = content.graph
    layout = find_layout(graph)
    places, is_map, stretch = layout.places, layout.is_map, layout.aspect
    own = graph.positions is not None and graph.positions.shape[1] == 2
    note = layout.note
    if graph.areas is not None:
        centres = centres_of(graph.areas)
        lost = int(np.isnan(centres[:, 0]).sum())
        note = f"{lost:,} nodes without an area are not on the map." if lost else ""
        places = np.where(np.isnan(centres), np.nanmean(centres, axis=0), centres)
        is_map, own = True, True
        stretch = type(layout)(places, is_map=True).aspect
    low, high = places.min(axis=0), places.max(axis=0)
    origin = 0.5 * (low + high)
    # Equal distances look equal: a degree of longitude is narrower than one of latitude.
    to_page = np.array([1.0 / stretch, 1.0])
    x, y = ((places - origin) * to_page).T
    arrays: dict[str, NDArray[Any]] = {"x": x, "y": y}
    rows = graph._rows
    arrays["edges"] = np.column_stack([rows.source, rows.target]).astype(np.uint32)
    if graph.areas is None:
        arrays |= _bends(graph, origin, to_page) if is_map else {}
        shifts = carriageway_shifts(graph)
        if shifts is not None:
            arrays["shift"] = np.round(127 * shifts).astype(np.int8)
    else:
        arrays["edges"] = arrays["edges"][:0]
        arrays |= _rings(graph.areas, origin, to_page)
    if own:
        arrays["places"] = (places - origin).ravel()
    degrees = stretch != 1.0
    metres = 111_195.0 if degrees else map_scale(graph)
    unit = "m" if degrees else content.length_unit
    words = {
        "isMap": is_map,
        "note": " ".join(text for text in (note, content.notes) if text),
        "scale": {"metres": metres, "unit": unit} if is_map and metres and unit else None,
        "origin": origin.tolist(),
        "axes": ["longitude", "latitude"] if degrees else ["x", "y"],
    }
    return words, arrays


def _bends(graph: Graph, origin: Floats, to_page: Floats) -> dict[str, NDArray[Any]]:
    """Points of the edges' lines between their ends."""
    geometry = graph._rows.geometry
    if geometry is None:
        return {}
    inner = [np.empty((0, 2)) if line is None else line[1:-1] for line in geometry]
    starts = np.concatenate([[0], np.cumsum([len(line) for line in inner])]).astype(np.uint32)
    points = np.vstack([*inner, np.empty((0, 2))])
    return {"bends": ((points - origin) * to_page).ravel(), "bendStart": starts}


def _rings(areas: list[list[Floats]], origin: Floats, to_page: Floats) -> dict[str, NDArray[Any]]:
    """Outlines one after the other, where each begins, and which belong to which node."""
    every = [ring for rings in areas for ring in rings]
    return {
        "rings": ((np.vstack(every) - origin) * to_page).ravel(),
        "ringStart": np.concatenate([[0], np.cumsum([len(ring) for ring in every])]).astype(np.uint32),
        "ringOf": np.concatenate([[0], np.cumsum([len(rings) for rings in areas])]).astype(np.uint32),
    }


# ---------------------------------------------------------------------- colours and words
def _colours(content: Content) -> dict[str, NDArray[np.uint8]]:
    """Tables of the colours in use; matplotlib's, so that page and pictures agree."""
    from matplotlib import colormaps
    from matplotlib.colors import to_rgb

    wanted = {name for layer in content.layers for name in layer.colours if layer.kind != "classes"}
    tables = {f"colours.{name}": find_colours(name)(np.linspace(0.0, 1.0, 128))[:, :3] for name in sorted(wanted)}
    for layer in content.layers:
        if layer.kind == "classes":
            count = len(layer.classes)
            if count <= len(CLASS_COLOURS):
                tables["colours.classes"] = np.array([to_rgb(one) for one in CLASS_COLOURS[:count]])
            else:
                tables["colours.classes"] = colormaps["turbo"](np.linspace(0.02, 0.98, count))[:, :3]
    return {name: np.round(255 * table).astype(np.uint8).ravel() for name, table in tables.items()}


def _layer_words(content: Content, decimals: int) -> list[dict[str, Any]]:
    return [
        {
            "key": layer.key,
            "name": layer.name,
            "label": layer.label,
            "about": layer.about,
            "array": layer.array,
            "kind": layer.kind,
            "light": "classes" if layer.kind == "classes" else layer.colours[0],
            "dark": "classes" if layer.kind == "classes" else layer.colours[1],
            "limits": [float(end) for end in layer.limits],
            "unit": layer.unit,
            "missing": layer.missing,
            "classes": list(layer.classes),
            "decimals": decimals,
        }
        for layer in content.layers
    ]


def _words(content: Content, layout: dict[str, Any]) -> dict[str, Any]:
    """Everything that is not an array."""
    now = datetime.now(UTC).astimezone()
    std = content.arrays.get("std")
    decimals = decimals_for(float(np.nanmedian(std))) if std is not None else 2
    checks = {"calibration": None, "pit": None, "range": None, "verdict": "", **content.checks}
    return {
        "n": content.graph.n_nodes,
        "kind": content.kind,
        "title": content.title,
        "subtitle": content.subtitle,
        "file": "predictions.csv",
        "names": [str(name) for name in content.graph.nodes],
        "unit": content.unit,
        "level": content.level,
        "z": half_width(content.level),
        "decimals": decimals,
        "layout": layout,
        "layers": _layer_words(content, decimals),
        "classes": content.classes,
        "times": None if content.times is None else {"numbers": content.times[0], "labels": content.times[1]},
        "exceedance": _thresholds(content, decimals),
        "fade": None if std is None else [float(one) for one in np.nanquantile(std, [0.02, 0.98])],
        "figures": content.figures,
        "facts": content.facts,
        "parameters": content.parameters,
        "checks": checks,
        "warnings": content.warnings,
        "made": f"Made by graphmatern {__version__} on {now.day} {now:%B %Y, %H:%M %Z}.",
    }


def _thresholds(content: Content, decimals: int) -> dict[str, Any] | None:
    """Thresholds to choose from: round numbers over the range of the predictions, beginning at a typical one."""
    if not any(layer.key == "exceedance" for layer in content.layers):
        return None
    mean, std = content.arrays["mean"], content.arrays["std"]
    low, high = float(np.nanmin(mean - std)), float(np.nanmax(mean + std))
    if not high > low:
        low, high = low - 1.0, high + 1.0
    rough = (high - low) / _STEPS
    step = float(
        min((factor * 10.0 ** np.floor(np.log10(rough)) for factor in (1, 2, 5, 10)), key=lambda s: abs(s - rough))
    )
    typical = float(np.nanmedian(mean))
    round_to = 10.0 ** np.floor(np.log10((high - low) / 4))
    threshold = float(np.clip(np.round(typical / round_to) * round_to, low, high))
    if content.threshold is not None and low <= content.threshold <= high:
        threshold = content.threshold
    first = float(np.floor(low / step) * step)
    return {
        "low": first,
        "high": float(np.ceil(high / step) * step),
        "step": step,
        "threshold": float(first + np.round((threshold - first) / step) * step),
        "decimals": decimals,
        "scores": content.scores,
        "logarithmic": content.logarithmic,
    }
