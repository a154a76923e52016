"""Fields whose kernel on time is Markov, solved exactly by going through the times once forth and once back.

With p derivatives in the state of the kernel on time and K_S = R Rᵀ of rank r, the field at the observed nodes is R z₀:
z_t has (p + 1) r numbers, z_{t+1} = (A ⊗ I) z_t + noise of covariance W ⊗ I, and y_t = H_t z_t + noise of variance ρ,
where H_t takes z₀ by the rows of R of the nodes observed at t. A Kalman filter gives gains and the covariances S_t of
what is new in y_t; with the information N_t of observations from t on about z_t (Bryson and Frazier's smoother) follow
C_oo⁻¹ and its traces. Only the S_t are factorised, and they contain ρ: times may be as close as they like, and K_S may
be singular.

By the chain rule, with P the filtered covariance at t and Ñ = (Aᵀ ⊗ I) N_{t+1} (A ⊗ I), the derivative of log det C_oo
in a gap x from t to t + 1 is ⟨N_{t+1}, W′ ⊗ I⟩ + 2 tr (F ⊗ I) P Ñ, F the drift of `MarkovChain`, and its change with
K_S is Σ_t ⟨N_t, W ⊗ R⁻¹ ∂K_S R⁻ᵀ⟩.

The work grows with times × (states × nodes)² × nodes; memory is bounded by recomputing stretches of the filter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as la

from graphmatern.errors import NumericalError
from graphmatern.inference.field.covariance import Derivatives, weight_derivatives
from graphmatern.inference.field.markov_time import ChainProduct, MarkovChain
from graphmatern.inference.field.systems import FieldSystem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from graphmatern.inference.field.covariance import FieldCovariance, FieldGrid
    from graphmatern.inference.field.systems import Cells

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["StateSpace", "kept_steps", "state_space_memory"]

_KEPT_NUMBERS = 2**26  # of filtered steps, at once
_NEGLIGIBLE = 1e-9  # nats that directions of K_S may explain in all and be left out


@dataclass(frozen=True, eq=False)
class _Step:
    """The filter at one time, with k nodes observed and m numbers in the state.

    Attributes
    ----------
    places : ndarray of int64, shape (k,)
        Columns of the observed nodes.
    rows : ndarray, shape (k, r)
        R there.
    factor : ndarray, shape (k, k)
        Lower Cholesky factor of S.
    gain : ndarray, shape (k, m)
        factor⁻¹ H P, P the covariance of the state before its time's observations.
    filtered : ndarray, shape (m, m)
        Covariance of the state after them.
    """

    places: Longs
    rows: Floats
    factor: Floats
    gain: Floats
    filtered: Floats


@dataclass(frozen=True, eq=False)
class _Information:
    """What observations after a time say about its state, and those from it on; precisions of shape (m, m).

    Attributes
    ----------
    time : int
        Which.
    step : _Step
        The filter there.
    next : ndarray, optional
        N of the next time; None at the last.
    later : ndarray
        Ñ: N of the next time, carried back.
    all : ndarray
        N.
    trace : float
        Trace of this time's block of C_oo⁻¹.
    """

    time: int
    step: _Step
    next: Floats | None
    later: Floats
    all: Floats
    trace: float


def _numbers(n_nodes: int, m: int) -> int:
    """Numbers in a step of the filter."""
    return m * m + n_nodes * m + n_nodes * n_nodes


def kept_steps(n_times: int, n_nodes: int, m: int, kept_numbers: int = _KEPT_NUMBERS) -> int:
    """Steps kept at once, of states of m numbers: as many as fit, but never fewer than there are stretches."""
    return min(n_times, max(int(np.ceil(np.sqrt(n_times))), kept_numbers // max(1, _numbers(n_nodes, m))))


def state_space_memory(n_times: int, n_nodes: int, order: int) -> int:
    """Numbers that a system keeps at most."""
    m = (order + 1) * n_nodes
    steps = kept_steps(n_times, n_nodes, m)
    return steps * _numbers(n_nodes, m) + -(-n_times // steps) * m * m + 8 * n_times * m


class StateSpace(FieldSystem):
    """Kalman filter and smoother over all observed nodes at once.

    Parameters
    ----------
    covariance : FieldCovariance
        Rate and variance of the kernel on time, K_S, ρ.
    grid : FieldGrid
        Which cells are observed.
    order : {0, 1, 2}
        Derivatives in the state.
    kept_numbers : int
        Memory for filtered steps, in numbers: where they need more, stretches of them are computed again.
    """

    batch = 64

    def __init__(
        self, covariance: FieldCovariance, grid: FieldGrid, order: int, kept_numbers: int = _KEPT_NUMBERS
    ) -> None:
        super().__init__(covariance, grid)
        rate, self.variance = (float(number) for number in covariance.time)
        if not (np.isfinite([rate, self.variance, covariance.rho]).all() and covariance.rho > 0.0):
            raise NumericalError(
                "the covariance of the observed cells is not positive definite. Likely causes: (a) a noise variance "
                "near 0: raise it; (b) parameters that are not finite."
            )
        self.chain = MarkovChain(order, rate)
        self._gaps = np.diff(grid.times)
        self._transitions, self._added = self.chain.step(self._gaps)
        vectors, sizes, link = covariance.basis.eigenpairs(covariance.weights)
        needed = _NEGLIGIBLE * covariance.rho / (self.variance * grid.y.size)
        self._kept = np.flatnonzero(sizes >= min(needed, float(sizes.max())))
        self._sizes, self._link = sizes[self._kept], link
        self._vectors = vectors[:, self._kept]
        self._roots = self._vectors * np.sqrt(self.variance * self._sizes)
        self._rank, self._d = len(self._kept), order + 1
        self._stretch = kept_steps(len(grid.times), len(grid.nodes), self._rank * self._d, kept_numbers)
        before = np.asarray(np.kron(self.chain.stationary, np.eye(self._rank)), dtype=np.float64)
        self._starts = [before]  # covariances before the first step of every stretch
        self._cached: tuple[int, list[_Step]] | None = None

    # ------------------------------------------------------------------ the filter
    def _turn(self, matrix: Floats, on_states: Floats) -> Floats:
        """(B ⊗ I) S (Bᵀ ⊗ I) for B of shape (d, d) and symmetric S of shape (m, m).

        Made symmetric again: what rounding leaves would grow from time to time.
        """
        half = (on_states @ matrix.reshape(self._d, -1)).reshape(matrix.shape)
        turned = (on_states @ np.ascontiguousarray(half.T).reshape(self._d, -1)).reshape(matrix.shape)
        return np.asarray(0.5 * (turned + turned.T))

    def _predict(self, filtered: Floats, transition: Floats, added: Floats) -> Floats:
        """(A ⊗ I) P (Aᵀ ⊗ I) + W ⊗ I."""
        predicted = self._turn(filtered, transition)
        every = np.arange(self._rank)
        predicted.reshape(self._d, self._rank, self._d, self._rank)[:, every, :, every] += added
        return predicted

    def _update(self, row: int, covariance: Floats) -> _Step:
        """Take up the observations of a time."""
        places = np.flatnonzero(self.grid.observed[row])
        rows = self._roots[places]
        if len(places) == 0:
            return _Step(places, rows, np.zeros((0, 0)), np.zeros((0, len(covariance))), covariance)
        cross = rows @ covariance[: self._rank]
        new = cross[:, : self._rank] @ rows.T
        new[np.diag_indices_from(new)] += self.covariance.rho
        factor, failed = la.lapack.dpotrf(new, lower=1)
        if failed:
            raise NumericalError(
                "the filter lost its accuracy. Likely causes: (a) a noise variance near 0: raise it; (b) parameters "
                "that are not finite."
            )
        gain, _ = la.lapack.dtrtrs(factor, cross, lower=1)
        return _Step(places, rows, factor, gain, covariance - gain.T @ gain)

    def _steps(self, part: int) -> list[_Step]:
        """The filter over a stretch of times; those before it must have been asked for once."""
        if self._cached is None or self._cached[0] != part:
            covariance, steps = self._starts[part], list[_Step]()
            last = len(self.grid.times) - 1
            for row in range(part * self._stretch, min(last + 1, (part + 1) * self._stretch)):
                steps.append(self._update(row, covariance))
                if row < last:
                    covariance = self._predict(steps[-1].filtered, self._transitions[row], self._added[row])
            if len(self._starts) == part + 1:
                self._starts.append(covariance)
            self._cached = part, steps
        return self._cached[1]

    @property
    def n_stretches(self) -> int:
        """Stretches of times of which one at a time is kept."""
        return -(-len(self.grid.times) // self._stretch)

    def _forth(self) -> Iterator[tuple[int, _Step]]:
        for part in range(self.n_stretches):
            yield from enumerate(self._steps(part), part * self._stretch)

    def _back(self) -> Iterator[tuple[int, _Step]]:
        _ = self._log_determinant  # the filter has been through
        for part in range(self.n_stretches - 1, -1, -1):
            yield from reversed(list(enumerate(self._steps(part), part * self._stretch)))

    @cached_property
    def _log_determinant(self) -> float:
        return sum(2.0 * float(np.log(np.diag(step.factor)).sum()) for _, step in self._forth())

    def log_determinant(self) -> float:
        """Log det C_oo."""
        return self._log_determinant

    def solve(self, data: Floats) -> Floats:
        """C_oo⁻¹ data."""
        white: list[Floats] = []
        state = np.zeros((self._d, self._rank, len(data)))
        for row, step in self._forth():
            if row:
                state = np.tensordot(self._transitions[row - 1], state, 1)
            new = data[:, row, step.places].T - step.rows @ state[0]
            white.append(_lower_solve(step.factor, new))
            state = state + (step.gain.T @ white[-1]).reshape(state.shape)
        solution = np.zeros_like(data)
        state = np.zeros_like(state)  # from here on the states' derivatives
        for row, step in self._back():
            if row < len(white) - 1:
                state = np.tensordot(self._transitions[row].T, state, 1)
            left = white[row] - step.gain @ state.reshape(-1, len(data))
            solved = _lower_solve(step.factor, left, transposed=True)
            solution[:, row, step.places] = solved.T
            state[0] += step.rows.T @ solved
        return solution

    # ------------------------------------------------------------------ what later observations say
    def _informations(self) -> Iterator[_Information]:
        """From the last time to the first."""
        later = np.zeros_like(self._starts[0])
        following: Floats | None = None
        r = self._rank
        for row, step in self._back():
            if following is not None:
                later = self._turn(following, self._transitions[row].T)
            if len(step.places) == 0:
                yield _Information(row, step, following, later, later, 0.0)
                following = later
                continue
            gain = _lower_solve(step.factor, step.gain, transposed=True)  # S⁻¹ H P
            half = later @ gain.T
            block = gain @ half
            inverse, _ = la.lapack.dpotri(step.factor, lower=1)
            block += np.tril(inverse) + np.tril(inverse, -1).T  # a diagonal block of C_oo⁻¹
            change = half @ step.rows
            information = later.copy()
            information[:, :r] -= change
            information[:r] -= change.T
            information[:r, :r] += step.rows.T @ block @ step.rows
            yield _Information(row, step, following, later, information, float(np.trace(block)))
            following = information

    def trace_derivatives(self) -> Derivatives:
        """Derivatives of log det C_oo; of time, in rate and variance."""
        d, r = self._d, self._rank
        slopes = self.chain.added_slope(self._transitions)
        in_rate, in_noise, in_modes = 0.0, 0.0, np.zeros((r, r))
        for at in self._informations():
            row, blocks = at.time, at.all.reshape(d, r, d, r)
            in_noise += at.trace
            added = self._added[row - 1] if row else self.chain.stationary
            in_modes += np.einsum("ab,aibj->ij", added, blocks, optimize=True)
            if row:
                in_rate += self._gaps[row - 1] * float(np.sum(slopes[row - 1] * np.einsum("aibi->ab", blocks)))
            if at.next is not None:
                moved = at.later.reshape(d, -1) @ at.step.filtered.reshape(d, -1).T
                in_rate += 2.0 * self._gaps[row] * float(np.sum(self.chain.drift * moved))
        scaled = in_modes / np.sqrt(np.outer(self._sizes, self._sizes))
        in_variance = (self.grid.n_observed - self.covariance.rho * in_noise) / self.variance
        if self._link is None:
            in_weights = np.zeros_like(self.covariance.weights)
            in_weights[self._kept] = np.diag(scaled)
        else:
            in_weights = weight_derivatives(scaled, self._link[self._kept])
        return Derivatives(np.array([in_rate, in_variance]), in_weights, in_noise)

    def form_derivatives(self, fields: Floats, factors: Floats) -> Derivatives:
        """Derivatives of Σ factor · ⟨X, C X⟩ over some fields X; of time, in rate and variance."""
        nodes = self.covariance.nodes
        slopes = self.chain.added_slope(self._transitions)
        in_time, in_nodes = np.zeros(2), np.zeros_like(nodes)
        for field, factor in zip(fields, factors, strict=True):
            product = ChainProduct(self.chain, self.grid.times, field)
            of_nodes = field.T @ product.states[:, 0]  # Xᵀ K_T X
            in_nodes += factor * self.variance * 0.5 * (of_nodes + of_nodes.T)
            in_time[1] += factor * float(np.sum(of_nodes * nodes))
            now, past = product.whole[1:], product.states[:-1]
            moved = np.einsum("tai,tbi,tab->t", now @ nodes, now, slopes, optimize=True)
            moved += 2.0 * np.einsum(
                "tai,tbi,ab->t", product.carried[:-1] @ nodes, past, self.chain.drift, optimize=True
            )
            in_time[0] += factor * self.variance * float(self._gaps @ moved)
        in_noise = float(np.einsum("k,kts,kts->", factors, fields, fields))
        return Derivatives(in_time, weight_derivatives(in_nodes, self.covariance.basis.basis), in_noise)

    # ------------------------------------------------------------------ predictions
    def project(self, cells: Cells, field: Floats) -> Floats:
        """Σ_ab k_T(t, a) field(a, b) k_S(s, b) at cells."""
        product = ChainProduct(self.chain, self.grid.times, field)
        return cells.gather(self.variance * product.at(cells.times), cells.nodes)

    def explained(self, cells: Cells) -> Floats:
        """Prior minus posterior variance at cells: the filter carried on to their times, and what comes later."""
        features = cells.nodes @ (self._vectors * np.sqrt(self.variance / self._sizes))
        rows, columns = cells.each()
        order = np.argsort(rows, kind="stable")
        wanted, first = np.unique(rows[order], return_index=True)
        groups = dict(zip(wanted.tolist(), np.split(order, first[1:]), strict=True))
        before = np.searchsorted(self.grid.times, cells.times, side="right") - 1  # the observed time before each
        explained = np.empty(len(rows))

        def fill(row: int, filtered: Floats | None, following: Floats | None) -> None:
            matrix = self._explained_at(float(cells.times[row]), int(before[row]), filtered, following)
            some = features[columns[groups[row]]]
            explained[groups[row]] = np.einsum("ij,ij->i", some @ matrix, some)

        left = sorted(groups, key=lambda row: int(before[row]))
        following: Floats | None = None
        for at in self._informations():
            while left and before[left[-1]] == at.time:
                fill(left.pop(), at.step.filtered, at.next)
            following = at.all
            if not left:
                break
        for row in left:  # before the first observed time
            fill(row, None, following)
        return explained.reshape(cells.shape)

    def _explained_at(self, time: float, before: int, filtered: Floats | None, following: Floats | None) -> Floats:
        """What all observations explain of the covariance I of z₀ at a time; shape (r, r)."""
        d, r = self._d, self._rank
        if filtered is None:
            rows = np.kron(self.chain.stationary[:1], np.eye(r))
        else:
            transitions, added = self.chain.step(np.array([time - self.grid.times[before]]))
            first = (transitions[0, 0] @ filtered.reshape(d, -1)).reshape(r, d, r)
            rows = (np.einsum("ibj,cb->icj", first, transitions[0])).reshape(r, -1)
            rows += np.kron(added[0, :1], np.eye(r))
        explained = np.eye(r) - rows[:, :r]
        if following is not None:
            transition = self.chain.step(np.array([self.grid.times[before + 1] - time]))[0][0]
            carried = np.einsum("ibj,cb->icj", rows.reshape(r, d, r), transition).reshape(r, -1)
            explained += carried @ following @ carried.T
        return np.asarray(explained)


def _lower_solve(factor: Floats, right: Floats, *, transposed: bool = False) -> Floats:
    """Solve with a lower triangular matrix, or its transpose; no rows are allowed."""
    if len(factor) == 0:
        return right
    solution, _ = la.lapack.dtrtrs(factor, right, lower=1, trans=int(transposed))
    return np.asarray(solution)
