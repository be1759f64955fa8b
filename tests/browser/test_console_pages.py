"""The pages of the console show what is the case on the server, the source and the target."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.answers import give_subscription, give_table
from tests.browser.chromium import Visit
from tests.browser.reading import expect_live, fact, heading, row
from tests.browser.shop import Shop

pytestmark = pytest.mark.xdist_group("browser")
_SUBSCRIPTION = "/subscriptions/copy"


def test_who_has_a_token_comes_to_the_page_that_was_asked_for(visit: Visit, shop: Shop) -> None:
    page = visit(_SUBSCRIPTION, signed_in=False)
    expect(heading(page, "Sign in")).to_be_visible()
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Show the console").click()
    expect(page.get_by_role("alert")).to_have_text("The server does not take that token.")
    page.get_by_label("Token").fill(shop.token)
    page.keyboard.press("Enter")
    expect(heading(page, "copy")).to_be_visible()
    page.reload()
    expect(heading(page, "copy")).to_be_visible()
    page.get_by_text("Display").click()
    page.get_by_role("button", name="Sign out of all tabs").click()
    expect(heading(page, "Sign in")).to_be_visible()
    page.reload()
    expect(heading(page, "Sign in")).to_be_visible()


def test_a_second_tab_needs_no_token_and_signing_out_ends_both(visit: Visit, shop: Shop) -> None:
    page = visit("/", signed_in=False)
    page.get_by_label("Token").fill(shop.token)
    page.keyboard.press("Enter")
    expect(heading(page, "Fleet")).to_be_visible()
    second = page.context.new_page()
    second.goto(f"{shop.url}{_SUBSCRIPTION}")
    expect(heading(second, "copy")).to_be_visible()
    assert shop.token not in second.evaluate("JSON.stringify({...localStorage})")
    page.get_by_text("Display").click()
    page.get_by_role("button", name="Sign out of all tabs").click()
    expect(heading(second, "Sign in")).to_be_visible()
    second.reload()
    expect(heading(second, "Sign in")).to_be_visible()


def test_fleet_tells_how_each_subscription_is(visit: Visit, shop: Shop) -> None:
    page = visit("/")
    entry = row(page, "copy")
    expect(entry).to_contain_text("source → target")
    expect(entry).to_contain_text(f"All {len(shop.tables)} tables are live")
    expect(entry).to_contain_text(f"{len(shop.tables)} live")
    page.get_by_role("navigation", name="Which subscriptions are shown").get_by_role("link", name="running").click()
    expect(page).to_have_url(re.compile("health=running"))
    expect(entry).to_be_visible()
    page.get_by_label("Find by name, source or target").fill("elsewhere")
    expect(page.get_by_text("0 of 1 subscriptions")).to_be_visible()
    expect(page).to_have_url(re.compile("q=elsewhere"))
    page.get_by_label("Find by name, source or target").fill("COP")
    entry.get_by_role("link", name="copy").click()
    expect(heading(page, "copy")).to_be_focused()


def test_subscription_follows_the_source_without_being_loaded_again(visit: Visit, shop: Shop) -> None:
    page = visit(_SUBSCRIPTION)
    expect(fact(page, "Slot")).to_have_text(shop.subscription["slot"])
    for table in shop.tables:
        entry = row(page, f"public.{table['name']}")
        expect(entry.get_by_role("cell").first).to_have_text("live")
        expect(entry).to_contain_text(str(table["copied"]["rows"]))
    expect_live(page)
    durable = fact(page, "Durable on the target up to")
    before = durable.inner_text()
    shop.execute("INSERT INTO orders SELECT max(id) + 1, 'more' FROM orders")
    expect(durable).not_to_have_text(before)
    page.get_by_label("Find by name").fill("ord")
    expect(page.get_by_text(f"1 of {len(shop.tables)} tables")).to_be_visible()
    page.get_by_role("link", name="public.orders").click()
    expect(heading(page, "public.orders")).to_be_visible()


def test_table_tells_its_history_as_it_goes_on(visit: Visit, shop: Shop) -> None:
    table = shop.table("customers")
    page = visit(f"{_SUBSCRIPTION}/tables/{table['id']}")
    expect(heading(page, "public.customers")).to_be_visible()
    expect(fact(page, "On the target")).to_have_text("public.customers")
    expect(fact(page, "Rows copied")).to_contain_text(str(table["copied"]["rows"]))
    history = page.get_by_role("region", name="History")
    expect(history).to_contain_text("found by the copy")
    expect_live(page)
    shop.execute("ALTER TABLE customers ADD COLUMN loyalty int")
    shop.execute("INSERT INTO customers SELECT max(id) + 1 FROM customers")
    expect(history.get_by_role("listitem").first).to_contain_text("loyalty")


def test_connections_are_checked_for_what_they_are_used_as(visit: Visit) -> None:
    page = visit("/connections")
    entries = page.get_by_role("listitem")
    source = entries.filter(has=page.get_by_role("heading", name="source", exact=True))
    expect(source).to_contain_text("Source of copy")
    expect(entries.filter(has=page.get_by_role("heading", name="target", exact=True))).to_contain_text("Target of copy")
    source.get_by_role("button", name="Check as a source: source").click()
    expect(source.get_by_role("status")).to_contain_text("No problems found")


def test_what_the_console_does_not_know_is_called_unknown(visit: Visit, shop: Shop) -> None:
    table = shop.table("orders")
    page = visit(None)
    health = {**shop.subscription["health"], "status": "dreamy", "word": "hibernating", "following": False}
    give_subscription(page, shop, {"state": "hibernating", "health": health, "table_states": {"frozen": 4}})
    give_table(page, table, {"state": "frozen", "desired_state": "thawed"})
    page.goto("/")
    expect(row(page, "copy").locator(".status-badge.tone-unknown").first).to_have_text("hibernating")
    expect(row(page, "copy")).to_contain_text("4 unknown (frozen)")
    row(page, "copy").get_by_role("link", name="copy").click()
    expect(row(page, "public.orders")).to_contain_text("unknown (frozen)")
    page.get_by_role("link", name="public.orders").click()
    expect(heading(page, "public.orders")).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text("unknown (frozen)")
    expect(page.get_by_role("button", name=re.compile("public.orders$"))).to_have_count(0)


def test_an_address_without_a_page_says_so(visit: Visit) -> None:
    page = visit("/nothing-here")
    expect(heading(page, "Page not found")).to_be_visible()
    page.get_by_role("link", name="To the fleet").click()
    expect(row(page, "copy")).to_be_visible()
