"""The console outlives what it depends on: it says that something is missing, keeps what it knows, and continues by itself."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.browser.chromium import Visit
from tests.browser.reading import expect_live, link_mark, row
from tests.browser.shop import Shop
from tests.browser.wire import Wire

pytestmark = pytest.mark.xdist_group("browser")
_SUBSCRIPTION = "/subscriptions/copy"


def _expect_followed(page: Page, shop: Shop) -> None:
    """What is done elsewhere appears on the page."""
    state = row(page, "public.customers").get_by_role("cell").first
    shop.want("customers", "paused")
    expect(state).to_have_text("paused")
    shop.want("customers", "running")
    expect(state).to_have_text("live")


def test_a_dropped_stream(visit: Visit, shop: Shop) -> None:
    with Wire(urlsplit(shop.url).port or 0) as wire:
        page = visit(_SUBSCRIPTION, url=wire.url)
        expect(row(page, "public.customers")).to_be_visible()
        expect_live(page)
        wire.cut()
        expect(link_mark(page)).to_have_text("reconnecting")
        expect(page.get_by_role("banner")).to_contain_text("last updated")
        expect(row(page, "public.customers")).to_be_visible()
        wire.mend()
        expect_live(page)
        _expect_followed(page, shop)


def test_a_killed_engine(visit: Visit, shop: Shop) -> None:
    page = visit("/")
    expect(row(page, "copy")).to_contain_text("tables are live")
    expect_live(page)
    missing = page.get_by_role("main").get_by_role("status").filter(has_text="No engine is connected.")
    with shop.without_engine():
        # As when a user returns to the tab: it reads at once, and not only at its next interval.
        page.evaluate("document.dispatchEvent(new Event('visibilitychange', { bubbles: true }))")
        expect(missing).to_be_visible()
        expect_live(page)
    expect(missing).to_have_count(0)
    expect(row(page, "copy")).to_contain_text("tables are live")


def test_a_killed_server(visit: Visit, shop: Shop) -> None:
    page = visit(_SUBSCRIPTION)
    expect_live(page)
    shop.kill_server()
    expect(link_mark(page)).to_have_text("reconnecting")
    expect(row(page, "public.customers")).to_be_visible()
    page.get_by_role("link", name="Charts", exact=True).click()
    expect(page.get_by_role("main")).to_contain_text("Loading …")
    shop.settle()
    # As browsers say when a network is back: the next attempt is not waited for.
    page.evaluate("dispatchEvent(new Event('online'))")
    expect_live(page)
    # What was not loaded before is loaded now.
    expect(page.get_by_role("main")).not_to_contain_text("Loading …")
    expect(page.get_by_role("alert")).to_have_count(0)
    page.go_back()
    _expect_followed(page, shop)
