"""The layers of the map on an estimator's page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern.plotting import UNSURE, colour_limits
from graphmatern.report import Layer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["class_layers", "number_layers"]

_SHOWN_CLASSES = 12  # whose probabilities have a layer of their own


def number_layers(model: Any, arrays: dict[str, Any], unit: str, observed: str) -> list[Layer]:
    """Layers of a prediction of numbers, at one time or at several; the colours are those of the model's pictures."""
    std, informed, limits = arrays["std"], model.informed_, model._limits()
    unsure = colour_limits(std[..., informed] if informed.any() else std, 0.0, 0.98)
    layers = [
        Layer(
            "mean",
            "Prediction",
            "predicted mean",
            "The expected value at each place, given all observations.",
            "mean",
            limits=limits,
            unit=unit,
        ),
        Layer(
            "std",
            "Uncertainty",
            "± standard deviation",
            "How far off the prediction may be: the paler, the less certain.",
            "std",
            colours=UNSURE,
            limits=unsure,
            unit=unit,
        ),
        Layer(
            "exceedance",
            "Exceedance",
            "probability",
            "The probability that the value is beyond the threshold; move the slider.",
            kind="share",
            colours=("plasma", "plasma"),
        ),
        Layer(
            "observed",
            "Observed",
            observed,
            "What was observed, in the colours of the prediction.",
            "observed",
            limits=limits,
            unit=unit,
            missing="not observed",
        ),
    ]
    residual = arrays.get("residual")
    if residual is not None and np.isfinite(residual).any():
        size = float(np.nanquantile(np.abs(residual), 0.98)) or 1.0
        layers.append(
            Layer(
                "residual",
                "Residual",
                "observed minus predicted by the others",
                "How far each observation is from its prediction by all the others. Clusters of one colour are places "
                "that the model does not describe well.",
                "residual",
                colours=("PuOr_r", "PuOr_r"),
                limits=(-size, size),
                unit=unit,
                missing="not observed",
            )
        )
    return layers


def class_layers(names: list[str], arrays: dict[str, Any], share: Floats) -> list[Layer]:
    """Layers of a prediction of classes; the probabilities, of shape (n_nodes, n_classes), are put into the arrays."""
    layers = [
        Layer(
            "label",
            "Class",
            "most probable class",
            "The class that is most probable at each node.",
            "label",
            "classes",
            classes=names,
        ),
        Layer(
            "entropy",
            "Uncertainty",
            "uncertainty",
            "The entropy of the probabilities, as a share of the largest possible: pale nodes could be any class.",
            "entropy",
            "share",
            colours=UNSURE,
        ),
        Layer(
            "observed",
            "Labelled",
            "given label",
            "The labels from which the model learned.",
            "observed",
            "classes",
            classes=names,
            missing="no label",
        ),
    ]
    for k, name in enumerate(names[:_SHOWN_CLASSES]):
        key = f"share.{k}"
        arrays[key] = share[:, k]
        words = f"How probable {name} is at each node."
        layers.append(
            Layer(
                key,
                f"Probability of {name}",
                f"probability of {name}",
                words,
                key,
                "share",
                colours=("cividis", "cividis"),
            )
        )
    return layers
