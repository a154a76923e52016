"""Threads: the same numbers whatever their number, and many factors at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from graphmatern.sparse import Factor, analyze
from graphmatern.sparse._blas import _PIN, single_threaded_blas
from graphmatern.sparse._threads import Crew
from graphs_zoo import KINDS, precision


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("eager_threads")
def test_results_do_not_depend_on_the_number_of_threads(kind: str) -> None:
    matrix = precision(KINDS[kind](1500), 2)
    results = []
    for n_threads in (1, 2, 3, 2):
        factor = analyze(matrix, ordering="metis", n_threads=n_threads).factorize(matrix.data)
        results.append(
            (
                factor.logdet(),
                factor.selected_inverse().on_pattern(),
                factor.solve(np.ones((len(factor.analysis.permutation), 70))),
            )
        )
    scale = np.abs(results[0][1]).max()
    for logdet, selected, solution in results[1:]:
        assert logdet == pytest.approx(results[0][0], rel=1e-12)
        assert np.abs(selected - results[0][1]).max() <= 1e-12 * scale * 10
        np.testing.assert_allclose(solution, results[0][2], rtol=1e-9)
    # Two runs with the same number of threads are the same to the last bit.
    assert results[1][0] == results[3][0]
    np.testing.assert_array_equal(results[1][1], results[3][1])


@pytest.mark.usefixtures("eager_threads")
def test_many_factors_of_one_analysis_at_once() -> None:
    matrix = precision(KINDS["grid"](900), 2)
    analysis = analyze(matrix, n_threads=2)
    scales = np.linspace(1.0, 4.0, 8)

    def work(scale: float) -> Any:
        factor = Factor(analysis)
        for _ in range(5):
            factor.update(scale * matrix.data)
            variances = factor.selected_inverse().diagonal()
        return factor.logdet(), variances

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(work, scales))
    for scale, (logdet, variances) in zip(scales, together, strict=True):
        alone = work(float(scale))
        assert logdet == alone[0]
        np.testing.assert_array_equal(variances, alone[1])


@pytest.mark.usefixtures("eager_threads")
def test_one_factor_from_many_threads() -> None:
    matrix = precision(KINDS["roads"](900), 1)
    factor = analyze(matrix, n_threads=2).factorize(matrix.data)
    expected = factor.diagonal_of_inverse()
    with ThreadPoolExecutor(4) as pool:
        for result in pool.map(lambda _: factor.diagonal_of_inverse(), range(8)):
            np.testing.assert_array_equal(result, expected)


def test_crew_raises_errors_of_helpers_and_does_all_tasks() -> None:
    done: list[int] = []
    with Crew(3) as crew:
        crew.run(0, lambda task, worker: done.append(task))
        crew.run(50, lambda task, worker: done.append(task))
        assert sorted(done) == list(range(50))

        def fail(task: int, worker: int) -> None:
            if task == 7:
                raise KeyError(task)

        with pytest.raises(KeyError):
            crew.run(20, fail)
        crew.run(2, lambda task, worker: done.append(task))
    assert len(done) == 52


@pytest.mark.parametrize("in_main_thread", [True, False])
def test_blas_threads_are_held_and_restored(in_main_thread: bool) -> None:
    """Also from another thread than the first that set a number; threadpoolctl would not listen to it."""
    if in_main_thread:
        hold_and_restore()
    else:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(hold_and_restore).result()


def hold_and_restore() -> None:
    with single_threaded_blas():
        libraries = _PIN._libraries or []
        assert libraries
        assert all(library.get_num_threads() == 1 for library in libraries)
    before = [library.get_num_threads() for library in libraries]
    for library in libraries:
        _PIN._set(library, 2)
    try:
        with single_threaded_blas(), single_threaded_blas():
            assert all(library.get_num_threads() == 1 for library in libraries)
        assert all(library.get_num_threads() == 2 for library in libraries)
    finally:
        for library, threads in zip(libraries, before, strict=True):
            _PIN._set(library, threads)
