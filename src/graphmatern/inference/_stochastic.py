"""Variational inference with inducing nodes or eigenvectors, minibatches and sampled expectations."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from tqdm import trange

from graphmatern._validation import FaultList, as_numbers, check_choice, check_positive, check_whole, random_generator
from graphmatern.errors import InputError
from graphmatern.inference._node_kernel import NodeKernel
from graphmatern.inference._optimize import find_minimum
from graphmatern.inference._spectral import blas_threads
from graphmatern.inference._stochastic_model import NodeGP, Trainer
from graphmatern.inference._strategies import EigenvectorStrategy
from graphmatern.likelihoods import RobustMax

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from graphmatern.graph import Graph
    from graphmatern.kernels import Kernel
    from graphmatern.likelihoods import Likelihood

    Floats = NDArray[np.float64]

__all__ = ["StochasticFit", "fit_stochastic", "spread_out_nodes"]

_MOST_INDUCING = 500


@dataclass(frozen=True, eq=False)
class StochasticFit:
    """What `fit_stochastic` found.

    Attributes
    ----------
    model : gpytorch.models.ApproximateGP
        The fitted model, which other GPyTorch code may use.
    kernel : Kernel
        Kernel with the fitted parameters.
    likelihood : Likelihood
        Likelihood with the fitted parameters.
    mean : float
        Constant mean of the latent processes.
    elbo : float
        Evidence lower bound of all observations, expectations exact.
    converged : bool
        Whether the optimiser was satisfied; where a fixed number of steps was taken, True.
    n_clipped : int
        Steps in which negative sites had to be dropped, the last resort.
    history : list of float
        ELBO of each step, estimated on its batch; empty where steps are not counted.
    """

    model: NodeGP
    kernel: Kernel
    likelihood: Likelihood
    mean: float
    elbo: float
    converged: bool
    n_clipped: int
    history: list[float] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        """Everything but the graph, as numbers, arrays, kernel and likelihood; see `from_plain`."""
        strategy, spectrum = self.model.variational_strategy, self.model.covar_module.basis.spectrum
        eigenvectors = isinstance(strategy, EigenvectorStrategy)
        return {
            "kernel": self.kernel,
            "likelihood": self.likelihood,
            "normalized": spectrum.normalized,
            "n_eigenpairs": spectrum.n_eigenpairs,
            "inducing": None if eigenvectors else strategy.inducing_points[:, 0].long().numpy(),
            "q": [one.detach().numpy() for one in strategy._variational_distribution.parameters()],
            "numbers": [self.mean, self.elbo, self.converged, self.n_clipped],
            "history": list(self.history),
        }

    @classmethod
    def from_plain(cls, graph: Graph, plain: dict[str, Any]) -> StochasticFit:
        """Make a fit again from what `plain` returned."""
        kernel, likelihood = plain["kernel"], plain["likelihood"]
        mean, elbo, converged, n_clipped = plain["numbers"]
        centre, spread = (torch.as_tensor(np.array(one)) for one in plain["q"])
        node_kernel = _node_kernel(graph, kernel, plain["normalized"], plain["n_eigenpairs"])
        variables: Any = centre.shape[-1]
        if plain["inducing"] is not None:
            variables = torch.as_tensor(plain["inducing"], dtype=torch.float64)[:, None]
        diagonal = spread.ndim == centre.ndim
        model = NodeGP(node_kernel, likelihood.n_latents, variables, diagonal=diagonal, constant=mean)
        ours = model.variational_strategy._variational_distribution.parameters()
        with torch.no_grad():
            for parameter, value in zip(ours, (centre, spread), strict=True):
                parameter.copy_(value)
        model.eval()
        return cls(model, kernel, likelihood, mean, elbo, converged, n_clipped, plain["history"])

    def latent_marginals(self, nodes: NDArray[np.int64], at_once: int = 2048) -> tuple[Floats, Floats]:
        """Means, the constant included, and variances of the latent processes.

        Parameters
        ----------
        nodes : ndarray of int64, shape (n,)
            Positions of nodes.
        at_once : int
            Nodes per block, which bounds the memory.

        Returns
        -------
        mean, variance : ndarray, shape (n_latents, n)
        """
        self.model.train()  # where the strategy forms marginals only
        with torch.no_grad():
            blocks = [self.model(part[:, None]) for part in torch.split(torch.as_tensor(nodes), at_once)]
        self.model.eval()
        moments = [torch.cat([getattr(block, name) for block in blocks], dim=-1) for name in ("mean", "variance")]
        return moments[0].numpy(), moments[1].numpy()

    def covariance(self, nodes: NDArray[np.int64], latent: int = 0) -> Floats:
        """Covariance of one latent process at some nodes, given by position; shape (n, n)."""
        with torch.no_grad():
            found = self.model(torch.as_tensor(nodes)[:, None]).lazy_covariance_matrix
        return np.asarray(found[latent].to_dense().numpy())

    def sample(self, n_samples: int, nodes: NDArray[np.int64], rng: np.random.Generator) -> Floats:
        """Draw functions at some nodes, given by position, the constant mean included.

        Coefficients are drawn from q, and what the features leave unexplained from the residual prior.

        Returns
        -------
        ndarray, shape (n_samples, n_latents, n)
        """
        strategy, x = self.model.variational_strategy, torch.as_tensor(nodes)[:, None]
        with torch.no_grad():
            q = strategy.variational_distribution
            features, every, mixing = strategy.features(x), strategy.node_features(x), strategy.mixing()
            shape = n_samples, len(q.mean)
            normal = torch.as_tensor(rng.standard_normal((*shape, len(mixing))))
            e = torch.as_tensor(rng.standard_normal((*shape, mixing.shape[1])))
            v = q.mean + torch.einsum("cij,scj->sci", torch.linalg.cholesky(q.covariance_matrix), normal)
            # The residual prior: what is left of a prior draw without the features' part of it.
            drawn = self.mean + v @ features.T + e @ (every - features @ mixing).T
        return np.asarray(drawn.numpy())


def spread_out_nodes(kernel: NodeKernel, nodes: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Choose nodes that tell most about the others: each the one with the largest variance given those before it.

    Parameters
    ----------
    kernel : NodeKernel
        The prior.
    nodes : ndarray of int64, shape (n,)
        Positions to choose from.
    count : int
        How many to choose.

    Returns
    -------
    ndarray of int64, shape (min(count, number of distinct nodes),)
        Sorted.
    """
    places = np.unique(nodes)
    if len(places) <= count:
        return places
    with torch.no_grad():
        features = kernel.features(torch.as_tensor(places)[:, None]).numpy()
    # Pivoted Cholesky factorisation of the covariance, one column at a time.
    left = np.einsum("ij,ij->i", features, features)
    columns, chosen = np.zeros((len(places), count)), np.zeros(count, dtype=np.int64)
    for k in range(count):
        pivot = int(np.argmax(left))
        if left[pivot] <= 1e-12 * features.shape[1]:
            return places[np.sort(chosen[:k])]  # the others follow from these
        column = features @ features[pivot] - columns[:, :k] @ columns[pivot, :k]
        columns[:, k] = column / np.sqrt(left[pivot])
        left = left - columns[:, k] ** 2
        left[pivot], chosen[k] = -np.inf, pivot
    return places[np.sort(chosen)]


