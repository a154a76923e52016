"""A browser for the pages."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def _without_browser(reason: str) -> None:
    if os.environ.get("GRAPHMATERN_REQUIRE_BROWSER"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    program = next((found for found in map(shutil.which, _PROGRAMS) if found), None)
    if program is None:
        _without_browser(f"there is no browser here: none of {', '.join(_PROGRAMS)}")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--force-color-profile=srgb"]
        running = playwright.chromium.launch(executable_path=program, args=arguments)
        yield running
        running.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open pages; in the end none of them has said a word to the console, asked for anything, or shown a dialog."""
    contexts: list[Any] = []
    trouble: list[str] = []

    def refuse(dialog: Any) -> None:
        trouble.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def open_page(path: Path, *, quiet: bool = True, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1300, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        own = path.as_uri()
        page.on("dialog", refuse)
        if quiet:
            page.on("console", lambda message: trouble.append(f"console: {message.text}"))
            page.on("pageerror", lambda error: trouble.append(f"error: {error}"))
            page.on("request", lambda request: None if request.url == own else trouble.append(request.url[:200]))
        page.goto(own)
        page.wait_for_selector("html[data-drawn]", state="attached")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert trouble == []
