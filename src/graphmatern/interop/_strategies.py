"""Variational strategies for GPyTorch: q is a Gaussian over whitened coefficients of a few features of the nodes.

With v ~ N(0, I) and features Φ(x) such that cov(f(x), v) = Φ(x), a Gaussian q(v) = N(m, S) gives

    q(f_x) = N(μ_x + Φ m, K_xx + Φ (S − I) Φᵀ),

where K_xx − ΦΦᵀ is the residual prior, which v does not explain. Eigenvectors and inducing nodes differ in Φ only.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import gpytorch
import torch
from gpytorch.variational._variational_strategy import _VariationalStrategy
from linear_operator import to_dense
from linear_operator.operators import DiagLinearOperator, MatmulLinearOperator, SumLinearOperator
from linear_operator.utils.cholesky import psd_safe_cholesky

from graphmatern._validation import FaultList
from graphmatern.errors import KernelError

if TYPE_CHECKING:
    from graphmatern.interop._node_kernel import NodeKernel

__all__ = ["EigenvectorStrategy", "FeatureStrategy", "InducingNodeStrategy"]


class FeatureStrategy(_VariationalStrategy):  # type: ignore[misc]
    """A whitened variational strategy whose inducing variables are coefficients of features; see the subclasses.

    Parameters
    ----------
    model : gpytorch.models.ApproximateGP
        The model; its prior covariance must be ``kernel``, or a sum of which ``kernel`` is a term.
    kernel : NodeKernel
        The kernel on the nodes.
    variational_distribution : gpytorch variational distribution
        Of any kind: full, diagonal, natural, a point mass. Its batch shape is that of the latent processes.
    inducing : Tensor, shape (n_coefficients, 1)
        What the coefficients belong to.
    jitter_val : float, optional
        Added to diagonals before they are factorised; GPyTorch's setting by default.
    """

    def __init__(
        self,
        model: Any,
        kernel: NodeKernel,
        variational_distribution: Any,
        inducing: torch.Tensor,
        jitter_val: float | None = None,
    ) -> None:
        super().__init__(
            model, inducing, variational_distribution, learn_inducing_locations=False, jitter_val=jitter_val
        )
        # Not a submodule: the model registers it, and its parameters are to have one name.
        object.__setattr__(self, "kernel", kernel)

    @property
    def jitter_val(self) -> float:
        """What is added to diagonals: GPyTorch goes by the type of the inducing points, which may be integers here."""
        if self._jitter_val is not None:
            return float(self._jitter_val)
        return float(gpytorch.settings.variational_cholesky_jitter.value(dtype=self.kernel.dtype))

    @abstractmethod
    def features(self, x: torch.Tensor) -> torch.Tensor:
        """Φ(x) = cov(f(x), v); shape (..., n, n_coefficients)."""

    def nodes(self, x: torch.Tensor) -> torch.Tensor:
        """The column of node positions of model inputs; shape (..., n, 1)."""
        columns = self.kernel.active_dims
        return x if columns is None else x.index_select(-1, columns)

    @property
    def prior_distribution(self) -> gpytorch.distributions.MultivariateNormal:
        """Prior of the whitened coefficients, N(0, I)."""
        q = self._variational_distribution
        zeros = torch.zeros(q.shape(), dtype=q.dtype, device=q.device)
        return gpytorch.distributions.MultivariateNormal(zeros, DiagLinearOperator(torch.ones_like(zeros)))

    def forward(
        self,
        x: torch.Tensor,
        inducing_points: torch.Tensor,
        inducing_values: torch.Tensor,
        variational_inducing_covar: Any = None,
        diag: bool = True,
        **kwargs: Any,
    ) -> gpytorch.distributions.MultivariateNormal:
        """Return q(f_x); in training, where only marginals are needed, with a diagonal covariance."""
        del inducing_points
        prior = self.model.forward(x, **kwargs)
        features = self.features(x)
        mean = prior.mean + (features @ inducing_values.unsqueeze(-1)).squeeze(-1)
        # (S − I) Φᵀ
        change = -features.mT
        if variational_inducing_covar is not None:
            change = variational_inducing_covar.matmul(features.mT) + change
        covariance = prior.lazy_covariance_matrix
        if self.training and diag:
            variance = covariance.diagonal(dim1=-1, dim2=-2) + (features * change.mT).sum(dim=-1)
            return gpytorch.distributions.MultivariateNormal(mean, DiagLinearOperator(variance))
        shape = torch.broadcast_shapes(covariance.batch_shape, change.shape[:-2])  # type: ignore[no-untyped-call]
        size = covariance.shape[-2:]
        update = MatmulLinearOperator(features.expand(*shape, *features.shape[-2:]), change.expand(*shape, -1, size[1]))
        return gpytorch.distributions.MultivariateNormal(
            mean, SumLinearOperator(covariance.expand(*shape, *size), update)
        )


class EigenvectorStrategy(FeatureStrategy):
    """Interdomain inducing variables: coefficients on the leading eigenvectors of the graph's Laplacian.

    Their prior is diagonal, so there is nothing to invert, and each added eigenvector can only raise the evidence
    lower bound; with all of the kernel's eigenpairs the strategy is exact. What the others contribute to the prior
    stays in q.

    Parameters
    ----------
    model : gpytorch.models.ApproximateGP
        The model; its prior covariance must be ``kernel``, or a sum of which ``kernel`` is a term.
    kernel : NodeKernel
        The kernel on the nodes.
    variational_distribution : gpytorch variational distribution
        Over as many coefficients as there are eigenvectors to use, at most the kernel's eigenpairs.

    Examples
    --------
    >>> import gpytorch, torch
    >>> import graphmatern as gm
    >>> class Model(gpytorch.models.ApproximateGP):
    ...     def __init__(self, graph):
    ...         kernel = gm.interop.NodeKernel(graph, gm.Matern(lengthscale=3.0))
    ...         q = gpytorch.variational.CholeskyVariationalDistribution(20)
    ...         super().__init__(gm.interop.EigenvectorStrategy(self, kernel, q))
    ...         self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), kernel
    ...
    ...     def forward(self, x):
    ...         return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))
    >>> Model(gm.make_roads(100, seed=0)).eval()(torch.tensor([[3], [5]])).mean.shape
    torch.Size([2])
    """

    def __init__(self, model: Any, kernel: NodeKernel, variational_distribution: Any) -> None:
        count, most = variational_distribution.num_inducing_points, kernel.basis.spectrum.n_eigenpairs
        if count > most:
            faults = FaultList("no EigenvectorStrategy was made", KernelError)
            rule = f"must have at most as many coefficients as the kernel has eigenpairs ({most})"
            raise faults.raise_now("variational_distribution", rule, str(count), "Use fewer, or more eigenpairs.")
        super().__init__(model, kernel, variational_distribution, torch.arange(count)[:, None])

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """The first columns of U_x diag(w)^(1/2); shape (..., n, n_coefficients)."""
        count: int = self.inducing_points.shape[-2]
        found: torch.Tensor = self.kernel.features(self.nodes(x))[..., :count]
        return found


class InducingNodeStrategy(FeatureStrategy):
    """Inducing variables are the values of the process on the nodes at some of them, whitened: v = L⁻¹ f_z, K_zz = LLᵀ.

    The same q(f) as GPyTorch's ``VariationalStrategy`` gives, but batches of latent processes with one kernel share
    one factorisation.

    Parameters
    ----------
    model : gpytorch.models.ApproximateGP
        The model; its prior covariance must be ``kernel``, or a sum of which ``kernel`` is a term.
    kernel : NodeKernel
        The kernel on the nodes.
    nodes : Tensor, shape (n_inducing, 1)
        Positions of the inducing nodes.
    variational_distribution : gpytorch variational distribution
        Over as many values.
    jitter_val : float, optional
        Added to the diagonal of K_zz; GPyTorch's setting by default.
    """

    def __init__(
        self,
        model: Any,
        kernel: NodeKernel,
        nodes: torch.Tensor,
        variational_distribution: Any,
        jitter_val: float | None = None,
    ) -> None:
        super().__init__(model, kernel, variational_distribution, nodes, jitter_val)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """K_xz L⁻ᵀ; shape (..., n, n_inducing)."""
        z = self.inducing_points
        covariance = to_dense(self.kernel.forward(z, z))
        jitter = self.jitter_val * torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
        root: torch.Tensor = psd_safe_cholesky(covariance + jitter)
        cross = to_dense(self.kernel.forward(self.nodes(x), z))
        solved: torch.Tensor = torch.linalg.solve_triangular(root, cross.mT, upper=False)
        return solved.mT
