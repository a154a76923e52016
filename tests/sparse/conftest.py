"""Settings that let small matrices take the ways of large ones."""

from __future__ import annotations

import pytest

from graphmatern.sparse import _fronts, _structure


@pytest.fixture
def eager_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Share even little work among threads, and cut even small fronts into blocks."""
    monkeypatch.setattr(_structure, "PARALLEL_MINIMUM", 0.0)
    monkeypatch.setattr(_structure, "FRONT_MINIMUM", 2e4)
    monkeypatch.setattr(_fronts, "_BLOCK", 16)


@pytest.fixture
def tight_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no update matrix wait: every supernode is detached."""
    monkeypatch.setattr(_structure, "WAITING_SHARE", 0.0)
    monkeypatch.setattr(_structure, "_WAITING_MINIMUM", 0)
