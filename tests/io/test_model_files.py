"""Model files: nothing is lost on the way, every changed byte is noticed, and a killed writer leaves no half file."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import stat
import subprocess
import sys
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphmatern as gm
from graphmatern.errors import DataNotFoundError, GraphMaternError, ModelFileError
from graphmatern.graph import _kept_spectra
from graphmatern.io import pack, read_container, replacing, unpack, write_container
from graphmatern.kernels import SpectralKernel
from strategies import graphs

if TYPE_CHECKING:
    from pathlib import Path

    import torch

CITY = gm.make_roads(80, seed=2)
SPOTS = CITY.nodes[::2]
VALUES = 20.0 + 4.0 * np.sin(np.arange(len(SPOTS)) / 5.0)


def there_and_back(value: Any) -> Any:
    arrays: dict[str, Any] = {}
    text = json.dumps(pack(value, arrays))
    return unpack(json.loads(text), arrays)


NAMES = st.recursive(
    st.integers(-(2**70), 2**70)
    | st.text(max_size=5)
    | st.booleans()
    | st.floats(allow_nan=False)
    | st.binary(max_size=4)
    | st.dates()
    | st.datetimes()
    | st.none(),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)


@given(st.lists(NAMES, max_size=6))
def test_values_of_all_kinds_survive(values: list[Any]) -> None:
    found = there_and_back(values)
    assert found == values
    assert [type(item) for item in found] == [type(item) for item in values]


INDEXES: dict[str, pd.Index[Any]] = {
    "range": pd.RangeIndex(5),
    "int32": pd.Index(np.array([3, 1], dtype=np.int32)),
    "text": pd.Index(["a", "ü"]),
    "mixed": pd.Index([1, "1", (2, "x")], dtype=object, tupleize_cols=False),
    "tuples": pd.Index([(1, 2), (3, 4)], dtype=object, tupleize_cols=False),
    "times": pd.DatetimeIndex(["2017-01-02 17:30", "2017-01-09 17:30"]),
    "zone": pd.DatetimeIndex(["2017-01-02 17:30", "2017-07-09 17:30"], tz="Europe/Berlin"),
    "levels": pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["x", "y"]),
    "empty": pd.Index([], dtype=object),
}


@pytest.mark.parametrize("name", INDEXES)
def test_indexes_and_tables_survive(name: str) -> None:
    index = INDEXES[name]
    pd.testing.assert_index_equal(there_and_back(index), index, exact=True)
    series = pd.Series(np.arange(len(index)) * 0.5, index=index, name="value")
    pd.testing.assert_series_equal(there_and_back(series), series)
    table = pd.DataFrame({"a": np.arange(len(index)), 3: ["x"] * len(index)}, index=index)
    pd.testing.assert_frame_equal(there_and_back(table), table)


@given(graphs(masses=True))
def test_generated_graphs_survive(graph: gm.Graph) -> None:
    found = there_and_back(graph)
    assert found == graph
    assert found.nodes.equals(graph.nodes)
    assert [type(name) for name in found.nodes] == [type(name) for name in graph.nodes]
    assert (found.laplacian() != graph.laplacian()).nnz == 0
    pd.testing.assert_frame_equal(found.edges, graph.edges)


def roads_with_everything() -> gm.Graph:
    roads = pd.DataFrame(
        {
            "road": ["r1", "r2", "r3", "r4"],
            "from": ["a", "b", "a", "c"],
            "to": ["b", "c", "b", "d"],
            "metres": [100.0, 300.0, 120.0, 50.0],
            "line": ["LINESTRING (0 0, 0 1, 1 1)", None, "LINESTRING (0 0, 1 1)", None],
        }
    )
    places = {"a": (0.0, 0.0), "b": (1.0, 1.0), "c": (2.0, 1.0), "d": (2.0, 2.0)}
    with pytest.warns(gm.errors.EdgeWarning):
        return gm.Graph.from_edges(
            roads,
            source="from",
            target="to",
            length="metres",
            id="road",
            geometry="line",
            positions=places,
            parallel="mean_length",
        )


def test_geometry_ids_lengths_and_parallel_edges_survive() -> None:
    graph = roads_with_everything()
    found = there_and_back(graph)
    assert found == graph
    points = pd.DataFrame({"road": ["r1", "r4"], "at": [30.0, 20.0]}, index=["s1", "s2"])
    cut, again = (one.subdivide(points, edge="road", distance="at") for one in (graph, found))
    assert cut == again  # the pieces are called (id, number), the new nodes by the table's index
    assert there_and_back(cut) == cut
    assert there_and_back(graph.subgraph(["c", "b", "a"])) == graph.subgraph(["c", "b", "a"])


def test_what_cannot_be_stored_is_named() -> None:
    with pytest.raises(ModelFileError, match="a function, cannot be stored"):
        pack(["a", there_and_back], {})

    class Own(SpectralKernel):
        def log_psi(self, eigenvalues: torch.Tensor) -> torch.Tensor:
            return -eigenvalues

    model = gm.GraphGPRegressor(CITY, Own(variance=1.0, fixed=()), optimizer=None, noise=0.1).fit(SPOTS, VALUES)
    with pytest.raises(ModelFileError, match="kernel of type Own"):
        model.save("nowhere.gm")


# ---------------------------------------------------------------------- models
def city_in_pieces() -> gm.Graph:
    return gm.Graph.from_edges([("a", "b"), ("b", "c"), ("x", "y")], masses=dict.fromkeys("abcxy", 1.5))


def make_model(name: str) -> gm.GraphGPRegressor:
    """A fitted model of each kind."""
    rng = np.random.default_rng(0)
    if name == "spectral":
        return gm.GraphGPRegressor(CITY, engine="spectral").fit(SPOTS, VALUES)
    if name == "markov":
        return gm.GraphGPRegressor(CITY, engine="markov").fit(SPOTS, VALUES)
    if name == "markov, variance held":
        held = gm.Matern(2, 3.0, 1.7, fixed=("variance",))
        return gm.GraphGPRegressor(CITY, held, engine="markov", mean="zero").fit(SPOTS, VALUES)
    if name == "sum of kernels":
        kernel = gm.Matern(1.5, 9.0, fixed=("nu",)) + 0.5 * gm.RandomWalk(6, 0.6) + gm.InverseCosine() + gm.Diffusion()
        return gm.GraphGPRegressor(CITY, kernel, n_eigenpairs=30, integrate=False).fit(SPOTS, VALUES)
    if name == "replicates with gaps":
        y = VALUES[:, None] + rng.standard_normal((len(VALUES), 3))
        y[::7, 1] = np.nan
        return gm.GraphGPRegressor(CITY, normalize_y=False).fit(SPOTS, y)
    if name == "known noise":
        return gm.GraphGPRegressor(CITY).fit(SPOTS, VALUES, noise_variance=rng.uniform(0.1, 2.0, len(SPOTS)))
    if name == "in pieces":
        return gm.GraphGPRegressor(city_in_pieces(), gm.Matern(2, 1.0), noise=0.1, optimizer=None).fit(
            ["a", "c"], [1, 2]
        )
    assert name == "conditioned on more"
    return gm.GraphGPRegressor(CITY, engine="markov").fit(SPOTS[:-4], VALUES[:-4]).condition_on(SPOTS[-4:], VALUES[-4:])


MODELS = [
    "spectral",
    "markov",
    "markov, variance held",
    "sum of kernels",
    "replicates with gaps",
    "known noise",
    "in pieces",
    "conditioned on more",
]


@pytest.mark.parametrize("name", MODELS)
def test_loaded_models_are_the_same(name: str, tmp_path: Path) -> None:
    model = make_model(name)
    if name == "spectral":
        model.standard_errors()
    model.save(tmp_path / "model.gm")
    again = gm.load(tmp_path / "model.gm")
    assert type(again) is gm.GraphGPRegressor
    pd.testing.assert_frame_equal(again.predict_table(0.9), model.predict_table(0.9), rtol=0.0, atol=1e-12)
    nodes = model.graph.nodes[[2, 0, 1]]
    for theirs, ours in zip(
        again.predict(nodes, return_std=True, return_cov=True),
        model.predict(nodes, return_std=True, return_cov=True),
        strict=True,
    ):
        np.testing.assert_allclose(theirs, ours, rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(again.sample(3, random_state=1), model.sample(3, random_state=1), rtol=0.0, atol=1e-12)
    pd.testing.assert_frame_equal(again.loo(), model.loo(), rtol=0.0, atol=1e-12)
    assert again.summary() == model.summary()
    assert again.graph == model.graph
    np.testing.assert_array_equal(again.informed_, model.informed_)
    for attribute in ("y_mean_", "y_scale_", "noise_", "engine_", "engine_reason_", "log_marginal_likelihood_"):
        assert getattr(again, attribute) == getattr(model, attribute)
    assert again.n_evaluations_ == model.n_evaluations_
    assert again.gradient_norm_ == model.gradient_norm_
    ours, theirs = model.get_params(deep=False), again.get_params(deep=False)
    assert {k: repr(v) for k, v in ours.items()} == {k: repr(v) for k, v in theirs.items()}
    if name != "replicates with gaps" and name != "known noise":
        more = model.graph.nodes[:1], [3.0]
        np.testing.assert_allclose(
            again.condition_on(*more).predict(), model.condition_on(*more).predict(), rtol=0.0, atol=1e-12
        )
    again.save(tmp_path / "again.gm")
    assert (tmp_path / "again.gm").read_bytes() == (tmp_path / "model.gm").read_bytes()
    if name in ("spectral", "markov"):
        assert again.standard_errors() == pytest.approx(model.standard_errors(), rel=1e-6, nan_ok=True)


def test_eigenpairs_of_large_graphs_are_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = gm.make_roads(2200, seed=0)
    model = gm.GraphGPRegressor(graph, gm.Diffusion(80.0), n_eigenpairs=12, noise=0.1, optimizer=None)
    model.fit(graph.nodes[:50], np.arange(50.0))
    model.save(tmp_path / "large.gm")

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("eigenpairs were computed again")

    monkeypatch.setattr(_kept_spectra, "laplacian_spectrum", refuse)
    again = gm.load(tmp_path / "large.gm")
    np.testing.assert_array_equal(again.predict(), model.predict())


def test_models_must_be_fitted_to_be_saved(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="not fitted yet"):
        gm.GraphGPRegressor(CITY).save(tmp_path / "model.gm")
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------- damage
@pytest.fixture(scope="module")
def small_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small") / "model.gm"
    make_model("in pieces").save(path)
    return path


def test_every_changed_byte_is_noticed(small_file: Path, tmp_path: Path) -> None:
    whole = small_file.read_bytes()
    damaged = tmp_path / "damaged.gm"
    rng = np.random.default_rng(0)
    for place, other in enumerate(rng.integers(1, 256, len(whole))):
        changed = bytearray(whole)
        changed[place] ^= int(other)
        damaged.write_bytes(changed)
        with pytest.raises(ModelFileError):
            gm.load(damaged)


def test_every_cut_is_noticed(small_file: Path, tmp_path: Path) -> None:
    whole = small_file.read_bytes()
    damaged = tmp_path / "damaged.gm"
    for length in range(0, len(whole), 3):
        damaged.write_bytes(whole[:length])
        with pytest.raises(ModelFileError, match=r"damaged|not a model file"):
            gm.load(damaged)
    damaged.write_bytes(whole + b"\0")
    with pytest.raises(ModelFileError, match="damaged"):
        gm.load(damaged)


def test_other_files_are_refused(tmp_path: Path) -> None:
    junk = tmp_path / "junk.gm"
    for content in (b"", b"node,value\n1,2\n", b"\xff" * 4000, b"\x80\x04\x95" + b"pickle" * 9, b"[" * 100_000):
        junk.write_bytes(content)
        with pytest.raises(ModelFileError, match="not a model file"):
            gm.load(junk)
    deep = b"[" * 200_000
    junk.write_bytes(len(deep).to_bytes(8, "little") + deep)
    with pytest.raises(ModelFileError, match="not a model file"):
        gm.load(junk)
    with pytest.raises(DataNotFoundError, match="does not exist"):
        gm.load(tmp_path / "absent.gm")
    with pytest.raises(DataNotFoundError, match="a folder"):
        gm.load(tmp_path)


def replaced(state: Any, old: str, new: str) -> Any:
    text = json.dumps(state)
    assert old in text
    return json.loads(text.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"Matern"', '"os.system"'),
        ('"spectral"', '"markov"'),
        ('["optimum", ', '["optimism", '),
        ('["data", ', '["date", '),
        ('{"dict": ', '{"list": '),
        ('"array0"', '"array1"'),
        ('"array2"', '"array0"'),
        ('["parallel", "sum"]', '["parallel", "product"]'),
        ('["weighting", "unit"]', '["weighting", 3]'),
        ('["engine", "auto"]', '["engines", "auto"]'),
    ],
)
def test_wrong_contents_with_a_right_checksum_are_refused(small_file: Path, tmp_path: Path, old: str, new: str) -> None:
    kind, state, arrays = read_container(small_file)
    write_container(tmp_path / "wrong.gm", kind, replaced(state, old, new), arrays)
    with pytest.raises(GraphMaternError):
        gm.load(tmp_path / "wrong.gm")


def test_implausible_sizes_are_refused(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {}
    state = pack({"options": {"graph": pd.RangeIndex(5)}, "fitted": None}, arrays)
    write_container(tmp_path / "wrong.gm", "GraphGPRegressor", replaced(state, "5", str(10**15)), arrays)
    with pytest.raises(ModelFileError, match="more than is plausible"):
        gm.load(tmp_path / "wrong.gm")


def sign(path: Path, kind: str, state: str) -> None:
    """Write a container without arrays and with any state, whatever the writer would say of it."""
    metadata = {"format": "graphmatern model", "version": "1", "sha256": "0" * 64, "kind": kind, "state": state}
    text = json.dumps({"__metadata__": metadata}).encode()
    content = len(text).to_bytes(8, "little") + text
    path.write_bytes(content.replace(b"0" * 64, hashlib.sha256(content).hexdigest().encode()))


def test_huge_lists_are_refused_before_they_are_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, state = tmp_path / "huge.gm", "[" + "[]," * 2_000_000 + "0]"
    sign(path, "GraphGPRegressor", state)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match="more than 1,000,000 values"):
            gm.load(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * path.stat().st_size  # two million lists would take twenty times the file
    sign(path, "GraphGPRegressor", "[1, 2]")
    assert read_container(path)[1] == [1, 2]
    with pytest.raises(ModelFileError, match="use arrays instead of long lists"):
        write_container(path, "GraphGPRegressor", [0] * 1_000_001, {})

    # The same in the text that stands for an array of names, of which the shape says how many there are.
    arrays: dict[str, Any] = {}
    packed = pack(np.array(["a", ("b", 1)], dtype=object), arrays)
    arrays["array0"] = np.frombuffer(state.encode(), np.uint8)
    monkeypatch.setattr("graphmatern.io._values.json.loads", lambda text: pytest.fail("it was built"))
    for shape in ([2], [10**12]):
        packed["array"]["shape"] = shape
        with pytest.raises(ModelFileError, match="far more or fewer values than its shape"):
            unpack(packed, arrays)


@pytest.mark.parametrize(
    ("version", "words"),
    [("0", "not written by graphmatern"), ("x", "not written by graphmatern"), ("12", "later version")],
)
def test_other_formats_are_called_what_they_are(
    tmp_path: Path, version: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphmatern.io._container.VERSION", version)
    write_container(tmp_path / "other.gm", "GraphGPRegressor", [], {})
    monkeypatch.undo()
    with pytest.raises(ModelFileError, match=words):
        gm.load(tmp_path / "other.gm")


def test_later_versions_and_kinds_are_refused(
    small_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, state, arrays = read_container(small_file)
    write_container(tmp_path / "kind.gm", "Exec", state, arrays)
    with pytest.raises(ModelFileError, match="does not know"):
        gm.load(tmp_path / "kind.gm")
    monkeypatch.setattr("graphmatern.io._container.VERSION", 2)
    write_container(tmp_path / "later.gm", kind, state, arrays)
    monkeypatch.undo()
    with pytest.raises(ModelFileError, match="later version"):
        gm.load(tmp_path / "later.gm")


def test_model_files_are_safetensors_files(small_file: Path) -> None:
    from safetensors import safe_open

    with safe_open(small_file, framework="numpy") as tensors:
        assert tensors.metadata()["format"] == "graphmatern model"
        assert list(tensors.keys())


# ---------------------------------------------------------------------- whole or not at all
def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "table.csv"
    target.write_text("old")
    target.chmod(0o640)

    def fail() -> None:
        with replacing(target) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert target.read_text() == "old"
    with replacing(target) as temporary:
        assert temporary.parent == target.parent
        temporary.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


def test_links_are_followed_and_folders_refused(tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    with replacing(tmp_path / "link.txt") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"
    with pytest.raises(IsADirectoryError, match="is a folder"), replacing(tmp_path):
        pass
    with pytest.raises(FileNotFoundError, match="there is no folder"), replacing(tmp_path / "absent" / "file"):
        pass


def test_litter_of_a_killed_writer_is_removed_by_the_next(tmp_path: Path) -> None:
    target = tmp_path / "table.csv"
    code = (
        "import os, signal, sys; from graphmatern.io import replacing\n"
        "with replacing(sys.argv[1]) as temporary:\n"
        "    temporary.write_text('half'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(target)], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    assert not target.exists()
    with replacing(tmp_path / "other.csv") as temporary:
        temporary.write_text("other")  # of another target: none of its business
    assert len(list(tmp_path.iterdir())) == 2
    with replacing(target) as temporary:
        temporary.write_text("whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.csv", "table.csv"]


def test_writers_do_not_remove_each_others_files(tmp_path: Path) -> None:
    target = tmp_path / "table.csv"
    with replacing(target) as first:
        first.write_text("first")
        with replacing(target) as second:
            second.write_text("second")
        assert target.read_text() == "second"
    assert target.read_text() == "first"
    assert os.listdir(tmp_path) == ["table.csv"]


def test_dates_are_not_times() -> None:
    assert there_and_back([dt.date(2017, 1, 2), pd.Timestamp("2017-01-02 03:04:05.000000006")]) == [
        dt.date(2017, 1, 2),
        pd.Timestamp("2017-01-02 03:04:05.000000006"),
    ]
