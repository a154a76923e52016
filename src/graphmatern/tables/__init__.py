"""Tables: reading them from files, and finding out what their columns mean. The one place that guesses."""

from graphmatern.tables.columns import (
    EdgeColumns,
    PointColumns,
    ValueColumns,
    edge_roles,
    point_columns,
    position_columns,
    unused_columns,
    value_column,
    wanted_column,
)
from graphmatern.tables.edges import edge_columns, table_column
from graphmatern.tables.files import (
    TABLE_SUFFIXES,
    check_archive,
    existing_file,
    first_words,
    read_table,
    required_library,
)
from graphmatern.tables.names import NameMatcher, as_written, node_column
from graphmatern.tables.numbers import looks_like_numbers, read_numbers, to_numbers, uses_decimal_commas

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
    "first_words",
    "looks_like_numbers",
    "node_column",
    "point_columns",
    "position_columns",
    "read_numbers",
    "read_table",
    "required_library",
    "table_column",
    "to_numbers",
    "unused_columns",
    "uses_decimal_commas",
    "value_column",
    "wanted_column",
]
