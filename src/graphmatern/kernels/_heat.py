"""Heat flow on a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ive

from graphmatern._validation import FaultList, as_numbers
from graphmatern.errors import KernelError
from graphmatern.graph._laplacian import largest_eigenvalue_bound

if TYPE_CHECKING:
    import scipy.sparse as sp
    from numpy.typing import ArrayLike, NDArray

    from graphmatern.graph import Graph

__all__ = ["heat_flow"]


def heat_flow(graph: Graph, v: ArrayLike, time: float, *, normalized: bool = False) -> NDArray[np.float64]:
    """Let values spread like heat: exp(−τΔ) v, the solution of dφ/dt + Δφ = 0 at time τ.

    Parameters
    ----------
    graph : Graph
        The graph.
    v : array_like, Series or mapping, shape (n_nodes,) or (n_nodes, n_columns)
        Values at time 0, in node order or by node name.
    time : float
        Time τ ≥ 0.
    normalized : bool
        Which Laplacian.

    Returns
    -------
    ndarray, shape as ``v``

    Notes
    -----
    Computed by a Chebyshev series, exact to rounding, of about √(τ λ_max) products with the Laplacian, or by dense
    eigenpairs if these are cheaper. On a graph with node masses A this is the flow of A^(1/2) times a function on
    the nodes: Δ is the symmetric Laplacian A^(−1/2) (D − W) A^(−1/2).

    Examples
    --------
    >>> import graphmatern as gm
    >>> gm.heat_flow(gm.Graph.from_edges([("a", "b")]), [1.0, 0.0], time=0.1).round(4)
    array([0.9094, 0.0906])
    """
    faults = FaultList("no heat flow", KernelError)
    as_numbers(time, "time", faults, minimum=0.0, remedy="Heat flows forward, for a finite time.")
    if np.ndim(time) != 0:
        faults.add("time", "must be one number", f"shape {np.shape(time)}", "Call once for each time.")
    faults.raise_if_any()
    vector, time = graph.arrange(v), float(time)
    laplacian = graph.laplacian(normalized)
    bound = 2.0 if normalized else largest_eigenvalue_bound(laplacian)
    if time * bound == 0.0:
        return vector.copy()
    # About 6 √(τ λ_max) terms; for long times the eigenpairs are cheaper.
    terms = 9.0 * np.sqrt(0.5 * time * bound)
    if terms > max(graph.n_nodes, 200):
        spectrum = graph.spectrum(normalized=normalized)
        decay = np.exp(-time * spectrum.eigenvalues)
        amplitudes = spectrum.eigenvectors.T @ vector
        return np.asarray(spectrum.eigenvectors @ (decay.reshape(-1, *[1] * (vector.ndim - 1)) * amplitudes))
    return _chebyshev_series(laplacian, vector, bound, _chebyshev_coefficients(0.5 * time * bound))


def _chebyshev_coefficients(half: float) -> NDArray[np.float64]:
    """Coefficients of exp(−half (x + 1)) in Chebyshev polynomials of x in [−1, 1], to rounding.

    They are (−1)^k (2 − δ_k0) e^(−half) I_k(half), with Bessel functions I_k (Abramowitz and Stegun 9.6.34).
    """
    degree = int(np.ceil(40.0 + 9.0 * np.sqrt(half) + min(half, 40.0)))
    order = np.arange(degree + 1)
    values = 2.0 * ive(order, half) * np.where(order % 2 == 0, 1.0, -1.0)
    values[0] *= 0.5
    last = np.flatnonzero(np.abs(values) > 1e-18).max(initial=0)
    return np.asarray(values[: last + 1])


def _chebyshev_series(
    laplacian: sp.csr_array, vector: NDArray[np.float64], bound: float, coefficients: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Sum c_k T_k(X) v with X = (2 / bound) Δ − I, by the three-term recurrence."""

    def shifted(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray((2.0 / bound) * (laplacian @ x) - x)

    before, current = vector, shifted(vector)
    total = np.asarray(coefficients[0] * before)
    for coefficient in coefficients[1:]:
        total = total + coefficient * current
        before, current = current, 2.0 * shifted(current) - before
    return total
