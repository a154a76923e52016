"""Bayesian optimisation over the nodes of a graph, with BoTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import gpytorch
import numpy as np
import pandas as pd
import torch
from linear_operator import to_dense

from graphmatern._validation import FaultList, as_numbers, check_choice, check_positive, check_whole, random_generator
from graphmatern.errors import InputError
from graphmatern.interop._node_kernel import NodeKernel
from graphmatern.kernels import Matern

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from graphmatern.graph import Graph
    from graphmatern.kernels import Kernel

    Rule = Literal["expected_improvement", "thompson"]

__all__ = ["maximize_over_nodes", "node_model", "pathwise_samples", "suggest_nodes"]

_START_LENGTHSCALE = 5.0
_AT_ONCE = 4096  # nodes predicted together


def _botorch() -> Any:
    try:
        from graphmatern.interop import _botorch_models
    except ImportError as error:
        raise ImportError(
            "Bayesian optimisation needs BoTorch, which is not installed: pip install 'graphmatern[botorch]'"
        ) from error
    return _botorch_models


def node_model(
    graph: Graph,
    nodes: Any,
    y: ArrayLike,
    kernel: Kernel | None = None,
    *,
    normalized: bool | None = None,
    n_eigenpairs: int | None = None,
    noise: float | None = None,
    fit: bool = True,
) -> Any:
    """Make a BoTorch model of values at nodes, for any of BoTorch's acquisition functions.

    Parameters
    ----------
    graph : Graph
        The graph.
    nodes : sequence of hashable, shape (n,)
        Names of the observed nodes.
    y : array_like, shape (n,)
        Observations.
    kernel : Kernel, optional
        Starting values, for observations of mean 0 and variance 1; by default Matérn with smoothness 1.5.
    normalized : bool, optional
        Which Laplacian; by default the normalised one only if the kernel requires it.
    n_eigenpairs : int, optional
        Number of eigenpairs; by default all of a graph of moderate size, none of a larger one (`NodeKernel`).
    noise : float, optional
        Variance of the noise, in the unit of ``y`` squared; learned by default.
    fit : bool
        Whether to fit the parameters. Those that the kernel does not hold fixed have log-normal priors around their
        starting values: the first few observations alone say little about them.

    Returns
    -------
    botorch.models.SingleTaskGP
        Its inputs are node positions (`Graph.locate`), shape (n, 1).

    Examples
    --------
    >>> import graphmatern as gm
    >>> graph = gm.make_roads(200, seed=0)
    >>> height = graph.spectrum().basis[:, 1]
    >>> model = gm.interop.node_model(graph, graph.nodes[::10], height[::10])
    >>> type(model).__name__, len(gm.interop.suggest_nodes(model))
    ('SingleTaskGP', 1)
    """
    places = graph.locate(nodes)
    faults = FaultList("no model was made", InputError)
    values = as_numbers(y, "y", faults)
    if values.shape != places.shape:
        faults.add("y", f"must have one value per node, shape {places.shape}", f"shape {values.shape}", "Align them.")
    elif len(values) < 2 or np.ptp(values) == 0.0:
        faults.add("y", "must hold at least two different values", f"{len(values)} values", "Evaluate more nodes.")
    if noise is not None:
        check_positive("noise", noise, faults, remedy="Variances are positive; leave it out to learn it.")
    faults.raise_if_any()
    models = _botorch()
    own = Matern(nu=1.5, lengthscale=_START_LENGTHSCALE, fixed=("nu",)) if kernel is None else kernel
    node_kernel = NodeKernel(graph, own, normalized=normalized, n_eigenpairs=n_eigenpairs).double()
    node_kernel.load_kernel(own)
    _add_priors(node_kernel)
    x = torch.as_tensor(places, dtype=torch.float64)[:, None]
    known = None if noise is None else torch.full((len(values), 1), float(noise), dtype=torch.float64)
    model = models.single_task_model(x, torch.as_tensor(values), known, node_kernel)
    if fit:
        node_kernel(x[:1]).to_dense()  # a kernel that cannot be evaluated says so better than a fit that failed
        from botorch.fit import fit_gpytorch_mll

        fit_gpytorch_mll(gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model))
    return model.eval()


def _add_priors(kernel: NodeKernel) -> None:
    """Log-normal priors with the starting values as medians and a factor e as standard deviation."""
    for name in kernel.parameter_names:
        domain_is_positive = "laziness" not in name
        if getattr(kernel, f"raw_{name}").requires_grad and domain_is_positive:
            start = np.log(getattr(kernel, name).item())
            kernel.set_prior(name, gpytorch.priors.LogNormalPrior(start, 1.0).double())


def _node_kernel(model: Any) -> NodeKernel:
    kernel = model.covar_module
    if not isinstance(kernel, NodeKernel):
        faults = FaultList("no nodes were chosen", InputError)
        received = f"a model with a {type(kernel).__name__}"
        raise faults.raise_now("model", "must have a NodeKernel for its covariance", received, "Use `node_model`.")
    return kernel


def _untransformed(model: Any, values: torch.Tensor) -> torch.Tensor:
    """From the model's unit to the user's; any shape."""
    transform = getattr(model, "outcome_transform", None)
    if transform is None:
        return values
    original: torch.Tensor = transform.untransform(values.unsqueeze(-1))[0].squeeze(-1)
    return original


def pathwise_samples(model: Any, n_samples: int = 1, random_state: int | np.random.Generator | None = None) -> Any:
    """Draw functions on all nodes from the posterior of a `node_model`, by Matheron's rule.

    A prior draw f is corrected at the observations: ``f + K_·x (K_xx + R)⁻¹ (y − f_x − ε)``. Nothing larger than
    n_nodes × n_eigenpairs, or × n_observations, is formed.

    Parameters
    ----------
    model : botorch.models.SingleTaskGP
        From `node_model`, or another exact GP with a `NodeKernel` and a Gaussian likelihood.
    n_samples : int
        Number of draws.
    random_state : int or Generator, optional
        Seed.

    Returns
    -------
    Tensor, shape (n_samples, n_nodes)
        In the unit of the observations.
    """
    kernel = _node_kernel(model)
    faults = FaultList("no samples", InputError)
    check_whole("n_samples", n_samples, faults, minimum=1, remedy="Draw at least one.")
    faults.raise_if_any()
    rng = random_generator(random_state, InputError)
    with torch.no_grad():
        x, y = model.train_inputs[0], model.train_targets
        every = torch.arange(kernel.graph.n_nodes)[:, None]
        noise = model.likelihood.noise.expand(len(y))
        prior = kernel.draw(n_samples, rng)
        error = torch.as_tensor(rng.standard_normal((n_samples, len(y)))) * noise.sqrt()
        root = torch.linalg.cholesky(to_dense(kernel(x)) + torch.diag(noise))
        residual = y - model.mean_module(x) - prior[:, x[:, 0].long()] - error
        update = to_dense(kernel(every, x)) @ torch.cholesky_solve(residual.mT, root)
        return _untransformed(model, model.mean_module(every) + prior + update.mT)


def _marginals(model: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Posterior means and variances at all nodes, a block at a time; each of shape (n_nodes,)."""
    places = torch.arange(_node_kernel(model).graph.n_nodes, dtype=torch.float64)[:, None]
    with torch.no_grad():
        blocks = [model.posterior(part) for part in torch.split(places, _AT_ONCE)]
        moments = [torch.cat([getattr(block, name) for block in blocks])[:, 0] for name in ("mean", "variance")]
    return moments[0], moments[1]


