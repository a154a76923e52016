"""A GPyTorch kernel over the nodes of a graph: features U_x diag(w)^(1/2), so that covariances are of low rank."""

from __future__ import annotations

import copy
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import gpytorch
import torch
from gpytorch.models.exact_prediction_strategies import LinearPredictionStrategy
from linear_operator.operators import LowRankRootLinearOperator, MatmulLinearOperator, RootLinearOperator
from torch.func import functional_call

from graphmatern._parameters import half_open_unit
from graphmatern._validation import FaultList, abbreviate
from graphmatern.errors import KernelError
from graphmatern.kernels import BoundKernel, Kernel, Matern, SpectralKernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphmatern._parameters import Domain
    from graphmatern.graph import Graph, Spectrum

__all__ = ["NodeBasis", "NodeKernel"]


class NodeBasis:
    """Eigenpairs as tensors of whatever type and device is asked for. Shared by copies, absent from state dicts.

    Parameters
    ----------
    bound : BoundKernel
        Any kernel on the graph, with the eigenpairs that are to be used.
    """

    def __init__(self, bound: BoundKernel) -> None:
        self._bound = bound
        self._tensors: dict[tuple[torch.dtype, torch.device], torch.Tensor] = {}

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self._bound.graph

    @property
    def spectrum(self) -> Spectrum:
        """Eigenpairs of one of its Laplacians."""
        return self._bound.spectrum

    def like(self, tensor: torch.Tensor) -> torch.Tensor:
        """Eigenvectors on the nodes, of the type and on the device of a tensor; shape (n_nodes, n_eigenpairs)."""
        key = tensor.dtype, tensor.device
        if key not in self._tensors:
            # From the float64 original each time: a model cast to float32 and back has lost nothing here.
            self._tensors[key] = self._bound.basis().to(tensor.device, tensor.dtype)
        return self._tensors[key]

    def weights(self, kernel: Kernel, raw: dict[str, torch.Tensor]) -> torch.Tensor:
        """Variances of the coefficients under a kernel with other unconstrained parameters, computed in float64."""
        device = next(iter(raw.values())).device
        eigenvalues = torch.tensor(self.spectrum.eigenvalues, device=device)
        squared_norms = torch.as_tensor(self.spectrum.squared_norms, device=device)
        exact = {path: value.double() for path, value in raw.items()}
        weights: torch.Tensor = functional_call(kernel, exact, (eigenvalues, squared_norms, self.graph.n_nodes))
        return weights

    def __deepcopy__(self, memo: dict[int, Any]) -> NodeBasis:
        del memo
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {"_bound": self._bound, "_tensors": {}}

    def positions(self, x: torch.Tensor) -> torch.Tensor:
        """Check node positions, whole numbers of any type with shape (..., n, 1); return int64, shape (..., n)."""
        faults = FaultList("no covariance", KernelError)
        if x.shape[-1] != 1:
            remedy = "Name the column of node positions with active_dims."
            raise faults.raise_now("x", "must have one column of node positions", f"shape {tuple(x.shape)}", remedy)
        n_nodes, places = self.graph.n_nodes, x.detach().squeeze(-1)
        if places.is_floating_point() and n_nodes - 1 > 2.0 / torch.finfo(places.dtype).eps:
            rule = f"must be of a type that holds whole numbers up to {n_nodes - 1}"
            raise faults.raise_now("x", rule, str(places.dtype), "Use integers, float32 or float64.")
        whole = places.long()
        bad = (whole != places) | (whole < 0) | (whole >= n_nodes)
        if bad.any():
            rule = f"must hold node positions, whole numbers from 0 to {n_nodes - 1}"
            received = abbreviate(places[bad].flatten()[:6].tolist(), int(bad.sum()))
            raise faults.raise_now("x", rule, received, "Use `graph.locate(names)`, or active_dims for other columns.")
        return whole


class OwnConstraint(gpytorch.constraints.Interval):  # type: ignore[misc]
    """The change of variables that a kernel's parameter has by itself, as a GPyTorch constraint.

    Parameters
    ----------
    domain : Domain
        Of the parameter.
    """

    def __init__(self, domain: Domain) -> None:
        super().__init__(
            0.0, 1.0 if domain is half_open_unit else inf, transform=domain.bound, inv_transform=domain.free
        )

    def transform(self, tensor: torch.Tensor) -> torch.Tensor:
        """From unconstrained numbers to values."""
        value: torch.Tensor = self._transform(tensor)
        return value

    def inverse_transform(self, transformed_tensor: torch.Tensor) -> torch.Tensor:
        """From values to unconstrained numbers."""
        raw: torch.Tensor = self._inv_transform(transformed_tensor)
        return raw


