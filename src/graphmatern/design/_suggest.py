"""Which nodes to label next: uncertain ones, and in a batch such that differ.

The labels of a batch are not known when the next of its nodes is chosen, so they are imagined: a label of a node
chosen before becomes one more Gaussian site on each latent process, the best for this label with all other sites as
they are, and moves means and variances of all other nodes. Under "bald" several labels are drawn from what is
predicted, and the score is an average over these stories: what the next label tells beyond those before it, in
expectation. Under "entropy" the most probable label is imagined. "variance" looks at variances alone: by how much a
label, the most probable one, lowers the average variance of the latent processes over all nodes.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from scipy.special import ndtri, xlogy
from scipy.stats import qmc

from graphmatern.design._criteria import AverageVariance
from graphmatern.design._measurable import versions_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.design._belief import Belief
    from graphmatern.inference import Mixture, Posterior
    from graphmatern.likelihoods import Categorical

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["STRATEGIES", "Suggestion", "imagined_sites", "label_information", "suggest_labels"]

STRATEGIES = ("entropy", "bald", "variance")
_STORIES = 8  # of imagined labels, over which "bald" averages
_DRAWS = 128  # of the latent processes at a node, for the entropy of its label if they were known
_AT_ONCE = 2048
_POOL, _PER_PICK = 200, 20  # candidates that are looked at again for every node of a batch
_WIDE = 500  # those of "variance", which are found by probes
_PROBES = 16
_UPDATES, _SHARE, _AT_REST = 50, 0.7, 1e-6  # of imagined sites, how far each goes, and relative changes at the end


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
        self.likelihood: Categorical = self.components[0].likelihood  # type: ignore[assignment]

    def moments(self, nodes: Longs) -> list[tuple[Floats, Floats]]:
        """Means and variances at some nodes, of each component; each of shape (n_latents, n)."""
        return [(one.latent_mean(nodes), one.latent_variance(nodes)) for one in self.components]

    def beliefs(self, nodes: Longs) -> list[list[Belief]]:
        """What is known at some nodes, each once: of each component, for each latent process."""
        ordered = (sorted(versions_of(one), key=lambda version: version.latent) for one in self.components)
        return [[version.belief(nodes) for version in own] for own in ordered]

    def probabilities(self, moments: list[tuple[Floats, Floats]]) -> Floats:
        """Of the classes, averaged over the components; shape (n_classes, n)."""
        every = zip(self.weights, moments, strict=True)
        return np.asarray(sum(w * _probabilities(self.likelihood, *own) for w, own in every))

    def scores(self, moments: list[tuple[Floats, Floats]], strategy: str) -> Floats:
        """Entropies of labels, or what they tell about the processes; shape (n,)."""
        share = self.probabilities(moments)
        found = np.asarray(-xlogy(share, share).sum(axis=0))
        if strategy == "bald":
            every = zip(self.weights, moments, strict=True)
            found -= np.asarray(sum(w * _known_entropy(self.likelihood, *own) for w, own in every))
        return found


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
    first = latents.scores(latents.moments(candidates), strategy)
    best = np.argsort(-first, kind="stable")
    if not batch or n == 1:
        return Suggestion(candidates[best[:n]], first[best[:n]])
    # Labels elsewhere would have to raise the score of any other.
    pool = candidates[np.sort(best[: max(_POOL, _PER_PICK * n)])]
    count = max(2, _STORIES // len(latents.components)) if strategy == "bald" else 1
    stories = [_Story(latents, pool)]
    stories += [stories[0].copy() for _ in range(count - 1)]
    chosen: list[int] = []
    scores: list[float] = []
    for _ in range(n):
        score = np.mean([latents.scores(story.moments(), strategy) for story in stories], axis=0)
        score[chosen] = -np.inf
        chosen.append(int(np.argmax(score)))
        scores.append(float(score[chosen[-1]]))
        if len(chosen) < n:
            _imagine(latents, stories, chosen[-1], rng if strategy == "bald" else None)
    return Suggestion(pool[chosen], np.array(scores))


def label_information(likelihood: Categorical, mean: Floats, variance: Floats) -> Floats:
    """Mutual information of labels and latent processes at single nodes, in nats; shape (n,).

    Parameters
    ----------
    likelihood : Categorical
        Of the labels.
    mean, variance : ndarray, shape (n_latents, n)
        Of the processes.
    """
    share = _probabilities(likelihood, mean, variance)
    return np.asarray(-xlogy(share, share).sum(axis=0) - _known_entropy(likelihood, mean, variance))


def _probabilities(likelihood: Categorical, mean: Floats, variance: Floats) -> Floats:
    """Of the classes; shape (n_classes, n)."""
    blocks = []
    with torch.no_grad():
        for start in range(0, max(1, mean.shape[1]), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            own = (torch.from_numpy(np.ascontiguousarray(x[:, part])) for x in (mean, variance))
            blocks.append(likelihood.probabilities(*own).numpy())
    found = np.concatenate(blocks, axis=1)
    return np.asarray(found / found.sum(axis=0))


def _known_entropy(likelihood: Categorical, mean: Floats, variance: Floats) -> Floats:
    """Expected entropy of a label if the latent processes were known, by quasi-Monte Carlo; shape (n,)."""
    n_latents, n = mean.shape
    # Where only the largest process counts, whichever it is, the entropy is always the same.
    draws = 1 if likelihood.scale_invariant else _DRAWS
    normal = ndtri(qmc.Sobol(n_latents, scramble=True, rng=0).random(draws))  # (draws, n_latents)
    found = np.empty(n)
    with torch.no_grad():
        for start in range(0, n, _AT_ONCE):
            part = slice(start, min(start + _AT_ONCE, n))
            f = mean[:, part] + np.sqrt(variance[:, part]) * normal[:, :, None]
            values, size = torch.from_numpy(f), f.shape[2]
            codes = (torch.full((size,), float(c), dtype=torch.float64) for c in range(likelihood.n_classes))
            logs = torch.stack([likelihood.log_prob(code, values) for code in codes])
            logs = torch.log_softmax(logs, dim=0)
            found[part] = -(logs.exp() * logs).sum(dim=0).mean(dim=0).numpy()
    return found


# ---------------------------------------------------------------------- imagined labels
class _Story:
    """One way in which the labels of a batch may turn out.

    Parameters
    ----------
    latents : _Latents
        Given the labels that are known.
    nodes : ndarray of int64, shape (n,)
        Positions of nodes to look at, each once.
    """

    def __init__(self, latents: _Latents, nodes: Longs) -> None:
        self.means = [mean for mean, _ in latents.moments(nodes)]
        self.beliefs = latents.beliefs(nodes)

    def copy(self) -> _Story:
        """The same story so far, to be told differently."""
        other = copy.copy(self)
        other.means = [mean.copy() for mean in self.means]
        other.beliefs = [[belief.copy() for belief in own] for own in self.beliefs]
        return other

    def moments(self) -> list[tuple[Floats, Floats]]:
        """Means and variances of the latent processes, of each component; each of shape (n_latents, n)."""
        pairs = zip(self.means, self.beliefs, strict=True)
        return [(mean, np.stack([belief.variances for belief in own])) for mean, own in pairs]


def _imagine(latents: _Latents, stories: list[_Story], place: int, rng: np.random.Generator | None) -> None:
    """Let a node have a label in every story: one drawn from the predictions, or the most probable."""
    at = [[(m[:, [place]], v[:, [place]]) for m, v in story.moments()] for story in stories]
    labels = []
    for own in at:
        share = latents.probabilities(own)[:, 0]
        labels.append(int(np.argmax(share)) if rng is None else int(rng.choice(len(share), p=share / share.sum())))
    count = len(latents.components)
    mean, variance = (np.hstack([pair[k] for own in at for pair in own]) for k in range(2))
    first, second = imagined_sites(latents.likelihood, np.repeat(labels, count), mean, variance)
    for number, story in enumerate(stories):
        for c in range(count):
            column = number * count + c
            _observe(story.means[c], story.beliefs[c], place, first[:, column], second[:, column])


def _observe(mean: Floats, beliefs: list[Belief], place: int, potentials: Floats, precisions: Floats) -> None:
    """Put a site on every latent process of a component at a node; ``mean`` (n_latents, n) is changed."""
    for k, belief in enumerate(beliefs):
        if precisions[k] > 0.0:
            noise = 1.0 / precisions[k]
            column = belief.column(place)
            mean[k] += column * (potentials[k] * noise - mean[k, place]) / (column[place] + noise)
            belief.measure(place, noise)


def imagined_sites(likelihood: Categorical, labels: Longs, mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Potentials and precisions of sites for labels of single nodes, the best with all other sites as they are.

    Parameters
    ----------
    likelihood : Categorical
        Of the labels.
    labels : ndarray of int64, shape (n,)
        Their codes.
    mean, variance : ndarray, shape (n_latents, n)
        Of the latent processes without the label.

    Returns
    -------
    potentials, precisions : ndarray, shape (n_latents, n)
        Negative precisions, which some likelihoods ask for, are left at 0.
    """
    y = torch.from_numpy(np.asarray(labels, dtype=np.float64))
    first, second = np.zeros_like(mean), np.zeros_like(mean)
    for _ in range(_UPDATES):
        spread = 1.0 / (1.0 / variance + second)
        centre = spread * (mean / variance + first)
        with torch.no_grad():
            found = likelihood.expectation(y, torch.from_numpy(centre), torch.from_numpy(spread))
        target = np.maximum(-2.0 * found.in_variance.numpy(), 0.0)
        change = found.in_mean.numpy() + target * centre - first, target - second
        first += _SHARE * change[0]
        second += _SHARE * change[1]
        moved = np.abs(variance * change[1]).max(), np.abs(np.sqrt(variance) * change[0]).max()
        if max(moved) < _AT_REST:
            break
    return first, second


