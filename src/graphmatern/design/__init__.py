"""Where to measure next: sensors to place and to remove, and nodes to label."""

from graphmatern.design._measurable import Measurable, Version, of_posterior, of_prior
from graphmatern.design._place import place_sensors, remove_sensors
from graphmatern.design._suggest import STRATEGIES, Suggestion, suggest_labels
from graphmatern.design._wishes import read_nodes

__all__ = [
    "STRATEGIES",
    "Measurable",
    "Suggestion",
    "Version",
    "of_posterior",
    "of_prior",
    "place_sensors",
    "read_nodes",
    "remove_sensors",
    "suggest_labels",
]
