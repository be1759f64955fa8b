"""Waits, queries and tickets by the console: what it shows of them is what the server answers."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.chromium import Visit
from tests.browser.looks import expect_accessible, narrow, wider_than_screen
from tests.browser.reading import expect_loaded, fact
from tests.browser.shop import Shop

pytestmark = pytest.mark.xdist_group("browser")


def _expect_fit(page: Page) -> None:
    expect_accessible(page)
    narrow(page)
    assert wider_than_screen(page) == []


def test_a_wait_shows_its_receipt_and_a_query_at_its_position_sees_the_change(visit: Visit, shop: Shop) -> None:
    page = visit("/freshness?subscription=copy")
    shop.execute("INSERT INTO orders SELECT max(id) + 1, 'waited for' FROM orders")
    count = shop.execute("SELECT count(*) FROM orders")[0][0]
    page.get_by_role("button", name="Wait", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="visible")).to_contain_text(f"in {len(shop.tables)} tables")
    steps = page.get_by_role("listitem").filter(has=page.locator("strong"))
    expect(steps).to_have_count(5)
    for number, name in enumerate(("Asked", "Source position", "Captured", "Applied", "Visible")):
        expect(steps.nth(number)).to_contain_text(name)
    position = steps.nth(1).locator("code").inner_text()
    page.get_by_role("button", name="Query at this position").click()
    box = page.get_by_label("One SELECT in the target's SQL")
    expect(box).to_be_focused()
    expect(page.get_by_label("Position", exact=True)).to_have_value(position)
    box.fill("SELECT count(*) AS orders, 9223372036854775807 AS wide FROM public.orders")
    page.keyboard.press("Control+Enter")
    answer = page.get_by_role("region", name="Rows of the answer")
    expect(answer.get_by_role("cell")).to_have_text([str(count), "9223372036854775807"])
    expect(fact(page, "Ran on")).to_contain_text("the target")
    expect(fact(page, "Freshness")).to_contain_text(position)
    _expect_fit(page)


def test_what_cannot_be_answered_says_why_and_what_to_do(visit: Visit, shop: Shop) -> None:
    page = visit("/freshness?subscription=copy")
    page.get_by_label("up to a position").first.check()
    typed = page.get_by_label("Position", exact=True)
    typed.fill("nowhere")
    wait = page.get_by_role("button", name="Wait", exact=True)
    wait.click()
    refusal = page.get_by_role("main").get_by_role("alert")
    expect(refusal).to_contain_text("0/16B3748")
    typed.fill("FFFF/0")
    page.get_by_label("Wait at most").fill("0.2")
    wait.click()
    expect(refusal).to_contain_text("in time")
    expect(fact(page, "Wanted")).to_have_text("FFFF/0")
    page.get_by_label("One SELECT in the target's SQL").fill("DROP TABLE public.orders")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(refusal.nth(1)).to_contain_text("SELECT")
    assert shop.table("orders")["state"] == "live"
    _expect_fit(page)


def test_tables_next_to_a_query_insert_names_and_its_rows_are_saved(visit: Visit, shop: Shop) -> None:
    page = visit("/freshness?subscription=copy")
    page.get_by_label("One SELECT in the target's SQL").fill("SELECT id, $1 AS given FROM ")
    page.get_by_role("button", name="Insert public.notes").click()
    page.keyboard.type(" WHERE id <= $2 ORDER BY id")
    page.get_by_role("button", name="Columns of public.notes").click()
    columns = page.get_by_role("region", name="Tables of the copy").get_by_role("listitem")
    expect(columns.filter(has_text="TIMESTAMP WITH TIME ZONE")).to_contain_text(["changed"])
    page.get_by_label("$1", exact=True).fill("a, b")
    page.get_by_label("$2", exact=True).fill("3")
    page.get_by_label("Maximum rows").fill("1")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_text("1 row; more rows exist")).to_be_visible()
    with page.expect_download() as saved:
        page.get_by_role("button", name="CSV").click()
    assert saved.value.path().read_text().splitlines() == ["id,given", '1,"a, b"', '2,"a, b"', '3,"a, b"']
    expect(page.get_by_role("region", name="Earlier queries")).to_contain_text("ORDER BY id")
    _expect_fit(page)


def test_a_ticket_tells_its_time_at_each_stage(visit: Visit, shop: Shop) -> None:
    page = visit("/tickets?subscription=copy")
    expect_loaded(page)
    for name in ("before", "behind"):
        page.get_by_label("Name (optional)").fill(name)
        page.get_by_role("button", name="Place a ticket").click()
        expect(page.get_by_role("row", name=f"{name} ")).to_contain_text("applied")
        shop.execute("UPDATE orders SET name = 'counted' WHERE id <= 7")
    found = {ticket["name"]: ticket for ticket in shop.api.items(f"{shop.rig.path}/tickets")}
    assert {ticket["state"] for ticket in found.values()} == {"applied"}
    assert found["before"]["position"] < found["behind"]["position"]
    expect(page.get_by_role("region", name="Throughput")).to_contain_text("before")
    _expect_fit(page)
