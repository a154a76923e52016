"""Files: written whole or not at all, model files without code in them, graphs and tables of many formats."""

from graphmatern.io._atomic import check_target, replacing
from graphmatern.io._container import read_container, write_container
from graphmatern.io._graph_files import GraphReading, graph_from_lines, read_graph
from graphmatern.io._outputs import check_output, edge_table, node_shapes, write_node_table
from graphmatern.io._value_files import ValueReading, insert_sensors, read_values
from graphmatern.io._values import Codec, pack, unpack
from graphmatern.tables import ValueColumns, read_table

__all__ = [
    "Codec",
    "GraphReading",
    "ValueColumns",
    "ValueReading",
    "check_output",
    "check_target",
    "edge_table",
    "graph_from_lines",
    "insert_sensors",
    "node_shapes",
    "pack",
    "read_container",
    "read_graph",
    "read_table",
    "read_values",
    "replacing",
    "unpack",
    "write_container",
    "write_node_table",
]
