"""Finds things on the console's pages as people do: by what they are and how they are called."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect


def heading(page: Page, name: str) -> Locator:
    """The page's own heading."""
    return page.get_by_role("heading", level=1, name=name, exact=True)


def row(page: Page, name: str) -> Locator:
    """The row of a list that begins with this name."""
    return page.get_by_role("row").filter(has=page.get_by_role("rowheader").get_by_text(name, exact=True))


def fact(page: Page, term: str) -> Locator:
    """The description of a term."""
    found = page.get_by_role("term").filter(has_text=re.compile(f"^{re.escape(term)}$"))
    return found.locator("xpath=following-sibling::dd")


def link_mark(page: Page) -> Locator:
    """The word that tells how the tab is connected to the server."""
    return page.get_by_role("banner").get_by_role("status")


def expect_live(page: Page) -> None:
    expect(link_mark(page)).to_have_text("live")


def expect_loaded(page: Page) -> None:
    """The page is there, with all that it shows."""
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.get_by_text("Loading …")).to_have_count(0)


def ask_for(page: Page, verb: str, name: str) -> Locator:
    """Press an action's button; its dialog."""
    page.get_by_role("button", name=f"{verb} {name}", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    return dialog


def do(page: Page, verb: str, name: str) -> None:
    """Have an action done, and see that it was asked for."""
    dialog = ask_for(page, verb, name)
    dialog.get_by_role("button", name=verb, exact=True).click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("status").get_by_text(f"{name}:")).to_be_visible()
