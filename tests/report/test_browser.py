"""The page in a real browser: what is drawn, said and written is what the model says."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import matplotlib.image as mpimg
import numpy as np
import pandas as pd
import pytest

import graphmatern as gm
import report_pages as pages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Visit = Callable[..., Any]


@pytest.fixture
def town(tmp_path: Path) -> Path:
    path = tmp_path / "town.html"
    pages.roads().report(path, title="A town", unit="mph", length_unit="m")
    return path


def state(page: Any, code: str) -> Any:
    """The value of an expression in terms of `page`, the page's own object."""
    return page.evaluate(f"(() => {{ const page = window.graphmatern; return {code}; }})()")


def settled(page: Any) -> None:
    """Wait until the map is drawn as it should be."""
    page.evaluate(
        """() => new Promise((done) => {
          const { map } = window.graphmatern;
          const look = () => (map.job || map.waiting || map.outdated() ? requestAnimationFrame(look) : done());
          look();
        })"""
    )


def picture(page: Any) -> np.ndarray[Any, Any]:
    """The map as pixels; shape (height, width, 3), from 0 to 255."""
    settled(page)
    image = mpimg.imread(BytesIO(page.locator("#canvas").screenshot()), format="png")
    return np.asarray(np.round(255 * image[..., :3]), dtype=int)


def place_of(page: Any, node: int) -> tuple[float, float]:
    x, y = state(page, f"page.map.toScreen({node})")
    return x, y


def point_at(page: Any, node: int) -> None:
    box = page.locator("#canvas").bounding_box()
    x, y = place_of(page, node)
    page.mouse.move(box["x"] + x, box["y"] + y)


def slide(page: Any, slider: str, value: float) -> None:
    page.locator(slider).evaluate("(one, to) => { one.value = to; one.dispatchEvent(new Event('input')); }", value)


def colour(name: str, value: float, limits: tuple[float, float]) -> np.ndarray[Any, Any]:
    """What the page's scale of 48 steps shows for a value."""
    step = int(np.clip(np.floor((value - limits[0]) / (limits[1] - limits[0]) * 48), 0, 47))
    table = mpl.colormaps[name](np.linspace(0.0, 1.0, 128))[:, :3]
    return np.asarray(np.round(255 * table[round(step / 47 * 127)]), dtype=int)


def clear_nodes(page: Any, model: Any) -> list[int]:
    """Nodes in sight, away from the legend and the buttons."""
    places = np.array(state(page, f"Array.from({{length: {model.graph.n_nodes}}}, (_, i) => page.map.toScreen(i))"))
    box = page.locator("#canvas").bounding_box()
    inside = (places > 20).all(axis=1) & (places[:, 0] < box["width"] - 70) & (places[:, 1] < box["height"] - 20)
    legend = (places[:, 0] < 260) & (places[:, 1] > box["height"] - 170)
    return np.flatnonzero(inside & ~legend).tolist()


def test_the_map_shows_the_means(town: Path, visit: Visit) -> None:
    model, page = pages.roads(), visit(town)
    page.uncheck("#rings")
    state(page, "page.map.zoom(1.5)")
    pixels, table = picture(page), model.predict_table()
    limits = model._limits()
    shown = clear_nodes(page, model)
    assert len(shown) > 5
    for node in shown:
        x, y = place_of(page, node)
        expected = colour("viridis", table["mean"].iloc[node], limits)
        np.testing.assert_allclose(pixels[round(y), round(x)], expected, atol=2)


def test_hovering_and_choosing_show_the_numbers(town: Path, visit: Visit) -> None:
    model, page = pages.roads(), visit(town)
    table = model.predict_table()
    for node in clear_nodes(page, model)[:4]:
        point_at(page, node)
        row = table.iloc[node]
        tip = page.inner_text("#tip")
        assert model.graph.nodes[node] in tip
        decimals = state(page, "page.page.decimals")
        for number in (row["mean"], row["lower"], row["upper"]):
            assert f"{number:,.{decimals}f}" in tip
        page.mouse.down()
        page.mouse.up()
        detail = page.inner_text("#detail")
        assert model.graph.nodes[node] in detail
        assert f"{row['std']:.{decimals}f} mph" in detail
        assert page.locator("tr[aria-selected=true]").get_attribute("data-node") == str(node)
    page.mouse.move(5, 5)
    assert page.is_hidden("#tip")