class NodeKernel(gpytorch.kernels.Kernel):  # type: ignore[misc]
    """A GPyTorch kernel over the nodes of a graph.

    Inputs are node positions (`Graph.locate`), shape (..., n, 1), of any integer or float type, so that they can
    stand in one tensor with other inputs (``active_dims``). Covariances are linear operators of rank at most
    ``n_eigenpairs``: with a Gaussian likelihood GPyTorch solves with them by the Woodbury identity, and nothing of
    size n_nodes × n_nodes is formed. (BoTorch, once imported, turns this off for the whole process;
    ``gpytorch.settings.fast_computations()`` turns it on again.)

    Parameters
    ----------
    graph : Graph
        The graph.
    kernel : Kernel, optional
        Any of our kernels, sums and multiples included; Matérn by default. Its values are the starting values, its
        ``fixed`` parameters are held. It is copied.
    normalized : bool, optional
        Which Laplacian; by default the normalised one only where the kernel requires it.
    n_eigenpairs : int, optional
        Number of smallest eigenpairs to use; all by default, which is exact.
    batch_shape : torch.Size, optional
        A batch of kernels, each with its own parameters.
    active_dims : sequence of int, optional
        The column of the inputs that holds node positions.
    **options
        ``<parameter>_constraint`` and ``<parameter>_prior``: GPyTorch constraints and priors, for instance
        ``lengthscale_prior=gpytorch.priors.GammaPrior(3.0, 1.0)``.

    Attributes
    ----------
    basis : NodeBasis
        Graph and eigenpairs.

    Notes
    -----
    Each parameter of the kernel is a tensor of shape ``(*batch_shape, 1, 1)`` under its own name (``nu``,
    ``lengthscale``, ``variance``, ...), read and set like those of GPyTorch's kernels and stored unconstrained as
    ``raw_<name>``. The kernels of a sum are numbered: ``lengthscale_1``, ``lengthscale_2``. Parameters have torch's
    default type until the model is cast; the state dict holds them, and no eigenvectors.

    Examples
    --------
    >>> import gpytorch, torch
    >>> import graphmatern as gm
    >>> graph = gm.make_roads(100, seed=0)
    >>> kernel = gm.interop.NodeKernel(graph, gm.Matern(nu=1.5, lengthscale=3.0), n_eigenpairs=20)
    >>> covariance = kernel(kernel.inputs(graph.nodes[:50])).evaluate_kernel()
    >>> type(covariance).__name__, tuple(covariance.root.shape)
    ('LowRankRootLinearOperator', (50, 20))
    >>> kernel
    NodeKernel(Matern(nu=1.5, lengthscale=3, variance=1) on Graph(88 nodes, 105 edges), 20 eigenpairs of its Laplacian)
    >>> space_and_time = gm.interop.NodeKernel(graph, active_dims=[0]) * gpytorch.kernels.RBFKernel(active_dims=[1])
    >>> space_and_time(torch.tensor([[3.0, 0.5], [4.0, 0.7]])).shape
    torch.Size([2, 2])
    """

    def __init__(
        self,
        graph: Graph,
        kernel: Kernel | None = None,
        *,
        normalized: bool | None = None,
        n_eigenpairs: int | None = None,
        batch_shape: torch.Size | None = None,
        active_dims: Sequence[int] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(batch_shape=batch_shape, active_dims=active_dims)
        faults = FaultList("no NodeKernel was made", KernelError)
        if not isinstance(kernel, Kernel | None):
            remedy = "Use gm.Matern or another kernel of graphmatern."
            raise faults.raise_now("kernel", "must be one of our kernels", f"a {type(kernel).__name__}", remedy)
        template = Matern() if kernel is None else copy.deepcopy(kernel)
        self.basis = NodeBasis(template.on(graph, normalized, n_eigenpairs))
        self.__dict__["_template"] = template.requires_grad_(
            requires_grad=False
        )  # no submodule: its parameters are ours
        self.__dict__["_paths"] = _parameter_paths(template)
        known = {f"{name}_{kind}" for name in self.parameter_names for kind in ("constraint", "prior")}
        if set(options) - known:
            received = abbreviate(sorted(set(options) - known))
            raise faults.raise_now("options", f"must be among {', '.join(sorted(known))}", received, "Correct them.")
        for name in self.parameter_names:
            self._register(name, kernel, options.get(f"{name}_constraint"), options.get(f"{name}_prior"))

    def _register(self, name: str, kernel: Kernel | None, constraint: Any, prior: Any) -> None:
        leaf, own = self._leaf(name)
        value = getattr(leaf, own).to(torch.get_default_dtype())
        trainable = kernel is None or own not in _same_leaf(kernel, self._paths[name]).fixed
        raw = torch.nn.Parameter(torch.zeros(*self.batch_shape, 1, 1), requires_grad=trainable)
        self.register_parameter(f"raw_{name}", raw)
        if constraint is None:
            constraint = OwnConstraint(type(leaf).parameter(own).domain)
        self.register_constraint(f"raw_{name}", constraint)
        if constraint.initial_value is None:
            self._assign(name, value)
        if prior is not None:
            self.set_prior(name, prior)

    def set_prior(self, name: str, prior: Any) -> None:
        """Give a parameter a GPyTorch prior."""
        # Partial functions, where GPyTorch would make closures that cannot be pickled.
        self.register_prior(f"{name}_prior", prior, partial(_read, name), partial(_write, name))

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the kernel's parameters."""
        return tuple(self._paths)

    def _leaf(self, name: str) -> tuple[SpectralKernel, str]:
        """The kernel of a sum, and its own name for one of our parameters."""
        return _same_leaf(self._template, self._paths[name]), self._paths[name].rpartition(".")[2].removeprefix("raw_")

    def _value(self, name: str) -> torch.Tensor:
        value: torch.Tensor = self._constraints[f"raw_{name}_constraint"].transform(self._parameters[f"raw_{name}"])
        return value

    def _assign(self, name: str, value: Any) -> None:
        numbers = torch.as_tensor(value).to(self._parameters[f"raw_{name}"])
        leaf, own = self._leaf(name)
        domain, constraint = type(leaf).parameter(own).domain, self._constraints[f"raw_{name}_constraint"]
        if not (all(map(domain.contains, numbers.detach().flatten().tolist())) and constraint.check(numbers)):
            faults = FaultList("the NodeKernel was left as it was", KernelError)
            rule = f"{domain.rule} and satisfy {constraint!r}"
            raise faults.raise_now(name, rule, abbreviate(numbers.flatten().tolist()), "Choose such a value.")
        self.initialize(**{f"raw_{name}": constraint.inverse_transform(numbers)})

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("_paths", ()):
            return self._value(name)
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("_paths", ()):
            self._assign(name, value)
        else:
            super().__setattr__(name, value)

    @property
    def lengthscale(self) -> Any:
        """Lengthscale, shape ``(*batch_shape, 1, 1)``; None where the kernel has none, or several."""
        return self._value("lengthscale") if "lengthscale" in self._paths else None

    @lengthscale.setter
    def lengthscale(self, value: Any) -> None:
        self._assign("lengthscale", value)

    def load_kernel(self, kernel: Kernel) -> None:
        """Take over the values of a kernel of the same kind, in the precision that the parameters have."""
        for name, path in self._paths.items():
            self._assign(name, getattr(_same_leaf(kernel, path), self._leaf(name)[1]).detach())

    def to_kernel(self) -> Kernel:
        """Return one of our kernels with the present values; not for batches."""
        kernel: Kernel = copy.deepcopy(self._template)
        for name, path in self._paths.items():
            leaf, own = _same_leaf(kernel, path), self._leaf(name)[1]
            setattr(leaf, own, self._value(name).item())
            getattr(leaf, f"raw_{own}").requires_grad_(self._parameters[f"raw_{name}"].requires_grad)
        return kernel

    def __repr__(self) -> str:
        paths = self.__dict__.get("_paths")
        if paths is None or any(f"raw_{name}" not in self._parameters for name in paths):
            return str(super().__repr__())  # not made yet
        columns = "" if self.active_dims is None else f", active_dims={self.active_dims.tolist()}"
        batch = tuple(self.batch_shape)
        if not batch:
            with suppress(KernelError):  # where an optimiser has left the numbers
                return f"NodeKernel({BoundKernel(self.to_kernel(), self.graph, self.basis.spectrum)!r}{columns})"
        kinds = " + ".join(type(leaf).__name__ for leaf in self._template.modules() if isinstance(leaf, SpectralKernel))
        numbers = {name: [float(f"{x:.6g}") for x in self._value(name).flatten().tolist()] for name in paths}
        listed = ", ".join(f"{name}=[{abbreviate(values)}]" for name, values in numbers.items())
        return f"NodeKernel({kinds} on {self.graph!r}, batch_shape={batch}{columns}, {listed})"

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self.basis.graph

    def inputs(self, nodes: Any = None) -> torch.Tensor:
        """Positions of nodes given by name, all by default, as a kernel input of the parameters' type; (n, 1)."""
        places = torch.as_tensor(self.graph.locate(nodes))
        return places[:, None].to(self.dtype)

    def weights(self) -> torch.Tensor:
        """Variances a Ψ(λ) of the coefficients on the eigenvectors; shape ``(*batch_shape, 1, n_eigenpairs)``."""
        raw = {}
        for name, path in self._paths.items():
            if isinstance(self._constraints[f"raw_{name}_constraint"], OwnConstraint):
                raw[path] = self._parameters[f"raw_{name}"]
            else:
                leaf, own = self._leaf(name)
                raw[path] = type(leaf).parameter(own).domain.free(self._value(name))
        return self.basis.weights(self._template, raw).to(self.dtype)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """U_x diag(w)^(1/2), whose product with its transpose is the covariance; shape (..., n, n_eigenpairs)."""
        weights = self.weights()
        # Weights may have vanished to rounding (diffusion); the derivative of √0 is infinite.
        root = weights.clamp_min(torch.finfo(weights.dtype).tiny).sqrt()
        return self.basis.like(weights)[self.basis.positions(x)] * root

    def forward(self, x1: torch.Tensor, x2: torch.Tensor, diag: bool = False, **params: Any) -> Any:
        """Covariances as a linear operator of low rank, or their diagonal; see ``gpytorch.kernels.Kernel``."""
        if params.get("last_dim_is_batch"):
            faults = FaultList("no covariance", KernelError)
            raise faults.raise_now("last_dim_is_batch", "must be False", "True", "Use batches and active_dims.")
        left = self.features(x1)
        same = x1.shape == x2.shape and torch.equal(x1, x2)
        if same and not diag:
            # Of full rank there is nothing to save: GPyTorch then works with the n × n covariance of the inputs.
            few = left.shape[-1] < left.shape[-2]
            return LowRankRootLinearOperator(left) if few else RootLinearOperator(left)
        right = left if same else self.features(x2)
        return (left * right).sum(dim=-1) if diag else MatmulLinearOperator(left, right.mT)

    def prediction_strategy(
        self, train_inputs: Any, train_prior_dist: Any, train_labels: torch.Tensor, likelihood: Any
    ) -> Any:
        """Predict in the space of the eigenvectors where there are fewer of these than observations."""
        if self.basis.spectrum.n_eigenpairs < train_prior_dist.event_shape[-1]:
            return LinearPredictionStrategy(train_inputs, train_prior_dist, train_labels, likelihood)
        return super().prediction_strategy(train_inputs, train_prior_dist, train_labels, likelihood)


def _read(name: str, kernel: NodeKernel) -> torch.Tensor:
    return kernel._value(name)


def _write(name: str, kernel: NodeKernel, value: Any) -> None:
    kernel._assign(name, value)


def _parameter_paths(template: Kernel) -> dict[str, str]:
    """From our names of a kernel's parameters to those torch knows them by (``_terms.0.raw_nu``)."""
    leaves = [(path, leaf) for path, leaf in template.named_modules() if isinstance(leaf, SpectralKernel)]
    paths = {}
    for number, (path, leaf) in enumerate(leaves, start=1):
        for name in leaf.parameter_names():
            own = name if len(leaves) == 1 else f"{name}_{number}"
            paths[own] = f"{path}.raw_{name}".removeprefix(".")
    return paths


def _same_leaf(kernel: Kernel, path: str) -> SpectralKernel:
    """The spectral kernel to which a parameter's path leads."""
    leaf = kernel.get_submodule(path.rpartition(".")[0])
    assert isinstance(leaf, SpectralKernel)
    return leaf
