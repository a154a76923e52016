"""Counts of cases by area, with their neighbours: from the folder GRAPHMATERN_DATA names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from graphmatern.datasets._loaders import Dataset, how_to_use_a_copy, local_folder
from graphmatern.errors import DataNotFoundError
from graphmatern.graph import Graph

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["load_nyc", "load_scotland"]

_CASE_STUDY = "the case study of M. Morris, github.com/stan-dev/example-models, folder knitr/car-iar-poisson"
_SCOTLAND = (
    "Lip cancer in the 56 districts of Scotland, 1975 to 1980: observed and expected cases, and the percentage of the\n"
    "workforce in agriculture, fishing and forestry (aff). Source: Kemp et al. (1985), Clayton and Kaldor (1987),\n"
    f"through {_CASE_STUDY}."
)
_NYC = (
    "Traffic accidents of school-age children in 1,921 census tracts of New York City, 2001: events, population of\n"
    f"that age, and an index of social fragmentation. Source: {_CASE_STUDY}."
)


def _folder(files: tuple[str, ...]) -> Path:
    found = local_folder("disease", files)
    if found is None:
        raise DataNotFoundError(f"these data cannot be downloaded automatically. {how_to_use_a_copy('disease', files)}")
    return found


def _load(name: str, index: str, description: str) -> Dataset:
    files = (f"{name}.csv", f"{name}_neighbours.csv")
    folder = _folder(files)
    table = pd.read_csv(folder / files[0]).set_index(index)
    edges = pd.read_csv(folder / files[1])
    graph = Graph.from_edges(edges, source="source", target="target", nodes=table.index)
    return Dataset(graph, table, description)


def load_scotland() -> Dataset:
    """Load lip cancer in Scotland: 56 districts, islands joined to the mainland by their ferries.

    Returns
    -------
    Dataset
        ``values`` has the columns observed, expected and aff.
    """
    return _load("scotland", "district", _SCOTLAND)


def load_nyc() -> Dataset:
    """Load accidents of children in New York City: 1,921 census tracts.

    Returns
    -------
    Dataset
        ``values`` has the columns events_2001, population_2001 and fragment_index.
    """
    return _load("nyc", "tract", _NYC)
