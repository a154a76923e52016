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
    Functions = Callable[[Floats], Floats]

__all__ = ["KrylovRows", "KrylovSpace", "apply_functions"]

_FIRST = 8  # steps before a first look
_TYPICAL = 64  # steps, to say beforehand how long it may take
_EXHAUSTED = 1e-14  # what is left of a column, relative, when there are no further directions
_UNITS = 4.0  # of rounding, relative to 1, by which eigenvalues are off
_POINTS = 200  # at which steepness is looked for
_RECENT = 8  # what the last of so many parts of the steps have changed is more than what is still missing


def apply_functions(
    products: ChebyshevProducts, functions: Functions, slowest: Functions, columns: Floats, tolerance: float, most: int
) -> Floats:
    """f(S) V for all functions; shape (n_sets, n, k). See `KrylovRows.settle`.

    Goes through the products twice, as nobody has room for all vectors.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from graphmatern.sparse import ChebyshevProducts
    >>> products = ChebyshevProducts(sp.csr_array(np.diag([0.0, 1.0, 2.0])), 0.0, 2.0)
    >>> def exponential(x):
    ...     return np.exp(x)[None]
    >>> apply_functions(products, exponential, exponential, np.ones((3, 1)), 1e-12, 100)[0, :, 0]  # at −1, 0 and 1
    array([0.36787944, 1.        , 2.71828183])
    """
    found: dict[int, Floats] = {}

    def work(part: slice, crew: Crew | None) -> None:
        space = KrylovSpace(products, columns[:, part], crew)
        if not space.settle(slowest, tolerance, most):
            raise _unsettled(most)
        found[part.start] = products._numbers(space.sums(functions, columns[:, part]))

    _in_blocks(products, columns.shape[1], 2.0, work)
    return np.concatenate([found[place] for place in sorted(found)], axis=2)


class KrylovRows:
    """g(f(S) V) for many functions f, and a linear g that keeps little.

    Parameters
    ----------
    products : ChebyshevProducts
        Products with S, whose eigenvalues are in [−1, 1].
    count : int
        How many columns V has.
    start : callable
        Slice of columns → these columns of V, shape (n, k).
    take : callable
        g: block of columns, shape (n, k) → what is kept of it, shape (m, k).
    keep : bool
        Keep the last vectors, to go on from them.
    """

    def __init__(
        self,
        products: ChebyshevProducts,
        count: int,
        start: Callable[[slice], Floats],
        take: Callable[[Any], Floats],
        *,
        keep: bool = False,
    ) -> None:
        self._products, self._count, self._start, self._take, self._keep = products, count, start, take, keep
        self._spaces: dict[int, KrylovSpace] = {}
        self._taken: dict[int, list[Floats]] = {}

    def settle(self, slowest: Functions, tolerance: float, most: int) -> None:
        """Go on until functions are as exact as they should be.

        Parameters
        ----------
        slowest : callable
            Eigenvalues of S, shape (m,) → values of those functions that need most vectors; shape (n_slowest, m).
        tolerance : float
            Of |f(S) x − what is found|, relative to |x|.
        most : int
            Steps, at most.
        """

        def work(part: slice, crew: Crew | None) -> None:
            place = part.start
            space = self._spaces.get(place)
            if space is None or not space.can_go_on:
                space = KrylovSpace(self._products, self._start(part), crew)
                self._spaces[place], self._taken[place] = space, []
            space.crew, taken = crew, self._taken[place]
            if not space.settle(slowest, tolerance, most, lambda block: taken.append(self._take(block))):
                raise _unsettled(most)
            if not self._keep:
                space.release()

        _in_blocks(self._products, self._count, 1.0, work)

    def serves(self, slowest: Functions, tolerance: float) -> bool:
        """Whether there are vectors enough for functions; one column of each block speaks for the others."""
        tolerance = max(tolerance, _rounding(slowest))
        return all(space.missing(slowest, tolerance, columns=1) <= tolerance for space in self._spaces.values())

    def of(self, functions: Functions) -> Floats:
        """What is kept of f(S) V for all functions; shape (n_sets, m, n_columns)."""
        found: dict[int, Floats] = {}

        def work(part: slice, _crew: Crew | None) -> None:
            space, taken = self._spaces[part.start], np.stack(self._taken[part.start])
            # From (k, n_sets, m), a product of matrices for each column.
            every = space.coefficients(functions).transpose(2, 1, 0) @ taken[: space.count].transpose(2, 0, 1)
            found[part.start] = every.transpose(1, 2, 0)

        self._products._in_blocks(self._count, work)
        return np.concatenate([found[place] for place in sorted(found)], axis=2)

    def release(self) -> None:
        """Forget the last vectors; what is needed once more begins anew."""
        for space in self._spaces.values():
            space.release()


def _in_blocks(
    products: ChebyshevProducts, count: int, passes: float, work: Callable[[slice, Crew | None], None]
) -> None:
    """As `ChebyshevProducts._in_blocks`, with a bar where that may take long."""
    with bar("products", count, products.seconds(count, passes * _TYPICAL)) as done:

        def and_count(part: slice, crew: Crew | None) -> None:
            work(part, crew)
            done(part.stop - part.start)

        products._in_blocks(count, and_count)


def _unsettled(most: int) -> NumericalError:
    return NumericalError(
        f"functions of the Laplacian did not settle in {most:,} products. Likely causes: (a) a long lengthscale: bound "
        "it; (b) degrees over many orders of magnitude: use normalized=True."
    )


