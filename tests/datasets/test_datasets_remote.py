"""Data that are downloaded, from a server on this machine that serves small stand-ins well or badly."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from graphmatern import datasets
from graphmatern.datasets import _remote
from graphmatern.errors import DataNotFoundError
from remote_files import FileServer, shapefile_of, sources_of, stand_ins

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, and no local data."""
    monkeypatch.delenv("GRAPHMATERN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(_remote, "_RETRIES", 0)
    return tmp_path / "graphmatern"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    with FileServer(stand_ins()).running() as running:
        monkeypatch.setattr(_remote, "SOURCES", running.sources())
        yield running


def test_traffic_is_built_from_the_raw_roads(cache: Path, server: FileServer) -> None:
    data = datasets.load_traffic()
    graph = data.graph
    assert list(graph.nodes) == [1, 2, 3, 400001, 400017]
    assert data.values.to_dict() == {400001: 70.0, 400017: 37.3}
    # The second road is drawn from 3 to 2, and its sensor is 500 m from 3.
    edges = graph.edges.set_index(["source", "target"])["length"].to_dict()
    assert edges == {(1, 400001): 250.0, (400001, 2): 750.0, (3, 400017): 500.0, (400017, 2): 1500.0, (2, 3): 2500.0}
    assert graph.positions is not None
    np.testing.assert_allclose(graph.positions[graph.locate([400001])], [[-121.995, 37.30]])
    np.testing.assert_allclose(graph.positions[graph.locate([400017])], [[-121.965, 37.3075]])
    assert graph.edges["geometry"].notna().all()
    assert "OpenStreetMap" in data.description
    assert sorted(path.name for path in cache.iterdir()) == ["E.csv", "PtE.csv", "V.csv", "Y.csv", "lines.shp"]


def test_files_are_downloaded_once(cache: Path, server: FileServer) -> None:
    for _ in range(2):
        datasets.load_traffic_raw()
        datasets.load_traffic_mondays()
    assert sorted(server.requests) == ["E.csv", "PtE.csv", "V.csv", "Y.csv", "lines.shp"]


def test_mondays(cache: Path, server: FileServer) -> None:
    table = datasets.load_traffic_mondays().values
    assert isinstance(table, pd.DataFrame)
    assert list(table.columns) == [pd.Timestamp("2017-01-02 17:30"), pd.Timestamp("2017-01-09 17:30")]
    np.testing.assert_array_equal(table.to_numpy(), [[70.0, 69.3], [37.3, 22.4]])


def test_raw_roads(cache: Path, server: FileServer) -> None:
    data = datasets.load_traffic_raw()
    ends = data.graph.edges[["source", "target"]].to_numpy().tolist()
    assert ends == [[1, 2], [3, 2], [2, 3]]
    assert isinstance(data.values, pd.DataFrame)
    assert data.values["distance_m"].to_dict() == {400001: 250.0, 400017: 500.0}


def test_cora(cache: Path, server: FileServer) -> None:
    data = datasets.load_cora()
    assert list(data.graph.nodes) == [1, 2, 3, 4]
    assert data.graph.n_edges == 4
    assert list(data.values) == ["Theory", "Case_Based", "Theory", "Theory"]
    assert datasets.load_cora(largest_component=False).graph.n_nodes == 6


@pytest.mark.parametrize(
    ("manner", "words"),
    [("truncated", "connection, or a broken one"), ("changed", "checksum is wrong"), ("absent", "server answered 404")],
)
def test_bad_answers_leave_nothing_behind(cache: Path, server: FileServer, manner: str, words: str) -> None:
    server.manner = manner
    with pytest.raises(DataNotFoundError, match=words) as caught:
        datasets.load_cora()
    message = str(caught.value)
    for part in (f"{server.address}/cora.zip", str(cache / "cora.zip"), "citations.csv, topics.csv", "SHA-256"):
        assert part in message
    assert not any(cache.iterdir())
    server.manner = "good"
    assert datasets.load_cora().graph.n_nodes == 4


def test_one_retry_mends_a_passing_fault(cache: Path, server: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_remote, "_RETRIES", 1)
    monkeypatch.setattr("pooch.core.time.sleep", lambda _: setattr(server, "manner", "good"))
    server.manner = "truncated"
    assert datasets.load_cora().graph.n_nodes == 4
    assert server.requests == ["cora.zip", "cora.zip"]


def test_a_damaged_file_in_the_cache_is_replaced(cache: Path, server: FileServer) -> None:
    datasets.load_cora()
    (cache / "cora.zip").write_bytes(b"PK\x03\x04 not what it was")
    assert datasets.load_cora().graph.n_nodes == 4
    assert len(server.requests) == 2


def test_a_slow_server_is_waited_for_only_so_long(
    cache: Path, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.chunk_pause = 0.05
    assert datasets.load_cora().graph.n_nodes == 4
    (cache / "cora.zip").unlink()
    monkeypatch.setattr(_remote, "_TIMEOUT", 0.2)
    server.chunk_pause = 2.0
    with pytest.raises(DataNotFoundError, match="no connection, or a broken one"):
        datasets.load_cora()


def test_offline_says_which_files_to_put_where(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = FileServer(stand_ins())
    monkeypatch.setattr(_remote, "SOURCES", nobody.sources())
    nobody._server.server_close()
    with pytest.raises(DataNotFoundError, match=r"(?s)5 files could not.*edges\.csv"):
        datasets.load_traffic()
    with pytest.raises(DataNotFoundError) as caught:
        datasets.load_traffic_raw()
    message = str(caught.value)
    for name in ("V.csv", "E.csv", "PtE.csv", "Y.csv", "lines.shp"):
        assert f"{nobody.address}/{name}\n    to {cache / name}" in message
    assert "intersections.csv, roads.csv, sensors.csv" in message
    assert message.count("not tried") == 4
    # Files put there by hand are taken.
    for name, content in stand_ins().items():
        (cache / name).write_bytes(content)
    assert datasets.load_traffic().graph.n_nodes == 5


def test_a_download_killed_half_way_is_begun_again(cache: Path, server: FileServer) -> None:
    server.chunk_pause = 30.0
    code = (
        "from graphmatern import datasets\nfrom graphmatern.datasets import _remote\n"
        f"_remote.SOURCES = {{name: _remote.RemoteFile(*fields) for name, fields in {_fields(server)!r}.items()}}\n"
        "datasets.load_cora()"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        end = time.monotonic() + 60
        while not any(path.stat().st_size for path in cache.glob("*")):
            assert time.monotonic() < end, "nothing arrived"
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    assert not (cache / "cora.zip").exists()
    server.chunk_pause = 0.0
    assert datasets.load_cora().graph.n_nodes == 4


def _fields(server: FileServer) -> dict[str, tuple[str, int, str]]:
    return {name: (file.url, file.size, file.sha256) for name, file in server.sources().items()}


@pytest.mark.data
def test_real_files_are_converted_as_the_local_copy_was(
    real_sources: dict[str, bytes], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.mkdir()
    for name, content in real_sources.items():
        (cache / name).write_bytes(content)
    sources = sources_of(real_sources, "http://127.0.0.1:9")
    for name in ("V.csv", "E.csv", "PtE.csv", "Y.csv"):
        assert sources[name].sha256 == _remote.SOURCES[name].sha256, f"{name} is not what its source publishes"
    monkeypatch.setattr(_remote, "SOURCES", sources)
    remote_raw, remote = datasets.load_traffic_raw(), datasets.load_traffic()
    monkeypatch.undo()
    local_raw, local = datasets.load_traffic_raw(), datasets.load_traffic(geometry=True)
    pd.testing.assert_frame_equal(
        remote_raw.graph.edges.drop(columns="geometry"), local_raw.graph.edges.drop(columns="geometry")
    )
    assert isinstance(remote_raw.values, pd.DataFrame)
    assert isinstance(local_raw.values, pd.DataFrame)
    pd.testing.assert_frame_equal(remote_raw.values, local_raw.values, check_names=False, atol=2e-4)
    pd.testing.assert_series_equal(remote.values, local.values)  # type: ignore[arg-type]
    assert (remote.graph.n_nodes, len(remote.graph.edges), remote.graph.n_edges) == (1016, 1173, 1172)
    np.testing.assert_allclose(remote.graph.weights.toarray(), local.graph.weights.toarray(), rtol=1e-12)


@pytest.fixture
def real_sources() -> dict[str, bytes]:
    """The sources' files, rebuilt from the local copy; the CSV files byte by byte as published."""
    raw, mondays = datasets.load_traffic_raw(), datasets.load_traffic_mondays()
    edges = raw.graph.edges
    assert raw.graph.positions is not None
    assert isinstance(raw.values, pd.DataFrame)
    assert isinstance(mondays.values, pd.DataFrame)
    ends = np.sort(edges[["source", "target"]].to_numpy(), axis=1)
    vertices = [
        f"{node},{x!r},{y!r}" for node, (x, y) in zip(raw.graph.nodes, raw.graph.positions.tolist(), strict=True)
    ]
    roads = [
        f"{k + 1},{a},{b},{length!r}"
        for k, ((a, b), length) in enumerate(zip(ends, edges["length"].tolist(), strict=True))
    ]
    points = [
        f"{road},{distance!r}"
        for road, distance in zip(raw.values["road"], raw.values["distance_m"].tolist(), strict=True)
    ]
    speeds = [f"{time},{','.join(map(repr, column.tolist()))}" for time, column in mondays.values.items()]
    return {
        "V.csv": "\r\n".join(["id,x,y", *vertices, ""]).encode(),
        "E.csv": "\r\n".join(["id,V1,V2,length", *roads, ""]).encode(),
        "PtE.csv": "\r\n".join(["E,length", *points, ""]).encode(),
        "Y.csv": "\n".join([f",{','.join(map(str, raw.values.index))}", *speeds, ""]).encode(),
        "lines.shp": shapefile_of(edges["geometry"]),
    }
