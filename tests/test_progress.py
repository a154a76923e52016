"""What is said about long steps, and when."""

from __future__ import annotations

import pytest

from graphmatern import _progress


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
