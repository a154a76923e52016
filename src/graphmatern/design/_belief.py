"""What is known of a process at some nodes, while measurements are added and taken away one by one.

A measurement with noise variance r at s changes the covariance C of the process by a rank-one matrix,

    C ← C − c cᵀ / (C_ss + r),   c = C e_s,

and taking it away again is a measurement with noise −r. So k measurements are k columns beside the covariance before
them, of which one product with a unit vector, a solve, gives a column. After as many as fit the memory the engine
takes them over as sites, and the columns start again: nothing is approximated, and memory does not grow with k.

Coefficients b of linear effects, η = hᵀb + f with information A and sensitivity D = h − M (see `inference.posterior`),
follow along: with g = c / (C_ss + r), D ← D − g D_s and A ← A + D_sᵀD_s / (C_ss + r); then cov η = C + D A⁻¹ Dᵀ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.inference import Predictive

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["Belief"]

_COLUMN_BYTES = 2**29  # of columns beside a covariance
_AGREES = 1e-6  # relative difference of variances that may be rounding


class Belief:
    """The process η at some nodes, under measurements.

    Parameters
    ----------
    predictive : Predictive
        The process f.
    nodes : ndarray of int64, shape (n,)
        Positions of the nodes looked at, each once.
    sensitivity : ndarray, shape (n, p)
        D at these nodes; p = 0 without linear effects.
    information : ndarray, shape (p, p)
        A.

    Attributes
    ----------
    variances : ndarray, shape (n,)
        Of η; not to be changed.
    """

    def __init__(self, predictive: Predictive, nodes: Longs, sensitivity: Floats, information: Floats) -> None:
        self.predictive, self.nodes = predictive, nodes
        self._sensitivity, self._information = sensitivity.copy(), information.copy()
        self._room = max(16, _COLUMN_BYTES // (8 * max(1, len(nodes))))
        self._restart()

    def _restart(self) -> None:
        """Start again from the covariance of `predictive`."""
        self._own = self.predictive.variances(self.nodes).copy()
        self._columns = np.empty((0, len(self.nodes)))
        self._count = 0
        self._signs = np.zeros(0)
        self._pending: list[tuple[int, float]] = []
        self._latest: tuple[int, Floats] | None = None  # the column asked for last
        self._set_variances()

    def _set_variances(self) -> None:
        self.variances = self._own
        if len(self._information):
            d = self._sensitivity
            self.variances = self._own + np.einsum("ij,ij->i", d @ self._effect_covariance, d)

    @property
    def _effect_covariance(self) -> Floats:
        """A⁻¹; shape (p, p)."""
        return np.asarray(np.linalg.inv(self._information), dtype=np.float64)

    def _own_times(self, places: Longs, weights: Floats) -> Floats:
        """C between all nodes looked at and some of them, times weights (m, k); shape (n, k)."""
        found = self.predictive.covariance_times(self.nodes, self.nodes[places], weights)
        kept = self._columns[: self._count]
        if self._count:
            found -= kept.T @ (self._signs[:, None] * (kept[:, places] @ weights))
        return found

    def _own_column(self, place: int) -> Floats:
        """Column of C; shape (n,)."""
        if self._latest is None or self._latest[0] != place:
            self._latest = place, self._own_times(np.array([place]), np.ones((1, 1)))[:, 0]
        return self._latest[1]

    def column(self, place: int) -> Floats:
        """Covariances of η at all nodes looked at with one of them; shape (n,), not to be changed."""
        found = self._own_column(place)
        if len(self._information):
            found = found + self._sensitivity @ (self._effect_covariance @ self._sensitivity[place])
        return found

    def verify(self, place: int, noise: float) -> bool:
        """Whether the variance of a node agrees with its column, which `measure` uses next; if not, it is corrected.

        Some engines estimate the variances of many nodes, but never a column.
        """
        away = float(self.column(place)[place] - self.variances[place])
        if abs(away) <= _AGREES * abs(self.variances[place] + noise):
            return True
        self._own[place] += away
        self._set_variances()
        return False

    def times(self, places: Longs, weights: Floats) -> Floats:
        """Covariances of η between all nodes looked at and some of them, times weights; shape (n, k).

        Parameters
        ----------
        places : ndarray of int64, shape (m,)
            Places among the nodes looked at.
        weights : ndarray, shape (m, k)
        """
        found = self._own_times(places, weights)
        if len(self._information):
            d = self._sensitivity
            found += d @ (self._effect_covariance @ (d[places].T @ weights))
        return found

    def measure(self, place: int, noise: float) -> None:
        """Add a measurement with a noise variance; a negative one takes away a measurement with that noise.

        Parameters
        ----------
        place : int
            Place among the nodes looked at.
        noise : float
        """
        column = self._own_column(place)
        self._latest = None
        total = float(column[place]) + noise
        if len(self._information):
            own = self._sensitivity[place].copy()
            self._information += np.outer(own, own) / total
            self._sensitivity -= np.outer(column / total, own)
        self._pending.append((int(self.nodes[place]), 1.0 / noise))
        if self._count == self._room:
            self._settle()
            return
        column = column / np.sqrt(abs(total))
        self._keep(column, float(np.sign(total)))
        self._own -= np.sign(total) * column**2
        np.maximum(self._own, 0.0, out=self._own)
        self._set_variances()

    def _keep(self, column: Floats, sign: float) -> None:
        if self._count == len(self._columns):  # room is taken as it is needed
            grown = np.empty((min(self._room, max(16, 2 * self._count)), len(self.nodes)))
            grown[: self._count] = self._columns[: self._count]
            self._columns = grown
        self._columns[self._count] = column
        self._count += 1
        self._signs = np.append(self._signs, sign)

    def _settle(self) -> None:
        """Hand the measurements to the engine, as sites."""
        nodes, precision = zip(*self._pending, strict=True)
        del self._columns  # before the engine takes memory for factors
        self.predictive = self.predictive.with_sites(np.array(nodes), np.array(precision))
        self._restart()

    def under(self, places: Longs, noise: Floats) -> Belief:
        """What would be known with further measurements, all at once, of positive noise variances (m,)."""
        if not len(places):
            return self
        assert not self._count, "measurements all at once come before those one by one"
        predictive = self.predictive.with_sites(self.nodes[places], 1.0 / noise)
        sensitivity, information = self._sensitivity, self._information
        if len(information):
            # K (K + R)⁻¹ = S R⁻¹ with S the covariance under the measurements.
            own = sensitivity[places] / noise[:, None]
            sensitivity = sensitivity - predictive.covariance_times(self.nodes, self.nodes[places], own)
            information = information + own.T @ sensitivity[places]
        return Belief(predictive, self.nodes, sensitivity, 0.5 * (information + information.T))
