"""Sparse factorisations: `graphmatern.sparse`, CHOLMOD, PARDISO, SuperLU, and conjugate gradients with multigrid.

Matrices are made from generated graphs, and kept in the folder of the inputs between runs.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import common
import numpy as np
from common import peak_bytes

# ---------------------------------------------------------------- graphs


def adjacency(i: np.ndarray, j: np.ndarray, n: int) -> Any:
    import scipy.sparse as sp

    one_way = sp.coo_array((np.ones(len(i)), (i, j)), shape=(n, n)).tocsr()
    both = sp.csr_array(one_way + one_way.T)
    both.data[:] = 1.0
    return both


def largest_component(graph: Any) -> Any:
    from scipy.sparse.csgraph import connected_components

    _, label = connected_components(graph, directed=False)
    kept = np.flatnonzero(label == np.bincount(label).argmax())
    return graph[kept][:, kept].tocsr()


def roads(n: int) -> Any:
    """Gabriel graph of random points with 30 % of the edges missing: planar, of mean degree about 2.8."""
    from scipy.spatial import Delaunay

    rng = np.random.default_rng(0)
    points = rng.random((n, 2))
    triangles = Delaunay(points).simplices
    edges, across = [], []
    for a, b, opposite in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        p, q, r = (points[triangles[:, corner]] for corner in (a, b, opposite))
        obtuse = ((p - r) * (q - r)).sum(1) < 0
        low = np.minimum(triangles[:, a], triangles[:, b]).astype(np.int64)
        high = np.maximum(triangles[:, a], triangles[:, b])
        edges.append(low * n + high)
        across.append(edges[-1][obtuse])
    kept = np.setdiff1d(np.unique(np.concatenate(edges)), np.unique(np.concatenate(across)))
    kept = kept[rng.random(len(kept)) < 0.7]
    return largest_component(adjacency(kept // n, kept % n, n))


def grid(n: int) -> Any:
    side = round(n**0.5)
    label = np.arange(side * side).reshape(side, side)
    i = np.concatenate([label[:, :-1].ravel(), label[:-1].ravel()])
    j = np.concatenate([label[:, 1:].ravel(), label[1:].ravel()])
    return adjacency(i, j, side * side)


def knn(n: int) -> Any:
    from scipy.spatial import cKDTree

    points = np.random.default_rng(0).random((n, 5))
    near = cKDTree(points).query(points, 11)[1][:, 1:]
    return largest_component(adjacency(np.repeat(np.arange(n), 10), near.ravel(), n))


def scale_free(n: int) -> Any:
    rng = np.random.default_rng(0)
    targets, ends, pairs = [0, 1], [], []
    for v in range(2, n):
        pairs += [(v, t) for t in targets]
        ends += [*targets, v, v]
        chosen: set[int] = set()
        while len(chosen) < 2:
            chosen.add(ends[rng.integers(len(ends))])
        targets = list(chosen)
    i, j = np.array(pairs).T
    return adjacency(i, j, n)


def path(n: int) -> Any:
    return adjacency(np.arange(n - 1), np.arange(1, n), n)


def star(n: int) -> Any:
    return adjacency(np.zeros(n - 1, int), np.arange(1, n), n)


def comb(n: int) -> Any:
    half = np.arange(n // 2)
    return adjacency(np.concatenate([half[:-1], half]), np.concatenate([half[1:], half + n // 2]), n)


def tree(n: int) -> Any:
    return adjacency(np.arange(1, n), (np.arange(1, n) - 1) // 2, n)


def ladder(n: int) -> Any:
    half = np.arange(n // 2)
    i = np.concatenate([half[:-1], half[:-1] + n // 2, half])
    j = np.concatenate([half[1:], half[1:] + n // 2, half + n // 2])
    return adjacency(i, j, n)


GRAPHS = {f.__name__: f for f in (roads, grid, knn, scale_free, path, star, comb, tree, ladder)}


def precision(folder: Path, name: str, n: int, nu: int) -> Any:
    """Return (2ν/κ² I + Δ)^ν + diag(1/noise at 30 % of the nodes), κ = 5; kept on disk between rows."""
    import scipy.sparse as sp

    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"precision-{name}-{n}-{nu}.npz"
    if file.exists():
        return sp.csc_array(sp.load_npz(file))
    graph = GRAPHS[name](n)
    n = graph.shape[0]
    degree = np.asarray(graph.sum(1)).ravel()
    base = sp.csc_array(sp.diags_array(degree + 2 * nu / 25.0) - graph)
    power = base
    for _ in range(nu - 1):
        power = sp.csc_array(power @ base)
    observed = np.random.default_rng(1).random(n) < 0.3
    power = sp.csc_array((power + power.T) * 0.5 + sp.diags_array(observed * 10.0))
    power.sort_indices()
    partial = file.with_suffix(f".{os.getpid()}.npz")
    sp.save_npz(partial, power, compressed=False)
    partial.rename(file)
    return power


# ---------------------------------------------------------------- solvers, each run in its own process


def best(repeats: int, function: Any) -> float:
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times)


def measure_ours(matrix: Any, repeats: int, n_threads: int, ordering: str) -> dict[str, Any]:
    import scipy.sparse as sp

    from graphmatern.sparse import analyze

    # Load the compiled code, all paths of it, before anything is timed.
    warm = sp.csc_array(sp.diags_array([1.0, 4.0, 1.0], offsets=[-40, 0, 40], shape=(4000, 4000)))
    for matrix_to_warm in (warm, sp.csc_array(np.eye(600) * 600 + 1.0)):
        matrix_to_warm.sort_indices()
        factor = analyze(matrix_to_warm, n_threads=n_threads).factorize(matrix_to_warm.data)
        factor.selected_inverse().on_pattern()
        factor.solve(np.ones(matrix_to_warm.shape[0]))
        factor.solve(np.ones((matrix_to_warm.shape[0], 8)))
    values = np.ascontiguousarray(matrix.data)
    before = peak_bytes()
    begin = time.perf_counter()
    analysis = analyze(matrix, n_threads=n_threads, ordering=ordering)
    analysis_seconds = time.perf_counter() - begin
    factor = analysis.factorize(values)
    inverse = factor.selected_inverse()
    b = np.ones(analysis.n)
    return {
        "ordering": analysis.ordering,
        "nnz_factor": analysis.nnz_factor,
        "entries": analysis.n_entries,
        "working": analysis.working_entries,
        "flops": analysis.flops,
        "predicted": analysis.predicted_seconds,
        "predicted_bytes": analysis.memory_bytes,
        "analysis": analysis_seconds,
        "numeric": best(repeats, lambda: factor.update(values, check=False)),
        "numeric_checked": best(repeats, lambda: factor.update(values)),
        "solve": best(repeats, lambda: factor.solve(b)),
        "selected": best(repeats, lambda: factor.selected_inverse(out=inverse)),
        "memory": peak_bytes() - before,
        "residual": float(np.abs(matrix @ factor.solve(b) - b).max()),
    }


def measure_cholmod(matrix: Any, repeats: int, _n_threads: int, ordering: str) -> dict[str, Any]:
    import cvxopt
    import scipy.sparse as sp
    from cvxopt import cholmod

    order = None
    if ordering == "ours":
        from graphmatern.sparse import analyze

        order = cvxopt.matrix(analyze(matrix, n_threads=1).permutation.astype(np.int64))
    lower = sp.coo_array(sp.tril(matrix))
    before = peak_bytes()
    rows, columns = lower.row.astype(np.int64), lower.col.astype(np.int64)
    given = cvxopt.spmatrix(lower.data, rows, columns, matrix.shape)
    cholmod.options["supernodal"] = 2
    begin = time.perf_counter()
    factor = cholmod.symbolic(given) if order is None else cholmod.symbolic(given, order)
    analysis_seconds = time.perf_counter() - begin
    numeric = best(repeats, lambda: cholmod.numeric(given, factor))
    b = cvxopt.matrix(1.0, (matrix.shape[0], 1))
    solution = +b
    cholmod.solve(factor, solution)
    residual = float(np.abs(matrix @ np.array(solution).ravel() - 1.0).max())
    solve = best(repeats, lambda: cholmod.solve(factor, +b))
    return {
        "analysis": analysis_seconds,
        "numeric": numeric,
        "solve": solve,
        "memory": peak_bytes() - before,
        "residual": residual,
    }


def measure_superlu(matrix: Any, repeats: int, _n_threads: int, _ordering: str) -> dict[str, Any]:
    import scipy.sparse as sp
    from scipy.sparse.linalg import splu

    given = sp.csc_matrix(matrix)
    before = peak_bytes()
    kept: list[Any] = [None]

    def factorize() -> None:
        kept[0] = None
        options = {"SymmetricMode": True}
        kept[0] = splu(given, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)

    numeric = best(1 if matrix.shape[0] > 100_000 else repeats, factorize)
    b = np.ones(matrix.shape[0])
    solve = best(repeats, lambda: kept[0].solve(b))
    residual = float(np.abs(matrix @ kept[0].solve(b) - b).max())
    # Analysis and numeric factorisation are one call.
    return {"numeric": numeric, "solve": solve, "memory": peak_bytes() - before, "residual": residual}


def measure_pardiso(matrix: Any, repeats: int, _n_threads: int, _ordering: str) -> dict[str, Any]:
    import scipy.sparse as sp
    from pypardiso import PyPardisoSolver

    upper = sp.csr_matrix(sp.triu(matrix, format="csr"))
    upper.sort_indices()
    before = peak_bytes()
    solver = PyPardisoSolver(mtype=2)
    b = np.ones((matrix.shape[0], 1))

    def phase(number: int, right: np.ndarray) -> Any:
        solver.set_phase(number)
        return solver._call_pardiso(upper, right)

    nothing = np.zeros((matrix.shape[0], 1))
    begin = time.perf_counter()
    phase(11, nothing)
    analysis_seconds = time.perf_counter() - begin
    numeric = best(repeats, lambda: phase(22, nothing))
    solve = best(repeats, lambda: phase(33, b))
    residual = float(np.abs(matrix @ np.asarray(phase(33, b)).ravel() - 1.0).max())
    return {
        "analysis": analysis_seconds,
        "numeric": numeric,
        "solve": solve,
        "memory": peak_bytes() - before,
        "residual": residual,
    }


def measure_pyamg(matrix: Any, repeats: int, _n_threads: int, _ordering: str) -> dict[str, Any]:
    """Smoothed aggregation as preconditioner; the set-up stands under analysis. No determinant, no variances."""
    import pyamg
    import scipy.sparse as sp
    from scipy.sparse.linalg import cg

    given = sp.csr_matrix(matrix)
    given.indices, given.indptr = (part.astype(np.int32) for part in (given.indices, given.indptr))  # pyamg's
    before = peak_bytes()
    begin = time.perf_counter()
    preconditioner = pyamg.smoothed_aggregation_solver(given, max_coarse=500).aspreconditioner()
    analysis_seconds = time.perf_counter() - begin
    b = np.ones(matrix.shape[0])
    solve = best(repeats, lambda: cg(given, b, rtol=1e-10, M=preconditioner, maxiter=2000))
    solution, stopped = cg(given, b, rtol=1e-10, M=preconditioner, maxiter=2000)
    if stopped:
        raise ArithmeticError("conjugate gradients did not converge in 2,000 iterations")
    return {
        "analysis": analysis_seconds,
        "solve": solve,
        "memory": peak_bytes() - before,
        "residual": float(np.abs(matrix @ solution - b).max()),
    }


def lobpcg(job: dict[str, Any]) -> dict[str, Any]:
    """Smallest eigenpairs by LOBPCG with a multigrid preconditioner."""
    import pyamg
    import scipy.sparse as sp
    from scipy.sparse.linalg import lobpcg as iterate

    weights = common.weights_of(common.load(job))
    laplacian = sp.csr_matrix(sp.diags_array(np.asarray(weights.sum(1)).ravel()) - weights)
    start = np.random.default_rng(0).standard_normal((laplacian.shape[0], job["pairs"]))

    def compute() -> Any:
        shifted = sp.csr_matrix(laplacian + 1e-5 * sp.identity(laplacian.shape[0]))
        preconditioner = pyamg.smoothed_aggregation_solver(shifted).aspreconditioner()
        return iterate(laplacian, start, M=preconditioner, largest=False, tol=1e-7, maxiter=200)

    seconds, (values, vectors) = common.timed(compute)
    errors = np.linalg.norm(laplacian @ vectors - vectors * values, axis=0)
    return {"seconds": seconds, "residual": float(errors.max()), "largest": float(values.max())}


MEASURES = {
    "ours": measure_ours,
    "cholmod": measure_cholmod,
    "superlu": measure_superlu,
    "pardiso": measure_pardiso,
    "pyamg": measure_pyamg,
}


def kernels(job: dict[str, Any]) -> dict[str, Any]:
    matrix = precision(Path(job["folder"]), job["graph"], job["n"], job["nu"])
    if job["solver"] == "none":
        return {"nodes": matrix.shape[0]}
    measured = MEASURES[job["solver"]](matrix, job["repeats"], job["threads"], job["ordering"])
    return measured | {"nodes": matrix.shape[0]}


if __name__ == "__main__":
    common.run({"kernels": kernels, "lobpcg": lobpcg})
