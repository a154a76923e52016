"""Plots of graphs, of functions on their nodes and of fitted models; functions take axes and return axes."""

from graphmatern.plotting._carriageways import carriageway_shifts
from graphmatern.plotting._colours import UNSURE, colour_limits, find_colours
from graphmatern.plotting._diagnostics import plot_calibration, plot_range, plot_spectrum
from graphmatern.plotting._fields import plot_field, plot_graph, plot_kernel, plot_risk, plot_variance
from graphmatern.plotting._layout import Layout, find_layout, known_positions, map_scale
from graphmatern.plotting._parameters import plot_hyperparameters, plot_pit
from graphmatern.plotting._placement import plot_placement
from graphmatern.plotting._predictions import CLASS_COLOURS, plot_classes, plot_prediction, two_axes
from graphmatern.plotting._series import plot_series

__all__ = [
    "CLASS_COLOURS",
    "UNSURE",
    "Layout",
    "carriageway_shifts",
    "colour_limits",
    "find_colours",
    "find_layout",
    "known_positions",
    "map_scale",
    "plot_calibration",
    "plot_classes",
    "plot_field",
    "plot_graph",
    "plot_hyperparameters",
    "plot_kernel",
    "plot_pit",
    "plot_placement",
    "plot_prediction",
    "plot_range",
    "plot_risk",
    "plot_series",
    "plot_spectrum",
    "plot_variance",
    "two_axes",
]
