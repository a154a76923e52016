"""Where to measure next: sensors to place and to remove, and nodes to label."""

from graphmatern.design._measurable import Measurable, Version, of_posterior, of_prior
from graphmatern.design._place import place_sensors, remove_sensors

__all__ = ["Measurable", "Version", "of_posterior", "of_prior", "place_sensors", "remove_sensors"]
