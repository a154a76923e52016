"""Pages of 1,000, 10,000 and 100,000 nodes in a browser: size, time to the first picture, frames per second.

Run through ``make evidence``; writes report.md beside this file. It needs chromium. Where pydeck is installed (the
project does not need it), the same lines and points are drawn by the deck.gl in it, for comparison.
"""

from __future__ import annotations

import base64
import datetime as dt
import importlib.metadata
import importlib.util
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import graphmatern as gm

SIZES = (1_000, 10_000, 100_000)
VISITS = 3
_FLAGS = ["--no-sandbox", "--disable-dev-shm-usage"]
_WEBGL = [*_FLAGS, "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]  # WebGL without a graphics card

# Moves the map by a step per frame for four seconds, along a circle that leaves the bitmap again and again.
_PAN = """async () => {
  const { map } = window.graphmatern;
  const gaps = [];
  const start = performance.now();
  for (let k = 1, last = start; last - start < 4000; k++) {
    map.pan(14 * Math.cos(k / 15), 10 * Math.sin(k / 15));
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    gaps.push(now - last);
    last = now;
  }
  gaps.sort((a, b) => a - b);
  const total = gaps.reduce((a, b) => a + b, 0);
  return { fps: (1000 * gaps.length) / total, slow: gaps[Math.floor(0.95 * gaps.length)] };
}"""
_REDRAW = """async () => {
  const { map } = window.graphmatern;
  const start = performance.now();
  map.stale = true;
  map.request();
  while (map.stale || map.job) await new Promise(requestAnimationFrame);
  return performance.now() - start;
}"""
_DECK = """
const read = (id) => {
  const text = atob(document.getElementById(id).textContent);
  return new Float32Array(Uint8Array.from(text, (one) => one.charCodeAt(0)).buffer);
};
const [from, to, places] = ["from", "to", "places"].map(read);
const ends = { getSourcePosition: { value: from, size: 2 }, getTargetPosition: { value: to, size: 2 } };
const lines = { id: "lines", getWidth: 1, widthUnits: "pixels", getColor: [40, 90, 160] };
const points = { id: "points", getRadius: 1, radiusUnits: "pixels", getFillColor: [200, 90, 30] };
const layers = [
  new deck.LineLayer({ ...lines, data: { length: from.length / 2, attributes: ends } }),
  new deck.ScatterplotLayer({
    ...points,
    data: { length: places.length / 2, attributes: { getPosition: { value: places, size: 2 } } },
  }),
];
const at = (x) => ({ target: [0.5 + x, 0.5, 0], zoom: 9.3 });
let drawn = 0;
const onAfterRender = () => {
  drawn += 1;
  window.first ||= performance.now();
};
const views = new deck.OrthographicView({});
const size = { width: 900, height: 590 };
const map = new deck.Deck({ parent: document.body, ...size, views, layers, initialViewState: at(0), onAfterRender });
window.pan = async () => {
  const [start, before] = [performance.now(), drawn];
  for (let k = 0; drawn < before + 3 || performance.now() - start < 4000; k++) {
    map.setProps({ initialViewState: at((k % 40) / 1000) });
    await new Promise(requestAnimationFrame);
  }
  return { fps: (1000 * (drawn - before)) / (performance.now() - start), first: window.first };
};
"""


def fitted(size: int) -> gm.GraphGPRegressor:
    """A model of a road-like graph of about so many nodes, 1 in 50 of which is observed."""
    graph = gm.make_roads(round(1.03 * size), seed=0)
    assert graph.positions is not None
    rng = np.random.default_rng(0)
    place = graph.positions / np.ptp(graph.positions, axis=0)
    truth = 50 + 12 * np.sin(9 * place[:, 0]) + 10 * np.cos(7 * place[:, 1] + 4 * place[:, 0])
    seen = np.sort(rng.choice(graph.n_nodes, graph.n_nodes // 50, replace=False))
    model = gm.GraphGPRegressor(
        graph, gm.Matern(1, 8.0), engine="markov", optimizer=None, noise=0.05, integrate=False, verbose=False
    )
    return model.fit(graph.nodes[seen], truth[seen] + 2.0 * rng.standard_normal(len(seen)))


def measure(browser: Any, model: gm.GraphGPRegressor, path: Path) -> str:
    """A row of the table."""
    start = time.perf_counter()
    model.report(path, unit="km/h", length_unit="m")
    wrote = time.perf_counter() - start
    firsts = []
    for _ in range(VISITS):
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-drawn]", state="attached")
        firsts.append(float(page.get_attribute("html", "data-drawn")))
        if len(firsts) < VISITS:
            page.close()
    redraw = page.evaluate(_REDRAW)
    moved = page.evaluate(_PAN)
    page.close()
    graph, first = model.graph, statistics.median(firsts)
    return (
        f"| {graph.n_nodes:,} | {graph.n_edges:,} | {path.stat().st_size / 1e6:.2f} MB | {wrote:.1f} s | "
        f"{first / 1e3:.2f} s | {redraw / 1e3:.2f} s | {moved['fps']:.0f} | {moved['slow']:.0f} ms |"
    )


def measure_deck(browser: Any, graph: gm.Graph, path: Path) -> str:
    """The same lines and points by the deck.gl that pydeck has."""
    found = importlib.util.find_spec("pydeck")
    if found is None or found.origin is None:
        return "pydeck is not installed here: no comparison with deck.gl this time."
    script = (Path(found.origin).parent / "nbextension" / "static" / "index.js").read_text()
    places = np.asarray(graph.positions) / np.ptp(np.asarray(graph.positions), axis=0).max()
    rows = graph.edges
    arrays = {
        "from": places[graph.locate(rows["source"])],
        "to": places[graph.locate(rows["target"])],
        "places": places,
    }
    blocks = "".join(
        f'<script type="text/plain" id="{name}">{base64.b64encode(values.astype("<f4").tobytes()).decode()}</script>'
        for name, values in arrays.items()
    )
    path.write_text(
        f"<!doctype html><meta charset=utf-8><body>{blocks}<script>{script}</script><script>{_DECK}</script>"
    )
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(path.as_uri())
    page.wait_for_function("window.first", timeout=120_000)
    moved = page.evaluate("window.pan()")
    page.close()
    version = importlib.metadata.version("pydeck")
    return (
        f"deck.gl, as pydeck {version} has it, draws the same {graph.n_nodes:,} points and {graph.n_edges:,} lines, "
        f"with nothing else on the page, from a file of {path.stat().st_size / 1e6:.2f} MB: first picture after "
        f"{moved['first'] / 1e3:.2f} s, {moved['fps']:.2f} frames per second."
    )


def main() -> None:
    """Visit the pages and write the table."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("chromium is needed: apt-get install chromium")
    lines = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_FLAGS)
        version = browser.version
        for size in SIZES:
            model = fitted(size)
            lines.append(measure(browser, model, Path(folder) / f"{size}.html"))
            print(lines[-1], flush=True)
        browser.close()
        browser = playwright.chromium.launch(executable_path=program, args=_WEBGL)
        deck = measure_deck(browser, model.graph, Path(folder) / "deck.html")
        browser.close()
    text = "\n".join(
        [
            "# Pages in a browser",
            "",
            "`model.report` on road-like graphs with 1 node in 50 observed, opened from the disk in headless",
            f"Chromium {version.split('.')[0]} without a graphics card, in a window of 1400 × 900. Panning moves it",
            "at every frame for four seconds; of the frames, 5 % take longer than a slow one. The map is redrawn when",
            "colours or scale change.",
            f"Made by `make evidence` on {dt.date.today().isoformat()}.",
            "",
            "| nodes | edges | file | written in | first picture | redrawn in | frames per second | slow frame |",
            "|---|---|---|---|---|---|---|---|",
            *lines,
            "",
            "Why the page draws on a canvas with a script of its own, of 70 kB that can be read, and not with a",
            "library: a page would hold 4 to 5 MB of library (deck.gl from pydeck, Plotly) whatever its size, and on",
            "computers without a graphics card WebGL is slow, while a bitmap that is drawn in slices of time and moved",
            "by the hand is not.",
            deck,
        ]
    )
    Path(__file__).with_suffix(".md").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
