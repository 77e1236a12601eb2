"""A headless Chromium for tests that look at a page as a person would.

A test module takes the fixtures with `pytest_plugins = ["tests.browser"]` and types from here under
`TYPE_CHECKING` only: pytest wants to be the first who imports a plugin.

While the browser is open its event loop runs in the tests' thread, so that `asyncio.run` is refused
there; it is closed at the end of each module.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

NAMES = ("/usr/bin/chromium", "chromium", "chromium-browser", "google-chrome")

QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""A tests' machine has no outside network, often runs as root, and has no display."""


def chromium_path() -> str | None:
    """The browser to use: `CHROMIUM`, else the first that is installed; None where none is."""
    given = os.environ.get("CHROMIUM")
    return next((p for n in ((given,) if given else NAMES) if (p := shutil.which(n))), None)


@dataclass
class Opened:
    """A page, and what went wrong on it or left it since it was opened."""

    page: Page
    problems: list[str] = field(default_factory=list)
    """Errors and warnings of the console, exceptions, requests that failed or were answered 4xx and
    5xx."""
    requests: list[str] = field(default_factory=list)
    """Address of every request, the page's own included."""

    def violations(self) -> list[str]:
        """What axe finds wrong with the accessibility of the page as it is now, one line each."""
        found: list[dict[str, Any]] = Axe().run(self.page).response["violations"]
        return [
            f"{one['impact']} {one['id']}: {one['help']}: {node['target']} {node['failureSummary']}"
            for one in found
            for node in one["nodes"]
        ]

    def scrolls_sideways(self) -> bool:
        """Whether the page is wider than the window."""
        wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        return bool(self.page.evaluate(wide))


OpenPage = Callable[..., Opened]
"""`open_page(address, width=1280, height=900, scheme="light", javascript=True)`; the address may be
a URL or the Path of a file."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One headless Chromium for a module's tests; skipped where none is installed."""
    program = chromium_path()
    if program is None:
        pytest.skip(f"no Chromium found: set CHROMIUM, or install one of {', '.join(NAMES[1:])}")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=list(QUIET))
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Opens pages in windows of their own, closed when the test ends."""
    with ExitStack() as windows:

        def open_one(
            address: str | Path,
            *,
            width: int = 1280,
            height: int = 900,
            scheme: Literal["light", "dark"] = "light",
            javascript: bool = True,
        ) -> Opened:
            context = windows.enter_context(
                browser.new_context(
                    viewport={"width": width, "height": height},
                    color_scheme=scheme,
                    java_script_enabled=javascript,
                    reduced_motion="reduce",
                )
            )
            opened = Opened(context.new_page())
            _watch(opened)
            url = address.resolve().as_uri() if isinstance(address, Path) else address
            opened.page.goto(url)
            return opened

        yield open_one


def _watch(opened: Opened) -> None:
    def said(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            opened.problems.append(f"console {message.type}: {message.text}")

    page, problems = opened.page, opened.problems
    page.on("console", said)
    page.on("pageerror", lambda error: problems.append(f"exception: {error}"))
    page.on("request", lambda request: opened.requests.append(request.url))
    page.on("requestfailed", lambda r: problems.append(f"failed: {r.url}: {r.failure}"))
    page.on(
        "response",
        lambda r: problems.append(f"{r.status}: {r.url}") if r.status >= 400 else None,
    )
