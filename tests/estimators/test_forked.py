"""Fits and predictions in forked processes, where the threads of the parent do not exist."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys

import pytest

CODE = """
import multiprocessing, warnings
warnings.simplefilter("ignore")
import numpy as np, torch, graphmatern as gm
torch.set_num_threads(2)  # the parent's threads exist, and wait for work
city = gm.make_roads(300, seed=0)
y = np.random.default_rng(0).poisson(3.0, 150)
def fit():
    model = gm.GraphGPRegressor(city, gm.Matern(2, fixed="nu"), likelihood="poisson", verbose=False)
    return model.fit(city.nodes[:150], y)
model = fit()
torch.exp(torch.ones(10**6, dtype=torch.float64))
def child(queue):
    queue.put((float(model.predict()[0]), float(fit().predict()[0])))
context = multiprocessing.get_context("fork")
queue = context.Queue()
process = context.Process(target=child, args=(queue,))
process.start()
print(*queue.get(timeout=120))
process.join()
print(model.predict()[0])
"""


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system does not fork")
def test_counts_are_fitted_and_predicted_in_a_forked_process() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    result = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, timeout=300, env=environment, check=False
    )
    assert result.returncode == 0, result.stderr
    predicted, fitted, expected = (float(word) for word in result.stdout.split())
    assert predicted == pytest.approx(expected, rel=1e-12)
    assert fitted == pytest.approx(expected, rel=1e-6)
