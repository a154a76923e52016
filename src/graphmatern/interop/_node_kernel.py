"""A GPyTorch kernel over the nodes of a graph."""

from __future__ import annotations

import copy
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import gpytorch
import torch
from torch.func import functional_call

from graphmatern._parameters import half_open_unit
from graphmatern._validation import FaultList, abbreviate
from graphmatern.errors import KernelError
from graphmatern.inference import eigenpairs_used
from graphmatern.interop._node_covariances import NodeBasis
from graphmatern.interop._node_polynomials import NodePolynomials
from graphmatern.kernels import Kernel, Matern, SpectralKernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from graphmatern._parameters import Domain
    from graphmatern.graph import Graph
    from graphmatern.interop._node_covariances import NodeCovariances, Weights

__all__ = ["NodeKernel"]


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

    Inputs are node positions (`Graph.locate`), shape (..., n, 1), of any integer or float type, so that they can be
    a column among other inputs (``active_dims``). Nothing of size n_nodes × n_nodes is formed:

    - With eigenpairs (on graphs of up to about 3,000 nodes, or if ``n_eigenpairs`` is given), covariances are linear
      operators of rank at most ``n_eigenpairs``: with a Gaussian likelihood GPyTorch solves with them by the Woodbury
      identity. (BoTorch, once imported, turns this off for the whole process;
      ``gpytorch.settings.fast_computations()`` turns it on again.)
    - On larger graphs, covariances are Chebyshev polynomials of the Laplacian, as in the moments engine, with a
      truncation error of at most 1e-10 of the largest eigenvalue: the degree follows from the parameters, and if it
      would be too high, an exception says what to do. Whatever does not depend on the parameters is computed once for
      the training nodes, at most a few hundred, and kept with the graph; predictions at all nodes take one polynomial
      for each training node. As in that engine, ``variance`` relies on traces that are estimated from probes.

    Parameters
    ----------
    graph : Graph
        The graph.
    kernel : Kernel, optional
        Any graphmatern kernel, sums and multiples included; Matérn by default. Its values are the starting values, its
        ``fixed`` parameters are held fixed. It is copied.
    normalized : bool, optional
        Which Laplacian; by default the normalised one only if the kernel requires it.
    n_eigenpairs : int, optional
        Number of smallest eigenpairs to use; by default all of a graph of moderate size, and none of a larger one.
    batch_shape : torch.Size, optional
        A batch of kernels, each with its own parameters.
    active_dims : sequence of int, optional
        The column of the inputs that holds node positions.
    **options
        ``<parameter>_constraint`` and ``<parameter>_prior``: GPyTorch constraints and priors, for instance
        ``lengthscale_prior=gpytorch.priors.GammaPrior(3.0, 1.0)``.

    Attributes
    ----------
    basis : NodeBasis or NodePolynomials
        How covariances between nodes are computed. With polynomials, ``basis.variance_error`` is the relative standard
        error of the prior variances last computed: 0 if they are exact, as for up to 256 nodes at a time. Those of more
        nodes are estimated, except for the part that training nodes explain, which is exact.

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
            raise faults.raise_now("kernel", "must be a graphmatern kernel", f"a {type(kernel).__name__}", remedy)
        template = Matern() if kernel is None else copy.deepcopy(kernel)
        normalized = template.choose_laplacian(graph, normalized)
        large = n_eigenpairs is None and eigenpairs_used(graph, None) is not None
        self.basis: NodeCovariances = (
            NodePolynomials(graph, normalized) if large else NodeBasis(graph, graph.spectrum(n_eigenpairs, normalized))
        )
        self.__dict__["_template"] = template.requires_grad_(
            requires_grad=False
        )  # no submodule: its parameters are ours
        self.__dict__["_paths"] = _parameter_paths(template)
        known = {f"{name}_{kind}" for name in self.parameter_names for kind in ("constraint", "prior")}
        if set(options) - known:
            received = abbreviate(sorted(set(options) - known))
            remedy = "Starting values belong to the kernel: NodeKernel(graph, gm.Matern(nu=1.5, lengthscale=5.0))."
            raise faults.raise_now("options", f"must be among {', '.join(sorted(known))}", received, remedy)
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
            raise faults.raise_now(name, rule, abbreviate(numbers.flatten().tolist()), "Choose a value in this range.")
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
                return f"NodeKernel({self.to_kernel()!r} on {self.graph!r}, {self.basis.description}{columns})"
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

    def spectral_weights(self) -> Weights:
        """The kernel's function at the present parameters, in float64, on the device of what it is given."""
        raw = {}
        for name, path in self._paths.items():
            if isinstance(self._constraints[f"raw_{name}_constraint"], OwnConstraint):
                raw[path] = self._parameters[f"raw_{name}"]
            else:
                leaf, own = self._leaf(name)
                raw[path] = type(leaf).parameter(own).domain.free(self._value(name))

        def weights(eigenvalues: torch.Tensor, squared_norms: torch.Tensor, n_nodes: int) -> torch.Tensor:
            exact = {path: value.to(eigenvalues.device, torch.float64) for path, value in raw.items()}
            found: torch.Tensor = functional_call(self._template, exact, (eigenvalues, squared_norms, n_nodes))
            return found

        return weights

    @property
    def _like(self) -> torch.Tensor:
        """A tensor of the type and on the device of the parameters."""
        like: torch.Tensor = self._parameters[f"raw_{self.parameter_names[0]}"]
        return like

    def _eigenvectors(self) -> NodeBasis:
        """Where covariances come from, where that is eigenvectors; raises where it is not."""
        assert self.basis.spectrum
        assert isinstance(self.basis, NodeBasis)
        return self.basis

    def weights(self) -> torch.Tensor:
        """Variances a Ψ(λ) of the coefficients on the eigenvectors; shape ``(*batch_shape, 1, n_eigenpairs)``."""
        return self._eigenvectors().weights(self.spectral_weights(), self._like)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """U_x diag(w)^(1/2), whose product with its transpose is the covariance; shape (..., n, n_eigenpairs)."""
        return self._eigenvectors().features(self.spectral_weights(), x, self._like)

    def draw(self, n_samples: int, rng: np.random.Generator) -> torch.Tensor:
        """Draws of the process on all nodes, without gradients; shape (n_samples, n_nodes). Not for batches."""
        with torch.no_grad():
            return self.basis.draw(self.spectral_weights(), n_samples, rng, self._like)

    def forward(self, x1: torch.Tensor, x2: torch.Tensor, diag: bool = False, **params: Any) -> Any:
        """Covariances, of low rank where there are eigenvectors, or their diagonal; see ``gpytorch.kernels.Kernel``."""
        if params.get("last_dim_is_batch"):
            faults = FaultList("no covariance", KernelError)
            raise faults.raise_now("last_dim_is_batch", "must be False", "True", "Use batches and active_dims.")
        if diag:
            return self.basis.diagonal(self.spectral_weights(), x1, x2, self._like)
        return self.basis.between(self.spectral_weights(), x1, x2, self._like, self.training)

    def prediction_strategy(
        self, train_inputs: Any, train_prior_dist: Any, train_labels: torch.Tensor, likelihood: Any
    ) -> Any:
        """How GPyTorch predicts: in the space of the eigenvectors where there are fewer of these than observations."""
        strategy = self.basis.prediction_strategy(train_prior_dist.event_shape[-1])
        return strategy(train_inputs, train_prior_dist, train_labels, likelihood)


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
