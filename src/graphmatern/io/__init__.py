"""Files: written whole or not at all, model files without code in them, graphs and tables of many formats."""

from graphmatern.graph._table_files import read_table
from graphmatern.io._atomic import replacing
from graphmatern.io._container import read_container, write_container
from graphmatern.io._graph_files import GraphReading, read_graph
from graphmatern.io._values import Codec, pack, unpack

__all__ = [
    "Codec",
    "GraphReading",
    "pack",
    "read_container",
    "read_graph",
    "read_table",
    "replacing",
    "unpack",
    "write_container",
]
