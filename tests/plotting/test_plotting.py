"""Pictures: what is drawn is what was computed, on any graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection, PathCollection
from scipy.stats import norm

import graphmatern as gm
from graphmatern import plotting
from graphmatern.errors import InputError, TableError
from graphmatern.plotting._layout import find_layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes

GRAPHS = {
    "roads": gm.make_roads(50),
    "no positions": gm.Graph.from_networkx(nx.grid_graph([4, 4])),
    "larger without positions": gm.Graph.from_networkx(nx.grid_graph([23, 23])),
    "one node": gm.Graph.from_adjacency([[0.0]]),
    "no edges": gm.Graph.from_adjacency(np.zeros((3, 3))),
    "several components": gm.Graph.from_networkx(nx.disjoint_union_all([nx.cycle_graph(9), nx.path_graph(2)])),
    "on a line": gm.Graph.from_points([[0.0], [1.0], [3.0]], n_neighbors=1),
    "in space": gm.Graph.from_mesh(
        [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]]
    ),
    "many dimensions": gm.Graph.from_points(np.random.default_rng(0).random((40, 6)), n_neighbors=4),
    "degrees": gm.Graph.from_edges([("a", "b")], positions=[[-122.0, 37.0], [-121.9, 37.1]]),
    "only geometry": gm.Graph.from_edges([("a", "b")], geometry=["LINESTRING (0 0, 1 2, 3 0)"]),
}


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.mark.parametrize("name", GRAPHS)
def test_every_picture_of_any_graph(name: str) -> None:
    graph = GRAPHS[name]
    bound = gm.Matern(lengthscale=2.0).on(graph)
    values = np.arange(float(graph.n_nodes))
    values[0] = np.nan
    share = np.random.default_rng(0).dirichlet(np.ones(3), graph.n_nodes)
    figure, axes = plt.subplots(4, 3)
    sensors = pd.DataFrame({"node": graph.nodes[:1], "order": [1], "mean_std": [0.6], "max_std": [1.0]})
    drawn = [
        plotting.plot_graph(graph, axes[0, 0]),
        plotting.plot_field(graph, values, axes[0, 1], label="speed", marked=graph.nodes[:1]),
        plotting.plot_kernel(bound, graph.nodes[0], axes[0, 2]),
        plotting.plot_variance(bound, axes[1, 0]),
        plotting.plot_spectrum(bound, axes[1, 1]),
        plotting.plot_range(bound, axes[1, 2]),
        *plotting.plot_classes(graph, share, ["a", "b", "c"], axes[2, :2], marked=graph.nodes[:1]),
        *plotting.plot_placement(graph, sensors, axes[2:, 2], values=values, existing=graph.nodes[:1]),
    ]
    assert drawn == [*axes.flat[:9], axes[3, 2]]
    figure.canvas.draw()


def shown(ax: Axes, which: int) -> np.ndarray:
    """Values behind the colours of the edges (0) or of the nodes (1)."""
    values = ax.collections[which].get_array()
    assert values is not None
    return np.asarray(values.filled(np.nan) if isinstance(values, np.ma.MaskedArray) else values)


def curve(ax: Axes, which: int = -1) -> tuple[np.ndarray, np.ndarray]:
    line = ax.lines[which]
    return np.asarray(line.get_xdata(), dtype=np.float64), np.asarray(line.get_ydata(), dtype=np.float64)


def test_colours_are_the_values() -> None:
    graph = gm.Graph.from_edges([("a", "b"), ("b", "c")], positions=[[0, 0], [1, 0], [2, 1]])
    ax = plotting.plot_field(graph, pd.Series({"c": 5.0, "a": 1.0}), limits=(0.0, 4.0), marked=["c"])
    np.testing.assert_array_equal(shown(ax, 1), [1.0, np.nan, 5.0])
    np.testing.assert_array_equal(shown(ax, 0), [np.nan, np.nan])
    assert ax.collections[1].get_clim() == ax.collections[0].get_clim() == (0.0, 4.0)
    np.testing.assert_array_equal(ax.collections[2].get_offsets(), [[2.0, 1.0]])
    variance = plotting.plot_variance(bound := gm.Matern(lengthscale=2.0).on(graph))
    np.testing.assert_allclose(shown(variance, 1), bound.diag().detach().numpy())
    column = plotting.plot_kernel(bound, "b")
    np.testing.assert_allclose(shown(column, 1), bound.matrix(b=["b"]).detach().numpy()[:, 0])


def test_roads_are_drawn_along_their_geometry() -> None:
    line = [[0.0, 0.0], [1.0, 2.0], [3.0, 0.0]]
    graph = gm.Graph.from_edges([("a", "b"), ("b", "c")], geometry=[line, [[3.0, 0.0], [3.0, 1.0]]])
    lines = plotting.plot_graph(graph).collections[0]
    assert isinstance(lines, LineCollection)
    np.testing.assert_array_equal(lines.get_segments()[0], line)
    np.testing.assert_array_equal(find_layout(graph).places, [[0, 0], [3, 0], [3, 1]])


def test_layouts_keep_distances() -> None:
    for n in (8, 20):  # by springs; by pivots
        graph = gm.Graph.from_networkx(nx.grid_graph([n, n]))
        places = find_layout(graph).places
        assert find_layout(graph).places is places
        apart = np.linalg.norm(places[0] - places, axis=1)
        assert np.corrcoef(apart, graph.distances(graph.nodes[:1])[0])[0, 1] > 0.9
        closest = np.sort(np.linalg.norm(places[:, None] - places, axis=2), axis=1)[:, 1]
        assert closest.min() > 0.2  # neighbours are at a distance of about 1


def test_components_lie_side_by_side() -> None:
    several = [nx.grid_graph([12, 15]), nx.star_graph(9), nx.cycle_graph(5), nx.empty_graph(7)]
    graph = gm.Graph.from_networkx(nx.disjoint_union_all(several))
    places, labels = find_layout(graph).places, graph.components
    boxes = [(places[labels == k].min(axis=0), places[labels == k].max(axis=0)) for k in range(graph.n_components)]
    for i, (low, high) in enumerate(boxes):
        for other_low, other_high in boxes[:i]:
            assert (low > other_high).any() or (other_low > high).any()


def test_layouts_of_lengths() -> None:
    graph = gm.Graph.from_edges([(0, 1), (1, 2)], length=[1.0, 3.0])
    steps = np.linalg.norm(np.diff(find_layout(graph).places, axis=0), axis=1)
    assert steps[1] / steps[0] == pytest.approx(3.0, rel=0.01)


def test_calibration_counts_values_inside() -> None:
    rng = np.random.default_rng(0)
    y, mean, std = rng.standard_normal(50), rng.standard_normal(50), rng.uniform(0.5, 2.0, 50)
    ax = plotting.plot_calibration(y, mean, std, label="model")
    levels, inside = curve(ax)
    expected = [np.mean(np.abs(y - mean) <= norm.ppf(0.5 + 0.5 * p) * std) for p in levels[1:-1]]
    np.testing.assert_allclose(inside[1:-1], expected)
    plotting.plot_calibration(y, mean, 2.0 * std, ax)
    assert len(ax.lines) == 3  # the diagonal is drawn once
    with pytest.raises(gm.errors.TableError, match="must be above 0") as caught:
        plotting.plot_calibration(y, mean[1:], -std)
    assert len(caught.value.faults) == 2


def test_curves_are_those_of_the_kernel() -> None:
    bound = gm.Matern(nu=1.0, lengthscale=5.0).on(gm.make_roads(200))
    ax = plotting.plot_spectrum(bound)
    np.testing.assert_allclose(curve(ax, 0)[1], bound.weights().detach().numpy())
    count = int(str(ax.lines[0].get_label()).split(" in ")[1].split()[0])
    weights = bound.weights().detach().numpy()
    assert weights[:count].sum() >= 0.99 * weights.sum() > weights[: count - 1].sum()
    ax = plotting.plot_range(bound)
    found = bound.range()
    distance, median = curve(ax)
    assert np.interp(found.half, distance, median) == pytest.approx(0.5)
    plotting.plot_range(gm.Matern(nu=1.0, lengthscale=15.0).on(bound.graph), ax)
    assert ax.get_xlim()[1] > found.half


def test_models_draw_mean_and_uncertainty() -> None:
    city = gm.make_roads(60)
    y = np.where(np.arange(20) == 3, np.nan, np.linspace(0.0, 1.0, 20))
    model = gm.GraphGPRegressor(city, gm.Matern(nu=2, lengthscale=5.0), optimizer=None).fit(city.nodes[:20], y)
    mean, std = model.predict(return_std=True)
    left, right = model.plot(label="speed")
    np.testing.assert_allclose(shown(left, 1), mean)
    np.testing.assert_allclose(shown(right, 1), std)
    assert city.positions is not None
    np.testing.assert_array_equal(left.collections[2].get_offsets(), city.positions[:20][np.arange(20) != 3])
    with pytest.raises(gm.errors.InputError, match="must be two"):
        model.plot([left])


def test_classes_and_their_entropy() -> None:
    city = gm.make_roads(60)
    share = np.random.default_rng(0).dirichlet(np.ones(12), city.n_nodes)
    share[0] = np.eye(12)[4]
    left, right = plotting.plot_classes(city, share, range(12))
    np.testing.assert_array_equal(shown(left, 1), share.argmax(axis=1))
    entropy = shown(right, 1)
    assert entropy[0] == 0
    assert entropy[1] == pytest.approx(-(share[1] * np.log(share[1])).sum() / np.log(12))
    left, right = plotting.plot_classes(city, share[:, :2], ["dry", "wet"])
    np.testing.assert_array_equal(shown(left, 1), share[:, 1])
    with pytest.raises(gm.errors.InputError, match="must have shape"):
        plotting.plot_classes(city, share, ["dry", "wet"])


def colours_of(ax: Axes, which: int = 1) -> np.ndarray:
    """Colours at both ends of the map that nodes are drawn with."""
    return ax.collections[which].get_cmap()([0.0, 1.0])


def test_colour_maps_and_a_single_axes() -> None:
    """Through the estimators: what is said about colours holds for the prediction, not for its uncertainty."""
    city = gm.make_roads(60)
    names, kernel = city.nodes[:20], gm.Matern(nu=2, lengthscale=5.0)
    model = gm.GraphGPRegressor(city, kernel, optimizer=None).fit(names, np.linspace(0.0, 1.0, 20))
    left, right = model.plot(cmap="coolwarm", limits=(0.2, 0.7))
    np.testing.assert_array_equal(colours_of(left), plt.get_cmap("coolwarm")([0.0, 1.0]))
    np.testing.assert_array_equal(colours_of(right), plotting.find_colours(plotting.UNSURE[0])([0.0, 1.0]))
    assert left.collections[1].get_clim() == (0.2, 0.7)
    figure, ax = plt.subplots()
    (drawn,) = model.plot(ax=ax, cmap=plt.get_cmap("magma"))
    assert drawn is ax
    assert len(figure.axes) == 2  # with the colour bar
    np.testing.assert_allclose(shown(ax, 1), model.predict())
    np.testing.assert_array_equal(colours_of(ax), plt.get_cmap("magma")([0.0, 1.0]))

    for count, cmap, expected in (
        (2, "magma", plt.get_cmap("magma")([0.0, 1.0])),
        (3, "tab10", plt.get_cmap("tab10")([0, 2])),
        (3, "viridis", plt.get_cmap("viridis")([0.0, 1.0])),
    ):
        classifier = gm.GraphGPClassifier(city, kernel, optimizer=None).fit(names, np.arange(20) % count)
        figure, ax = plt.subplots()
        (drawn,) = classifier.plot(ax=ax, cmap=cmap)
        assert drawn is ax
        share = classifier.predict_proba()
        np.testing.assert_allclose(shown(ax, 1), share[:, 1] if count == 2 else share.argmax(axis=1))
        np.testing.assert_array_equal(colours_of(ax), expected)
        assert len(figure.axes) == 2


def test_faults_of_axes_and_colours_are_told() -> None:
    city = gm.make_roads(20)
    one, share = np.ones(city.n_nodes), np.full((city.n_nodes, 12), 1 / 12)
    ax = plt.subplots()[1]
    with pytest.raises(gm.errors.InputError, match="`ax` must be left out"):
        plotting.plot_prediction(city, one, one, [ax, ax], ax=ax)
    with pytest.raises(gm.errors.InputError, match="`ax` takes one"):
        plotting.plot_prediction(city, one, one, [ax])
    with pytest.raises(gm.errors.InputError, match="`cmap` must be a colour map of matplotlib; received 'virids'"):
        plotting.plot_prediction(city, one, one, cmap="virids")
    with pytest.raises(gm.errors.InputError, match="a colour for each of 12 classes; received 'tab10' with 10"):
        plotting.plot_classes(city, share, range(12), cmap="tab10")


def test_maps_check_the_number_of_values() -> None:
    with pytest.raises(gm.errors.TableError, match="must have shape"):
        plotting.plot_field(gm.make_roads(20), [1.0])
    with pytest.raises(gm.errors.InputError, match="must have shape"):
        plotting.plot_field(gm.make_roads(20), np.ones((len(gm.make_roads(20)), 2)))


def test_parameters_are_drawn_with_their_weights() -> None:
    values = {"sigma": [1.0, 2.0, 4.0], "noise": [0.1, 0.2, 0.4]}
    axes = plotting.plot_hyperparameters(values, [0.25, 0.5, 0.25], mode={"sigma": 2.0})
    assert axes.shape == (2, 2)
    np.testing.assert_allclose(axes[1, 0].collections[0].get_offsets(), [[1.0, 0.1], [2.0, 0.2], [4.0, 0.4]])
    area = axes[1, 0].collections[0].get_sizes()
    np.testing.assert_allclose(area / area.max(), [0.5, 1.0, 0.5])
    x, density = curve(axes[0, 0], 0)
    assert x[np.argmax(density)] == pytest.approx(2.0, rel=0.05)
    np.testing.assert_array_equal(axes[0, 0].lines[1].get_xdata(), [2.0, 2.0])
    assert not axes[0, 1].get_visible()
    with pytest.raises(TableError, match="one length"):
        plotting.plot_hyperparameters({"sigma": [1.0], "noise": [1.0, 2.0]})
    city = gm.make_roads(30, seed=0)
    model = gm.GraphGPRegressor(city).fit(city.nodes[:10], np.sin(np.arange(10.0)))
    assert model.plot_hyperparameters().shape == (4, 4)


def test_pit_bars_are_counts() -> None:
    ax = plotting.plot_pit([0.05, 0.06, 0.5, 0.95], n_bins=4)
    np.testing.assert_array_equal([bar.get_height() for bar in ax.containers[0]], [2, 0, 1, 1])
    with pytest.raises(TableError, match="shares"):
        plotting.plot_pit([0.5, 1.5])


def test_chosen_nodes_are_numbered_and_the_curve_begins_before_them() -> None:
    path = gm.Graph.from_edges([("a", "b"), ("b", "c")], positions=[[0, 0], [1, 0], [2, 1]])
    table = gm.place_sensors(gm.Matern(1.5, 2.0).on(path), 2, noise=0.1)
    on_map, beside = plotting.plot_placement(path, table)
    positions = dict(zip("abc", [(0.0, 0.0), (1.0, 0.0), (2.0, 1.0)], strict=True))
    numbers = {text.get_text(): tuple(text.xy) for text in on_map.texts}
    assert numbers == {str(k + 1): positions[name] for k, name in enumerate(table["node"])}
    np.testing.assert_allclose(curve(beside, 0), [[0, 1, 2], [table.attrs["mean_std"], *table["mean_std"]]])
    np.testing.assert_allclose(curve(beside, 1), [[0, 1, 2], [table.attrs["max_std"], *table["max_std"]]])
    gone = gm.remove_sensors(gm.Matern(1.5, 2.0).on(path), 1, sensors=["a", "b"], noise=0.1)
    assert plotting.plot_placement(path, gone)[1].get_xlabel() == "sensors removed"
    ticks = beside.get_xticks()
    np.testing.assert_array_equal(ticks, ticks.round())  # whole sensors
    (alone,) = plotting.plot_placement(path, table, plt.subplots()[1])
    assert len(alone.texts) == 2
    labels = pd.DataFrame({"node": ["a", "b"], "order": [1, 2], "score": [0.7, 0.5]})
    np.testing.assert_array_equal(curve(plotting.plot_placement(path, labels)[1], 0), [[1, 2], [0.7, 0.5]])
    with pytest.raises(TableError, match="columns node and order"):
        plotting.plot_placement(path, table[["gain"]])


def test_maps_say_what_they_show() -> None:
    """Titles, units, the number of rings, scale, and that places are made up."""
    graph = gm.Graph.from_edges([("a", "b"), ("b", "c")], positions=[[8.5, 47.0], [8.6, 47.0], [8.6, 47.1]])
    left, right = plotting.plot_prediction(
        graph, [1.0, 2.0, 3.0], [0.1, 0.2, 0.3], unit="mph", title="Speeds at noon", marked=["a", "c"]
    )
    assert left.get_title() == "Speeds at noon: predicted mean"
    labels = [one.get_ylabel() for one in left.figure.axes if one not in (left, right)]
    assert labels == ["mph", "± mph"]
    assert [text.get_text() for text in left.get_legend().get_texts()] == ["observed (2)"]
    # The bar is as long as it says, on the ground.
    (bar,) = left.lines

    def check(unit: str, metres: float) -> None:
        degrees = float(np.ptp(np.asarray(bar.get_xdata(), dtype=np.float64)))
        (said,) = [text.get_text().split()[0] for text in left.texts if text.get_text().endswith(f" {unit}")]
        np.testing.assert_allclose(degrees * 111_195 * np.cos(np.radians(47.0333)), metres * float(said), rtol=1e-3)

    check("km", 1000.0)
    # It stays in sight where one looks closely, and does not push the map away (a warning of matplotlib's).
    left.set(xlim=(8.55, 8.56), ylim=(47.0, 47.005))
    left.figure.canvas.draw()
    check("m", 1.0)
    assert left.get_window_extent().width > 200
    invented = plotting.plot_field(gm.Graph.from_edges([("a", "b")]), [1.0, 2.0])
    assert any("no positions" in text.get_text() for text in invented.texts)


def test_rings_shrink_with_their_number_and_uncertain_places_fade() -> None:
    graph = gm.make_roads(400, seed=0)
    sizes = []
    for count in (5, 100, 300):
        ax = plotting.plot_field(graph, graph.degrees, marked=graph.nodes[:count])
        rings = ax.collections[2]
        assert isinstance(rings, PathCollection)
        sizes.append(float(rings.get_sizes()[0]))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 0.5 * sizes[0]
    for name, fades_to in zip(plotting.UNSURE, (1.0, 0.0), strict=True):
        light = plotting.find_colours(name)(np.linspace(0.0, 1.0, 20))[:, :3] @ [0.299, 0.587, 0.114]
        assert (np.diff(np.abs(light - fades_to)) < 0).all()


def test_pictures_of_one_model_share_their_limits() -> None:
    graph = gm.make_roads(60, seed=0)
    times = [0.0, 1.0, 2.0]
    table = pd.DataFrame(np.outer([1.0, 3.0, 2.0], np.arange(10.0)), index=times, columns=graph.nodes[:10])
    model = gm.GraphFieldRegressor(graph, gm.Matern(1.5, 2.0), optimizer=None).fit(table)
    limits = {model.plot_map(time)[0].collections[1].get_clim() for time in times}
    assert len(limits) == 1
    assert model.plot_map(1.0)[0].get_title() == "1.0: predicted mean"


def test_carriageways_are_drawn_apart() -> None:
    places = dict(zip("abcd", [[0, 0], [100, 0], [0, 0.2], [100, 0.2]], strict=True))
    graph = gm.Graph.from_edges([("a", "b"), ("d", "c")], positions=places)
    ax = plotting.plot_field(graph, np.arange(4.0))
    lines = ax.collections[0]
    assert isinstance(lines, LineCollection)
    offsets = np.asarray(lines.get_offsets())
    assert offsets[0, 1] < 0 < offsets[1, 1]
    assert np.ptp(offsets[:, 1]) * 72.0 > float(np.ravel(lines.get_linewidth())[0])
    assert ax.get_xlim()[0] <= 0 <= 100 <= ax.get_xlim()[1]


def test_areas_are_coloured_instead_of_dots() -> None:
    shapely = pytest.importorskip("shapely")
    hole = shapely.Polygon([(0, 0), (3, 0), (3, 3), (0, 3)], [[(1, 1), (1, 2), (2, 2), (2, 1)]])
    graph = gm.Graph.from_polygons({"a": hole, "b": shapely.box(3, 0, 4, 3), "c": shapely.box(1, 1, 2, 2)})
    risk: Any = {"a": 0.5, "b": 4.0, "c": 1.0}
    ax = plotting.plot_risk(graph, risk, largest=4.0, title="risk")
    areas: Any = ax.collections[0]
    paths = areas.get_paths()
    assert len(paths) == 3
    assert (len(paths[0].to_polygons()), paths[2].contains_point((1.5, 1.5))) == (2, True)
    # Half and twice the risk are equally far from the middle of the colours.
    np.testing.assert_allclose(areas.norm(areas.get_array()), [0.25, 1.0, 0.5])
    assert ax.figure is not None
    bar = ax.figure.axes[-1]
    assert [text.get_text() for text in bar.get_yticklabels()] == ["0.25", "0.5", "1", "2", "4"]
    # A hole stays open when it is drawn.
    ax = plotting.plot_risk(graph.subgraph(["a", "b"]), [0.5, 2.0])
    canvas: Any = ax.figure.canvas
    canvas.draw()
    picture, places = np.asarray(canvas.buffer_rgba()), ax.transData.transform([[1.5, 1.5], [0.5, 1.5]])
    inside, outside = (picture[len(picture) - round(y), round(x), :3] for x, y in places)
    assert (inside == 255).all()
    assert not (outside == 255).all()
    ax = plotting.plot_field(graph.with_areas({"a": hole}), risk, marked=["a"])
    assert "2 without an area" in " ".join(text.get_text() for text in ax.texts)
    assert len(ax.collections) == 2  # areas, and the rings of what is marked
    ax.figure.draw_without_rendering()  # type: ignore[union-attr]
    model = gm.GraphGPRegressor(graph, gm.BYM2(0.3, 0.5), likelihood="poisson", optimizer=None)
    model.fit(["a", "b", "c"], [3, 20, 5], exposure=[6.0, 5.0, 5.0])
    left, right = model.plot_risks(threshold=2.0)
    np.testing.assert_allclose(left.collections[0].get_array(), model.risk_table()["mean"])
    np.testing.assert_allclose(right.collections[0].get_array(), model.exceedance(2.0))
    dots = gm.GraphGPRegressor(
        gm.Graph.from_edges(graph.edges[["source", "target"]]), gm.BYM2(), likelihood="poisson", optimizer=None
    )
    dots.fit(["a", "b"], [3, 20], exposure=[6.0, 5.0]).plot_risks()
    dots.plot_risks(areas={"a": hole})
    with pytest.raises(InputError, match="not their logarithms"):
        plotting.plot_risk(graph, [-0.5, 1.0, 1.0])
    with pytest.raises(InputError, match="`largest` must be above 1"):
        plotting.plot_risk(graph, risk, largest=0.5)
