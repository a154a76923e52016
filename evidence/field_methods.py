"""How to solve with a field's covariance: Cholesky, Kronecker algebra, a filter, and the iterative way, measured.

Run it alone, on a quiet machine: ``python evidence/field_methods.py``; writes field_methods.md beside this file.

The textbook's Kalman filter below, over the values and derivatives at all nodes, shares nothing with the package's
state-space method and is an independent witness of the likelihood.
"""

from __future__ import annotations

import datetime as dt
import time
from math import comb
from pathlib import Path

import numpy as np
import scipy.linalg as la
from gpytorch.kernels import MaternKernel

import graphmatern as gm
from graphmatern.inference.field import FieldGrid, IterativeOptions, TimeKernel, choose_method, default_probes
from graphmatern.inference.field.methods import seconds
from graphmatern.inference.field.objective import FieldObjective

SQUARE = ((40, 40), (64, 64), (80, 80), (160, 160), (320, 320))
LONG = ((10, 1000), (50, 1000), (200, 1000), (50, 2000), (50, 10_000))
WHOLE = ((50, 500), (50, 1000), (50, 2000))
DENSE_LIMIT = 5000  # cells
ITERATIVE_LIMIT = 4000  # times
MISSING, RHO, TIME_LENGTHSCALE = 0.3, 0.1, 8.0


