"""Tables: reading them from files, and finding out what their columns mean. The one place that guesses."""

from graphmatern.tables.columns import EdgeColumns, edge_roles, position_columns, wanted_column
from graphmatern.tables.edges import edge_columns, table_column
from graphmatern.tables.files import TABLE_SUFFIXES, check_archive, existing_file, read_table, required_library
from graphmatern.tables.names import NameMatcher, as_written, node_column
from graphmatern.tables.numbers import is_fractional, is_numeric, share_of_numbers
from graphmatern.tables.values import PointColumns, ValueColumns, point_columns, value_column

__all__ = [
    "TABLE_SUFFIXES",
    "EdgeColumns",
    "NameMatcher",
    "PointColumns",
    "ValueColumns",
    "as_written",
    "check_archive",
    "edge_columns",
    "edge_roles",
    "existing_file",
    "is_fractional",
    "is_numeric",
    "node_column",
    "point_columns",
    "position_columns",
    "read_table",
    "required_library",
    "share_of_numbers",
    "table_column",
    "value_column",
    "wanted_column",
]
