"""Wrong files by the thousand, each from its number alone, and what the command line must make of them."""

from __future__ import annotations

import io
import json
import os
import random
import zipfile
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import scipy.io
import scipy.sparse as sp
import typer
import typer.main

from graphmatern.cli._app import app

__all__ = ["Case", "Outcome", "make_case", "run_case"]

_ODD_NUMBERS = [
    "1e308",
    "1e309",
    "-1e308",
    "1e-320",
    "0",
    "-0.0",
    "nan",
    "NaN",
    "inf",
    "-Infinity",
    "9" * 400,
    "0x10",
    "1_000",
    "1,5",
    "١٢",
    "1e",
    "--1",
    "+7",
    " 5 ",
    "",
    "NULL",
    "#REF!",
    "=1+1",
    "18446744073709551616",
    "9007199254740993",
]
_ODD_TEXTS = [
    "",
    " ",
    "\t",
    '"',
    "''",
    "a,b",
    "a;b",
    "\u202eabc",
    "é",
    "e\u0301",
    "\ufeff",
    "\u0000",
    "💥",
    "x" * 5000,
    "None",
    "NA",
    "True",
    "../../etc/passwd",
    "<b>",
    "%s%n",
    "{}",
    "\\",
    "\r",
]
_HEADERS = ["source", "target", "from", "to", "length", "weight", "id", "geometry", "node", "value", "", " ", "speed"]


@dataclass(frozen=True)
class Case:
    """Files by name, and the arguments of a command on them."""

    number: int
    kind: str
    files: dict[str, bytes]
    arguments: list[str]


@dataclass(frozen=True)
class Outcome:
    """What became of a case; ``fault`` says what is wrong with that, if anything."""

    exit_code: int
    message: str
    fault: str


# ---------------------------------------------------------------------- right files to begin with
def _edges(rng: random.Random) -> pd.DataFrame:
    n = rng.randint(2, 7)
    names: list[Any] = [f"n{k}" for k in range(n)] if rng.random() < 0.5 else list(range(n))
    rows = [(names[k], names[rng.randrange(k)], round(rng.uniform(0.5, 9.0), 2)) for k in range(1, n)]
    return pd.DataFrame(rows, columns=["source", "target", "length"])


def _graphml(edges: pd.DataFrame) -> bytes:
    graph: nx.Graph[Any] = nx.Graph()
    for row in edges.itertuples(index=False):
        graph.add_edge(str(row[0]), str(row[1]), length=float(row[2]))
    return "\n".join(nx.generate_graphml(graph)).encode()


def _geojson(edges: pd.DataFrame) -> bytes:
    features = [
        {
            "type": "Feature",
            "properties": {"length": float(row[2]), "u": row[0], "v": row[1]},
            "geometry": {"type": "LineString", "coordinates": [[0.0, float(k)], [1.0, float(k) + 1.0]]},
        }
        for k, row in enumerate(edges.itertuples(index=False))
    ]
    return json.dumps({"type": "FeatureCollection", "features": features}, default=str).encode()


def _matrix(edges: pd.DataFrame) -> sp.coo_array:
    names = list(dict.fromkeys([*edges["source"], *edges["target"]]))
    i, j = (np.array([names.index(name) for name in edges[end]]) for end in ("source", "target"))
    one = sp.coo_array((edges["length"].to_numpy(), (i, j)), shape=(len(names), len(names))).tocsr()
    return sp.coo_array(one + one.T)


def _bytes(write: Any) -> bytes:
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


def _graph_file(edges: pd.DataFrame, suffix: str) -> bytes:
    if suffix == ".graphml":
        return _graphml(edges)
    if suffix == ".geojson":
        return _geojson(edges)
    if suffix == ".wkt":
        return "\n".join(f"LINESTRING ({k} 0, {k + 1} 1)" for k in range(len(edges))).encode()
    if suffix == ".mtx":
        return _bytes(lambda file: scipy.io.mmwrite(file, _matrix(edges)))
    if suffix == ".npz":
        return _bytes(lambda file: sp.save_npz(file, _matrix(edges)))
    return _table_file(edges, suffix)


