"""What pages hold, from any estimator and engine; and what cannot be put into one."""

from __future__ import annotations

import json
import re
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as numpy_arrays
from scipy.stats import norm
from typer.testing import CliRunner

import graphmatern as gm
import report_pages as pages
from graphmatern.cli._app import app
from graphmatern.errors import EdgeWarning, TableError
from graphmatern.metrics import calibration_curve
from graphmatern.plotting import carriageway_shifts, find_layout, map_scale
from graphmatern.report import class_checks, number, number_checks, range_check
from graphmatern.report._pack import pack_block, unpack_block

if TYPE_CHECKING:
    from pathlib import Path

ASSETS = resources.files("graphmatern.report") / "assets"


def content_of(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    block = re.search(r'<script type="application/octet-stream" id="data">(.*?)</script>', path.read_text(), re.DOTALL)
    assert block is not None
    return unpack_block(block[1])


@given(
    st.text(),
    numpy_arrays(np.float64, st.integers(0, 20), elements=st.floats(-(2.0**99), 2.0**99, width=32) | st.just(np.nan)),
    numpy_arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 5)), elements=st.floats(-1e6, 1e6, width=32)),
)
def test_blocks_hold_what_was_packed(text: str, line: Any, grid: Any) -> None:
    words, arrays = unpack_block(pack_block({"text": text}, {"line": line, "grid": grid}))
    assert words["text"] == text
    np.testing.assert_array_equal(arrays["line"], line.astype(np.float32))
    np.testing.assert_allclose(arrays["grid"], grid.ravel(), atol=max(np.ptp(grid), 1e-30) / 65534)


def test_the_script_never_parses_text_as_html() -> None:
    for file in ASSETS.iterdir():
        if file.name.endswith(".js"):
            code = file.read_text()
            for danger in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
                assert danger not in code, f"{file.name}: {danger}"


def test_the_page_is_one_file_with_a_policy(tmp_path: Path) -> None:
    pages.classes().report(tmp_path / "page.html", title=f"{pages.HOSTILE} & more")
    text = (tmp_path / "page.html").read_text()
    assert not re.search(r"^\s*(import|export) ", text, re.MULTILINE)
    assert pages.HOSTILE not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in text
    assert "default-src &#x27;none&#x27;" in text or "default-src 'none'" in text
    assert not re.search(r'(src|href)="(?!#)', text)
    words, arrays = content_of(tmp_path / "page.html")
    assert words["names"][-1] == pages.HOSTILE
    assert arrays["informed"].tolist() == pages.classes().informed_.astype(int).tolist()


ENGINES = [
    {"engine": "spectral"},
    {"engine": "markov", "kernel": gm.Matern(2.0, 2.0)},
    {"engine": "moments", "kernel": gm.Diffusion(2.0)},
    {"engine": "inducing"},
    {"kernel": gm.RandomWalk(steps=4)},
    {"likelihood": "student_t"},
    {"likelihood": "negative_binomial"},
    {"covariates": "x"},
]


@pytest.mark.parametrize("options", ENGINES, ids=lambda one: "-".join(map(str, one.values()))[:40])
def test_every_engine_and_likelihood_has_a_page(options: dict[str, Any], tmp_path: Path) -> None:
    graph = pages.roads().graph
    options = {"kernel": gm.Matern(1.5, 2.0), **options}
    if "covariates" in options:
        options["covariates"] = pd.DataFrame({"x": np.linspace(0.0, 1.0, graph.n_nodes)}, index=graph.nodes)
    rng = np.random.default_rng(0)
    model = gm.GraphGPRegressor(graph, optimizer=None, **options).fit(
        graph.nodes[:12], rng.poisson(5.0, 12).astype(float)
    )
    model.report(tmp_path / "page.html", unit="mph", level=0.9)
    words, arrays = content_of(tmp_path / "page.html")
    table = model.predict_table(0.9)
    np.testing.assert_allclose(arrays["mean"], table["mean"], rtol=1e-6)
    np.testing.assert_allclose(arrays["std"], table["std"], rtol=1e-6)
    loo = model.loo()
    seen = model._data.nodes
    np.testing.assert_allclose(arrays["residual"][seen], loo["y"] - loo["mean"], rtol=1e-5, atol=1e-5)
    assert [layer["key"] for layer in words["layers"]] == ["mean", "std", "exceedance", "observed", "residual"]
    assert any(model.engine_ in text for _, text in words["facts"])
    assert "90 %" in words["checks"]["verdict"]


