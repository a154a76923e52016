"""Covariances between nodes of large graphs: polynomials of the Laplacian, without eigenpairs.

K = Σ_k c_k T_k(S), as in the moments engine, with a degree that follows from the parameters. What does not change with
these, the moments T_k(S)[x, x] at training nodes, is kept with the graph; what does, the columns K_·x, is kept until
they change. Nothing has more than (number of nodes) × (number of training nodes) entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gpytorch
import numpy as np
import torch
from gpytorch.lazy import LazyEvaluatedKernelTensor
from gpytorch.models.exact_prediction_strategies import DefaultPredictionStrategy
from linear_operator.utils.errors import NanError
from torch.autograd.function import once_differentiable

from graphmatern._validation import FaultList
from graphmatern.errors import KernelError, NumericalError, ResourceError
from graphmatern.inference.moments.degrees import MOST_DEGREE, TOLERANCE, first_below, truncation_errors
from graphmatern.inference.moments.kept import KeptMoments, kept_moments
from graphmatern.inference.moments.operator import coefficients_from_values
from graphmatern.inference.moments.prior import PriorField
from graphmatern.interop._node_covariances import NodeCovariances
from graphmatern.sparse import available_memory, format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from graphmatern.graph import Graph, Spectrum
    from graphmatern.interop._node_covariances import Weights

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["NodePolynomials"]

_EXACT = 256  # nodes at a time whose variances are computed one by one; estimates for all nodes cost about as much
_MEMORY_SHARE = 0.5  # of the memory available, for one matrix of covariances


class DegreeError(NumericalError, NanError):  # type: ignore[misc]
    """No polynomial of reasonable degree expresses a kernel.

    To BoTorch's optimisers, that is a place where the objective has no value, from which they step back.
    """


class NodePolynomials(NodeCovariances):
    """Through Chebyshev polynomials of one of the graph's Laplacians.

    Parameters
    ----------
    graph : Graph
        The graph.
    normalized : bool
        Which Laplacian.

    Attributes
    ----------
    variance_error : float
        Standard error of the prior variances last computed, relative, root mean square; 0 where they are exact.
    """

    def __init__(self, graph: Graph, normalized: bool) -> None:
        super().__init__(graph)
        self.normalized = normalized
        self.variance_error = 0.0
        self.strategy = LazyPredictionStrategy
        self._fields: dict[bytes, PriorField] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_fields": {}}

    @property
    def kept(self) -> KeptMoments:
        """Moments that are kept with the graph."""
        return kept_moments(self.graph, self.normalized)

    @property
    def spectrum(self) -> Spectrum:
        """Raises: there are no eigenpairs."""
        faults = FaultList("this NodeKernel has no eigenvectors", KernelError)
        rule = "must be given where eigenvectors of a large graph are needed"
        raise faults.raise_now("n_eigenpairs", rule, "None", "Use NodeKernel(graph, n_eigenpairs=500), for instance.")

    @property
    def description(self) -> str:
        """Of which Laplacian polynomials are taken."""
        return f"polynomials of its {'normalised ' if self.normalized else ''}Laplacian"

    # ------------------------------------------------------------------ the kernel's function
    def degree(self, weights: Weights) -> int:
        """Degree at which a kernel's function is accurate to 1e-10 of its largest value."""
        operator = self.kept.operator
        degree = first_below(truncation_errors(weights, operator, MOST_DEGREE), TOLERANCE)
        if degree is None:
            raise DegreeError(
                f"no polynomial of degree {MOST_DEGREE:,} expresses this kernel on this graph, whose Laplacian has "
                f"eigenvalues up to {operator.high:.3g}. Likely causes: (a) a long lengthscale: bound it, for instance "
                "with lengthscale_constraint=gpytorch.constraints.Interval(0.1, 50.0); (b) weights or degrees over "
                "many orders of magnitude: use normalized=True. Or use n_eigenpairs=500."
            )
        return degree

    def values(self, weights: Weights, degree: int) -> torch.Tensor:
        """The kernel's function at the Chebyshev points of a degree, differentiable; shape (*batch, degree + 1)."""
        operator = self.kept.operator
        points, norms = operator.eigenvalues(degree), operator.squared_norms(degree)
        return weights(torch.as_tensor(points), torch.as_tensor(norms), self.graph.n_nodes).squeeze(-2)

    def fields(self, values: torch.Tensor) -> list[PriorField]:
        """The process on all nodes, for each of a batch of values; kept until values change."""
        flat = values.detach().reshape(-1, values.shape[-1]).numpy()
        keys = [one.tobytes() for one in flat]
        transform = coefficients_from_values(flat.shape[1] - 1)
        found = {}
        for key, one in zip(keys, flat, strict=True):
            both = np.stack([one, np.sqrt(np.maximum(one, 0.0))], axis=1)
            found[key] = self._fields.get(key) or PriorField(self.kept.operator, *(transform @ both).T)
        self._fields = found
        return [found[key] for key in keys]

    # ------------------------------------------------------------------ covariances
    def between(self, weights: Weights, x1: torch.Tensor, x2: torch.Tensor, like: torch.Tensor, training: bool) -> Any:
        """Covariances, dense in training; see `NodeCovariances.between`."""
        one = torch.ones(1, dtype=torch.float64)
        batch = weights(one, one, 1).shape[:-2]
        evaluated = _Evaluated(self, weights, like, training=training, batch_shape=batch)
        if not training and x1.shape == x2.shape and torch.equal(x1, x2):
            self.positions(x1)
            # Between test nodes, GPyTorch often wants variances only.
            return LazyEvaluatedKernelTensor(x1, x2, kernel=evaluated)
        return evaluated.forward(x1, x2)

    def dense(
        self, weights: Weights, x1: torch.Tensor, x2: torch.Tensor, like: torch.Tensor, training: bool
    ) -> torch.Tensor:
        """Covariances, dense, shape (..., n1, n2); arguments as in `between`."""
        places1, places2 = self.positions(x1).cpu()[..., :, None], self.positions(x2).cpu()[..., None, :]
        return self._pairs(weights, places1, places2, training=training, n_own=2).to(like)

    def diagonal(self, weights: Weights, x1: torch.Tensor, x2: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """Covariances of pairs of nodes, shape (..., n)."""
        places1, places2 = self.positions(x1).cpu(), self.positions(x2).cpu()
        same = places1.shape == places2.shape and torch.equal(places1, places2)
        if not same:
            return self._pairs(weights, places1, places2, training=False, n_own=1).to(like)
        distinct, place = torch.unique(places1, return_inverse=True)
        return _entries(self._variances(weights, distinct.numpy()), (place,), n_own=1).to(like)

    def _pairs(
        self, weights: Weights, one: torch.Tensor, two: torch.Tensor, *, training: bool, n_own: int
    ) -> torch.Tensor:
        """Covariances of pairs of nodes, in two tensors that are broadcast; all but ``n_own`` axes are batches."""
        shape = torch.broadcast_shapes(one.shape, two.shape)  # type: ignore[no-untyped-call]
        left, place1 = torch.unique(one, return_inverse=True)
        right, place2 = torch.unique(two, return_inverse=True)
        if len(left) * len(right) <= shape.numel():
            matrix = self._matrix(weights, left.numpy(), right.numpy(), training)
            return _entries(matrix, (place1, place2), n_own)
        # Batches of nodes of their own, often of one node each: what stands on the diagonal is most of it.
        one, two = one.expand(shape).contiguous(), two.expand(shape).contiguous()
        same = one == two
        found = torch.zeros((), dtype=torch.float64)
        if not same.all():
            left, right = torch.unique(one[~same]), torch.unique(two[~same])
            places = _places(left, one), _places(right, two)
            found = _entries(self._matrix(weights, left.numpy(), right.numpy(), training), places, n_own)
        if same.any():
            distinct = torch.unique(one[same])
            variances = _entries(self._variances(weights, distinct.numpy()), (_places(distinct, one),), n_own)
            found = torch.where(same, variances, found)
        return found

    def _matrix(self, weights: Weights, left: Longs, right: Longs, training: bool) -> torch.Tensor:
        """Covariances between nodes, each once, ascending; shape (*batch, n_left, n_right)."""
        degree, kept = self.degree(weights), self.kept
        nodes = np.union1d(left, right)
        square = len(nodes) == len(left) == len(right)
        if kept.knows(nodes, degree) or ((training or square) and kept.fits(len(nodes), degree)):
            moments = kept.between(left, right, degree)
            flat = self._combined(weights, moments.reshape(len(moments), -1))
            return flat.reshape(*flat.shape[:-1], len(left), len(right))
        values = self.values(weights, degree)
        needed = 8 * values[..., 0].numel() * len(left) * len(right)
        if needed > _MEMORY_SHARE * available_memory():
            raise ResourceError(
                f"covariances between {len(left):,} and {len(right):,} nodes need {format_bytes(needed)} of memory, of "
                f"{format_bytes(available_memory())} available. Ask for variances only, predict for fewer nodes at a "
                "time, or use n_eigenpairs=500, with which covariances are of low rank."
            )
        # GPyTorch has training nodes on the right: their columns are wanted again for other nodes on the left.
        if len(right) > 4 * len(left):
            turned: torch.Tensor = _Columns.apply(values, self, right, left, False)  # type: ignore[no-untyped-call]
            return turned.mT
        columns: torch.Tensor = _Columns.apply(values, self, left, right, not square)  # type: ignore[no-untyped-call]
        return columns

    def _variances(self, weights: Weights, nodes: Longs) -> torch.Tensor:
        """Prior variances of nodes, each once; shape (*batch, n)."""
        degree, kept = self.degree(weights), self.kept
        if len(nodes) <= _EXACT or not kept.unknown(nodes, degree):
            self.variance_error = 0.0
            return self._combined(weights, kept.diagonals(nodes, degree))
        values = self.values(weights, degree)
        found: torch.Tensor = _EstimatedVariances.apply(values, self, nodes)  # type: ignore[no-untyped-call]
        return found

    def _combined(self, weights: Weights, moments: Floats) -> torch.Tensor:
        """Σ_k c_k M_k for moments of shape (degree + 1, n), differentiable; shape (*batch, n)."""
        degree = len(moments) - 1
        coefficients = self.values(weights, degree) @ torch.as_tensor(coefficients_from_values(degree)).mT
        return coefficients @ torch.from_numpy(moments)

    def draw(self, weights: Weights, n_samples: int, rng: np.random.Generator, like: torch.Tensor) -> torch.Tensor:
        """Draws of the process on all nodes; shape (n_samples, n_nodes)."""
        (field,) = self.fields(self.values(weights, self.degree(weights)))
        return torch.from_numpy(field.draw(n_samples, rng)).mT.to(like)


def _places(nodes: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Where nodes stand among ascending ones; anywhere for those that do not."""
    return torch.searchsorted(nodes, x).clamp_max(len(nodes) - 1)


def _entries(found: torch.Tensor, places: Sequence[torch.Tensor], n_own: int) -> torch.Tensor:
    """Entries of a batch of vectors or matrices, one for each kernel, at given places.

    Parameters
    ----------
    found : Tensor, shape (*batch, n) or (*batch, n_left, n_right)
        Of each kernel.
    places : sequence of Tensor
        One for each axis after the batch; they are broadcast.
    n_own : int
        How many of their last axes are not batches; those before are broadcast against the batch of kernels.
    """
    batch = found.shape[: found.dim() - len(places)]
    steps = [torch.arange(size).reshape(-1, *(1,) * (len(batch) - axis - 1 + n_own)) for axis, size in enumerate(batch)]
    return found[(*steps, *places)]


class _Evaluated(gpytorch.kernels.Kernel):  # type: ignore[misc]
    """A kernel at its present parameters, for covariances that GPyTorch evaluates when it needs them."""

    def __init__(
        self, source: NodePolynomials, weights: Weights, like: torch.Tensor, *, training: bool, batch_shape: torch.Size
    ) -> None:
        super().__init__(batch_shape=batch_shape)
        self.__dict__["_arguments"] = source, weights, like, training

    def forward(self, x1: torch.Tensor, x2: torch.Tensor, diag: bool = False, **params: Any) -> torch.Tensor:
        del params
        arguments: tuple[NodePolynomials, Weights, torch.Tensor, bool] = self.__dict__["_arguments"]
        source, weights, like, training = arguments
        if diag:
            return source.diagonal(weights, x1, x2, like)
        return source.dense(weights, x1, x2, like, training)


class _Columns(torch.autograd.Function):
    """Covariances through columns of K, which are kept; their derivatives take products once more."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, source: NodePolynomials, left: Longs, right: Longs, keep: bool) -> Any:
        ctx.source, ctx.left, ctx.right = source, left, right
        ctx.shape = values.shape
        found = np.stack([field.between(left, right, keep=keep) for field in source.fields(values)])
        return torch.from_numpy(found).reshape(*values.shape[:-1], len(left), len(right))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, change: torch.Tensor) -> Any:
        operator, degree = ctx.source.kept.operator, ctx.shape[-1] - 1
        nodes = np.union1d(ctx.left, ctx.right)
        places = np.searchsorted(nodes, ctx.left), np.searchsorted(nodes, ctx.right)
        units = np.zeros((len(nodes), len(ctx.right)))
        units[places[1], np.arange(len(ctx.right))] = 1.0
        found = []
        for one in change.reshape(-1, len(ctx.left), len(ctx.right)).numpy():
            full = np.zeros(units.shape)
            full[places[0]] = one
            found.append(operator.forms(nodes, full, units, degree).sum(axis=1))
        pulled = np.stack(found) @ coefficients_from_values(degree)
        return torch.from_numpy(pulled).reshape(ctx.shape), None, None, None, None


class _EstimatedVariances(torch.autograd.Function):
    """Prior variances from probes; their derivatives, where they are wanted, are exact, at the price of exact ones."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, source: NodePolynomials, nodes: Longs) -> Any:
        ctx.source, ctx.nodes, ctx.shape = source, nodes, values.shape
        estimates = [field.estimated_variances for field in source.fields(values)]
        rows = source.fields(values)[0].rows
        source.variance_error = max(estimate.relative_error(rows) for estimate in estimates)
        found = np.stack([estimate.values[nodes] for estimate in estimates])
        return torch.from_numpy(found).reshape(*values.shape[:-1], len(nodes))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, change: torch.Tensor) -> Any:
        degree = ctx.shape[-1] - 1
        moments = torch.from_numpy(ctx.source.kept.diagonals(ctx.nodes, degree)[: degree + 1])
        return change @ moments.mT @ torch.as_tensor(coefficients_from_values(degree)), None, None


class LazyPredictionStrategy(DefaultPredictionStrategy):  # type: ignore[misc]
    """GPyTorch's predictions, but covariances between test nodes only if they are asked for, as they are costly."""

    def exact_prediction(self, *args: Any, **kwargs: Any) -> Any:
        """Predictive mean and covariance; see GPyTorch."""
        with gpytorch.settings.max_eager_kernel_size(0):
            return super().exact_prediction(*args, **kwargs)