def _table_file(table: pd.DataFrame, suffix: str) -> bytes:
    if suffix == ".parquet":
        return _bytes(table.to_parquet)
    if suffix == ".xlsx":
        return _bytes(lambda file: table.to_excel(file, index=False))
    return table.to_csv(index=False, sep="\t" if suffix == ".tsv" else ",").encode()


def _values(edges: pd.DataFrame, rng: random.Random) -> pd.DataFrame:
    names = list(dict.fromkeys([*edges["source"], *edges["target"]]))
    chosen = [rng.choice(names) for _ in range(rng.randint(1, 6))]
    return pd.DataFrame({"node": chosen, "value": [round(rng.gauss(5.0, 2.0), 3) for _ in chosen]})


# ---------------------------------------------------------------------- what is done to them
def _flip(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 5, 50])):
        if changed:
            changed[rng.randrange(len(changed))] ^= rng.randint(1, 255)
    return bytes(changed)


def _cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randint(0, len(content))]


def _insert(content: bytes, rng: random.Random) -> bytes:
    place = rng.randint(0, len(content))
    return content[:place] + rng.randbytes(rng.choice([1, 3, 100, 3000])) + content[place:]


def _repeat_part(content: bytes, rng: random.Random) -> bytes:
    start, end = sorted(rng.randint(0, len(content)) for _ in range(2))
    return content[:end] + content[start:end] * rng.choice([1, 2, 20]) + content[end:]


def _drop_part(content: bytes, rng: random.Random) -> bytes:
    start, end = sorted(rng.randint(0, len(content)) for _ in range(2))
    return content[:start] + content[end:]


def _encode(content: bytes, rng: random.Random) -> bytes:
    text = content.decode("utf-8", errors="replace") + rng.choice(["", "é,ü\n", "日本,1\n"])
    return text.encode(rng.choice(["utf-16", "utf-32", "latin-1", "cp1252", "utf-7", "shift-jis"]), errors="replace")


def _text_cell(content: bytes, rng: random.Random) -> bytes:
    """Replace cells of a text table by odd numbers and texts."""
    lines = content.decode("utf-8", errors="replace").split("\n")
    for _ in range(rng.choice([1, 1, 3, 10])):
        row = rng.randrange(len(lines))
        cells = lines[row].split(",")
        cells[rng.randrange(len(cells))] = rng.choice(_HEADERS if row == 0 else _ODD_NUMBERS + _ODD_TEXTS)
        lines[row] = ",".join(cells)
    return "\n".join(lines).encode("utf-8", errors="replace")


def _text_shape(content: bytes, rng: random.Random) -> bytes:
    """Other separators, more or fewer cells, headers or line ends."""
    choice = rng.randrange(9)
    lines = content.split(b"\n")
    if choice == 0:
        return content.replace(b",", rng.choice([b";", b"\t", b"|", b" ", b",,", b'","']))
    if choice == 1:
        return b"\n".join(lines[1:])
    if choice == 2:
        return lines[0] + b"\n"
    if choice == 3:
        lines[rng.randrange(len(lines))] += b"," * rng.choice([1, 3, 1000])
        return b"\n".join(lines)
    if choice == 4:
        return content.replace(b"\n", rng.choice([b"\r", b"\r\n", b"\n\n", b"\0", b"\x0b"]))
    if choice == 5:
        return b'"' + content
    if choice == 6:
        return (lines[0] + b"," + lines[0]) + b"\n" + b"\n".join(line + b"," + line for line in lines[1:])
    if choice == 7:
        return b"\xef\xbb\xbf" * rng.choice([1, 2]) + content
    return b"\n" * rng.choice([1, 5]) + content


