"""Shared fixtures and settings."""

from __future__ import annotations

import os

import matplotlib as mpl
import pytest
from hypothesis import HealthCheck, settings

mpl.use("Agg")

# Derandomised: the same examples on every run. Deadlines would be timing asserts.
settings.register_profile("graphmatern", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("graphmatern")


@pytest.fixture(autouse=True)
def _data_or_skip(request: pytest.FixtureRequest) -> None:
    """Skip tests marked ``data`` where the real data are absent; fail where they are required."""
    if request.node.get_closest_marker("data") and not os.environ.get("GRAPHMATERN_DATA"):
        reason = "GRAPHMATERN_DATA is not set: the real data sets are not at hand"
        if os.environ.get("GRAPHMATERN_REQUIRE_DATA"):
            pytest.fail(reason)
        pytest.skip(reason)
