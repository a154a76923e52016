"""What is known of the latent processes of all classes at some nodes, while labels are imagined one by one.

With C the covariance of all processes at all nodes, a site exp(vᵀf − ½ fᵀΠf) on the values f at one node s changes

    C ← C − C_s W C_sᵀ,   m ← m + C_s (I + ΠΣ)⁻¹ (v − Π m_s),   W = (I + ΠΣ)⁻¹ Π,

with Σ the covariance of f and C_s its columns. So k labels are k blocks of columns beside the covariance before them,
which is never formed: processes are independent, with the engine's covariances, but for what effects and levels add,
B_cᵀB_d (`Posterior.beside`).

A label at s lowers the sum of all variances by tr(W C_sᵀC_s): what counts are blocks of M = CC, over all nodes, and
only those between candidates. They follow along:

    M ← M − A Dᵀ − D Aᵀ,   A = C_s W,   D = M_s − ½ A M_ss.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.inference import Posterior

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["ClassBelief", "ClassVariance", "weights_of"]

_AT_ONCE = 64


def weights_of(precision: Floats, covariance: Floats) -> Floats:
    """W = (I + ΠΣ)⁻¹ Π; shapes all (…, n_latents, n_latents)."""
    found = np.linalg.solve(np.eye(precision.shape[-1]) + precision @ covariance, precision)
    return np.asarray(0.5 * (found + found.swapaxes(-1, -2)))


class ClassBelief:
    """All latent processes at some nodes, under imagined labels.

    Parameters
    ----------
    posterior : Posterior
        Given the labels that are known.
    nodes : ndarray of int64, shape (n,)
        Positions of the nodes looked at, each once.

    Attributes
    ----------
    mean : ndarray, shape (n, n_latents)
        Of the processes.
    covariance : ndarray, shape (n, n_latents, n_latents)
        Between them at each node.
    """

    def __init__(self, posterior: Posterior, nodes: Longs) -> None:
        means, covariances = zip(*posterior.class_moments(nodes), strict=True)
        self.mean, self.covariance = np.concatenate(means), np.concatenate(covariances)
        self.nodes, self.posterior = nodes, posterior
        self.predictives = [part.predictive for part in sorted(posterior.parts, key=lambda part: part.latent)]
        self.beside = np.stack([posterior.beside(nodes, c) for c in range(posterior.n_latents)])
        self._base: dict[int, Floats] = {}  # columns before any label, which copies share
        self._steps: list[tuple[Floats, Floats]] = []  # of each label, C_s and A

    def copy(self) -> ClassBelief:
        """The same knowledge, to be changed independently."""
        other = copy.copy(self)
        other.mean, other.covariance = self.mean.copy(), self.covariance.copy()
        other._steps = list(self._steps)
        return other

    def column(self, place: int) -> Floats:
        """C_s: covariances of all processes at all nodes with those at one; shape (n_latents, n, n_latents)."""
        if place not in self._base:
            base = np.einsum("ckp,dk->cpd", self.beside, self.beside[:, :, place], optimize=True)
            for c, one in enumerate(self.predictives):
                base[c, :, c] += one.covariance_times(self.nodes, self.nodes[[place]], np.ones((1, 1)))[:, 0]
            self._base[place] = base
        found = self._base[place].copy()
        for column, weighted in self._steps:
            found -= weighted @ column[:, place].T
        return found

    def at(self, place: int) -> tuple[Floats, Floats]:
        """Mean (n_latents,) and covariance of the processes at a node; some engines only estimate `covariance`."""
        own = self.column(place)[:, place]
        return self.mean[place], 0.5 * (own + own.T)

    def observe(self, place: int, precision: Floats, potential: Floats) -> None:
        """Put a site on a node.

        Parameters
        ----------
        place : int
            Place among the nodes looked at.
        precision : ndarray, shape (n_latents, n_latents)
            Π.
        potential : ndarray, shape (n_latents,)
            v.
        """
        column, (mean, covariance) = self.column(place), self.at(place)
        moved = np.linalg.solve(np.eye(len(mean)) + precision @ covariance, potential - precision @ mean)
        weighted = column @ weights_of(precision, covariance)
        self.mean += (column @ moved).T
        self.covariance -= np.einsum("cpd,epd->pce", weighted, column, optimize=True)
        # Where variances were estimated, or by rounding, more may have been taken away than there was.
        values, vectors = np.linalg.eigh(self.covariance)
        bad = values[:, 0] < 0.0
        kept = vectors[bad] * np.maximum(values[bad], 0.0)[:, None]
        self.covariance[bad] = kept @ vectors[bad].swapaxes(1, 2)
        self._steps.append((column, weighted))


class ClassVariance:
    """By how much labels lower the average variance over all nodes, summed over the latent processes.

    Parameters
    ----------
    belief : ClassBelief
        At the candidates; it is moved along.
    n_nodes : int
        Of the graph.
    precision : ndarray, shape (n, n_latents, n_latents)
        Π of the site that a label of each candidate would be.
    """

    def __init__(self, belief: ClassBelief, n_nodes: int, precision: Floats) -> None:
        self._belief, self._precision = belief, precision
        self._every = np.arange(n_nodes)
        beside = belief.beside
        n_latents, k, n = beside.shape
        squares = np.empty((n_latents, n))
        # M between (c, p) and (d, q) is δ_cd (P_cP_c)[p, q] + G_c(p)ᵀ B_d(q) + B_c(p)ᵀ G_d(q) with P_c the engine's
        # covariance, and G_c = B_c(all) P_c(all, ·) + ½ S B_c, S = Σ_e B_e(all) B_e(all)ᵀ.
        self._images, total = np.zeros(beside.shape), np.zeros((k, k))
        for c, one in enumerate(belief.predictives):
            for start in range(0, n, _AT_ONCE):
                some = belief.nodes[start : start + _AT_ONCE]
                columns = one.covariance_times(self._every, some, np.eye(len(some)))
                squares[c, start : start + _AT_ONCE] = np.einsum("ij,ij->j", columns, columns)
            if k:
                everywhere = belief.posterior.beside(self._every, c)
                self._images[c] = one.covariance_times(belief.nodes, self._every, everywhere.T).T
                total += everywhere @ everywhere.T
        self._images += 0.5 * total @ beside
        both = np.einsum("ckp,dkp->pcd", self._images, beside, optimize=True)
        self._squares = both + both.swapaxes(1, 2) + squares.T[:, :, None] * np.eye(n_latents)
        self._steps: list[tuple[Floats, Floats]] = []  # of each label, A and D

    def gains(self) -> Floats:
        """tr(W M_ss) / n_nodes of every candidate; shape (n,)."""
        weights = weights_of(self._precision, self._belief.covariance)
        return np.asarray(np.einsum("nij,nji->n", weights, self._squares) / len(self._every))

    def _column(self, place: int) -> Floats:
        """M_s; shape (n_latents, n, n_latents)."""
        beside, images = self._belief.beside, self._images
        found = np.einsum("ckp,dk->cpd", images, beside[:, :, place], optimize=True)
        found += np.einsum("ckp,dk->cpd", beside, images[:, :, place], optimize=True)
        nodes, unit = self._belief.nodes, np.ones((1, 1))
        for c, one in enumerate(self._belief.predictives):
            own = one.covariance_times(self._every, nodes[[place]], unit)
            found[c, :, c] += one.covariance_times(nodes, self._every, own)[:, 0]
        for a, d in self._steps:
            found -= a @ d[:, place].T + d @ a[:, place].T
        return np.asarray(found)

    def observe(self, place: int) -> None:
        """Label a candidate; only variances are of interest."""
        column, (mean, covariance) = self._belief.column(place), self._belief.at(place)
        squares, precision = self._column(place), self._precision[place]
        a = column @ weights_of(precision, covariance)
        d = squares - 0.5 * a @ squares[:, place]
        change = np.einsum("cpi,dpi->pcd", a, d, optimize=True)
        self._squares -= change + change.swapaxes(1, 2)
        self._steps.append((a, d))
        self._belief.observe(place, precision, precision @ mean)
