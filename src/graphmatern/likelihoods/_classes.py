"""Likelihoods of class labels: two classes and one latent process, or one latent process per class."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from scipy.special import softmax
from torch.autograd.function import once_differentiable
from torch.special import log_ndtr

from graphmatern._validation import FaultList, check_choice, check_whole, describe_rows
from graphmatern.errors import LikelihoodError
from graphmatern.likelihoods import _base
from graphmatern.likelihoods._base import Expectation, Likelihood, smallest_variance
from graphmatern.likelihoods._gumbel import gumbel_factors
from graphmatern.likelihoods._largest import common_grid, grid_sizes, largest_with_derivatives, probabilities_of_largest
from graphmatern.likelihoods._orthant import orthant
from graphmatern.sparse import Crew, available_threads, single_threaded_blas

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from graphmatern.likelihoods._base import Near

__all__ = ["Bernoulli", "Categorical", "MultinomialProbit", "RobustMax", "Softmax", "differences"]

_MANY_NODES = 500  # whose probabilities several threads find


class Categorical(Likelihood):
    """A likelihood of class labels, codes from 0 to ``n_classes`` − 1."""

    n_classes: int

    def note_faults(self, y: NDArray[np.float64], faults: FaultList) -> None:
        """Note as faults what is not the code of a class."""
        bad = (y != np.round(y)) | (y < 0) | (y >= self.n_classes)
        if bad.any():
            rule = f"must hold codes of classes, whole numbers from 0 to {self.n_classes - 1}"
            faults.add("y", rule, describe_rows(bad, y), "Encode the labels first.")

    @abstractmethod
    def probabilities(self, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        """Predictive probabilities of the classes, the latent processes integrated out.

        Parameters
        ----------
        mean, variance : Tensor, shape (n_latents, n)
            Of the latent processes.

        Returns
        -------
        Tensor, shape (n_classes, n)
        """

    def known_probabilities(self, f: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probabilities of the classes where the latent processes are known.

        Parameters
        ----------
        f : ndarray, shape (n_latents, n)
            Their values.

        Returns
        -------
        ndarray, shape (n_classes, n)
        """
        with torch.no_grad():
            values, size = torch.from_numpy(f), f.shape[1]
            codes = (torch.full((size,), float(c), dtype=torch.float64) for c in range(self.n_classes))
            logs = torch.stack([self.log_prob(code, values) for code in codes])
            return np.asarray(torch.softmax(logs, dim=0).numpy())


