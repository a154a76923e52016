"""Graphs: their making, their Laplacians, their spectra."""

from graphmatern.graph._generators import make_city, make_roads
from graphmatern.graph._graph import Graph
from graphmatern.graph._spectrum import Spectrum

__all__ = ["Graph", "Spectrum", "make_city", "make_roads"]
