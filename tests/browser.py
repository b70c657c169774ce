"""A browser for tests: Chromium, found on the path and driven by playwright."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def program() -> str | None:
    """Return the path of Chromium, or of Chrome."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


def missing() -> str:
    """Return why there is no browser, as a clause; nothing if there is one."""
    if program() is None:
        return "there is no Chromium on the path"
    return "" if importlib.util.find_spec("playwright") else "playwright is not installed"


@contextmanager
def launched() -> Iterator[Browser]:
    """Start a browser without a window, which is closed at the end."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def watched(view: Page, address: str) -> list[str]:
    """Return a list to which is added what a page logs as an error, lacks, or asks of another host."""
    found: list[str] = []
    ours = (address, "data:", "blob:")
    view.on("console", lambda each: each.type in ("error", "warning") and found.append(each.text))
    view.on("pageerror", lambda error: found.append(str(error)))
    view.on("request", lambda each: each.url.startswith(ours) or found.append(f"asks for {each.url}"))
    view.on("response", lambda each: each.status >= 400 and found.append(f"{each.status} for {each.url}"))
    return found