def fit_stochastic(
    graph: Graph,
    kernel: Kernel,
    likelihood: Likelihood,
    nodes: NDArray[np.int64],
    y: ArrayLike,
    *,
    form: Literal["inducing", "eigenvectors"] = "inducing",
    inducing: ArrayLike | None = None,
    n_inducing: int | None = None,
    covariance: Literal["full", "diagonal"] = "full",
    normalized: bool | None = None,
    n_eigenpairs: int | None = None,
    offset: ArrayLike | None = None,
    mean: float = 0.0,
    learn_mean: bool = False,
    optimizer: Literal["lbfgs", "adam"] | None = "lbfgs",
    batch_size: int | None = None,
    n_samples: int | None = None,
    n_steps: int = 500,
    natural_rate: float = 0.1,
    learning_rate: float = 0.02,
    max_iterations: int = 200,
    random_state: int | None = 0,
    progress: bool | None = None,
) -> StochasticFit:
    """Fit a sparse variational Gaussian process on the nodes of a graph.

    Parameters
    ----------
    graph : Graph
        The graph.
    kernel : Kernel
        Prior of every latent process; starting values. It is copied.
    likelihood : Likelihood
        Of each observation; starting values. It is copied.
    nodes : ndarray of int64, shape (n,)
        Positions of the observed nodes (`Graph.locate`); repeats are allowed.
    y : array_like, shape (n,)
        Observations.
    form : {"inducing", "eigenvectors"}
        What q describes: values at inducing nodes, or coefficients on the leading eigenvectors.
    inducing : array_like of int, optional
        Positions of the inducing nodes; by default the observed nodes, or a spread-out choice of ``n_inducing``.
    n_inducing : int, optional
        Number of inducing nodes, or of eigenvectors; by default at most 500.
    covariance : {"full", "diagonal"}
        Of q.
    normalized : bool, optional
        Which Laplacian; by default the normalised one only where the kernel requires it.
    n_eigenpairs : int, optional
        Eigenpairs of the kernel; all by default.
    offset : array_like, shape (n,), optional
        Known part of the latent mean, such as the logarithm of an exposure.
    mean : float
        Constant mean of the latent processes, or where to start it.
    learn_mean : bool
        Whether it is learned.
    optimizer : {"lbfgs", "adam"} or None
        For the parameters of kernel and likelihood. "lbfgs" (BFGS, as these are few) follows the gradient of the
        converged ELBO and needs exact expectations of all observations; "adam" takes a step with each
        natural-gradient step; None keeps them.
    batch_size : int, optional
        Observations per step; all by default. Implies "adam" unless ``optimizer`` is None.
    n_samples : int, optional
        Samples of f per observation from which expectations are estimated; exact quadrature by default.
        Implies "adam" unless ``optimizer`` is None.
    n_steps : int
        Steps of Adam or on batches.
    natural_rate : float
        Step size ρ of the natural gradient, up to 1, where steps are counted; over the second half it falls to 1/10.
    learning_rate : float
        Step size of Adam.
    max_iterations : int
        Iterations of that search at most.
    random_state : int, optional
        Seed of batches and samples.
    progress : bool, optional
        Whether to show progress; by default, where the error stream is a terminal.

    Returns
    -------
    StochasticFit

    Examples
    --------
    >>> import numpy as np
    >>> import graphmatern as gm
    >>> from graphmatern.inference import fit_stochastic
    >>> graph = gm.make_roads(100, seed=0)
    >>> nodes, labels = np.arange(60), (graph.spectrum().basis[:60, 1] > 0).astype(float)
    >>> fit = fit_stochastic(graph, gm.Matern(lengthscale=3.0), gm.likelihoods.Bernoulli(), nodes, labels)
    >>> mean, variance = fit.latent_marginals(nodes)
    >>> ((mean[0] > 0) == (labels > 0)).mean() > 0.9
    np.True_
    """
    check_choice("form", form, ("inducing", "eigenvectors"), InputError)
    check_choice("covariance", covariance, ("full", "diagonal"), InputError)
    if optimizer is not None:
        check_choice("optimizer", optimizer, ("lbfgs", "adam"), InputError)
    places, targets, shift = _observations(graph, likelihood, nodes, y, offset)
    faults = FaultList("nothing was fitted", InputError)
    for name, count in {"batch_size": batch_size, "n_samples": n_samples, "n_inducing": n_inducing}.items():
        if count is not None:
            check_whole(name, count, faults, minimum=1, remedy="Leave it out for the default.")
    check_whole("n_steps", n_steps, faults, minimum=1, remedy="Take at least one step.")
    check_positive("natural_rate", natural_rate, faults, remedy="Rates lie between 0 and 1.")
    check_positive("learning_rate", learning_rate, faults, remedy="0.02 is usual.")
    if n_samples is not None and isinstance(likelihood, RobustMax):
        rule = "must be left out for RobustMax, whose log-likelihood has no useful derivative in f"
        faults.add("n_samples", rule, repr(n_samples), "Its expectations are exact.")
    faults.raise_if_any()
    node_kernel = _node_kernel(graph, kernel, normalized, n_eigenpairs)
    count = _MOST_INDUCING if n_inducing is None else n_inducing
    if form == "eigenvectors":
        variables: Any = min(count, node_kernel.basis.spectrum.n_eigenpairs)
    else:
        chosen = spread_out_nodes(node_kernel, places, count) if inducing is None else _positions(graph, inducing)
        variables = torch.as_tensor(chosen, dtype=torch.float64)[:, None]
    diagonal, likelihood = covariance == "diagonal", copy.deepcopy(likelihood)
    model = NodeGP(node_kernel, likelihood.n_latents, variables, diagonal=diagonal, constant=mean)
    model.mean_module.requires_grad_(learn_mean)
    generator = torch.Generator().manual_seed(int(random_generator(random_state, InputError).integers(2**31)))
    trainer = Trainer(
        model,
        likelihood,
        torch.as_tensor(places)[:, None],
        torch.as_tensor(targets),
        torch.as_tensor(shift),
        diagonal=diagonal,
        n_samples=n_samples,
        generator=generator,
    )
    converged, history = True, []
    with blas_threads(min(len(targets), model.variational_strategy.inducing_points.shape[-2])):
        if batch_size is not None or n_samples is not None or optimizer == "adam":
            rate = learning_rate if optimizer is not None else None
            size = min(batch_size or len(targets), len(targets))
            history = _train(trainer, n_steps, size, min(natural_rate, 1.0), rate, generator, progress)
        elif optimizer is None or not trainer.parameters:
            converged = trainer.settle()
        else:
            start, bounds = trainer.position(), trainer.bounds()
            found = find_minimum(
                trainer.objective,
                start,
                bounds,
                method="bfgs",
                max_iterations=max_iterations,
                first_step=0.5,
                to_gain=1e-6 if likelihood.log_concave else 1e-4,
                progress=progress,
            )
            converged = trainer.return_to_best() and found.converged
    trainer.write_back()
    with torch.no_grad():
        elbo = trainer.elbo(exact=True).item()
    level = model.mean_module.constant.detach().item()
    return StochasticFit(model, node_kernel.to_kernel(), likelihood, level, elbo, converged, trainer.n_clipped, history)


