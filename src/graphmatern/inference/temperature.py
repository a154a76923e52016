"""How sure class probabilities should be, as labels that were left out tell.

A Gaussian process on a graph is often too cautious: its kernel has to explain the few labels that stand out as well as
all others. Probabilities p^(1/T), normalised, keep the order of the classes and correct how sure they are (Guo et al.
2017), with T learned from leave-one-out predictions, so that no label has to be set aside.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import scipy
from scipy.special import log_softmax

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["learned_temperature", "tempered"]

_SPREAD = 0.5  # prior standard deviation of log T: few labels change little
_FARTHEST = math.log(4.0)
_WORTH = 4.0  # nats that T has to gain: labels from the model itself gain that in one of two hundred cases


def _tempered_logs(share: Floats, temperature: float) -> Floats:
    return np.asarray(log_softmax(np.log(np.maximum(share, np.finfo(float).tiny)) / temperature, axis=1))


def tempered(share: Floats, temperature: float) -> Floats:
    """p^(1/T), normalised; shape (n, n_classes) as ``share``."""
    return share if temperature == 1.0 else np.asarray(np.exp(_tempered_logs(share, temperature)))


def learned_temperature(share: Floats, codes: NDArray[np.int64]) -> float:
    """The temperature that predicts left-out labels best; 1 unless it is clearly better.

    Parameters
    ----------
    share : ndarray, shape (n, n_classes)
        Class probabilities of labelled nodes given all other labels.
    codes : ndarray, shape (n,)
        The labels. Where nothing is known without one (NaN), it does not count.
    """
    known = np.isfinite(share).all(axis=1)
    share, codes = share[known], codes[known]

    def surprise(log_temperature: float) -> float:
        own = _tempered_logs(share, math.exp(log_temperature))[np.arange(len(codes)), codes]
        return float(0.5 * (log_temperature / _SPREAD) ** 2 - own.sum())

    found = scipy.optimize.minimize_scalar(
        surprise, bounds=(-_FARTHEST, _FARTHEST), method="bounded", options={"xatol": 1e-6}
    )
    return math.exp(found.x) if surprise(0.0) - found.fun > _WORTH else 1.0
