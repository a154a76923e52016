"""The libraries that fit Gaussian noise on a graph."""

from __future__ import annotations

from typing import Any

from harness.task import GEOMETRIC, OURS

__all__ = ["regression_peers"]


def regression_peers(job: dict[str, Any], inner: int, adam: bool = True) -> list[tuple[str, str, str, dict[str, Any]]]:
    """Name, environment, worker and job of every library that fits the traffic data."""
    adam_steps = job | {"optimizer": {"name": "adam", "rate": 0.1, "steps": 200}}
    lbfgs = job | {"optimizer": {"name": "lbfgs"}}
    worker = "peer_geometric_kernels.py"
    found = [
        (OURS, "ours", "ours.py", job | {"inner": 2 * inner + 1}),
        (f"{GEOMETRIC}, L-BFGS", "geometric_kernels", worker, lbfgs),
        ("GPflow, our kernel, L-BFGS", "gpflow", "peer_gpflow.py", job),
        ("GPJax, L-BFGS", "gpjax", "peer_gpjax.py", job),
        ("scikit-learn, our kernel, L-BFGS", "ours", "peer_scikit_learn.py", job),
    ]
    if adam:
        found.insert(1, (f"{GEOMETRIC}, 200 Adam steps", "geometric_kernels", worker, adam_steps))
    return [(peer, place, script, {"inner": inner} | given) for peer, place, script, given in found]