def _node_kernel(graph: Graph, kernel: Kernel, normalized: bool | None, n_eigenpairs: int | None) -> NodeKernel:
    """A kernel for GPyTorch with exactly the values of ours."""
    node_kernel: NodeKernel = NodeKernel(graph, kernel, normalized=normalized, n_eigenpairs=n_eigenpairs).double()
    node_kernel.load_kernel(kernel)  # in float64
    return node_kernel


def _train(
    trainer: Trainer,
    n_steps: int,
    batch_size: int,
    natural_rate: float,
    learning_rate: float | None,
    generator: torch.Generator,
    progress: bool | None,
) -> list[float]:
    """Natural gradients for q and Adam for the parameters, batch by batch; return the estimates of the ELBO."""
    parameters = list(trainer.parameters.values())
    adam = torch.optim.Adam(parameters, lr=learning_rate) if parameters and learning_rate is not None else None
    history: list[float] = []
    order = torch.empty(0, dtype=torch.int64)
    bar = trange(n_steps, desc="fit", unit=" steps", disable=None if progress is None else not progress, leave=False)
    for step in bar:
        if len(order) < batch_size:  # every observation once per pass, in batches of equal size
            order = torch.randperm(len(trainer), generator=generator)
        rows, order = order[:batch_size], order[batch_size:]
        fall = 0.1 ** max(0.0, 2.0 * step / n_steps - 1.0)
        trainer.q = trainer.natural_step(natural_rate * fall, rows)
        value = trainer.elbo(rows)
        if adam is not None:
            for group in adam.param_groups:
                group["lr"] = (learning_rate or 0.0) * fall
            adam.zero_grad()
            (-value).backward()  # type: ignore[no-untyped-call]
            adam.step()
        history.append(value.item())
        bar.set_postfix_str(f"ELBO = {history[-1]:.4f}")
    return history


