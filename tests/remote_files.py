"""Small stand-ins for the files that are downloaded, and a server that serves them well or badly."""

from __future__ import annotations

import contextlib
import hashlib
import io
import threading
import time
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import shapefile

from graphmatern.datasets import _remote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Three intersections in a row; the second road's geometry runs from V2 to V1, and there are two roads from 2 to 3.
VERTICES = "id,x,y\r\n1,-122.00,37.30\r\n2,-121.98,37.30\r\n3,-121.96,37.31\r\n"
EDGES = "id,V1,V2,length\r\n1,1,2,1000.0\r\n2,2,3,2000.0\r\n3,2,3,2500.0\r\n"
POINTS = "E,length\r\n0,250.0\r\n1,500.0\r\n"
SPEEDS = ",400001,400017\n2017-01-02 17:30:00,70.0,37.3\n2017-01-09 17:30:00,69.3,22.4\n"
LINES = [
    [(-122.00, 37.30), (-121.98, 37.30)],
    [(-121.96, 37.31), (-121.97, 37.305), (-121.98, 37.30)],
    [(-121.98, 37.30), (-121.97, 37.32), (-121.96, 37.31)],
]
CITES = "1\t2\n2\t3\n3\t1\n2\t1\n9\t8\n4\t4\n3\t4\n"
CONTENT = "3\t0\t1\tTheory\n1\t1\t0\tTheory\n2\t1\t1\tCase_Based\n4\t0\t0\tTheory\n9\t0\t0\tTheory\n8\t1\t0\tTheory\n"


def shapefile_of(lines: Iterable[Any]) -> bytes:
    """Polylines as the content of a .shp file."""
    shp, shx, dbf = io.BytesIO(), io.BytesIO(), io.BytesIO()
    with shapefile.Writer(shp=shp, shx=shx, dbf=dbf, shapeType=shapefile.POLYLINE) as writer:
        writer.field("number", "N")
        for number, line in enumerate(lines):
            writer.line([line])
            writer.record(number)
    return shp.getvalue()


def _archive() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as files:
        files.writestr("cora/cora.cites", CITES)
        files.writestr("cora/cora.content", CONTENT)
        files.writestr("cora/README", "not read\n" * 4_000)  # several of the pieces in which a download is written
    return packed.getvalue()


def stand_ins() -> dict[str, bytes]:
    """Content of every file, by name."""
    text = {"V.csv": VERTICES, "E.csv": EDGES, "PtE.csv": POINTS, "Y.csv": SPEEDS}
    return {name: content.encode() for name, content in text.items()} | {
        "lines.shp": shapefile_of(LINES),
        "cora.zip": _archive(),
    }


def sources_of(files: dict[str, bytes], address: str) -> dict[str, _remote.RemoteFile]:
    """Addresses, sizes and checksums of files."""
    return {
        name: _remote.RemoteFile(f"{address}/{name}", len(content), hashlib.sha256(content).hexdigest())
        for name, content in files.items()
    }


class FileServer:
    """Serves files on this machine, each in one of several manners: good, truncated, changed, absent, slow.

    ``requests`` counts what was asked for.
    """

    def __init__(self, files: dict[str, bytes], manner: str = "good", chunk_pause: float = 0.0) -> None:
        self.files, self.manner, self.chunk_pause = files, manner, chunk_pause
        self.requests: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer._answer(self)

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        name = request.path.lstrip("/")
        self.requests.append(name)
        if self.manner == "absent":
            request.send_error(404)
            return
        content = self.files[name]
        if self.manner == "changed":
            content = content[:-1] + b"?"
        request.send_response(200)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        sent = content[: len(content) // 2] if self.manner == "truncated" else content
        step = len(sent) // 4 + 1
        with contextlib.suppress(OSError):  # the other side hung up
            for start in range(0, len(sent), step):
                request.wfile.write(sent[start : start + step])
                request.wfile.flush()
                time.sleep(self.chunk_pause)

    def sources(self) -> dict[str, _remote.RemoteFile]:
        """What `_remote.SOURCES` must be for downloads to come from here."""
        return sources_of(self.files, self.address)

    @contextlib.contextmanager
    def running(self) -> Iterator[FileServer]:
        """Serve until the block ends."""
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()