def _bombs(rng: random.Random) -> tuple[str, bytes]:
    """Files that would grow beyond all bounds."""
    entities = "".join(f'<!ENTITY a{k} "{f"&a{k - 1};" * 10}">' for k in range(1, 10))
    lol = f'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY a0 "ha">{entities}]><graphml>&a9;</graphml>'
    outside = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/hostname">]><graphml><graph id="&x;"/></graphml>'
    header = "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999,), }".ljust(117) + "\n"
    claim = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("adjacency.npy", claim)
    wide = rng.choice([20_000, 100_000, 1_000_000])
    choices: list[tuple[str, bytes]] = [
        (".graphml", lol.encode()),
        (".graphml", outside.encode()),
        (".graphml", b"<graphml>" * rng.choice([10, 10_000])),
        (".csv", ",".join(f"c{k}" for k in range(wide)).encode() + b"\n"),
        (".csv", b"," * wide + b"\n" + b"1," * 100),
        (".csv", b"source,target\n" + b"a" * 1_000_000 + b",b\n"),
        (".csv", b'source,target\n"' + b"a,b\n" * 10_000),
        (".geojson", b"[" * wide),
        (".geojson", b'{"features":' * 5000),
        (".mtx", b"%%MatrixMarket matrix coordinate real general\n9 9 99999999999\n1 1 1\n"),
        (".mtx", b"%%MatrixMarket matrix array real general\n99999999 99999999\n1\n"),
        (".mtx", b"%%MatrixMarket matrix coordinate pattern symmetric\n99999999999 99999999999 1\n1 2\n"),
        (".npz", buffer.getvalue()),
        (".wkt", b"LINESTRING " + b" " * 100_000),
        (".wkt", b"LINESTRING (" + b"1 2," * 50_000 + b")"),
        (".wkt", b"(" * 100_000),
    ]
    return rng.choice(choices)


_GRAPH_SUFFIXES = [".csv", ".csv", ".csv", ".tsv", ".parquet", ".xlsx", ".graphml", ".geojson", ".wkt", ".mtx", ".npz"]
_VALUE_SUFFIXES = [".csv", ".csv", ".csv", ".tsv", ".parquet", ".xlsx"]
_ANY = [_flip, _cut, _insert, _repeat_part, _drop_part]
_TEXT = [*_ANY, _encode, _text_cell, _text_cell, _text_cell, _text_shape, _text_shape]


def _spoil(content: bytes, suffix: str, rng: random.Random) -> bytes:
    ways = _TEXT if suffix in {".csv", ".tsv", ".wkt", ".mtx", ".geojson", ".graphml"} else _ANY
    for _ in range(rng.choice([1, 1, 1, 2])):
        content = rng.choice(ways)(content, rng)
    return content


def make_case(number: int, model: bytes) -> Case:
    """Return the case of a number: a graph, values or a model file that something was done to.

    Parameters
    ----------
    number : int
        Which case.
    model : bytes
        A model file, to be spoiled.
    """
    rng = random.Random(number)
    kind = rng.choices(["graph", "values", "both", "bomb", "junk", "model"], [35, 30, 10, 8, 9, 8])[0]
    edges = _edges(rng)
    suffix, other = rng.choice(_GRAPH_SUFFIXES), rng.choice(_VALUE_SUFFIXES)
    graph, values = _graph_file(edges, suffix), _table_file(_values(edges, rng), other)
    if kind in ("values", "both"):
        values = _spoil(values, other, rng)
        if kind == "values":
            suffix, graph = ".csv", _graph_file(edges, ".csv")
    if kind in ("graph", "both"):
        graph = _spoil(graph, suffix, rng)
    if kind == "bomb":
        suffix, graph = _bombs(rng)
    if kind == "junk":
        graph = rng.choice([b"", b"\n", rng.randbytes(rng.choice([1, 100, 20_000])), graph])
        suffix = rng.choice([*_GRAPH_SUFFIXES, ".json", ".txt", ".pq", ".xlsm", ".doc", ""])
    if kind == "model":
        way = rng.choice([*_ANY, _spoil_state])
        return Case(number, kind, {"m.gm": way(model, rng)}, ["predict", "m.gm", "--out", "out.csv", "--quiet"])
    names = {f"graph{suffix}": graph, f"values{other}": values}
    asks_info = kind != "values" and rng.random() < 0.5
    arguments = ["info", f"graph{suffix}", "--quiet"]
    if not asks_info:
        arguments = ["fit", f"graph{suffix}", f"values{other}", "--out", "model.gm", "--predict", "out.csv", "--quiet"]
        arguments += rng.choice(
            [[], ["--task", "regression"], ["--ignore-unknown"], ["--nu", "1", "--lengthscale", "2"]]
        )
    return Case(number, kind, names, arguments)