def _positions(graph: Graph, nodes: ArrayLike) -> NDArray[np.int64]:
    """Distinct positions of nodes, checked; sorted."""
    places = np.unique(np.asarray(nodes))
    if places.dtype.kind not in "iu" or len(places) == 0 or places[0] < 0 or places[-1] >= graph.n_nodes:
        faults = FaultList("nothing was fitted", InputError)
        rule = f"must hold positions of nodes, whole numbers from 0 to {graph.n_nodes - 1}"
        raise faults.raise_now("nodes", rule, f"type {places.dtype}, {len(places)} distinct", "Use `graph.locate`.")
    return places.astype(np.int64)


def _observations(
    graph: Graph, likelihood: Likelihood, nodes: Any, y: ArrayLike, offset: ArrayLike | None
) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Positions, observations and offsets, checked."""
    _positions(graph, nodes)
    places = np.asarray(nodes, dtype=np.int64)
    faults = FaultList("nothing was fitted", InputError)
    targets = as_numbers(y, "y", faults)
    shift = np.zeros(places.shape) if offset is None else as_numbers(offset, "offset", faults)
    for name, values in {"y": targets, "offset": shift}.items():
        if values.shape != places.shape:
            faults.add(name, f"must have one value per node, shape {places.shape}", f"shape {values.shape}", "Align.")
    likelihood.note_faults(targets, faults)
    faults.raise_if_any()
    return places, targets, shift