def _rounding(functions: Functions) -> float:
    """What rounding of eigenvalues may change in functions, most of which are steepest near −1."""
    points = np.append(-1.0, -1.0 + np.geomspace(1e-12, 2.0, _POINTS))
    slopes = np.abs(np.diff(functions(points), axis=1)) / np.diff(points)
    return float(_UNITS * np.finfo(np.float64).eps * slopes.max())


class KrylovSpace:
    """Vectors u_j = |u_j| v_j of several columns, two at a time, and T of each.

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
    count : int
        Of vectors before these.
    """

    def __init__(self, products: ChebyshevProducts, columns: Floats, crew: Crew | None) -> None:
        self._products, self.crew, self.width = products, crew, columns.shape[1]
        self._diagonal: list[Floats] = []
        self._lengths: list[Floats] = [np.sqrt(np.einsum("ij,ij->j", columns, columns))]
        self._begin(columns)

    def _begin(self, columns: Floats) -> None:
        self.current = self._products._block(columns)
        self._previous = self._products._zeros(*self.current.shape)
        self.count, self.can_go_on = 0, True

    def release(self) -> None:
        """Forget the vectors."""
        self.current = self._previous = None
        self.can_go_on = False

    def _advance(self, totals: Any = None, coefficients: Floats | None = None) -> None:
        """The next vectors; totals += coefficients of each set and column, shape (n_sets, k), times them."""
        place, products = self.count, self._products
        own = self._lengths[place]
        over = np.divide(1.0, own, out=np.zeros_like(own), where=own > 0.0)
        kept = np.zeros_like(own)
        if place:
            before = self._lengths[place - 1]
            np.divide(-(own**2), before, out=kept, where=before > 0.0)
        dots = products.project(self.current, self._previous, kept, over, self.crew)
        known = place < len(self._diagonal)
        diagonal = self._diagonal[place] if known else dots * over
        squares = products.subtract(self.current, self._previous, diagonal * over, totals, coefficients, self.crew)
        self.current, self._previous = self._previous, self.current
        self.count += 1
        if not known:
            length = np.sqrt(squares)
            self._diagonal.append(diagonal)
            self._lengths.append(np.where(length > _EXHAUSTED, length, 0.0))

    def settle(self, slowest: Functions, tolerance: float, most: int, see: Callable[[Any], None] | None = None) -> bool:
        """Go on until all columns are settled, or so many steps have been made; whether they are.

        ``see`` is called with every block of vectors that counts.
        """
        tolerance = max(tolerance, _rounding(slowest))
        look, before = max(self.count, _FIRST), (0, 0.0)
        while True:
            while self.count < look:
                if see is not None:
                    see(self.current)
                self._advance()
            error = self.missing(slowest, tolerance)
            if error <= tolerance:
                return True
            if self.count >= most:
                return False
            # Errors fall about geometrically, so where they would be small enough can be told.
            rate = np.log(before[1] / error) / (self.count - before[0]) if before[1] > error else 0.0
            ahead = np.log(error / tolerance) / rate if rate > 0.0 else self.count
            before = self.count, error
            look = min(self.count + int(np.clip(np.ceil(ahead), 2, max(4, self.count // 2))), most)

    def missing(self, slowest: Functions, tolerance: float, columns: int | None = None) -> float:
        """About what is missing in the worst of some columns, relative; the first to fail the test speaks for all."""
        fewer, found = self.count - max(2, self.count // _RECENT), 0.0
        for column in range(self.width if columns is None else columns):
            if self._lengths[self.count][column] == 0.0:
                continue  # nothing can be
            change = self._function(slowest, column, self.count)
            change[:fewer] -= self._function(slowest, column, fewer)
            found = max(found, float(np.sqrt(np.max(np.einsum("ij,ij->j", change, change)))))
            if found > tolerance:
                break
        return found

    def _function(self, functions: Functions, column: int, count: int) -> Floats:
        """f(T) e_1 of one column, with so many vectors; shape (count, n_sets)."""
        diagonal, beside = (np.array([one[column] for one in some]) for some in (self._diagonal, self._lengths[1:]))
        values, vectors = eigh_tridiagonal(diagonal[:count], beside[: count - 1])
        return np.asarray(vectors @ (functions(np.clip(values, -1.0, 1.0)) * vectors[0]).T)

    def coefficients(self, functions: Functions) -> Floats:
        """What all vectors but the latest, as they are, are multiplied with; shape (n_steps, n_sets, k)."""
        lengths = np.stack(self._lengths[: self.count])
        over = np.divide(lengths[0], lengths, out=np.zeros_like(lengths), where=lengths > 0.0)
        every = [self._function(functions, column, self.count) for column in range(self.width)]
        return np.asarray(np.stack(every, axis=2) * over[:, None])

    def sums(self, functions: Functions, columns: Floats) -> Any:
        """f(S) x for all functions: the same vectors come once more, bit by bit; shape (n_sets, n, k)."""
        coefficients, products = self.coefficients(functions), self._products
        self._begin(columns)
        totals = products._zeros(coefficients.shape[1], products.n, self.width)
        for total, own in zip(totals, coefficients[0], strict=True):
            total += self.current * products._block(own)
        for own in coefficients[1:]:
            self._advance(totals, own)
        return totals
