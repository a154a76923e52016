"""Pictures of graphs and of functions on their nodes: axes in, axes out."""

from graphmatern.plotting._fields import plot_field, plot_graph, plot_kernel

__all__ = ["plot_field", "plot_graph", "plot_kernel"]
