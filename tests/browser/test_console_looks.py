"""Every page is fit for screen readers and weak eyes, in light and dark, and no wider than a phone."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.answers import give_tables
from tests.browser.chromium import PHONE, Visit
from tests.browser.looks import expect_accessible, narrow, wider_than_screen
from tests.browser.reading import expect_loaded, heading
from tests.browser.shop import PAGES, Shop

pytestmark = pytest.mark.xdist_group("browser")
_AT_ONCE = 50


@pytest.mark.parametrize("name", PAGES)
def test_page_is_fit_for_everybody_and_for_a_phone(visit: Visit, shop: Shop, name: str) -> None:
    page = visit(shop.address(name))
    expect_loaded(page)
    expect_accessible(page)
    narrow(page)
    assert wider_than_screen(page) == []


def test_so_is_the_page_to_sign_in(visit: Visit) -> None:
    page = visit("/", signed_in=False)
    expect(heading(page, "Sign in")).to_be_visible()
    expect_accessible(page)
    narrow(page)
    assert wider_than_screen(page) == []


@pytest.mark.parametrize("count", [1, 20, 300])
def test_nothing_is_wider_than_a_phone_with_so_many_tables(visit: Visit, shop: Shop, count: int) -> None:
    page = visit(None, width=PHONE)
    parked = give_tables(page, shop, count)
    wider = []
    for address in ("/", "/subscriptions/copy", parked):
        page.goto(address)
        expect_loaded(page)
        wider += wider_than_screen(page)
    assert wider == []


def test_300_tables_are_turned_over_by_pages(visit: Visit, shop: Shop) -> None:
    page = visit(None, width=PHONE)
    give_tables(page, shop, 300)
    page.goto("/subscriptions/copy")
    pager = page.get_by_role("navigation", name="Pages of tables")
    expect(pager).to_contain_text(f"1 to {_AT_ONCE} of 300 tables")
    _turn_to_the_end(page)
    expect(pager).to_contain_text("251 to 300 of 300 tables")
    assert wider_than_screen(page) == []
    page.get_by_label("Find by name").fill("hour_299")
    expect(page.get_by_text("1 of 300 tables")).to_be_visible()
    expect(pager).to_have_count(0)


def _turn_to_the_end(page: Page) -> None:
    button = page.get_by_role("button", name="Next")
    for first in range(_AT_ONCE, 300, _AT_ONCE):
        button.click()
        expect(page.get_by_text(f"{first + 1} to {first + _AT_ONCE} of 300 tables")).to_be_visible()
    expect(button).to_be_disabled()