@pytest.mark.parametrize("likelihood", ["gaussian", "poisson", "integrated"])
def test_the_slider_changes_what_exceedance_shows(likelihood: str, tmp_path: Path, visit: Visit) -> None:
    model, areas = pages.counts() if likelihood == "poisson" else (pages.roads(), None)
    if likelihood == "integrated":
        data = model._data
        model = gm.GraphGPRegressor(model.graph, gm.Matern(1.5, 3.0, fixed=("nu",)), integrate=True)
        model.fit(model.graph.nodes[data.nodes], data.y[:, 0])
    model.report(tmp_path / "page.html", areas=areas)
    page = visit(tmp_path / "page.html")
    page.select_option("#layer", "exceedance")
    seen = []
    for threshold in np.quantile(model.predict_table()["mean"], [0.2, 0.7]):
        slide(page, "#threshold-slider", float(threshold))
        chosen = state(page, "page.threshold")
        above = np.array(state(page, "[...page.above_values]"))
        tolerance = {"gaussian": 2e-6, "poisson": 2e-4, "integrated": 0.01}[likelihood]
        np.testing.assert_allclose(above, model.exceedance(chosen), atol=tolerance)
        seen.append(picture(page))
        assert page.locator("thead th").last.inner_text() == f"Above {state(page, 'page.number(page.threshold)')}"
    assert (seen[0] != seen[1]).any()
    page.select_option("#side", "below")
    np.testing.assert_allclose(np.array(state(page, "[...page.above_values]")), 1.0 - above, atol=1e-6)


def test_search_centres_the_map(town: Path, visit: Visit) -> None:
    model, page = pages.roads(), visit(town)
    name = model.graph.nodes[-1]
    page.fill("#search", str(name).lower())
    assert page.locator("#found li").first.inner_text() == name
    page.press("#search", "Enter")
    assert page.locator("#detail h2 span").inner_text() == name
    node = model.graph.n_nodes - 1
    box = page.locator("#canvas").bounding_box()
    np.testing.assert_allclose(place_of(page, node), (box["width"] / 2, box["height"] / 2), atol=0.01)
    page.fill("#search", "no such name")
    assert "No node" in page.inner_text("#found")


def test_the_table_sorts_filters_and_is_downloaded(town: Path, visit: Visit) -> None:
    model, page = pages.roads(), visit(town)
    table = model.predict_table()
    first = page.locator("#table tbody tr th").first
    for worst in (True, False):
        page.get_by_role("button", name="Std. dev.").click()
        order = table["std"].sort_values(ascending=not worst)
        assert first.inner_text() == order.index[0]
    page.fill("#filter", "J1")
    names = page.locator("#table tbody th").all_inner_texts()
    assert names
    assert all("J1" in name for name in names)
    with page.expect_download() as waiting:
        page.click("#download")
    saved = pd.read_csv(waiting.value.path()).set_index("node")
    assert set(saved.index) == set(model.graph.nodes)
    saved = saved.loc[model.graph.nodes]
    for column in ("mean", "std", "lower", "upper"):
        np.testing.assert_allclose(saved[column], table[column], rtol=2e-6)
    np.testing.assert_allclose(saved[["x", "y"]], model.graph.positions, rtol=1e-6, atol=1e-3)  # type: ignore[arg-type]
    assert saved["observed"].notna().sum() == len(np.unique(model._data.nodes))


def test_time_moves_the_field(tmp_path: Path, visit: Visit) -> None:
    model = pages.field()
    model.report(tmp_path / "page.html", unit="m")
    page = visit(tmp_path / "page.html")
    mean, std = model.predict_grid(return_std=True)
    seen = []
    for time in (0, 3):
        slide(page, "#time-slider", time)
        assert page.inner_text("#time-value") == f"{model.times_[time]:%Y-%m-%d %H:%M}"
        shown = np.array(state(page, "[[...page.now.mean], [...page.now.std]]"))
        np.testing.assert_allclose(shown[0], mean.iloc[time], atol=1e-4)
        np.testing.assert_allclose(shown[1], std.iloc[time], atol=1e-4)
        seen.append(picture(page))
    assert (seen[0] != seen[1]).any()
    point_at(page, 6)
    page.mouse.down()
    page.mouse.up()
    assert page.locator("#detail svg.chart").count() == 1
    assert f"{mean.iloc[3, 6]:.2f}" in page.inner_text("#detail")


def test_dark_and_light(town: Path, visit: Visit) -> None:
    for scheme, bright in (("light", True), ("dark", False)):
        page = visit(town, color_scheme=scheme)
        corner = picture(page)[5, 5].mean()
        assert (corner > 200) == bright
        page.click("#theme")
        assert (picture(page)[5, 5].mean() > 200) != bright


