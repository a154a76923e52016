"""What is said about long steps, and when."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest
import scipy.sparse as sp

from graphmatern import _progress
from graphmatern.sparse import ChebyshevProducts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def test_long_steps_are_announced_where_progress_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with _progress.showing(True):
        _progress.announce("a short step", 1.0, 2.0**30)
        _progress.announce("a long step", 42.0, 3 * 2.0**30)
    assert capsys.readouterr().err == "a long step: about 42 s, 3 GiB\n"
    with _progress.showing(False):
        _progress.announce("a long step", 42.0, 3 * 2.0**30)
    _progress.announce("a long step", 42.0, 3 * 2.0**30)  # no terminal here
    assert capsys.readouterr().err == ""


def test_wishes_are_nested() -> None:
    assert _progress.hidden() is None
    with _progress.showing(False), _progress.showing(None):
        assert _progress.hidden() is True
    assert _progress.hidden() is None


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.05, "below 0.1 s"), (3.14, "3.1 s"), (99, "99 s"), (120, "2.0 min"), (1e5, "28 h"), (1e7, "116 days")],
)
def test_durations(seconds: float, words: str) -> None:
    assert _progress.duration(seconds) == words
    assert _progress.duration(float("inf")) == "out of reach"


def test_long_products_show_how_far_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    for wanted, seconds in ((True, 1.0), (False, 42.0), (None, 42.0)):
        with _progress.showing(wanted), _progress.bar("moments", 10, seconds) as count:
            count(10)
        assert capsys.readouterr().err == ""  # short, unwanted, or no terminal
    with _progress.showing(True), _progress.bar("moments", 10, 42.0) as count:
        count(4)
        count(6)
    assert "moments: " in capsys.readouterr().err


def test_products_count_what_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, int, list[int]]] = []

    @contextmanager
    def noted(step: str, total: int, _seconds: float) -> Iterator[Callable[[int], None]]:
        done.append((step, total, []))
        yield done[-1][2].append

    monkeypatch.setattr("graphmatern.sparse._products.bar", noted)
    products = ChebyshevProducts(sp.eye_array(50, format="csr"), 0.0, 2.0, 2)
    nodes, columns = np.arange(40), np.ones((50, 3))
    products.moments(nodes, 7)
    products.apply(np.ones(5), columns)
    products.row_squares(nodes, np.ones(5), np.ones((40, 40)))
    products.between(nodes, np.ones((5, 2)), np.ones((40, 3)))
    products.forms(nodes, np.ones((40, 3)), np.ones((40, 3)), 4)
    assert {step for step, *_ in done} == {"moments", "products"}
    assert all(total == sum(parts) for _, total, parts in done)
