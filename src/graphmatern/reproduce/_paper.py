"""What the paper reports, and the protocol of its experiments."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CELLS", "LAPLACIANS", "METHODS", "PAPER_NU", "PAPER_TABLE", "Cell"]

METHODS = {
    "matern": "Matérn",
    "diffusion": "diffusion",
    "random_walk": "random walk",
    "inverse_cosine": "inverse cosine",
    "mean": "training mean",
    "neighbours": "nearest neighbours on the graph",
    "euclidean": "Gaussian process on the coordinates",
    "propagation": "label propagation",
}
LAPLACIANS = {"plain": "Δ", "normalized": "Δ̃", "none": "–"}


@dataclass(frozen=True)
class Cell:
    """One cell of Table 1, or a baseline beside it.

    Attributes
    ----------
    experiment : {"traffic", "cora"}
        Regression of speeds, or classification of papers.
    method : str
        Key of ``METHODS``.
    laplacian : {"plain", "normalized", "none"}
        Which Laplacian; none for baselines.
    """

    experiment: str
    method: str
    laplacian: str = "none"

    @property
    def name(self) -> str:
        """Name for files."""
        return "-".join([self.experiment, self.laplacian, self.method])


# Mean and standard deviation over ten random splits: RMSE in miles per hour, and accuracy.
PAPER_TABLE = {
    Cell("traffic", "matern", "plain"): (11.86, 0.69),
    Cell("traffic", "diffusion", "plain"): (11.95, 0.69),
    Cell("traffic", "matern", "normalized"): (12.82, 0.95),
    Cell("traffic", "diffusion", "normalized"): (12.90, 0.95),
    Cell("traffic", "random_walk", "normalized"): (13.16, 1.04),
    Cell("traffic", "inverse_cosine", "normalized"): (16.63, 0.95),
    Cell("cora", "matern", "plain"): (0.79, 0.01),
    Cell("cora", "diffusion", "plain"): (0.79, 0.02),
    Cell("cora", "matern", "normalized"): (0.79, 0.01),
    Cell("cora", "diffusion", "normalized"): (0.78, 0.01),
    Cell("cora", "random_walk", "normalized"): (0.78, 0.02),
    Cell("cora", "inverse_cosine", "normalized"): (0.48, 0.02),
}
PAPER_NU = {"traffic": (1.8, 0.9), "cora": (3.2, 2.7)}  # of the Matérn kernel
BASELINES = [
    Cell("traffic", "mean"),
    Cell("traffic", "neighbours"),
    Cell("traffic", "euclidean"),
    Cell("cora", "neighbours"),
    Cell("cora", "propagation"),
]
CELLS = [*PAPER_TABLE, *BASELINES]
