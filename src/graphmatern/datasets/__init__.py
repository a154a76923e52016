"""Real data sets, with their sources and licences: from a local folder, or downloaded once and checked."""

from graphmatern.datasets._disease import load_nyc, load_scotland
from graphmatern.datasets._loaders import Dataset, load_cora, load_traffic, load_traffic_mondays, load_traffic_raw

__all__ = [
    "Dataset",
    "load_cora",
    "load_nyc",
    "load_scotland",
    "load_traffic",
    "load_traffic_mondays",
    "load_traffic_raw",
]
