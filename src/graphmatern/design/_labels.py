"""What a label says of the latent processes: its probabilities, its information, and the site that stands for it.

Two kinds of approximations are behind classifiers. Either the processes are independent, and a site is one factor on
each; or labels couple them, and a site is one factor on the values of all classes. Both are told in the same words:
means (n, n_latents) and covariances (n, n_latents, n_latents) of the processes at single nodes, and sites
exp(vᵀf − ½ fᵀΠf) on their values there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.special import ndtri, xlogy

from graphmatern.inference import sites_of_labels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.inference import Posterior
    from graphmatern.likelihoods import Categorical, MultinomialProbit

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["DRAWS", "CoupledLabels", "IndependentLabels", "Labels", "entropy", "labels_of"]

DRAWS = 128  # of the latent processes at a node, for the entropy of its label if they were known
_AT_ONCE = 2**18  # values of processes
_UPDATES, _SHARE, _AT_REST = 50, 0.7, 1e-6  # of sites, how far each goes, and relative changes at the end
_LEAST_VARIANCE = 1e-12
_ROUNDING = 1e-10  # of covariances, relative to the largest variance


def entropy(share: Floats) -> Floats:
    """Entropies of distributions (n, n_classes), in nats; shape (n,)."""
    return np.asarray(-xlogy(share, share).sum(axis=1))


class Labels(ABC):
    """Labels that may be given to nodes.

    Parameters
    ----------
    likelihood : Categorical
        Of the labels.
    """

    def __init__(self, likelihood: Categorical) -> None:
        self.likelihood = likelihood

    @abstractmethod
    def probabilities(self, mean: Floats, covariance: Floats) -> Floats:
        """Of the classes; shape (n, n_classes)."""

    @abstractmethod
    def sites(self, labels: Longs, mean: Floats, covariance: Floats) -> tuple[Floats, Floats]:
        """Sites of labels, the best with all other sites as they are.

        Parameters
        ----------
        labels : ndarray of int64, shape (n,)
            Their codes.
        mean, covariance : ndarray, shape (n, n_latents) and (n, n_latents, n_latents)
            Of the processes without the label.

        Returns
        -------
        precision : ndarray, shape (n, n_latents, n_latents)
            Π.
        potential : ndarray, shape (n, n_latents)
            v.
        """

    def known_entropy(self, mean: Floats, covariance: Floats, draws: int = DRAWS, seed: int = 0) -> Floats:
        """Expected entropy of a label if the latent processes were known, by quasi-Monte Carlo; shape (n,).

        Parameters
        ----------
        mean, covariance : ndarray, shape (n, n_latents) and (n, n_latents, n_latents)
            Of the processes.
        draws : int
            Of the processes; a power of 2.
        seed : int
            Of these.
        """
        from scipy.stats.qmc import Sobol  # takes long to import

        n, n_latents = mean.shape
        # Where only the largest process counts, whichever it is, the entropy is always the same.
        draws = 1 if self.likelihood.scale_invariant else draws
        normal = ndtri(Sobol(n_latents, scramble=True, rng=seed).random(draws))  # (draws, n_latents)
        found, size = np.empty(n), max(1, _AT_ONCE // (draws * n_latents))
        for start in range(0, n, size):
            part = slice(start, start + size)
            f = mean[part] + np.einsum("nij,kj->kni", _roots(covariance[part]), normal)
            share = self.likelihood.known_probabilities(np.ascontiguousarray(f.reshape(-1, n_latents).T))
            found[part] = entropy(share.T).reshape(draws, -1).mean(axis=0)
        return found


class IndependentLabels(Labels):
    """Labels of processes that stay independent: of covariances only the diagonals count."""

    def probabilities(self, mean: Floats, covariance: Floats) -> Floats:
        """Of the classes; shape (n, n_classes)."""
        moments = (torch.from_numpy(np.ascontiguousarray(x.T)) for x in (mean, _diagonals(covariance)))
        with torch.no_grad():
            found = self.likelihood.probabilities(*moments).numpy().T
        return np.asarray(found / found.sum(axis=1, keepdims=True))

    def sites(self, labels: Longs, mean: Floats, covariance: Floats) -> tuple[Floats, Floats]:
        """By maximising the bound; negative precisions, which some likelihoods ask for, are left at 0."""
        y = torch.from_numpy(np.asarray(labels, dtype=np.float64))
        m, variance = mean.T, np.maximum(_diagonals(covariance).T, _LEAST_VARIANCE)
        first, second = np.zeros(m.shape), np.zeros(m.shape)
        for _ in range(_UPDATES):
            spread = 1.0 / (1.0 / variance + second)
            centre = spread * (m / variance + first)
            with torch.no_grad():
                found = self.likelihood.expectation(y, torch.from_numpy(centre), torch.from_numpy(spread))
            target = np.maximum(-2.0 * found.in_variance.numpy(), 0.0)
            change = found.in_mean.numpy() + target * centre - first, target - second
            first += _SHARE * change[0]
            second += _SHARE * change[1]
            moved = np.abs(variance * change[1]).max(), np.abs(np.sqrt(variance) * change[0]).max()
            if max(moved) < _AT_REST:
                break
        return second.T[:, :, None] * np.eye(len(m)), first.T


class CoupledLabels(Labels):
    """Labels that couple the processes of their classes."""

    likelihood: MultinomialProbit

    def probabilities(self, mean: Floats, covariance: Floats) -> Floats:
        """Of the classes; shape (n, n_classes)."""
        return self.likelihood.joint_probabilities(mean, covariance)

    def sites(self, labels: Longs, mean: Floats, covariance: Floats) -> tuple[Floats, Floats]:
        """By matching moments."""
        return sites_of_labels(labels, mean, covariance)


def labels_of(posterior: Posterior) -> Labels:
    """Labels as a posterior sees them."""
    likelihood: Categorical = posterior.likelihood  # type: ignore[assignment]
    return CoupledLabels(likelihood) if posterior.coupled else IndependentLabels(likelihood)


def _diagonals(matrices: Floats) -> Floats:
    return np.asarray(np.einsum("nii->ni", matrices))


def _roots(covariance: Floats) -> Floats:
    """Lower triangular roots; shape (n, n_latents, n_latents)."""
    variance = _diagonals(covariance)
    least = _ROUNDING * variance.max(axis=1) + _LEAST_VARIANCE
    return np.asarray(np.linalg.cholesky(covariance + least[:, None, None] * np.eye(variance.shape[1])))
