"""The browser of the tests: where it is, and its tabs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright

VARIABLE = "CHROMIUM"
"""Of the environment: the program, where it is not on the PATH."""
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DESKTOP, PHONE = 1280, 390
HEIGHTS = {DESKTOP: 800, PHONE: 844}
_TIMEOUT_MS = 30_000

Visit = Callable[..., Page]
"""Opens an address in a new tab: `visit("/", width=390, signed_in=False, token="…", url="http://…")`; None: none yet."""


def find(playwright: Playwright) -> str | None:
    """Path of a Chromium: the one that the environment names, one on the PATH, or the one that playwright has installed."""
    named = os.environ.get(VARIABLE)
    if named:
        return named
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    own = playwright.chromium.executable_path
    return found or (own if Path(own).exists() else None)


def launch(playwright: Playwright) -> Browser:
    """FileNotFoundError where there is none."""
    program = find(playwright)
    if program is None:
        raise FileNotFoundError(f"no Chromium: none of {', '.join(PROGRAMS)} is on the PATH, and {VARIABLE} names none")
    return playwright.chromium.launch(executable_path=program)


class Tab:
    """A new tab, with a storage of its own. `token` signs in; `troubles`: what no page may have, as it comes up."""

    def __init__(
        self, browser: Browser, url: str, token: str | None, *, width: int = DESKTOP, scheme: str = "light"
    ) -> None:
        self.troubles: list[str] = []
        self._context = browser.new_context(
            base_url=url,
            viewport={"width": width, "height": HEIGHTS[width]},
            color_scheme="dark" if scheme == "dark" else "light",
            reduced_motion="reduce",
        )
        if token is not None:
            self._context.add_init_script(f"sessionStorage.setItem('penstock-token', {json.dumps(token)})")
        self.page: Page = self._context.new_page()
        self.page.set_default_timeout(_TIMEOUT_MS)
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("console", self._record_message)

    def close(self) -> None:
        self._context.close()

    def _record_message(self, message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            self.troubles.append(message.text)
