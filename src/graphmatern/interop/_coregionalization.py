"""The graph as output covariance: functions from R^d to the nodes, observed at scattered pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gpytorch
import numpy as np
import torch

from graphmatern._validation import FaultList, as_numbers, check_whole
from graphmatern.errors import KernelError, TableError
from graphmatern.interop._node_kernel import NodeKernel

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from graphmatern.graph import Graph
    from graphmatern.kernels import Kernel

__all__ = ["coregionalized_inputs", "coregionalized_kernel"]


def coregionalized_kernel(
    graph: Graph,
    input_kernel: Any = None,
    kernel: Kernel | None = None,
    *,
    n_inputs: int = 1,
    **options: Any,
) -> Any:
    """Covariance k((x, i), (x′, i′)) = k_X(x, x′) k_G(i, i′) of a function from R^d to the nodes of a graph.

    Parameters
    ----------
    graph : Graph
        The graph, which determines how outputs depend on each other.
    input_kernel : gpytorch.kernels.Kernel, optional
        Kernel k_X on the inputs; by default Matérn with smoothness 5/2.
    kernel : Kernel, optional
        Kernel k_G on the nodes; Matérn by default.
    n_inputs : int
        Dimension d of the inputs.
    **options
        Further arguments of `NodeKernel`.

    Returns
    -------
    gpytorch.kernels.ProductKernel
        Of inputs of shape (n, d + 1): x first, the node's position last; `coregionalized_inputs` makes them.

    Examples
    --------
    >>> import graphmatern as gm
    >>> graph = gm.make_roads(100, seed=0)
    >>> kernel = gm.interop.coregionalized_kernel(graph)
    >>> pairs = gm.interop.coregionalized_inputs(graph, [0.0, 0.5, 0.5], graph.nodes[[3, 3, 8]])
    >>> kernel(pairs).shape
    torch.Size([3, 3])
    """
    faults = FaultList("no kernel was made", KernelError)
    check_whole("n_inputs", n_inputs, faults, minimum=1, remedy="Inputs have at least one dimension.")
    if input_kernel is not None and not isinstance(input_kernel, gpytorch.kernels.Kernel):
        received = f"a {type(input_kernel).__name__}"
        faults.add(
            "input_kernel", "must be a GPyTorch kernel", received, "Use gpytorch.kernels.RBFKernel() or another."
        )
    faults.raise_if_any()
    own = gpytorch.kernels.MaternKernel(nu=2.5) if input_kernel is None else input_kernel
    if own.active_dims is None:
        own.register_buffer("active_dims", torch.arange(n_inputs))
    return own * NodeKernel(graph, kernel, active_dims=[n_inputs], **options)


def coregionalized_inputs(graph: Graph, x: ArrayLike, nodes: Any) -> torch.Tensor:
    """Pairs of inputs and nodes, as `coregionalized_kernel` takes them.

    Parameters
    ----------
    graph : Graph
        The graph.
    x : array_like, shape (n,) or (n, d)
        Inputs.
    nodes : sequence of hashable, shape (n,)
        Node names.

    Returns
    -------
    Tensor, shape (n, d + 1)
    """
    faults = FaultList("no inputs were made", TableError)
    values = as_numbers(x, "x", faults)
    places = graph.locate(nodes)
    columns = values[:, None] if values.ndim == 1 else values
    if columns.ndim != 2 or len(columns) != len(places):
        rule = f"must have one row per node, shape ({len(places)},) or ({len(places)}, d)"
        faults.add("x", rule, f"shape {values.shape}", "Align inputs and nodes.")
    faults.raise_if_any()
    return torch.as_tensor(np.column_stack([columns, places]))
