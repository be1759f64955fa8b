"""The console shows the health that the server judged: one word, the same everywhere, green only where all is well."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from server.cli.client import Document
from tests.browser.answers import give_subscription, give_table
from tests.browser.chromium import Visit
from tests.browser.reading import ask_for, expect_live, fact, row
from tests.browser.shop import Shop

pytestmark = pytest.mark.xdist_group("browser")
_SUBSCRIPTION = "/subscriptions/copy"
_GREEN = re.compile("tone-good")
_WHY = "A sentence that the console cannot make up."


def _health(status: str, word: str, *, following: bool) -> Document:
    aspects = [{"name": "applying", "status": status, "reason": _WHY}]
    return {
        "status": status,
        "word": word,
        "reason": _WHY,
        "remedy": "Do this.",
        "following": following,
        "aspects": aspects,
    }


def _marks(page: Page) -> list[str]:
    """What the row of the subscription, or of the table, shows in green."""
    return page.locator("tbody .status-badge.tone-good").all_inner_texts()


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ("failed", "failed"),
        ("attention", "parked_tables"),
        ("unknown", "no_engine"),
        ("moving", "copying"),
        ("dreamy", "hibernating"),
    ],
)
def test_the_word_of_the_server_is_shown_whatever_the_state_is(
    visit: Visit, shop: Shop, status: str, word: str
) -> None:
    """The state, the lag and the tables' states alone would be green."""
    page = visit(None)
    give_subscription(page, shop, {"health": _health(status, word, following=False)})
    table = shop.table("orders")
    give_table(page, table, {"health": {"status": status, "reason": _WHY, "remedy": None, "following": False}})
    page.goto("/")
    entry = row(page, "copy")
    expect(entry.get_by_role("cell").first).to_contain_text(word.replace("_", " "))
    expect(entry).to_contain_text(_WHY)
    expect(entry).to_contain_text("live, not followed")
    assert _marks(page) == []
    page.goto(_SUBSCRIPTION)
    lead = page.locator(".status-banner-word .status-badge")
    expect(lead).to_have_text(word.replace("_", " "))
    expect(lead).not_to_have_class(_GREEN)
    expect(row(page, "public.orders").get_by_role("cell").first).to_contain_text("live, not followed")
    assert _marks(page) == []
    page.goto(f"{_SUBSCRIPTION}/tables/{table['id']}")
    expect(lead).to_have_text("live, not followed")
    expect(lead).not_to_have_class(_GREEN)
    page.goto("/tickets?subscription=copy")
    expect(page.get_by_text(_WHY)).to_be_visible()
    expect(page.locator(".subscription-choice .status-badge")).to_have_text(word.replace("_", " "))


def test_a_copy_is_not_called_nought_behind(visit: Visit, shop: Shop) -> None:
    page = visit(None)
    lag = {"bytes": None, "seconds": None, "tables": 0}
    give_subscription(page, shop, {"health": _health("moving", "copying", following=True), "lag": lag})
    page.goto(_SUBSCRIPTION)
    expect(fact(page, "Behind the source")).to_have_text(re.compile("^–no table is live$"))
    expect(page.get_by_role("main")).not_to_contain_text("0.0\u00a0s behind")


def test_a_fault_that_is_over_is_shown_as_over(visit: Visit, shop: Shop) -> None:
    page = visit(None)
    fault = {"at": "2026-05-04T10:00:00Z", "code": "log_gap", "detail": "the slot is gone", "over": True}
    give_subscription(page, shop, {"last_fault": fault})
    page.goto("/")
    expect(row(page, "copy").get_by_role("cell").last).to_contain_text("over")
    expect(row(page, "copy").get_by_role("cell").first).to_have_text(re.compile("^running"))


def test_a_killed_engine_is_shown_without_waiting_for_the_clock(visit: Visit, shop: Shop) -> None:
    page = visit("/")
    expect(row(page, "copy")).to_contain_text("tables are live")
    expect_live(page)
    with shop.without_engine():
        # Less than the 15 s after which pages are read again by the clock, and than the lease of the engine.
        expect(row(page, "copy")).to_contain_text("no engine", timeout=8_000)
        expect(row(page, "copy")).to_contain_text("live, not followed")
        expect(page.get_by_text("No engine is connected.", exact=True)).to_be_visible()
        assert _marks(page) == []
    expect(row(page, "copy")).to_contain_text("tables are live")


def test_what_was_asked_for_is_not_told_any_longer_once_the_page_shows_another_state(visit: Visit, shop: Shop) -> None:
    page = visit(_SUBSCRIPTION)
    expect_live(page)
    told = page.get_by_text("public.customers: a pause was requested.")
    dialog = ask_for(page, "Pause", "public.customers")
    dialog.get_by_role("button", name="Pause", exact=True).click()
    expect(told).to_be_visible()
    expect(row(page, "public.customers").get_by_role("cell").first).to_have_text("paused")
    expect(told).to_have_count(0)
    shop.want("customers", "running")