def suggest_nodes(
    model: Any,
    *,
    rule: Rule = "expected_improvement",
    n_nodes: int = 1,
    among: Any = None,
    random_state: int | np.random.Generator | None = None,
) -> pd.Index[Any]:
    """Choose the nodes to evaluate next, in search of large values.

    Parameters
    ----------
    model : botorch.models.SingleTaskGP
        From `node_model`.
    rule : {"expected_improvement", "thompson"}
        Expected improvement over the best observation (BoTorch's LogExpectedImprovement), or the best node of a
        function drawn from the posterior (`pathwise_samples`), another one for each node.
    n_nodes : int
        How many to choose; expected improvement chooses one.
    among : sequence of hashable, optional
        Names of nodes to choose from; by default all not yet evaluated.
    random_state : int or Generator, optional
        Seed of the draws.

    Returns
    -------
    Index
        Node names.
    """
    check_choice("rule", rule, ("expected_improvement", "thompson"), InputError)
    graph = _node_kernel(model).graph
    seen = model.train_inputs[0][:, 0].long().numpy()
    candidates = np.setdiff1d(np.arange(graph.n_nodes), seen) if among is None else np.unique(graph.locate(among))
    faults = FaultList("no nodes were chosen", InputError)
    check_whole("n_nodes", n_nodes, faults, minimum=1, remedy="Choose at least one.")
    if rule == "expected_improvement" and n_nodes != 1:
        faults.add("n_nodes", "must be 1 for expected improvement", repr(n_nodes), "Use rule='thompson' for several.")
    if len(candidates) < n_nodes:
        faults.add("n_nodes", f"must be at most the candidates ({len(candidates)})", repr(n_nodes), "Choose fewer.")
    faults.raise_if_any()
    if rule == "expected_improvement":
        chosen = _best_expected_improvement(model, candidates)
    else:
        chosen = _best_of_draws(pathwise_samples(model, n_nodes, random_state).numpy(), candidates)
    return graph.nodes[chosen]


