"""Observations against what a posterior says of them: left out, and as they were seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from scipy.special import logsumexp, ndtr

from graphmatern.likelihoods import Binomial, Counts, MultinomialProbit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.inference.posterior import Posterior
    from graphmatern.likelihoods import Categorical, Numeric

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = [
    "LeftOut",
    "Pointwise",
    "class_codes",
    "classes_beside_labels",
    "left_out",
    "left_out_classes",
    "pointwise",
]

_LOG_TWO_PI = float(np.log(2.0 * np.pi))


class LeftOut(NamedTuple):
    """Observations of one replicate given all others; each of shape (n,), in normalised units.

    Attributes
    ----------
    mean, variance : ndarray
        Of the observation.
    log_density : ndarray
        Of what was observed: the conditional predictive ordinate (CPO) is its exponential.
    pit : ndarray
        Probability of less than what was observed (probability integral transform); of counts, half of the probability
        of the same count is added.
    """

    mean: Floats
    variance: Floats
    log_density: Floats
    pit: Floats


class Pointwise(NamedTuple):
    """Likelihoods of single observations under the posterior given all of them, for WAIC; each of shape (n,).

    Attributes
    ----------
    log_expected : ndarray
        Log E p(y | f).
    mean_log, mean_squared_log : ndarray
        E log p(y | f), and of its square.
    """

    log_expected: Floats
    mean_log: Floats
    mean_squared_log: Floats


def left_out(posterior: Posterior) -> dict[int, LeftOut]:
    """Observations given all others, in closed form, by replicate."""
    likelihood: Numeric = posterior.likelihood  # type: ignore[assignment]
    found: dict[int, LeftOut] = {}
    for part, mean, variance in posterior.leave_one_out():
        group = part.group
        for k, column in enumerate(group.columns.tolist()):
            y, centre = group.y[:, k], mean[:, k] + group.offset
            if likelihood.gaussian:  # each observation has its own noise
                spread = variance + 1.0 / part.precision
                z = (y - centre) / np.sqrt(spread)
                found[column] = LeftOut(centre, spread, -0.5 * (_LOG_TWO_PI + np.log(spread) + z**2), ndtr(z))
                continue
            # Where a site leaves nothing to the others, nothing is known without it.
            known = np.isfinite(centre) & np.isfinite(variance)
            row = LeftOut(*(np.full(len(y), value) for value in (np.nan, np.inf, -np.inf, 0.5)))
            y, centre, spread = y[known], centre[known], variance[known]
            row.mean[known], row.variance[known] = posterior.response(centre, spread, observation=True)
            with torch.no_grad():
                columns = (torch.from_numpy(np.ascontiguousarray(x))[None] for x in (centre, spread))
                log_density = likelihood.predictive_log_prob(torch.from_numpy(y.copy()), *columns).numpy()
            pit = likelihood.observation_cdf(y, centre, spread)
            if isinstance(likelihood, Counts | Binomial):
                pit = pit - 0.5 * np.exp(log_density)
            row.log_density[known], row.pit[known] = log_density, pit
            found[column] = row
    return found


def class_codes(posterior: Posterior) -> Longs:
    """Codes of the labels that were seen; shape (n,)."""
    return np.asarray(posterior.parts[0].group.y[:, 0], dtype=np.int64)


def left_out_classes(posterior: Posterior) -> Floats:
    """Class probabilities of labelled nodes given all other labels, NaN where these say nothing; (n, n_classes)."""
    likelihood: Categorical = posterior.likelihood  # type: ignore[assignment]
    if isinstance(likelihood, MultinomialProbit) and posterior.coupled:
        found = posterior.label_cavities
        return likelihood.joint_probabilities(found.mean, found.covariance)
    pairs = [(mean[:, 0], variance) for _, mean, variance in posterior.leave_one_out()]
    means, variances = (np.stack(values) for values in zip(*pairs, strict=True))
    known = (np.isfinite(means) & np.isfinite(variances)).all(axis=0)
    every = np.full((len(known), likelihood.n_classes), np.nan)
    with torch.no_grad():
        columns = (torch.from_numpy(np.ascontiguousarray(one[:, known])) for one in (means, variances))
        share = likelihood.probabilities(*columns).numpy().T
    every[known] = share / share.sum(axis=1, keepdims=True)
    return every


def classes_beside_labels(posterior: Posterior, rows: Longs) -> Floats:
    """Class probabilities of new observations at labelled nodes; shape (k, n_classes).

    The label itself makes the distribution there far from normal, so it is not its site that is taken.

    Parameters
    ----------
    posterior : Posterior
        Of coupled classes.
    rows : ndarray of int64, shape (k,)
        Positions of labels.
    """
    likelihood: MultinomialProbit = posterior.likelihood  # type: ignore[assignment]
    if not len(rows):
        return np.zeros((0, likelihood.n_classes))
    found = posterior.label_cavities
    return likelihood.probabilities_beside(posterior.class_codes[rows], found.mean[rows], found.covariance[rows])


def pointwise(posterior: Posterior) -> Pointwise:
    """Likelihoods of single observations under the posterior, by quadrature."""
    likelihood: Numeric = posterior.likelihood  # type: ignore[assignment]
    rows: list[tuple[Floats, Floats, Floats]] = []
    nodes, weights = likelihood.quadrature
    for part in posterior.parts:
        group = part.group
        if not len(group.nodes):
            continue
        means, variances = posterior.at_observations(part)
        for k, column in enumerate(group.columns.tolist()):
            f = means[column] + group.offset + np.sqrt(variances[column]) * nodes[:, None]
            if likelihood.gaussian:
                noise = 1.0 / part.precision
                logs = -0.5 * (_LOG_TWO_PI + np.log(noise) + (group.y[:, k] - f) ** 2 / noise)
                spread = variances[column] + noise
                expected = -0.5 * (
                    _LOG_TWO_PI + np.log(spread) + (group.y[:, k] - means[column] - group.offset) ** 2 / spread
                )
            else:
                with torch.no_grad():
                    y = torch.from_numpy(group.y[:, k].copy())
                    logs = likelihood.log_prob(y, torch.from_numpy(f)[:, None]).numpy()
                expected = logsumexp(np.log(weights)[:, None] + logs, axis=0)
            rows.append((np.asarray(expected), weights @ logs, weights @ logs**2))
    return Pointwise(*(np.concatenate(values) for values in zip(*rows, strict=True)))