def test_a_phone(town: Path, visit: Visit) -> None:
    page = visit(town, viewport={"width": 360, "height": 740}, has_touch=True, device_scale_factor=2)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 360
    before = state(page, "page.map.view.scale")
    page.tap("#zoom-in")
    assert state(page, "page.map.view.scale") > before
    x, y = place_of(page, node := clear_nodes(page, pages.roads())[0])
    box = page.locator("#canvas").bounding_box()
    page.touchscreen.tap(box["x"] + x, box["y"] + y)
    assert page.locator("#detail h2 span").inner_text() == pages.roads().graph.nodes[node]


def test_keys_move_the_map(town: Path, visit: Visit) -> None:
    page = visit(town)
    start = state(page, "({...page.map.view})")
    page.focus("#map")
    for key, part, sign in (("ArrowRight", "x", 1), ("ArrowUp", "y", 1), ("+", "scale", 1)):
        before = state(page, f"page.map.view.{part}")
        page.keyboard.press(key)
        assert np.sign(state(page, f"page.map.view.{part}") - before) == sign
    page.keyboard.press("0")
    assert state(page, "({...page.map.view})") == pytest.approx(start)
    page.keyboard.press("Enter")
    assert state(page, "page.selected") >= 0
    page.keyboard.press("Escape")
    assert state(page, "page.selected") == -1


def test_areas_are_filled_and_chosen(tmp_path: Path, visit: Visit) -> None:
    model, areas = pages.counts()
    model.report(tmp_path / "page.html", areas=areas)
    page = visit(tmp_path / "page.html")
    pixels, mean = picture(page), model.predict_table()["mean"]
    limits = model._limits()
    scale = state(page, "page.map.view.scale")
    for node, name in enumerate(model.graph.nodes):
        x, y = place_of(page, node)
        expected = colour("viridis", mean[name], limits)
        if name != "D00":  # beneath the legend
            np.testing.assert_allclose(pixels[round(y - 0.3 * scale), round(x - 0.3 * scale)], expected, atol=2)
    x, y = place_of(page, 4)
    assert (pixels[round(y), round(x)] == 255).all(), "a hole is no area"
    box = page.locator("#canvas").bounding_box()
    page.mouse.click(box["x"] + x, box["y"] + y)
    assert state(page, "page.selected") == -1
    page.mouse.click(box["x"] + x + 0.3 * scale, box["y"] + y)
    assert page.locator("#detail h2 span").inner_text() == "D11"


def test_classes_and_hostile_names(tmp_path: Path, visit: Visit) -> None:
    model = pages.classes()
    model.report(tmp_path / "page.html", title=f"</title>{pages.HOSTILE}")
    page = visit(tmp_path / "page.html")
    assert page.title() == f"</title>{pages.HOSTILE}"
    assert page.locator("#legend li").all_inner_texts() == ["blue", "green", "red"]
    assert "no map" in page.inner_text("#layout-note")
    assert "2 of the nodes are in parts of the graph without labels" in page.inner_text("#warnings")
    page.fill("#search", "<SCRIPT>")
    page.press("#search", "Enter")
    assert page.locator("#detail h2 span").inner_text() == pages.HOSTILE
    assert "has no data" in page.inner_text("#detail")
    shares = model.posterior_.class_probabilities(np.array([model.graph.n_nodes - 1]))[0]
    assert f"{100 * shares.max():.0f} %" in page.inner_text("#detail")
    for layer in page.locator("#layer option").all():
        page.select_option("#layer", layer.get_attribute("value"))
        settled(page)
    text = page.inner_text("body")
    assert "NaN" not in text
    assert "undefined" not in text


def test_every_layer_of_odd_graphs(tmp_path: Path, visit: Visit) -> None:
    alone = gm.Graph.from_adjacency([[0.0]], nodes=[""])
    apart = gm.Graph.from_adjacency(np.diag([0.0] * 3) + np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]]), nodes=list("abc"))
    for graph, nodes in ((alone, [""]), (apart, ["a"])):
        model = gm.GraphGPRegressor(graph, gm.Matern(1.0), **pages.KEPT).fit(nodes, [3.0])
        model.report(tmp_path / "page.html")
        page = visit(tmp_path / "page.html")
        for layer in page.locator("#layer option").all():
            page.select_option("#layer", layer.get_attribute("value"))
            settled(page)
        state(page, "page.choose(0, true)")
        text = page.inner_text("body")
        assert "NaN" not in text
        assert "undefined" not in text


def test_the_policy_lets_nothing_else_run_or_load(town: Path, visit: Visit) -> None:
    page = visit(town, quiet=False)
    page.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent = "window.intruded = true";
          document.body.append(script);
          const image = document.createElement("div");
          document.body.append(image);
          image.setAttribute("onclick", "window.intruded = true");
          image.click();
        }"""
    )
    assert page.evaluate("window.intruded === undefined")
    assert page.evaluate("fetch('https://example.org').then(() => false, () => true)")
