"""Model files: fitted estimators written to one file, and read again without the training data."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from gpytorch.kernels import Kernel as GPyTorchKernel
from sklearn.exceptions import NotFittedError

from graphmatern.errors import GraphMaternError, ModelFileError
from graphmatern.graph import Spectrum
from graphmatern.inference import LogNormal
from graphmatern.inference._time_plain import time_kernel_from_plain, time_kernel_to_plain
from graphmatern.io import Codec, pack, read_container, unpack, write_container
from graphmatern.kernels import Kernel
from graphmatern.kernels._plain import kernel_from_plain, kernel_to_plain
from graphmatern.likelihoods import Likelihood
from graphmatern.likelihoods._plain import likelihood_from_plain, likelihood_to_plain

if TYPE_CHECKING:
    from pathlib import Path

    from graphmatern.graph import Graph

__all__ = ["Savable", "load", "spectrum_from_state", "spectrum_state"]

_CODECS = (
    Codec("kernel", Kernel, kernel_to_plain, kernel_from_plain),
    Codec("time kernel", GPyTorchKernel, time_kernel_to_plain, time_kernel_from_plain),
    Codec("likelihood", Likelihood, likelihood_to_plain, likelihood_from_plain),
    Codec("prior", LogNormal, lambda prior: [prior.median, prior.spread], lambda plain: LogNormal(*plain)),
)
# Estimators that can be stored, and where they live.
_HOMES = {
    "GraphGPClassifier": "graphmatern.estimators._classifier",
    "GraphGPRegressor": "graphmatern.estimators._regressor",
    "GraphFieldRegressor": "graphmatern.estimators._field",
}
# A dense decomposition of a component up to this size is quick; its eigenvectors are not worth their bytes.
_QUICK_COMPONENT = 1500


class Savable(ABC):
    """An estimator with ``save``; `load` makes it again from its options and what `_state` returned.

    A subclass is entered in ``_HOMES`` and defines the methods below. Its options (``get_params``) are stored for it.
    """

    @abstractmethod
    def _require_fit(self) -> None:
        """Raise unless the estimator is fitted."""

    @abstractmethod
    def _state(self) -> dict[str, Any]:
        """What fitting found out: numbers, texts, arrays, tables, kernels, and lists and dictionaries of these."""

    @abstractmethod
    def _restore(self, state: dict[str, Any]) -> None:
        """Become fitted again, on a fresh estimator with the same options, from what `_state` returned."""

    def __getstate__(self) -> dict[str, Any]:
        # What was fitted holds factors and closures; pickling stores what a model file would.
        if not _is_fitted(self):
            return dict(vars(self))
        return {
            "_options": self.get_params(deep=False),  # type: ignore[attr-defined]
            "_options_of_fit": self._options_of_fit(),
            "_fitted_state": self._state(),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "_fitted_state" not in state:
            self.__dict__.update(state)
            return
        type(self).__init__(self, **state["_options_of_fit"])
        self._restore(state["_fitted_state"])
        for name, value in state["_options"].items():
            setattr(self, name, value)

    def _options_of_fit(self) -> dict[str, Any]:
        """Options as they were when the model was fitted: those set since are for the next fit."""
        kept = vars(self).get("_fit_options")
        return dict(self.get_params(deep=False) if kept is None else kept)  # type: ignore[attr-defined]

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file; `graphmatern.load` reads it.

        Parameters
        ----------
        path : str or Path
            The file, by custom ending in ``.gm``. It is written whole or not at all, and holds the graph, the options,
            the observations and the learned parameters, in the safetensors format: numbers and text, no code.
        """
        self._require_fit()
        kind = type(self).__name__
        if kind not in _HOMES:
            raise ModelFileError(f"a {kind} cannot be stored; {', '.join(_HOMES)} can be")
        arrays: dict[str, Any] = {}
        packed = pack({"options": self._options_of_fit(), "fitted": self._state()}, arrays, _CODECS)
        write_container(path, kind, packed, arrays)


def _is_fitted(estimator: Savable) -> bool:
    try:
        estimator._require_fit()
    except NotFittedError:
        return False
    return True


def load(path: str | Path) -> Any:
    """Read a model that ``save`` wrote.

    Parameters
    ----------
    path : str or Path
        The file. Reading it executes nothing that it contains.

    Returns
    -------
    GraphGPRegressor or another estimator
        As it was saved: it predicts, and can be conditioned on more data, without the training data.

    Raises
    ------
    ModelFileError
        Where the file is damaged (a single changed byte is noticed), of another kind, or of a later version.

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
        content = unpack(packed, arrays, _CODECS)
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
    graph._keep_spectrum(Spectrum(eigenvalues, eigenvectors, bool(normalized), graph.masses, residuals))