def test_a_field_says_what_it_predicts(tmp_path: Path) -> None:
    model = pages.field()
    model.report(tmp_path / "page.html")
    words, arrays = content_of(tmp_path / "page.html")
    mean, std = model.predict_grid(return_std=True)
    np.testing.assert_allclose(arrays["mean"].reshape(mean.shape), mean, atol=2e-4)
    np.testing.assert_allclose(arrays["std"].reshape(std.shape), std, atol=2e-4)
    observed = arrays["observed"].reshape(mean.shape)
    assert np.isnan(observed[:, 6]).all()
    assert np.isnan(observed[1, 2])
    np.testing.assert_allclose(observed[0, 0], model._data.y[0, 0], atol=2e-4)
    assert words["times"]["labels"][0] == "2024-03-01 06:00"


def test_a_field_integrated_over_its_parameters_has_a_page(tmp_path: Path) -> None:
    kept = pages.field()
    table = pd.DataFrame(kept._data.y, index=kept.times_, columns=kept.nodes_)
    model = gm.GraphFieldRegressor(kept.graph, gm.Matern(1.5, 2.0, fixed=("nu",))).fit(table)
    assert len(model.posterior_.components) > 1
    model.report(tmp_path / "page.html")
    words, arrays = content_of(tmp_path / "page.html")
    np.testing.assert_allclose(arrays["std"], model.predict_grid(return_std=True)[1].to_numpy().ravel(), rtol=1e-3)
    assert "MaternKernel" in dict(words["facts"])["Over time"]


def test_leaving_a_cell_out_is_fitting_without_it() -> None:
    model = pages.field()
    table = pd.DataFrame(model._data.y, index=model.times_, columns=model.nodes_)
    found = model.loo().set_index(["time", "node"])
    assert len(found) == int(table.notna().to_numpy().sum())
    for time, node in ((model.times_[0], "n0"), (model.times_[2], "n3")):
        without = table.copy()
        without.loc[time, node] = np.nan
        other = gm.GraphFieldRegressor(model.graph, model.kernel_, time_kernel=model.time_kernel_, noise=model.noise_,
                                       normalize_y=False, optimizer=None)  # fmt: skip
        scaled = (without - model.y_mean_) / model.y_scale_
        mean, std = other.fit(scaled).predict([node], [time], return_std=True, observation=True)
        row = found.loc[(time, node)]
        np.testing.assert_allclose(row["mean"], model.y_mean_ + model.y_scale_ * mean[0], rtol=1e-8)
        np.testing.assert_allclose(row["std"], model.y_scale_ * std[0], rtol=1e-8)
        np.testing.assert_allclose(row["pit"], norm.cdf((row["y"] - row["mean"]) / row["std"]))
    assert len(model.loo(n_cells=5)) == 5


def test_calibration_by_counting() -> None:
    rng = np.random.default_rng(0)
    y, std = rng.standard_normal(60), np.full(60, 0.8)
    inside, low, high = calibration_curve(norm.cdf(y / std), [0.5, 0.9])
    for share, level in zip(inside, (0.5, 0.9), strict=True):
        assert share == np.mean(np.abs(y / std) <= norm.ppf(0.5 + level / 2))
    assert (low < [0.5, 0.9]).all()
    assert (high > [0.5, 0.9]).all()
    with pytest.raises(TableError, match="pit"):
        calibration_curve([0.5, 1.5], [0.5])


def test_verdicts() -> None:
    even = (np.arange(200) + 0.5) / 200
    assert "as it should be" in number_checks(even)["verdict"]
    assert "less than it should be" in number_checks(np.where(even < 0.5, 0.001, 0.999))["verdict"]
    assert "more than it should be" in number_checks(np.full(200, 0.5))["verdict"]
    assert "Too few" in number_checks([0.5])["verdict"]
    assert number_checks([])["verdict"] == ""
    assert class_checks([0] * 3, [[0.9, 0.1]] * 3)["calibration"] is None


def test_reach_in_a_large_graph_is_that_of_a_neighbourhood() -> None:
    halves = []
    for size in (800, 2_300):
        found = range_check(gm.Matern(2.0, 4.0), gm.make_roads(size, seed=0), normalized=False, unit="m")
        assert found is not None
        assert ("neighbourhood" in found["words"]) == (size > 2_000)
        halves.append(np.interp(0.5, found["median"][::-1], found["distance"][::-1]))
    np.testing.assert_allclose(halves[1], halves[0], rtol=0.15)


def test_areas_from_whatever_people_have(tmp_path: Path) -> None:
    shapely = pytest.importorskip("shapely")
    graph = gm.Graph.from_edges([("a", "b"), ("b", "c")])
    square = [[0, 0], [1, 0], [1, 1], [0, 1]]
    shape = shapely.MultiPolygon([shapely.Polygon(square), shapely.Polygon(np.array(square) + 3)])
    found = graph.with_areas({"a": square, "b": shapely.Polygon(square).wkt, "c": shape}).areas
    assert found is not None
    assert [len(rings) for rings in found] == [1, 1, 2]
    np.testing.assert_array_equal(found[0][0], square)
    with pytest.raises(TableError, match=r"(?s)names of nodes.*polygons") as error:
        graph.with_areas({"z": square, "a": {"type": "Point", "coordinates": [0, 0]}})
    assert len(error.value.faults) == 2
    with pytest.raises(TableError, match="by node name"):
        graph.with_areas(3)
    model = gm.GraphGPRegressor(graph, gm.Matern(1.0), **pages.KEPT).fit(["a"], [1.0])
    model.report(tmp_path / "page.html", areas={"a": square, "b": np.array(square) + 1})
    words, arrays = content_of(tmp_path / "page.html")
    assert "1 nodes without an area" in words["layout"]["note"]
    assert arrays["ringOf"].tolist() == [0, 1, 2, 2]