def _best_expected_improvement(model: Any, candidates: NDArray[np.int64]) -> NDArray[np.int64]:
    from botorch.acquisition import LogExpectedImprovement
    from botorch.optim import optimize_acqf_discrete

    best = _untransformed(model, model.train_targets).max()
    acquisition = LogExpectedImprovement(_botorch().NodeMarginals(*_marginals(model)), best_f=best)
    choices = torch.as_tensor(candidates, dtype=torch.float64)[:, None]
    place, _ = optimize_acqf_discrete(acquisition, q=1, choices=choices)
    return np.asarray(place[:, 0].long().numpy())


def _best_of_draws(draws: NDArray[np.float64], candidates: NDArray[np.int64]) -> NDArray[np.int64]:
    """The best candidate of each draw that no draw before it has taken."""
    chosen: list[int] = []
    for draw in draws:
        free = np.setdiff1d(candidates, chosen)
        chosen.append(int(free[np.argmax(draw[free])]))
    return np.array(chosen)


def maximize_over_nodes(
    graph: Graph,
    function: Callable[[Any], float],
    *,
    n_evaluations: int = 50,
    n_start: int = 10,
    rule: Rule = "expected_improvement",
    kernel: Kernel | None = None,
    normalized: bool | None = None,
    n_eigenpairs: int | None = None,
    noise: float | None = None,
    refit_every: int = 5,
    target: float | None = None,
    random_state: int | np.random.Generator | None = None,
) -> pd.DataFrame:
    """Find the node with the largest value of a function that is costly to evaluate.

    Parameters
    ----------
    graph : Graph
        The graph.
    function : callable
        From a node's name to a number.
    n_evaluations : int
        Evaluations in all, at most the number of nodes.
    n_start : int
        Initial evaluations at random nodes, at least 2.
    rule : {"expected_improvement", "thompson"}
        How nodes are chosen; see `suggest_nodes`.
    kernel : Kernel, optional
        Prior, for values of mean 0 and variance 1; see `node_model`.
    normalized : bool, optional
        Which Laplacian; by default the normalised one only if the kernel requires it.
    n_eigenpairs : int, optional
        Number of eigenpairs; by default all of a graph of moderate size, none of a larger one (`NodeKernel`).
    noise : float, optional
        Variance of the noise of an evaluation; learned by default.
    refit_every : int
        Evaluations between fits of the parameters.
    target : float, optional
        A value that is good enough to stop at.
    random_state : int or Generator, optional
        Seed.

    Returns
    -------
    DataFrame
        Columns ``node`` and ``value``, in the order of evaluation.

    Examples
    --------
    >>> import graphmatern as gm
    >>> graph = gm.make_roads(300, seed=0)
    >>> height = dict(zip(graph.nodes, graph.spectrum().basis[:, 1]))
    >>> found = gm.interop.maximize_over_nodes(graph, height.get, n_evaluations=25, random_state=0)
    >>> bool(found["value"].max() > 0.95 * max(height.values()))
    True
    """
    faults = FaultList("nothing was evaluated", InputError)
    check_whole("n_start", n_start, faults, minimum=2, maximum=graph.n_nodes, remedy="10 is usual.")
    check_whole("n_evaluations", n_evaluations, faults, minimum=2, maximum=graph.n_nodes, remedy="Evaluate fewer.")
    check_whole("refit_every", refit_every, faults, minimum=1, remedy="1 fits the parameters after each evaluation.")
    faults.raise_if_any()
    _botorch()
    rng = random_generator(random_state, InputError)
    nodes = list(graph.nodes[rng.permutation(graph.n_nodes)[: min(n_start, n_evaluations)]])
    values = [float(function(node)) for node in nodes]
    current = kernel
    for step in range(n_evaluations - len(nodes)):
        if target is not None and max(values) >= target:
            break
        fit = step % refit_every == 0
        model = node_model(
            graph,
            nodes,
            values,
            kernel if fit else current,
            normalized=normalized,
            n_eigenpairs=n_eigenpairs,
            noise=noise,
            fit=fit,
        )
        current = _node_kernel(model).to_kernel()
        nodes += list(suggest_nodes(model, rule=rule, random_state=rng))
        values.append(float(function(nodes[-1])))
    return pd.DataFrame({"node": nodes, "value": values})
