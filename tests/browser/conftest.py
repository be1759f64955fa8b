"""One browser and one shop for all tests of the folder; a tab of its own for each.

They are skipped, with the reason, where there is no Chromium or the console cannot be built; with `BROWSER_TESTS=required` they fail.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import NoReturn

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from server import pages as served
from tests.browser.chromium import DESKTOP, Tab, Visit, launch
from tests.browser.looks import AXE
from tests.browser.shop import Shop, open_shop
from tests.tidy.source_tree import ROOT

_WEB = ROOT / "web"
_TIMEOUT_MS = 30_000


def _cannot(why: str) -> NoReturn:
    if os.environ.get("BROWSER_TESTS") == "required":
        pytest.fail(why)
    pytest.skip(why)


# Not of the session: while it is open, no other test of this process could run a loop of asyncio.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=_TIMEOUT_MS)
    with sync_playwright() as playwright:
        try:
            found = launch(playwright)
        except FileNotFoundError as missing:
            _cannot(str(missing))
        yield found
        found.close()


@pytest.fixture(scope="package")
def console() -> None:
    """The console, built from what is there now, as `make web` does."""
    built = served.FOLDER / "console" / "index.html"
    sources = [*_WEB.glob("*"), *(_WEB / "src").rglob("*"), *(_WEB / "public").rglob("*")]
    newest = max(source.stat().st_mtime for source in sources if source.is_file())
    if built.is_file() and built.stat().st_mtime >= newest and AXE.is_file():
        return
    command = [sys.executable, "-m", "deploy.console"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        _cannot(f"the console cannot be built: {ended.stderr[-500:]}")


@pytest.fixture(scope="package")
def open_for_all(browser: Browser, console: None) -> Iterator[Shop]:
    with open_shop() as shop:
        yield shop


@pytest.fixture
def shop(open_for_all: Shop) -> Shop:
    """The shop, where all is well."""
    open_for_all.settle()
    return open_for_all


@pytest.fixture
def visit(browser: Browser, shop: Shop) -> Iterator[Visit]:
    """No tab of the test may have thrown an error, or have tried what the policy forbids."""
    tabs: list[Tab] = []

    def open_tab(
        address: str | None,
        *,
        width: int = DESKTOP,
        signed_in: bool = True,
        token: str | None = None,
        url: str | None = None,
    ) -> Page:
        tab = Tab(browser, url or shop.url, token or shop.token if signed_in else None, width=width)
        tabs.append(tab)
        if address is not None:
            tab.page.goto(address)
        return tab.page

    yield open_tab
    for tab in tabs:
        tab.close()
    assert [trouble for tab in tabs for trouble in tab.troubles] == []