def test_carriageways_part() -> None:
    """Two roads a few metres apart move away from each other; a street a block further stays."""
    places = dict(zip("abcdef", [[0, 0], [100, 0], [0, 0.4], [100, 0.4], [0, 90], [100, 90]], strict=True))
    graph = gm.Graph.from_edges([("a", "b"), ("d", "c"), ("e", "f"), ("b", "f")], positions=places)
    shifts = carriageway_shifts(graph)
    assert shifts is not None
    np.testing.assert_allclose(shifts, [[0, -1], [0, 1], [0, 0], [0, 0]], atol=1e-12)
    assert carriageway_shifts(pages.classes().graph) is None
    with pytest.warns(EdgeWarning, match="repeat"):
        twice = gm.Graph.from_edges([("a", "b"), ("b", "a")], length=[1.0, 1.0], positions={"a": [0, 0], "b": [1, 0]})
    both = carriageway_shifts(twice)
    assert both is not None
    np.testing.assert_allclose(both, [[0, -1], [0, 1]], atol=1e-12)


def test_scales_of_maps() -> None:
    assert map_scale(pages.roads().graph) == 1.0
    places = [[0.0, 0.0], [1.0, 0.0]]
    assert map_scale(gm.Graph.from_edges([("a", "b")], length=[1000.0], positions=places)) == 1000.0
    assert map_scale(gm.Graph.from_edges([("a", "b")], length=[3.0], positions=places)) is None
    assert map_scale(gm.Graph.from_edges([("a", "b")], positions=places)) is None
    assert find_layout(gm.Graph.from_edges([("a", "b")])).note


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (12345.6, "12,346"), (1.5e9, "1.50e+09"), (np.nan, "unknown"), (-0.02, "−0.02")]
)
def test_numbers_in_words(value: float, text: str) -> None:
    assert number(value) == text


def test_a_page_is_refused_early(tmp_path: Path) -> None:
    model = pages.roads()
    with pytest.raises(TableError, match="level"):
        model.report(tmp_path / "page.html", level=95)
    with pytest.raises(TableError, match=r"(?s)`title` must be text.*`unit` must be text"):
        model.report(tmp_path / "page.html", title=2024, unit=None)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        model.report(tmp_path / "nowhere" / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_writes_pages(tmp_path: Path) -> None:
    model, areas = pages.counts()
    model.save(tmp_path / "model.gm")
    features = [
        {"type": "Feature", "properties": {"code": k, "district": name}, "geometry": area}
        for k, (name, area) in enumerate(areas.items())
    ]
    (tmp_path / "areas.json").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    run = CliRunner()
    command = ["report", str(tmp_path / "model.gm"), "--out", str(tmp_path / "page.html"), "--title", "Risk"]
    result = run.invoke(app, [*command, "--areas", str(tmp_path / "areas.json"), "--level", "0.8"])
    assert result.exit_code == 0, result.output
    words, arrays = content_of(tmp_path / "page.html")
    assert (words["title"], words["level"]) == ("Risk", 0.8)
    assert len(arrays["ringStart"]) == 11  # nine squares and a hole
    refused = run.invoke(app, [*command, "--areas", str(tmp_path / "areas.json"), "--area-name", "nonsense"])
    assert (refused.exit_code, "--area-name" in refused.output) == (3, True)
    assert run.invoke(app, ["report", str(tmp_path / "model.gm"), "--out", "page.pdf"]).exit_code == 2


def test_a_fit_writes_a_page(tmp_path: Path) -> None:
    (tmp_path / "roads.csv").write_text("from,to,metres\na,b,100\nb,c,300\nc,d,200\n")
    (tmp_path / "speeds.csv").write_text("place,speed\na,52.0\nb,47.5\nd,31.0\n")
    files = [str(tmp_path / name) for name in ("roads.csv", "speeds.csv")]
    options = ["--nu", "1", "--no-integrate", "--unit", "mph", "--report", str(tmp_path / "page.html")]
    result = CliRunner().invoke(app, ["fit", *files, *options])
    assert result.exit_code == 0, result.output
    assert "open it in a browser" in result.output
    assert content_of(tmp_path / "page.html")[0]["unit"] == "mph"
