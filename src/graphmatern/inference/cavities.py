"""What all other observations say of the classes at one: the posterior with its site taken out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["Cavities", "class_cavities", "site_of_classes"]


class Cavities(NamedTuple):
    """Coupled processes at observations, each without its own site exp(vᵀf − ½ fᵀΠf).

    Attributes
    ----------
    mean : ndarray, shape (n, n_classes)
        Of the processes.
    covariance : ndarray, shape (n, n_classes, n_classes)
        Between them.
    precision : ndarray, shape (n, n_classes, n_classes)
        Π.
    potential : ndarray, shape (n, n_classes)
        v; its entries sum to 0.
    left : ndarray, shape (n, n_classes, n_classes)
        I − ΠΣ with Σ the covariance under all sites: what its own site leaves to the others.
    """

    mean: Floats
    covariance: Floats
    precision: Floats
    potential: Floats
    left: Floats


def site_of_classes(d: Floats, t: Floats) -> tuple[Floats, Floats]:
    """Integrate sites given the level of the observation over that level.

    Parameters
    ----------
    d, t : ndarray, shape (n, n_classes)
        Precisions and potentials of the sites given the level, whatever that is.

    Returns
    -------
    precision : ndarray, shape (n, n_classes, n_classes)
        Π of the site exp(vᵀf − ½ fᵀΠf) on the values of all classes.
    potential : ndarray, shape (n, n_classes)
        v.
    """
    total = d.sum(axis=1)
    precision = d[:, :, None] * np.eye(d.shape[1]) - d[:, :, None] * d[:, None, :] / total[:, None, None]
    return precision, t - d * (t.sum(axis=1) / total)[:, None]


def class_cavities(mean: Floats, covariance: Floats, d: Floats, t: Floats) -> Cavities:
    """Take the sites out, one at a time.

    Parameters
    ----------
    mean : ndarray, shape (n, n_classes)
        Of the processes under all sites.
    covariance : ndarray, shape (n, n_classes, n_classes)
        Between them.
    d, t : ndarray, shape (n, n_classes)
        Precisions and potentials of the sites given the level of the observation; see `site_of_classes`.
    """
    precision, potential = site_of_classes(d, t)
    left = np.eye(d.shape[1]) - precision @ covariance
    found = covariance @ np.linalg.inv(left)
    away = mean - np.einsum("nij,nj->ni", covariance, potential)
    return Cavities(
        np.linalg.solve(left.transpose(0, 2, 1), away[..., None])[..., 0],
        0.5 * (found + found.transpose(0, 2, 1)),
        precision,
        potential,
        left,
    )