def _spoil_state(content: bytes, rng: random.Random) -> bytes:
    """Change the contents of a model file and give it the right checksum again."""
    import hashlib

    length = int.from_bytes(content[:8], "little")
    text = content[8 : 8 + length].decode("ascii")
    old = json.loads(text)["__metadata__"]["sha256"]
    digits = [place for place, letter in enumerate(text) if letter.isdigit() and text[place - 1] in ' [":']
    place = rng.choice(digits)
    text = (text[:place] + rng.choice(["9", "0", "7"]) + text[place + 1 :]).replace(old, "0" * 64)
    data = bytearray(content[8 + length :])
    if data and rng.random() < 0.5:
        data[rng.randrange(len(data))] ^= rng.randint(1, 255)
    whole = content[:8] + text.encode() + bytes(data)
    return whole.replace(b"0" * 64, hashlib.sha256(whole).hexdigest().encode(), 1)


# ---------------------------------------------------------------------- what must come of it
def run_case(case: Case, folder: Path) -> Outcome:
    """Run a command on the files of a case, in an empty folder, and judge what came of it."""
    for name, content in case.files.items():
        (folder / name).write_bytes(content)
    exit_code, output, error, escaped = _type(case.arguments, folder)
    written = sorted(path.name for path in folder.iterdir() if path.name not in case.files)
    fault = ""
    if escaped is not None:
        fault = f"let {type(escaped).__name__} through: {str(escaped)[:300]}"
    elif "Traceback" in output + error:
        fault = "shows a traceback"
    elif "went wrong inside" in error or "not enough memory" in error:
        fault = f"a bug: {error[:300]}"
    elif exit_code == 0 and output + error:
        fault = f"is not quiet: {(output + error)[:100]!r}"
    elif exit_code == 0:
        expected = {"fit": ["model.gm", "out.csv"], "predict": ["out.csv"], "info": []}[case.arguments[0]]
        fault = "" if written == expected else f"wrote {written}"
    elif exit_code not in (1, 3):
        fault = f"exit code {exit_code}"
    elif not error.startswith("graphmatern: ") or len(error) > 4000:
        fault = f"unclear words: {error[:200]!r}"
    elif written:
        fault = f"failed and wrote {written}"
    return Outcome(exit_code, error.strip(), fault)


@cache
def _command() -> Any:
    return typer.main.get_command(app)  # once: putting it together takes longer than most cases


def _type(arguments: list[str], folder: Path) -> tuple[int, str, str, Exception | None]:
    """Run a command in a folder; return its exit code, what it printed, and an exception that it let through."""
    before = Path.cwd()
    output, error = io.StringIO(), io.StringIO()
    os.chdir(folder)
    try:
        with redirect_stdout(output), redirect_stderr(error):
            _command().main(args=arguments, prog_name="graphmatern")
    except SystemExit as end:
        return int(end.code or 0), output.getvalue(), error.getvalue(), None
    except Exception as escaped:  # noqa: BLE001 - that is the question
        return 1, output.getvalue(), error.getvalue(), escaped
    finally:
        os.chdir(before)
    return 0, output.getvalue(), error.getvalue(), None
