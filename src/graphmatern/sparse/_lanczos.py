"""Functions of a sparse symmetric matrix, applied to columns by Lanczos' method.

From a column x come orthonormal vectors v_0 = x / |x|, v_1, … and a tridiagonal matrix T, with which
f(S) x ≈ |x| Σ_j v_j (f(T) e_1)_j for any f. Where Chebyshev polynomials must be right on a whole interval, these need
be so only at the eigenvalues that are there: on graphs with a gap after the first few eigenvalues, as those that
factors fill in have it, a fifth of the products is enough. The vectors serve many functions at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg import eigh_tridiagonal

from graphmatern._progress import bar
from graphmatern.errors import NumericalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from graphmatern.sparse._products import ChebyshevProducts
    from graphmatern.sparse._threads import Crew

    Floats = NDArray[np.float64]

__all__ = ["MatrixFunctions"]

_FIRST = 8  # steps before a first look
_TYPICAL = 64  # steps, to say beforehand how long it may take
_EXHAUSTED = 1e-14  # what is left of a column, relative, when there are no further directions


class MatrixFunctions:
    """Several functions of a symmetric matrix S at once.

    Parameters
    ----------
    products : ChebyshevProducts
        Products with S, whose eigenvalues are in [−1, 1].
    functions : callable
        Eigenvalues, shape (m,) → values of all functions, shape (n_sets, m).
    slowest : callable
        The same for the one that needs most vectors, which serve the others as well; shape (1, m).
    tolerance : float
        For the slowest: of the part of f(T) e_1 that leads out of the space, times the length of that step.
    most : int
        Steps, at most.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from graphmatern.sparse import ChebyshevProducts
    >>> products = ChebyshevProducts(sp.csr_array(np.diag([0.0, 1.0, 2.0])), 0.0, 2.0)
    >>> def exponential(x):
    ...     return np.exp(x)[None]
    >>> functions = MatrixFunctions(products, exponential, exponential, 1e-12, 100)
    >>> functions.apply(np.ones((3, 1)))[0, :, 0]  # at −1, 0 and 1
    array([0.36787944, 1.        , 2.71828183])
    """

    def __init__(
        self,
        products: ChebyshevProducts,
        functions: Callable[[Floats], Floats],
        slowest: Callable[[Floats], Floats],
        tolerance: float,
        most: int,
    ) -> None:
        self._products, self._functions, self._slowest = products, functions, slowest
        self._tolerance, self._most = tolerance, most

    # ------------------------------------------------------------------ what is asked for
    def apply(self, columns: Floats) -> Floats:
        """f(S) V for all functions; shape (n_sets, n, k). Goes through the products twice: vectors are not kept."""
        products, count = self._products, columns.shape[1]
        found: dict[int, Floats] = {}

        def work(part: slice, crew: Crew | None) -> None:
            steps = _Steps(products, columns[:, part], crew)
            coefficients = self._until_settled(steps)
            steps.again(columns[:, part])
            totals = products._zeros(coefficients.shape[1], products.n, coefficients.shape[2])
            for total, own in zip(totals, coefficients[0], strict=True):
                total += steps.current * products._block(own)
            for own in coefficients[1:]:
                steps.advance(totals, own)
            found[part.start] = products._numbers(totals)

        self._in_blocks(count, 2.0, work)
        return np.concatenate([found[place] for place in sorted(found)], axis=2)

    def collected(self, count: int, start: Callable[[slice], Floats], take: Callable[[Floats], Floats]) -> Floats:
        """g(f(S) V) for all functions, with g that keeps little; shape (n_sets, m, n_columns).

        Parameters
        ----------
        count : int
            How many columns V has.
        start : callable
            Slice of columns → these columns of V, shape (n, k).
        take : callable
            g, linear: block of columns, shape (n, k) → what is kept of it, shape (m, k).
        """
        products = self._products
        parts: dict[int, Floats] = {}

        def work(part: slice, crew: Crew | None) -> None:
            steps = _Steps(products, start(part), crew)
            taken: list[Floats] = []
            coefficients = self._until_settled(steps, lambda block: taken.append(take(block)))
            found = coefficients.transpose(2, 1, 0) @ np.stack(taken[: len(coefficients)]).transpose(2, 0, 1)
            parts[part.start] = found.transpose(1, 2, 0)  # from (k, n_sets, m)

        self._in_blocks(count, 1.0, work)
        return np.concatenate([parts[place] for place in sorted(parts)], axis=2)

    def _in_blocks(self, count: int, passes: float, work: Callable[[slice, Crew | None], None]) -> None:
        """As `ChebyshevProducts._in_blocks`, with a bar where that may take long."""
        with bar("smoothing", count, self._products.seconds(count, passes * _TYPICAL)) as done:

            def and_count(part: slice, crew: Crew | None) -> None:
                work(part, crew)
                done(part.stop - part.start)

            self._products._in_blocks(count, and_count)

    # ------------------------------------------------------------------ how it is done
    def _until_settled(self, steps: _Steps, see: Callable[[Floats], Any] | None = None) -> Floats:
        """Go on until all columns are settled; coefficients of the vectors, shape (n_steps, n_sets, k)."""
        look, before = _FIRST, (0, np.inf)
        while True:
            while steps.count < look:
                if see is not None:
                    see(self._products._numbers(steps.current))
                steps.advance()
            error = self._left(steps)
            if error <= self._tolerance:
                raw = [steps.function(self._functions, column) for column in range(steps.width)]
                return np.asarray(np.stack(raw, axis=2) * steps.over_lengths()[:, None])
            if steps.count >= self._most:
                raise NumericalError(
                    f"smoothing did not settle in {self._most:,} products: {error:.1e} are left, "
                    f"{self._tolerance:.1e} were wanted. Likely causes: (a) a long lengthscale: bound it; (b) degrees "
                    "over many orders of magnitude: use normalized=True."
                )
            # Errors fall about geometrically, so where they would be small enough can be told.
            rate = np.log(before[1] / error) / (steps.count - before[0]) if np.isfinite(before[1]) else 0.0
            ahead = np.log(error / self._tolerance) / rate if rate > 0.0 else steps.count
            before = steps.count, error
            look = min(steps.count + int(np.clip(np.ceil(ahead), 2, steps.count)), self._most)

    def _left(self, steps: _Steps) -> float:
        """What is left of the slowest function in the worst column; the first to fail the test speaks for all."""
        found = 0.0
        for column in range(steps.width):
            last = steps.function(self._slowest, column)[-1, 0]
            found = max(found, float(abs(last) * steps.leaving[column]))
            if found > self._tolerance:
                break
        return found


class _Steps:
    """Vectors u_j = |u_j| v_j of several columns, two at a time.

    Parameters
    ----------
    products : ChebyshevProducts
        Products with S.
    columns : ndarray, shape (n, k)
        x.
    crew : Crew, optional
        Threads that share rows.

    Attributes
    ----------
    current : block, shape (n, k)
        The latest vectors.
    leaving : ndarray, shape (k,)
        Length of the step to the latest vectors.
    """

    def __init__(self, products: ChebyshevProducts, columns: Floats, crew: Crew | None) -> None:
        self._products, self._crew, self.width = products, crew, columns.shape[1]
        self._diagonal: list[Floats] = []
        self._lengths: list[Floats] = [np.sqrt(np.einsum("ij,ij->j", columns, columns))]
        self.again(columns)

    def again(self, columns: Floats) -> None:
        """Begin once more; what was learned of T is kept, and the same vectors come bit by bit."""
        self.current = self._products._block(columns)
        self._previous = self._products._zeros(*self.current.shape)
        self.count = 0

    def advance(self, totals: Any = None, coefficients: Floats | None = None) -> None:
        """The next vectors; totals += coefficients of each set and column, shape (n_sets, k), times them."""
        place, products = self.count, self._products
        own = self._lengths[place]
        over = np.divide(1.0, own, out=np.zeros_like(own), where=own > 0.0)
        kept = np.zeros_like(own)
        if place:
            before = self._lengths[place - 1]
            np.divide(-(own**2), before, out=kept, where=before > 0.0)
        dots = products.project(self.current, self._previous, kept, over, self._crew)
        known = place < len(self._diagonal)
        diagonal = self._diagonal[place] if known else dots * over
        factors = diagonal * over
        squares = products.subtract(self.current, self._previous, factors, totals, coefficients, self._crew)
        self.current, self._previous = self._previous, self.current
        self.count += 1
        if not known:
            length = np.sqrt(squares)
            self._diagonal.append(diagonal)
            self._lengths.append(np.where(length > _EXHAUSTED, length, 0.0))

    @property
    def leaving(self) -> Floats:
        """Length of the step to the latest vectors; shape (k,)."""
        return self._lengths[self.count]

    def function(self, functions: Callable[[Floats], Floats], column: int) -> Floats:
        """f(T) e_1 of one column, without the latest vector; shape (n_steps, n_sets)."""
        diagonal, beside = (np.array([one[column] for one in some]) for some in (self._diagonal, self._lengths[1:]))
        values, vectors = eigh_tridiagonal(diagonal[: self.count], beside[: self.count - 1])
        return np.asarray(vectors @ (functions(np.clip(values, -1.0, 1.0)) * vectors[0]).T)

    def over_lengths(self) -> Floats:
        """|x| / |u_j| of all vectors but the latest; shape (n_steps, k)."""
        lengths = np.stack(self._lengths[: self.count])
        return np.divide(lengths[0], lengths, out=np.zeros_like(lengths), where=lengths > 0.0)
