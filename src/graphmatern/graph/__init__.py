"""Graphs: their making, their Laplacians, their spectra."""

from graphmatern.graph._areas import area_geometry, centres_of
from graphmatern.graph._edge_rows import PARALLEL_RULES
from graphmatern.graph._generators import make_city, make_roads
from graphmatern.graph._graph import Graph
from graphmatern.graph._intrinsic import IntrinsicFactor, IntrinsicStructure, intrinsic_spectrum, intrinsic_structure
from graphmatern.graph._laplacian import largest_eigenvalue_bound
from graphmatern.graph._names import NodeNames, index_of_names
from graphmatern.graph._spectrum import Spectrum

__all__ = [
    "PARALLEL_RULES",
    "Graph",
    "IntrinsicFactor",
    "IntrinsicStructure",
    "NodeNames",
    "Spectrum",
    "area_geometry",
    "centres_of",
    "index_of_names",
    "intrinsic_spectrum",
    "intrinsic_structure",
    "largest_eigenvalue_bound",
    "make_city",
    "make_roads",
]