def state_space(order: int, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Transition over one step, and stationary covariance, of a Matérn process with ``order`` derivatives."""
    rate = np.sqrt(2 * order + 1) / TIME_LENGTHSCALE
    states = order + 1
    drift = np.diag(np.ones(order), 1)
    drift[-1] = [-comb(states, k) * rate ** (states - k) for k in range(states)]
    diffusion = np.zeros((states, states))
    diffusion[-1, -1] = 1.0
    stationary = la.solve_continuous_lyapunov(drift, -diffusion)
    return la.expm(step * drift), stationary / stationary[0, 0]


def kalman(order: int, nodes: np.ndarray, grid: FieldGrid) -> float:
    """Log likelihood of a field of mean zero, one time after the other."""
    transition, stationary = state_space(order, 1.0)
    n, states = len(nodes), order + 1
    added = np.kron(stationary - transition @ stationary @ transition.T, nodes)
    mean, covariance, total = np.zeros((states, n)), np.kron(stationary, nodes), 0.0
    for row in range(len(grid.times)):
        if row:  # the transition mixes a node's states, not the nodes
            mean = transition @ mean
            half = (transition @ covariance.reshape(states, -1)).reshape(states * n, states, n)
            covariance = np.einsum("ab,ibm->iam", transition, half).reshape(states * n, states * n) + added
        seen = np.flatnonzero(grid.observed[row])
        if len(seen) == 0:
            continue
        factor = la.cholesky(covariance[np.ix_(seen, seen)] + RHO * np.eye(len(seen)), lower=True, check_finite=False)
        gain = la.solve_triangular(factor, covariance[seen], lower=True, check_finite=False)
        white = la.solve_triangular(factor, grid.y[row, seen] - mean[0, seen], lower=True, check_finite=False)
        mean = mean + (gain.T @ white).reshape(states, n)
        covariance = covariance - gain.T @ gain
        total -= 0.5 * (white @ white + len(seen) * np.log(2 * np.pi)) + float(np.log(np.diag(factor)).sum())
    return float(total)


class Case:
    """A field of standard normal values, with holes or not."""

    def __init__(self, n_nodes: int, n_times: int, order: int, missing: float) -> None:
        rng = np.random.default_rng(0)
        trials = (gm.make_roads(int(1.2 * n_nodes) + 60, seed=seed) for seed in range(20))
        graph = next(trial for trial in trials if trial.n_nodes >= n_nodes)
        graph = graph.subgraph(graph.nodes[:n_nodes])
        observed = rng.uniform(size=(n_times, n_nodes)) >= missing
        y = rng.standard_normal(observed.shape) * observed
        self.grid = FieldGrid(np.arange(n_nodes), np.arange(float(n_times)), y, observed)
        self.order = order
        self.kernel = MaternKernel(nu=order + 0.5)
        self.kernel.lengthscale = TIME_LENGTHSCALE
        self.bound = gm.Matern(1.5, 5.0).on(graph)
        self.name = f"{n_nodes:,} × {n_times:,} | Matérn {2 * order + 1}/2"
        self.chosen = choose_method(self.grid, "auto", order)[0]

    def evaluate(self, method: str) -> tuple[float, float, str]:
        """Log likelihood, its standard error, and seconds of processor time, with those that the package expects."""
        options = IterativeOptions(1e-6, 1000, default_probes(self.grid), 2, 0)
        time_kernel = TimeKernel(self.kernel)
        objective = FieldObjective(self.bound, time_kernel, self.grid, constant=False, method=method, options=options)
        theta = np.append(objective.position(), np.log(RHO))
        started = time.process_time()
        value = -objective(theta)[0]
        taken = time.process_time() - started
        system = objective.system_at(theta)
        log_determinant, error = system.best_log_determinant()
        value += 0.5 * (system.log_determinant() - log_determinant)
        return value, 0.5 * error, f"{taken:.2f} ({seconds(method, self.grid, self.order):.2f})"


def with_holes(n_nodes: int, n_times: int, order: int) -> str:
    """One row of the first table."""
    case = Case(n_nodes, n_times, order, MISSING)
    exact = kalman(order, case.bound.matrix().detach().numpy(), case.grid)
    found, _, filtered = case.evaluate("state-space")
    assert abs(found - exact) < 1e-8 * abs(exact), (found, exact)
    dense = iterative = "too large"
    difference = "—"
    if case.grid.n_observed <= DENSE_LIMIT:
        found, _, dense = case.evaluate("dense")
        assert abs(found - exact) < 1e-8 * abs(exact), (found, exact)
    if n_times <= ITERATIVE_LIMIT:
        found, error, iterative = case.evaluate("iterative")
        difference = f"{found - exact:+.2f} ± {error:.2f}"
    return f"| {case.name} | {dense} | {filtered} | {iterative} | {difference} | {case.chosen} |"


def whole(n_nodes: int, n_times: int) -> str:
    """One row of the second table."""
    case = Case(n_nodes, n_times, 1, 0.0)
    (expected, _, kronecker), (found, _, filtered) = (case.evaluate(method) for method in ("kronecker", "state-space"))
    assert abs(found - expected) < 1e-8 * abs(expected), (found, expected)
    return f"| {case.name} | {kronecker} | {filtered} | {case.chosen} |"


def main() -> None:
    """Write the tables."""
    lines = [
        "# Fields over time: ways to compute",
        "",
        "Processor seconds of one evaluation of the likelihood with its gradient in all parameters,",
        f"`python evidence/field_methods.py` on {dt.date.today().isoformat()}. In brackets what the package",
        "expects, by which it chooses (last column); its constants were fitted to measurements like these, on the same",
        "machine. Exact ways agree to 1e-8 with a Kalman filter written down there.",
        "",
        "30 % of the cells missing; the difference is the log likelihood of the iterative way less the exact one,",
        "with its stated standard error:",
        "",
        "| nodes × times | time kernel | dense Cholesky | state space | iterative | difference ± error | chosen |",
        "|---|---|---|---|---|---|---|",
    ]
    Case(10, 10, 1, MISSING).evaluate("state-space")  # what is loaded late is not measured
    for n_nodes, n_times in SQUARE + LONG:
        for order in (0, 1, 2):
            if order == 1 or (n_nodes, n_times) == (50, 1000):
                lines.append(with_holes(n_nodes, n_times, order))
                print(lines[-1], flush=True)
    lines += [
        "",
        "Whole grids:",
        "",
        "| nodes × times | time kernel | Kronecker | state space | chosen |",
        "|---|---|---|---|---|",
    ]
    for n_nodes, n_times in WHOLE:
        lines.append(whole(n_nodes, n_times))
        print(lines[-1], flush=True)
    lines += [
        "",
        "Dense factors grow with the cube of the cells. The iterative way grows with times × nodes × (times + nodes)",
        "and the cube of times and of nodes, for two eigendecompositions; it takes any kernel on time. The state-space",
        "way grows with the times by the cube of the nodes and the square of the number of derivatives, and takes",
        "Matérn kernels only.",
    ]
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
