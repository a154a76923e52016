"""What a fitted classification can tell: classes, probabilities, tables, samples, scores, pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.base import ClassifierMixin

from graphmatern._validation import FaultList, abbreviate, check_whole, random_generator, warn
from graphmatern.errors import TableError, UninformedWarning
from graphmatern.estimators._base import GraphEstimator
from graphmatern.estimators._labels import LabelData, read_labels
from graphmatern.metrics import accuracy, classification_report
from graphmatern.plotting import plot_classes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from graphmatern.likelihoods import Likelihood

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["ClassificationResults"]


class ClassificationResults(ClassifierMixin, GraphEstimator):  # type: ignore[misc]
    """Predictions of a fitted classification."""

    posterior_: Any
    classes_: NDArray[Any]
    kernel_: Any
    likelihood_: Likelihood
    elbo_: float
    inference_: str
    inference_reason_: str
    _data: LabelData

    def predict_latent(self, nodes: Any = None) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the latent processes.

        Parameters
        ----------
        nodes : sequence of hashable, optional
            Node names; all nodes by default.

        Returns
        -------
        mean, std : ndarray, shape (n_names, n_latents)
            One column per class, in the order of `classes_`; for two classes and "bernoulli" one column, which grows
            with the probability of the second.
        """
        self._require_fit()
        places = self.graph.locate(nodes)
        return self.posterior_.latent_mean(places).T, np.sqrt(self.posterior_.latent_variance(places)).T

    def predict_proba(self, nodes: Any = None) -> Floats:
        """Probabilities of the classes, the uncertainty of the latent processes included.

        Parameters
        ----------
        nodes : sequence of hashable, optional
            Node names; all nodes by default.

        Returns
        -------
        ndarray, shape (n_names, n_classes)
            In the order of `classes_`. Where no labels reach a node's component, those of the prior, with a warning.
        """
        self._require_fit()
        places = self.graph.locate(nodes)
        self._warn_of_uninformed(places)
        return np.asarray(self.posterior_.class_probabilities(places))

    def _warn_of_uninformed(self, places: Longs) -> None:
        uninformed = ~self.informed_[places]
        if uninformed.any():
            names = abbreviate(self.graph.nodes[places[uninformed]].tolist())
            warn(f"no labels reach the components of nodes {names}: these predictions are the prior", UninformedWarning)

    def predict(self, nodes: Any = None) -> NDArray[Any]:
        """Most probable class of each node.

        Parameters
        ----------
        nodes : sequence of hashable, optional
            Node names; all nodes by default.

        Returns
        -------
        ndarray, shape (n_names,)
        """
        most = self.predict_proba(nodes).argmax(axis=1)
        return np.asarray(self.classes_[most])

    def predict_table(self) -> pd.DataFrame:
        """Predictions for every node, in a table indexed by node name.

        Returns
        -------
        DataFrame
            Columns label (most probable class), probability (of that class), entropy (in nats; log n_classes where
            nothing is known), informed (False where no labels reach the node's component), and one column ``p(...)``
            with the probability of each class.
        """
        share = self.predict_proba()
        table = pd.DataFrame(
            {
                "label": pd.Series(self.classes_[share.argmax(axis=1)], dtype=self.classes_.dtype).array,
                "probability": share.max(axis=1),
                "entropy": -np.sum(share * np.log(np.maximum(share, np.finfo(float).tiny)), axis=1),
                "informed": self.informed_,
            },
            index=self.graph.nodes,
        )
        for k, label in enumerate(self.classes_.tolist()):
            table[f"p({label})"] = share[:, k]
        return table

    def sample_latent(self, n_samples: int = 1, nodes: Any = None, random_state: int | None = None) -> Floats:
        """Draw latent functions from the approximate posterior.

        Parameters
        ----------
        n_samples : int
            How many.
        nodes : sequence of hashable, optional
            Node names; all nodes by default.
        random_state : int or Generator, optional
            Seed.

        Returns
        -------
        ndarray, shape (n_samples, n_latents, n_names)
        """
        self._require_fit()
        faults = FaultList("no samples", TableError)
        check_whole("n_samples", n_samples, faults, minimum=1, remedy="Draw at least one.")
        faults.raise_if_any()
        rng = random_generator(random_state, TableError)
        places = self.graph.locate(nodes)
        return np.asarray(self.posterior_.joint_samples(n_samples, places, rng))

    def loo(self) -> pd.DataFrame:
        """Leave-one-out predictions of the labels, by taking their sites out of the posterior.

        Returns
        -------
        DataFrame
            One row per label: node, label, probability (of that label given all others; the conditional predictive
            ordinate), log_density (its logarithm) and predicted (the most probable class).
        """
        self._require_fit()
        share = self.posterior_.left_out_classes()
        codes = self._data.codes
        own = np.maximum(share[np.arange(len(codes)), codes], np.finfo(float).tiny)
        return pd.DataFrame(
            {
                "node": self.graph.nodes[self._data.nodes],
                "label": self.classes_[codes],
                "probability": own,
                "log_density": np.log(own),
                "predicted": self.classes_[share.argmax(axis=1)],
            }
        )

    def score(self, nodes: Any, y: Any = None, sample_weight: None = None) -> float:
        """Share of labels that are predicted; None and NaN in ``y`` are passed over.

        Parameters
        ----------
        nodes : sequence of hashable, or Series
            Node names; or true labels indexed by node name.
        y : sequence of hashable, optional
            True labels.
        sample_weight : None
            Not supported.
        """
        self._require_fit()
        if sample_weight is not None:
            faults = FaultList("no score", TableError)
            raise faults.raise_now("sample_weight", "must be None", type(sample_weight).__name__, "Leave it out.")
        held_back = read_labels(self.graph, nodes, y, self.classes_)
        predicted = self.predict(self.graph.nodes[held_back.nodes])
        return accuracy(self.classes_[held_back.codes].tolist(), predicted.tolist())

    def evaluate(self, nodes: Any, y: Any = None) -> dict[str, float]:
        """Score predictions of held-back labels: accuracy, log loss, calibration error.

        Parameters
        ----------
        nodes : sequence of hashable, or Series
            Node names; or true labels indexed by node name.
        y : sequence of hashable, optional
            True labels; None and NaN are passed over.

        Returns
        -------
        dict
            See `metrics.classification_report`.
        """
        self._require_fit()
        held_back = read_labels(self.graph, nodes, y, self.classes_)
        share = self.predict_proba(self.graph.nodes[held_back.nodes])
        return classification_report(held_back.codes.tolist(), share, range(len(self.classes_)))

    def plot(self, axes: Sequence[Axes] | None = None, **options: Any) -> NDArray[Any]:
        """Draw the most probable classes and, beside them, how uncertain they are.

        Parameters
        ----------
        axes : sequence of two Axes, optional
            Where to draw; a new figure by default.
        **options
            As `plotting.plot_classes` takes them, such as ``cmap``.

        Returns
        -------
        ndarray of two Axes
            Labelled nodes have a ring.
        """
        share = self.predict_proba()
        marked = self.graph.nodes[np.unique(self._data.nodes)]
        return plot_classes(self.graph, share, self.classes_.tolist(), axes, marked=marked, **options)

    def summary(self) -> str:
        """Describe the fit in a few lines of text."""
        self._require_fit()
        count = np.bincount(self._data.codes, minlength=len(self.classes_))
        evidence = "approximate log evidence" if self.likelihood_.approximation != "bound" else "evidence lower bound"
        shares = ", ".join(f"{label} {n:,}" for label, n in zip(self.classes_.tolist(), count.tolist(), strict=True))
        return "\n".join(
            [
                f"{len(self._data.nodes):,} labels on {self.graph!r}",
                f"classes   {shares}",
                f"inference {self.inference_} ({self.inference_reason_})",
                f"kernel    {self.kernel_!r}",
                f"likelihood {self.likelihood_!r}",
                f"{evidence} {self.elbo_:.4f}",
                *self._fit_lines(),
            ]
        )
