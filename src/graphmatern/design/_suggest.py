"""Which nodes to label next: uncertain ones, and in a batch such that differ.

The labels of a batch are not known when the next of its nodes is chosen, so they are imagined: a label of a node
chosen before becomes one more Gaussian site on the latent processes, the best for this label with all other sites as
they are, and moves means and variances of all other nodes. Under "bald" several labels are drawn from what is
predicted, and the score is an average over these stories: what the next label tells beyond those before it, in
expectation. Under "entropy" the most probable label is imagined. "variance" looks at variances alone: by how much a
label, the most probable one, lowers the average variance over all nodes, summed over the latent processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from graphmatern.design._class_belief import ClassBelief, ClassVariance, weights_of
from graphmatern.design._labels import DRAWS, entropy, labels_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.inference import Mixture, Posterior

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]
    Moments = tuple[Floats, Floats]  # means (n, n_latents), covariances (n, n_latents, n_latents)

__all__ = ["STRATEGIES", "Suggestion", "suggest_labels"]

STRATEGIES = ("entropy", "bald", "variance")
_STORIES = 8  # of imagined labels, over which "bald" averages
_FEWEST_DRAWS = 16  # for one story and component
_POOL, _PER_PICK = 200, 20  # candidates that are looked at again for every node of a batch
_WIDE = 500  # those of "variance", which are found by probes
_PROBES = 16


class Suggestion(NamedTuple):
    """Nodes to be labelled, the first first.

    Attributes
    ----------
    nodes : ndarray of int64, shape (n,)
        Positions.
    scores : ndarray, shape (n,)
        What each was chosen for, given those before it.
    """

    nodes: Longs
    scores: Floats


class _Latents:
    """The latent processes of all components of a posterior.

    Parameters
    ----------
    posterior : Posterior or Mixture
        Of a classifier.
    """

    def __init__(self, posterior: Posterior | Mixture) -> None:
        self.components: list[Posterior] = getattr(posterior, "components", [posterior])
        self.weights = np.asarray(getattr(posterior, "weights", np.ones(1)))
        self.labels = labels_of(self.components[0])

    def probabilities(self, moments: list[Moments]) -> Floats:
        """Of the classes, given the moments of each component; shape (n, n_classes)."""
        every = zip(self.weights, moments, strict=True)
        return np.asarray(sum(w * self.labels.probabilities(*own) for w, own in every))

    def scores(self, moments: list[Moments], strategy: str, stories: int = 1, seed: int = 0) -> Floats:
        """Entropies of labels, or what they tell about the processes; shape (n,).

        Parameters
        ----------
        moments : list of Moments
            Of each component.
        strategy : {"entropy", "bald"}
            Which.
        stories : int
            How many will be averaged over, so that each needs fewer draws.
        seed : int
            Of these draws.
        """
        found = entropy(self.probabilities(moments))
        if strategy == "bald":
            draws = max(_FEWEST_DRAWS, 2 ** round(np.log2(DRAWS / (stories * len(moments)))))
            for k, (w, own) in enumerate(zip(self.weights, moments, strict=True)):
                found -= w * self.labels.known_entropy(*own, draws, seed * len(moments) + k)
        return found

    def first_scores(self, nodes: Longs, strategy: str) -> Floats:
        """Scores before any label is imagined; shape (n,)."""
        blocks = zip(*(one.class_moments(nodes) for one in self.components), strict=True)
        return np.concatenate([self.scores(list(moments), strategy) for moments in blocks])

    def most_probable(self, nodes: Longs) -> Longs:
        """Codes of the most probable labels; shape (n,)."""
        every = zip(self.weights, self.components, strict=True)
        share = np.asarray(sum(w * one.class_probabilities(nodes) for w, one in every))
        return np.asarray(share.argmax(axis=1))


def suggest_labels(
    posterior: Posterior | Mixture,
    n_nodes: int,
    candidates: Longs,
    n: int,
    strategy: str,
    *,
    batch: bool,
    seed: int = 0,
) -> Suggestion:
    """Choose nodes to label.

    Parameters
    ----------
    posterior : Posterior or Mixture
        Of a classifier.
    n_nodes : int
        Of the graph.
    candidates : ndarray of int64, shape (n_candidates,)
        Positions of nodes to choose from, each once.
    n : int
        How many to choose.
    strategy : {"entropy", "bald", "variance"}
        By the entropy of the label, by the information that the label has about the processes, or by how much it lowers
        their average variance.
    batch : bool
        Whether nodes of the batch should differ; else the best are chosen, each by itself.
    seed : int
        Of imagined labels, and of probes.
    """
    latents, rng = _Latents(posterior), np.random.default_rng(seed)
    if strategy == "variance":
        return _by_variance(latents, n_nodes, candidates, n, rng, batch=batch)
    first = latents.first_scores(candidates, strategy)
    best = np.argsort(-first, kind="stable")
    if not batch or n == 1:
        return Suggestion(candidates[best[:n]], first[best[:n]])
    # Labels elsewhere would have to raise the score of any other.
    keep = np.sort(best[: max(_POOL, _PER_PICK * n)])
    pool, score = candidates[keep], first[keep]
    count = max(2, _STORIES // len(latents.components)) if strategy == "bald" else 1
    stories = [[ClassBelief(one, pool) for one in latents.components]]
    stories += [[belief.copy() for belief in stories[0]] for _ in range(count - 1)]
    chosen: list[int] = []
    scores: list[float] = []
    while True:
        score[chosen] = -np.inf
        chosen.append(int(np.argmax(score)))
        scores.append(float(score[chosen[-1]]))
        if len(chosen) == n:
            return Suggestion(pool[chosen], np.array(scores))
        _imagine(latents, stories, chosen[-1], rng if strategy == "bald" else None)
        moments = ([(one.mean, one.covariance) for one in story] for story in stories)
        score = np.mean([latents.scores(own, strategy, count, k) for k, own in enumerate(moments)], axis=0)


def _imagine(latents: _Latents, stories: list[list[ClassBelief]], place: int, rng: np.random.Generator | None) -> None:
    """Let a node have a label in every story: one drawn from the predictions, or the most probable."""
    beliefs = [belief for story in stories for belief in story]
    mean, covariance = (np.stack(values) for values in zip(*(one.at(place) for one in beliefs), strict=True))
    share = latents.labels.probabilities(mean, covariance).reshape(len(stories), len(latents.components), -1)
    share = np.einsum("k,skc->sc", latents.weights, share)
    if rng is None:
        labels = share.argmax(axis=1)
    else:
        labels = np.array([rng.choice(len(own), p=own / own.sum()) for own in share])
    sites = latents.labels.sites(np.repeat(labels, len(latents.components)), mean, covariance)
    for belief, precision, potential in zip(beliefs, *sites, strict=True):
        belief.observe(place, precision, potential)


# ---------------------------------------------------------------------- variances
def _by_variance(
    latents: _Latents, n_nodes: int, candidates: Longs, n: int, rng: np.random.Generator, *, batch: bool
) -> Suggestion:
    """Choose nodes whose labels lower the average variance of the latent processes most."""
    labels = latents.most_probable(candidates)
    if len(candidates) > max(_WIDE, _PER_PICK * n):
        rough = np.zeros(len(candidates))
        for w, one in zip(latents.weights, latents.components, strict=True):
            rough += w * _rough_gains(latents, one, n_nodes, candidates, labels, rng)
        keep = np.sort(np.argsort(-rough, kind="stable")[: max(_WIDE, _PER_PICK * n)])
        candidates, labels = candidates[keep], labels[keep]
    parts = []
    for w, one in zip(latents.weights, latents.components, strict=True):
        belief = ClassBelief(one, candidates)
        precision, _ = latents.labels.sites(labels, belief.mean, belief.covariance)
        parts.append((w, ClassVariance(belief, n_nodes, precision)))
    chosen: list[int] = []
    scores: list[float] = []
    for _ in range(n):
        if not chosen or batch:
            score = np.asarray(sum(w * part.gains() for w, part in parts))
        score[chosen] = -np.inf
        chosen.append(int(np.argmax(score)))
        scores.append(float(score[chosen[-1]]))
        for _, part in parts if batch and len(chosen) < n else ():
            part.observe(chosen[-1])
    return Suggestion(candidates[chosen], np.array(scores))


def _rough_gains(
    latents: _Latents, posterior: Posterior, n_nodes: int, candidates: Longs, labels: Longs, rng: np.random.Generator
) -> Floats:
    """Estimates of what labels lower the sum of all variances by, tr(W C_sᵀC_s), from products Cz; shape (n,)."""
    every = np.arange(n_nodes)
    probes = rng.standard_normal((posterior.n_latents, n_nodes, _PROBES))
    shared = sum(posterior.beside(every, c) @ own for c, own in enumerate(probes))
    images = np.empty((len(candidates), posterior.n_latents, _PROBES))
    for part in posterior.parts:
        c = part.latent
        images[:, c] = part.predictive.covariance_times(candidates, every, probes[c])
        images[:, c] += posterior.beside(candidates, c).T @ shared
    found, start = np.empty(len(candidates)), 0
    for mean, covariance in posterior.class_moments(candidates):
        some = slice(start, start + len(mean))
        weights = weights_of(latents.labels.sites(labels[some], mean, covariance)[0], covariance)
        found[some] = np.einsum("nik,nij,njk->n", images[some], weights, images[some], optimize=True) / _PROBES
        start += len(mean)
    return found
