"""Small graphs of every kind, as symmetric SciPy adjacency matrices, and precision matrices on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.spatial import Delaunay, cKDTree

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["KINDS", "SHAPES", "precision"]


def _adjacency(i: NDArray[Any], j: NDArray[Any], n: int) -> sp.csr_array:
    """Unit weights on the pairs (i, j), without loops and repetitions."""
    apart = i != j
    one_way = sp.coo_array((np.ones(apart.sum()), (i[apart], j[apart])), shape=(n, n)).tocsr()
    both = sp.csr_array(one_way + one_way.T)
    both.data[:] = 1.0
    return both


def _largest_component(adjacency: sp.csr_array) -> sp.csr_array:
    _, label = connected_components(adjacency, directed=False)
    kept = np.flatnonzero(label == np.bincount(label).argmax())
    return sp.csr_array(adjacency[kept][:, kept])


def roads(n: int, seed: int = 0) -> sp.csr_array:
    """Random points joined to Delaunay neighbours with some edges missing: planar, of degree about 4."""
    rng = np.random.default_rng(seed)
    triangles = Delaunay(rng.random((n, 2))).simplices
    edges = np.unique(
        np.sort(np.vstack([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]]), axis=1), axis=0
    )
    edges = edges[rng.random(len(edges)) < 0.55]
    return _largest_component(_adjacency(edges[:, 0], edges[:, 1], n))


def grid(n: int) -> sp.csr_array:
    side = round(n**0.5)
    label = np.arange(side * side).reshape(side, side)
    i = np.concatenate([label[:, :-1].ravel(), label[:-1].ravel()])
    j = np.concatenate([label[:, 1:].ravel(), label[1:].ravel()])
    return _adjacency(i, j, side * side)


def nearest_neighbours(n: int, seed: int = 0) -> sp.csr_array:
    points = np.random.default_rng(seed).random((n, 3))
    near = np.asarray(cKDTree(points).query(points, 7)[1])
    return _largest_component(_adjacency(np.repeat(np.arange(n), 6), near[:, 1:].ravel(), n))


def scale_free(n: int, seed: int = 0) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    ends = [0, 1]
    pairs = []
    for v in range(2, n):
        for target in {ends[rng.integers(len(ends))] for _ in range(2)}:
            pairs.append((v, target))
            ends += [v, target]
    i, j = np.array(pairs).T
    return _adjacency(i, j, n)


def block_model(n: int, seed: int = 0) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    block = rng.integers(7, size=n)
    i, j = rng.integers(n, size=(2, 20 * n))
    kept = (rng.random(len(i)) < np.where(block[i] == block[j], 0.7, 0.02)) & (rng.random(len(i)) < 0.6)
    return _largest_component(_adjacency(i[kept], j[kept], n))


def path(n: int) -> sp.csr_array:
    return _adjacency(np.arange(n - 1), np.arange(1, n), n)


def star(n: int) -> sp.csr_array:
    return _adjacency(np.zeros(n - 1, int), np.arange(1, n), n)


def comb(n: int) -> sp.csr_array:
    """A path with a tooth at each of its nodes."""
    half = n // 2
    i = np.concatenate([np.arange(half - 1), np.arange(half)])
    j = np.concatenate([np.arange(1, half), np.arange(half, 2 * half)])
    return _adjacency(i, j, 2 * half)


def binary_tree(n: int) -> sp.csr_array:
    return _adjacency(np.arange(1, n), (np.arange(1, n) - 1) // 2, n)


def ladder(n: int) -> sp.csr_array:
    half = n // 2
    rung = np.arange(half)
    i = np.concatenate([rung[:-1], rung[:-1] + half, rung])
    j = np.concatenate([rung[1:], rung[1:] + half, rung + half])
    return _adjacency(i, j, 2 * half)


def wheel(n: int) -> sp.csr_array:
    """A path whose nodes all touch one hub."""
    i = np.concatenate([np.arange(1, n - 1), np.zeros(n - 1, int)])
    j = np.concatenate([np.arange(2, n), np.arange(1, n)])
    return _adjacency(i, j, n)


KINDS: dict[str, Callable[[int], sp.csr_array]] = {
    "roads": roads,
    "grid": grid,
    "nearest_neighbours": nearest_neighbours,
    "scale_free": scale_free,
    "block_model": block_model,
}
SHAPES: dict[str, Callable[[int], sp.csr_array]] = {
    "path": path,
    "star": star,
    "comb": comb,
    "binary_tree": binary_tree,
    "ladder": ladder,
    "wheel": wheel,
}


def precision(adjacency: sp.csr_array, nu: int, condition: float = 5e7, seed: int = 0) -> sp.csc_array:
    """Return (c I + Δ)^nu plus some diagonal, with c such that its condition is about ``condition``."""
    n = adjacency.shape[0]
    degree = np.asarray(adjacency.sum(axis=1)).ravel()
    shift = max(0.05, 2.0 * degree.max(initial=0.0) / condition ** (1.0 / nu))
    base = sp.csc_array(sp.diags_array(degree + shift) - adjacency)
    result = base
    for _ in range(nu - 1):
        result = sp.csc_array(result @ base)
    observed = np.random.default_rng(seed).random(n) < 0.3
    result = sp.csc_array((result + result.T) * 0.5 + sp.diags_array(observed * 1.0))
    result.sort_indices()
    return result
