"""Further arguments of predictions: exposures of counts, and covariates of observations, at some nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern._validation import FaultList, abbreviate, as_numbers
from graphmatern.errors import TableError
from graphmatern.estimators._covariates import own_covariates
from graphmatern.estimators._data import aligned
from graphmatern.likelihoods import Counts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.estimators._results import RegressionResults
    from graphmatern.inference import Mixture, Posterior

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["offset_asked", "posterior_asked"]


def offset_asked(model: RegressionResults, places: Longs, exposure: Any, subject: str) -> Floats | float:
    """Known part of the latent process: the level of counts, and the logarithm of an exposure per node."""
    if exposure is None:
        return model._level
    faults = FaultList(subject, TableError)
    if not isinstance(model.likelihood_, Counts):
        rule = "must be left out unless the model is for counts"
        raise faults.raise_now("exposure", rule, "some", "Use likelihood='poisson'.")
    given = aligned(exposure, model.graph.nodes[places], "exposure", faults)
    numbers = as_numbers(given, "exposure", faults, minimum=0.0)
    if numbers.shape not in ((), places.shape):
        faults.add("exposure", f"must have shape {places.shape}", f"shape {numbers.shape}", "One per node.")
    faults.raise_if_any()
    return np.asarray(model._level + np.log(np.maximum(numbers, 1e-300)))  # no people, no cases


def posterior_asked(model: RegressionResults, places: Longs, covariates: Any, subject: str) -> Posterior | Mixture:
    """What to predict at some nodes, including covariates of observations if given."""
    if covariates is None:
        return model.posterior_
    faults, names = FaultList(subject, TableError), model._covariates.own_names
    if not names:
        rule = "must be left out unless `fit` was given covariates of observations"
        raise faults.raise_now("covariates", rule, "some", "Covariates of nodes are known from the constructor.")
    if isinstance(covariates, Mapping):
        covariates = pd.DataFrame({name: np.broadcast_to(v, places.shape) for name, v in covariates.items()})
    given = aligned(covariates, model.graph.nodes[places], "covariates", faults)
    own = own_covariates(given, len(places), faults)
    if own is not None and isinstance(covariates, pd.DataFrame):
        absent = [name for name in names if name not in own.names]
        if absent:
            faults.add("covariates", "must have those of `fit`", f"none called {abbreviate(absent)}", "Add them.")
    elif own is not None and len(own.names) != len(names):
        faults.add("covariates", f"must have {len(names)} columns", f"{len(own.names)}", "As `fit` was given.")
    faults.raise_if_any()
    assert own is not None
    order = [own.names.index(name) for name in names] if isinstance(covariates, pd.DataFrame) else slice(None)
    design = model._covariates.design_of(places, own.values[:, order])
    assert design is not None
    return model.posterior_.given(design)
