"""Model files: fitted estimators in one file, which is read without needing the training data."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern.errors import GraphMaternError, ModelFileError
from graphmatern.graph import Spectrum
from graphmatern.inference import Beta, Gamma, HalfNormal, LogNormal, Normal, PCPrior, Prior
from graphmatern.io import Codec, pack, read_container, unpack, write_container
from graphmatern.kernels import Kernel, kernel_from_plain, kernel_to_plain
from graphmatern.likelihoods import Likelihood, likelihood_from_plain, likelihood_to_plain

if TYPE_CHECKING:
    from pathlib import Path

    from graphmatern.graph import Graph

__all__ = ["FIELD_ENGINES", "SPECTRAL_ENGINES", "load", "spectrum_from_state", "spectrum_state", "write_model"]

_PRIORS: dict[str, type[Prior]] = {
    kind.__name__: kind for kind in (Beta, Gamma, HalfNormal, LogNormal, Normal, PCPrior)
}


def _prior_to_plain(prior: Prior) -> list[Any]:
    """A prior as its name and its numbers."""
    return [type(prior).__name__, *vars(prior).values()]


def _prior_from_plain(plain: list[Any]) -> Prior:
    """Return what `_prior_to_plain` was given; two numbers alone are a log-normal prior's, of an older file."""
    name, *numbers = plain if isinstance(plain[0], str) else ["LogNormal", *plain]
    return _PRIORS[name](*numbers)


_CODECS = (
    Codec("kernel", Kernel, kernel_to_plain, kernel_from_plain),
    Codec("likelihood", Likelihood, likelihood_to_plain, likelihood_from_plain),
    Codec("prior", Prior, _prior_to_plain, _prior_from_plain),
)


def _codecs(kind: str) -> tuple[Codec, ...]:
    """How what an estimator of some kind holds is stored; GPyTorch, slow to import, only for those that use it."""
    if kind != "GraphFieldRegressor":
        return _CODECS
    from gpytorch.kernels import Kernel as GPyTorchKernel

    from graphmatern.inference.field import time_kernel_from_plain, time_kernel_to_plain

    return (*_CODECS, Codec("time kernel", GPyTorchKernel, time_kernel_to_plain, time_kernel_from_plain))


# Estimators that can be stored, and where they live.
_HOMES = {
    "GraphGPClassifier": "graphmatern.estimators._classifier",
    "GraphGPRegressor": "graphmatern.estimators._regressor",
    "GraphFieldRegressor": "graphmatern.estimators._field",
}
#: Engines whose eigenpairs are worth storing.
SPECTRAL_ENGINES = ("spectral", "inducing", "eigenvectors")
#: Methods of fields, all of which use eigenpairs.
FIELD_ENGINES = ("kronecker", "dense", "state-space", "iterative")
# A dense decomposition of a component up to this size is quick; its eigenvectors are not worth their bytes.
_QUICK_COMPONENT = 1500


def write_model(path: str | Path, kind: str, content: dict[str, Any]) -> None:
    """Write options and fitted state of an estimator to a file, whole or not at all."""
    if kind not in _HOMES:
        raise ModelFileError(f"a {kind} cannot be stored; {', '.join(_HOMES)} can be")
    arrays: dict[str, Any] = {}
    write_container(path, kind, pack(content, arrays, _codecs(kind)), arrays)


def load(path: str | Path) -> Any:
    """Read a model that ``save`` wrote.

    Parameters
    ----------
    path : str or Path
        The file. Reading it executes nothing that it contains.

    Returns
    -------
    GraphGPRegressor or another estimator
        As it was saved: it can predict and be conditioned on more data without the training data.

    Raises
    ------
    ModelFileError
        If the file is damaged (a single changed byte is detected), of another kind, or from a later version.

    Examples
    --------
    >>> import graphmatern as gm, tempfile, os
    >>> graph = gm.Graph.from_edges([("a", "b"), ("b", "c"), ("c", "d")])
    >>> model = gm.GraphGPRegressor(graph, gm.Matern(nu=1.5), noise=0.1, optimizer=None).fit(["a", "d"], [1.0, 3.0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(os.path.join(folder, "model.gm"))
    ...     again = gm.load(os.path.join(folder, "model.gm"))
    >>> bool((again.predict() == model.predict()).all())
    True
    """
    kind, packed, arrays = read_container(path)
    if kind not in _HOMES:
        raise ModelFileError(f"{str(path)!r} holds a {kind!r:.60}, which this version of graphmatern does not know")
    try:
        content = unpack(packed, arrays, _codecs(kind))
        estimator = getattr(importlib.import_module(_HOMES[kind]), kind)(**content["options"])
        estimator._restore(content["fitted"])
    except GraphMaternError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError, OverflowError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ModelFileError(f"the contents of {str(path)!r} do not fit together ({reason:.200})") from None
    return estimator


def spectrum_state(graph: Graph, n_eigenpairs: int | None, normalized: bool) -> list[Any] | None:
    """Eigenpairs worth storing: those of large graphs; None where computing them again is quick.

    Parameters
    ----------
    graph : Graph
        The graph.
    n_eigenpairs : int, optional
        How many are in use; all by default.
    normalized : bool
        Which Laplacian.
    """
    if np.bincount(graph.components).max() <= _QUICK_COMPONENT:
        return None
    spectrum = graph.spectrum(n_eigenpairs, normalized)
    return [spectrum.eigenvalues, spectrum.eigenvectors, spectrum.residuals, normalized]


def spectrum_from_state(graph: Graph, state: list[Any] | None) -> None:
    """Give the graph the eigenpairs that `spectrum_state` returned."""
    if state is None:
        return
    eigenvalues, eigenvectors, residuals, normalized = state
    shapes = (eigenvalues.shape, eigenvectors.shape, residuals.shape)
    count = len(eigenvalues)
    if shapes != ((count,), (graph.n_nodes, count), (count,)) or not np.isfinite(eigenvectors).all():
        raise ModelFileError("the model file's eigenvectors do not fit its graph")
    graph.keep_spectrum(Spectrum(eigenvalues, eigenvectors, bool(normalized), graph.masses, residuals))
