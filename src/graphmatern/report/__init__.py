"""The interactive page: one HTML file that needs no server and no network."""

from graphmatern.report._checks import class_checks, number_checks, range_check
from graphmatern.report._content import Content, Layer, counted, decimals_for, number, percent
from graphmatern.report._page import write_page

__all__ = [
    "Content",
    "Layer",
    "class_checks",
    "counted",
    "decimals_for",
    "number",
    "number_checks",
    "percent",
    "range_check",
    "write_page",
]
