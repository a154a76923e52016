"""BoTorch's side of Bayesian optimisation over nodes; imported only where BoTorch is there."""

from __future__ import annotations

from typing import Any

import botorch
import gpytorch
import torch
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.models.transforms import Standardize
from botorch.posteriors import GPyTorchPosterior
from linear_operator.operators import DiagLinearOperator

__all__ = ["NodeMarginals", "single_task_model"]


def single_task_model(x: torch.Tensor, y: torch.Tensor, noise: torch.Tensor | None, kernel: Any) -> SingleTaskGP:
    """BoTorch's standard model with our kernel, observations standardised; x (n, 1), y (n,)."""
    with botorch.settings.validate_input_scaling(state=False):  # node positions are not coordinates
        model = SingleTaskGP(
            x, y[:, None], noise, covar_module=kernel, outcome_transform=Standardize(m=1), input_transform=None
        )
    return model.double()


class NodeMarginals(Model):  # type: ignore[misc]
    """Means and variances of a model at all nodes, computed once, for acquisition functions that need no more.

    BoTorch asks for one candidate at a time, each as a batch of its own; to a Gaussian process that would be as many
    predictions as there are nodes.

    Parameters
    ----------
    mean, variance : Tensor, shape (n_nodes,)
        Of the process at all nodes.
    """

    num_outputs = 1
    batch_shape = torch.Size()

    def __init__(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        super().__init__()
        self.mean, self.variance = mean, variance

    def posterior(self, X: torch.Tensor, *args: Any, **kwargs: Any) -> GPyTorchPosterior:
        """Posterior at node positions X, shape (..., 1, 1), as if nodes were independent."""
        del args, kwargs
        places = X[..., 0].long()
        diagonal = DiagLinearOperator(self.variance[places])
        return GPyTorchPosterior(gpytorch.distributions.MultivariateNormal(self.mean[places], diagonal))