# ---------------------------------------------------------------------- variances
def _by_variance(
    latents: _Latents, n_nodes: int, candidates: Longs, n: int, rng: np.random.Generator, *, batch: bool
) -> Suggestion:
    """Choose nodes whose labels lower the average variance of the latent processes most."""
    every = np.arange(n_nodes)
    moments = latents.moments(candidates)
    labels = latents.probabilities(moments).argmax(axis=0)
    with np.errstate(divide="ignore"):
        noise = [1.0 / imagined_sites(latents.likelihood, labels, *own)[1] for own in moments]
    beliefs = latents.beliefs(every)
    if len(candidates) > max(_WIDE, _PER_PICK * n):
        probes = rng.standard_normal((n_nodes, _PROBES))
        rough = np.zeros(len(candidates))
        for w, own, r, (_, variance) in zip(latents.weights, beliefs, noise, moments, strict=True):
            for k, belief in enumerate(own):
                squares = (belief.times(every, probes)[candidates] ** 2).mean(axis=1)
                rough += w * squares / (variance[k] + r[k])
        keep = np.sort(np.argsort(-rough, kind="stable")[: max(_WIDE, _PER_PICK * n)])
        candidates, noise = candidates[keep], [r[:, keep] for r in noise]
    parts = [
        (w, AverageVariance(belief, candidates, every, r[k]))
        for w, own, r in zip(latents.weights, beliefs, noise, strict=True)
        for k, belief in enumerate(own)
    ]
    chosen: list[int] = []
    scores: list[float] = []
    for _ in range(n):
        if not chosen or batch:
            score = np.asarray(sum(w * one.gains() for w, one in parts))
        score[chosen] = -np.inf
        chosen.append(int(np.argmax(score)))
        scores.append(float(score[chosen[-1]]))
        for _, one in parts if batch else ():
            one.measure(chosen[-1])
    return Suggestion(candidates[chosen], np.array(scores))