class Bernoulli(Categorical):
    """Two classes, 0 and 1, and one latent process.

    Parameters
    ----------
    link : {"probit", "logit"}
        The probability of class 1 is Φ(f), or 1 / (1 + e^(−f)).

    Examples
    --------
    >>> import torch
    >>> from graphmatern.likelihoods import Bernoulli
    >>> Bernoulli().probabilities(torch.zeros(1, 1), torch.ones(1, 1))
    tensor([[0.5000],
            [0.5000]])
    """

    n_classes = 2
    _settings: ClassVar[tuple[str, ...]] = ("link",)

    def __init__(self, link: Literal["probit", "logit"] = "probit") -> None:
        check_choice("link", link, ("probit", "logit"), LikelihoodError)
        super().__init__()
        self._link = link

    @property
    def link(self) -> str:
        """The link; `set_params` changes it."""
        return self._link

    def log_prob(self, y: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        """Log Φ(±f) or log σ(±f); see `Likelihood.log_prob`."""
        signed = (2.0 * y - 1.0) * f[..., 0, :]
        return log_ndtr(signed) if self._link == "probit" else torch.nn.functional.logsigmoid(signed)

    def marginal_log_power(
        self, y: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, power: float, near: Near | None = None
    ) -> torch.Tensor:
        """In closed form for the probit link itself; see `Likelihood.marginal_log_power`."""
        if self._link == "probit" and power == 1.0:
            found: torch.Tensor = log_ndtr((2.0 * y - 1.0) * mean[0] / torch.sqrt(1.0 + variance[0]))
            return found
        return super().marginal_log_power(y, mean, variance, power, near)

    def two_sided(self, y: torch.Tensor) -> bool:
        """Whether there are labels of both classes; see `Likelihood.two_sided`."""
        return bool((y != y[:1]).any())

    def starting_sites(self, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """F of the right sign."""
        return (2.0 * y - 1.0)[None], torch.full((1, len(y)), 0.5, dtype=torch.float64)

    def probabilities(self, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        """Predictive probabilities; in closed form for the probit link. See `Categorical.probabilities`."""
        if self._link == "probit":
            scaled = mean[0] / torch.sqrt(1.0 + variance[0])
            return torch.exp(log_ndtr(torch.stack([-scaled, scaled])))
        f = self._quadrature(mean, variance)[:, 0]
        return torch.stack([self._average(torch.sigmoid(-f)), self._average(torch.sigmoid(f))])


class _PerClass(Categorical):
    """One latent process for each class; only their differences matter."""

    shift_invariant: ClassVar[bool] = True
    _settings: ClassVar[tuple[str, ...]] = ("n_classes",)

    def __init__(self, n_classes: int) -> None:
        faults = FaultList(f"no {type(self).__name__} was made", LikelihoodError)
        check_whole("n_classes", n_classes, faults, minimum=2, remedy="Give at least two classes.")
        faults.raise_if_any()
        super().__init__()
        self.n_classes = self.n_latents = int(n_classes)

    def starting_sites(self, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """f_y above the others."""
        _, precision = super().starting_sites(y)
        return (torch.arange(self.n_classes)[:, None] == y).to(torch.float64), 0.5 * precision

    def _of_similar_needs(self, needed: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], int]]:
        """Observations that need grids of similar sizes, and the largest of these: few need a fine one."""
        order = np.argsort(needed, kind="stable")
        start = 0
        while start < len(order):
            size = max(1, _base.entries_at_once // (int(needed[order[start]]) * 2 * self.n_classes))
            near = np.searchsorted(needed[order], 1.5 * needed[order[start]], side="right")
            part = order[start : min(near, start + size)]
            yield part, int(needed[part].max())
            start += len(part)

    def _largest(self, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        """Probability of each of independent Gaussian variables to be the largest; shape (n_classes, n)."""
        m = mean.detach().numpy()
        deviation = np.sqrt(np.maximum(variance.detach().numpy(), smallest_variance))
        found = np.empty(m.shape)
        low, high, needed = common_grid(m, deviation)
        for part, count in self._of_similar_needs(needed):
            found[:, part] = probabilities_of_largest(m[:, part], deviation[:, part], low[part], high[part], count)
        return torch.from_numpy(found / found.sum(axis=0))


class MultinomialProbit(_PerClass):
    """The class for which f_c + ε_c is largest, with independent ε ~ N(0, 1): one latent process for each class.

    With two classes this is probit regression on (f_1 − f_0) / √2. Its sites keep the correlation between classes
    (`graphmatern.inference.sites.classes`): each observation says that some differences of processes are positive, and
    nothing about their level.

    Parameters
    ----------
    n_classes : int
        Number of classes, and of latent processes.

    Examples
    --------
    >>> import torch
    >>> from graphmatern.likelihoods import MultinomialProbit
    >>> mean = torch.tensor([[3.0], [0.0], [0.0]], dtype=torch.float64)
    >>> MultinomialProbit(3).probabilities(mean, torch.ones_like(mean)).numpy().round(3)
    array([[0.885],
           [0.058],
           [0.058]])
    """

    approximation: ClassVar[Literal["bound", "moments", "classes"]] = "classes"

    def log_prob(self, y: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        """Log E Π Φ(f_y − f_c + ε_y), by quadrature over ε_y; see `Likelihood.log_prob`."""
        label = y.to(torch.int64).expand(*f.shape[:-2], 1, f.shape[-1])
        ahead = f.gather(-2, label) - f
        own = torch.zeros_like(ahead).scatter_(-2, label, 1.0)
        terms = [math.log(weight) + ((1.0 - own) * log_ndtr(ahead + node)).sum(dim=-2) for node, weight in self._rule()]
        return torch.logsumexp(torch.stack(terms), dim=0)

    def _rule(self) -> list[tuple[float, float]]:
        return [(x, w) for x, w in zip(self._nodes.tolist(), self._weights.tolist(), strict=True) if w > 0.0]

    def expected_log_prob(self, y: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        """Not known: its expectation is intractable, and its sites do not need it."""
        del y, mean, variance
        faults = FaultList("no expectation", LikelihoodError)
        rule = "must be a likelihood whose expected logarithm is known, for inducing nodes, eigenvectors and batches"
        raise faults.raise_now("likelihood", rule, repr(self), "Use 'softmax' or 'robustmax'.")

    def probabilities(self, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        """Predictive probabilities where the processes are independent; see `Categorical.probabilities`."""
        return self._largest(mean, variance + 1.0)

    def known_probabilities(self, f: NDArray[np.float64]) -> NDArray[np.float64]:
        """All classes at once, from one grid; see `Categorical.known_probabilities`."""
        mean = torch.from_numpy(f)
        return np.asarray(self.probabilities(mean, torch.zeros_like(mean)).numpy())

    def joint_probabilities(self, mean: NDArray[np.float64], covariance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Predictive probabilities where the processes are correlated; shape (n, n_classes).

        Parameters
        ----------
        mean : ndarray, shape (n, n_classes)
            Of the latent processes.
        covariance : ndarray, shape (n, n_classes, n_classes)
            Between them.
        """
        nothing = np.zeros((len(mean), 0, self.n_classes))
        return self._shares(mean, covariance, nothing, np.zeros((len(mean), 0, 0)))

    def probabilities_beside(
        self, labels: NDArray[np.int64], mean: NDArray[np.float64], covariance: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Predictive probabilities where one label is known, which the moments know nothing of; (n, n_classes).

        Parameters
        ----------
        labels : ndarray of int64, shape (n,)
            Codes of the known labels.
        mean : ndarray, shape (n, n_classes)
            Of the latent processes given all else.
        covariance : ndarray, shape (n, n_classes, n_classes)
            Between them.
        """
        known = np.stack([differences(self.n_classes, c) for c in range(self.n_classes)])[labels]
        return self._shares(mean, covariance, known, known @ known.transpose(0, 2, 1))

    def _shares(
        self,
        mean: NDArray[np.float64],
        covariance: NDArray[np.float64],
        known: NDArray[np.float64],
        noise: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Probabilities of classes together with known differences that are positive, (n, k, n_classes), and noise."""
        found, k = np.empty(mean.shape), known.shape[1]

        def find(c: int, _worker: int = 0) -> None:
            ahead = differences(self.n_classes, c)
            every = np.concatenate([known, np.broadcast_to(ahead, (len(mean), *ahead.shape))], axis=1)
            spread = every @ covariance @ every.transpose(0, 2, 1)
            spread[:, :k, :k] += noise
            spread[:, k:, k:] += ahead @ ahead.T
            # Probabilities are stationary where updates end, so that their errors are squares of the tolerance.
            conditions = orthant(np.einsum("nkc,nc->nk", every, mean), spread, tolerance=1e-4)
            found[:, c] = conditions.log_probability

        with Crew(available_threads() if len(mean) >= _MANY_NODES else 1) as crew, single_threaded_blas():
            crew.run(self.n_classes, find)
        return np.asarray(softmax(found, axis=1))


def differences(n_classes: int, label: int) -> NDArray[np.float64]:
    """The matrix that maps f to f_label − f_c for the other classes; shape (n_classes − 1, n_classes)."""
    found = -np.delete(np.eye(n_classes), label, axis=0)
    found[:, label] = 1.0
    return found


class _WithDerivatives(torch.autograd.Function):
    """Expected log-likelihoods, differentiable once, of a likelihood that knows its derivatives."""

    @staticmethod
    def forward(ctx: Any, mean: torch.Tensor, variance: torch.Tensor, likelihood: Likelihood, y: torch.Tensor) -> Any:
        """Values; the derivatives are kept."""
        found = likelihood.expectation(y, mean, variance)
        ctx.save_for_backward(found.in_mean, found.in_variance)
        return found.value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Derivatives in mean and variance."""
        in_mean, in_variance = ctx.saved_tensors
        return gradients[0] * in_mean, gradients[0] * in_variance, None, None


class RobustMax(_PerClass):
    """The class whose latent process is largest, except that labels are wrong with probability ε.

    p(y | f) = 1 − ε if f_y is the largest, otherwise ε / (n_classes − 1). Expectations need the probability that
    f_y is the largest of independent Gaussians: one integral, of a product of distribution functions, by quadrature.

    Parameters
    ----------
    n_classes : int
        Number of classes, and of latent processes.
    epsilon : float
        Probability ε of a wrong label.

    Examples
    --------
    >>> import torch
    >>> from graphmatern.likelihoods import RobustMax
    >>> mean = torch.tensor([[3.0], [0.0], [0.0]])
    >>> RobustMax(3).probabilities(mean, torch.ones(3, 1)).numpy().round(3)
    array([[0.968],
           [0.016],
           [0.016]])
    """

    scale_invariant: ClassVar[bool] = True
    log_concave: ClassVar[bool] = False
    _settings: ClassVar[tuple[str, ...]] = ("n_classes", "epsilon")

    def __init__(self, n_classes: int, epsilon: float = 1e-3) -> None:
        super().__init__(n_classes)
        if isinstance(epsilon, bool) or not 0.0 < epsilon < 1.0:
            faults = FaultList("no RobustMax was made", LikelihoodError)
            raise faults.raise_now("epsilon", "must lie between 0 and 1", repr(epsilon), "0.001 is usual.")
        self._epsilon = float(epsilon)

    @property
    def epsilon(self) -> float:
        """Probability of a wrong label; `set_params` changes it."""
        return self._epsilon

    def log_prob(self, y: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        """Log (1 − ε) where f_y is the largest, else log ε / (n_classes − 1); see `Likelihood.log_prob`."""
        right = f.argmax(dim=-2) == y
        yes, no = math.log1p(-self._epsilon), math.log(self._epsilon / (self.n_classes - 1))
        return torch.where(right, f.new_tensor(yes), f.new_tensor(no))

    def expected_log_prob(self, y: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        """With the derivatives of `expectation`; see `Likelihood.expected_log_prob`."""
        found: torch.Tensor = _WithDerivatives.apply(mean, variance, self, y)  # type: ignore[no-untyped-call]
        return found

    def expectation(self, y: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> Expectation:
        """Derivatives in closed form, several times as fast as by differentiation; see `Likelihood.expectation`."""
        label, m = y.detach().to(torch.int64).numpy(), mean.detach().numpy()
        deviation = np.sqrt(np.maximum(variance.detach().numpy(), smallest_variance))
        probability, in_mean, in_deviation = np.empty(len(label)), np.empty(m.shape), np.empty(m.shape)
        ratios = (deviation[label, np.arange(len(label))] / deviation) ** 2
        for part, count in self._of_similar_needs(grid_sizes(ratios.sum(axis=0) - 1.0)):
            found = largest_with_derivatives(label[part], m[:, part], deviation[:, part], count)
            probability[part], in_mean[:, part], in_deviation[:, part] = found
        yes, no = math.log1p(-self._epsilon), math.log(self._epsilon / (self.n_classes - 1))
        value = probability * yes + (1.0 - probability) * no
        arrays = (value, (yes - no) * in_mean, (yes - no) * in_deviation / (2.0 * deviation))
        return Expectation(*(torch.from_numpy(array) for array in arrays))

    def probabilities(self, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        """Predictive probabilities; see `Categorical.probabilities`."""
        largest = self._largest(mean, variance)
        return largest * (1.0 - self._epsilon) + (1.0 - largest) * self._epsilon / (self.n_classes - 1)


class Softmax(_PerClass):
    """p(y | f) = e^(f_y) / Σ e^(f_c), one latent process for each class.

    Expectations of log Σ e^(f_c) need no samples. With S = Σ e^(f_c), log S = ∫ (exp(−e^u) − exp(−S e^u)) du over the
    real line, and the expectation of exp(−S e^u) is a product over the classes, each factor by Gauss–Hermite
    quadrature. So this is the tensor product of those rules, n_points^n_classes nodes, at the cost of a sum.

    Parameters
    ----------
    n_classes : int
        Number of classes, and of latent processes.

    Examples
    --------
    >>> import torch
    >>> from graphmatern.likelihoods import Softmax
    >>> mean = torch.tensor([[3.0], [0.0], [0.0]], dtype=torch.float64)
    >>> Softmax(3).probabilities(mean, torch.ones_like(mean)).numpy().round(3)
    array([[0.839],
           [0.081],
           [0.081]])
    """

    _default_points: ClassVar[int] = 16
    _step = 0.5  # of the trapezoidal rule in u, whose error falls like exp(−π² / step)
    _largest_grid = 1000

    def log_prob(self, y: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        """f_y − log Σ e^(f_c); see `Likelihood.log_prob`."""
        label = y.to(torch.int64).expand(*f.shape[:-2], 1, f.shape[-1])
        return f.gather(-2, label)[..., 0, :] - torch.logsumexp(f, dim=-2)

    def _entries_per_observation(self) -> int:
        return len(self._nodes) * self.n_latents * 100

    def expected_log_sum(self, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        """E log Σ e^(f_c), differentiable; shape (n,)."""
        deviation = variance.clamp_min(smallest_variance).sqrt()
        with torch.no_grad():
            # exp(−e^u) and the product differ from about 23 below −(the largest f) to 4 above −(the smallest that the
            # largest can be).
            reach = self._nodes.max()
            centre = (mean + reach * deviation).amax(dim=0)
            span = 27.0 + centre - (mean - reach * deviation).amax(dim=0)
            largest = span.max().item() if len(span) else 27.0
            count = int(min(self._largest_grid, math.ceil(largest / self._step) + 1))
            u = -23.0 + span * torch.linspace(0.0, 1.0, count, dtype=torch.float64)[:, None]
        factors = gumbel_factors(mean - centre, deviation, u, self._nodes, self._weights)
        difference = torch.exp(-torch.exp(u)) - factors.prod(dim=1)
        return centre + span / (count - 1) * difference.sum(dim=0)

    def expected_log_prob(self, y: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        """m_y − `expected_log_sum`; see `Likelihood.expected_log_prob`."""
        return mean.gather(0, y.to(torch.int64)[None])[0] - self.expected_log_sum(mean, variance)

    def probabilities(self, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        """E softmax, the derivative of E log Σ e^(f_c) in the means; see `Categorical.probabilities`."""
        found = -self.expectation(torch.zeros(mean.shape[1]), mean, variance).in_mean
        found[0] += 1.0  # undoes the derivative of m_y, y = 0
        found = found.clamp_min(0.0)
        return found / found.sum(dim=0)
