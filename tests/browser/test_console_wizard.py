"""The way to a subscription: what stands in its way is said before anything is made; what is made runs, and can be deleted."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from server.cli.client import ProblemError
from tests.browser.chromium import Visit
from tests.browser.looks import expect_accessible, narrow, wider_than_screen
from tests.browser.reading import ask_for, expect_live, heading, row
from tests.browser.shop import Shop

pytestmark = pytest.mark.xdist_group("browser")


def test_the_wizard_checks_first_and_leads_to_a_running_subscription(visit: Visit, shop: Shop) -> None:
    page = visit("/new-subscription?source=source")
    _connect_target(page, shop)
    name = page.get_by_label("Name of the subscription")
    name.fill("copy")
    expect(page.get_by_text("There is a subscription of this name already.")).to_be_visible()
    expect(page.get_by_role("button", name="Next: tables")).to_be_disabled()
    name.fill("second")
    page.get_by_role("button", name="Next: tables").click()
    table = page.get_by_role("checkbox", name="public.customers")
    table.check()
    expect_accessible(page)
    page.get_by_role("button", name="Next: options").click()
    expect(page.get_by_role("group", name="When it is created")).to_be_visible()
    expect_accessible(page)
    page.get_by_role("button", name="Next: check").click()
    create = page.get_by_role("button", name="Create second", exact=True)
    expect(create).to_be_enabled()
    expect_accessible(page)
    assert [found["name"] for found in shop.api.items("/subscriptions")] == ["copy"], "nothing is made before"
    create.click()
    expect(heading(page, "second")).to_be_visible()
    expect(row(page, "public.customers").get_by_role("cell").first).to_have_text("live")
    expect_live(page)
    rows = shop.execute("SELECT count(*) FROM customers")[0][0]
    answer = shop.api.post("/subscriptions/second/queries", {"sql": "SELECT count(*) FROM customers"})
    assert answer["rows"] == [[rows]]
    _delete(page, shop)


def _connect_target(page: Page, shop: Shop) -> None:
    """A DuckDB file; at first one that cannot be."""
    end = page.get_by_role("region", name="To", exact=True)
    end.get_by_role("radio", name="Another target").check()
    end.get_by_label("Name of the connection").fill("second-target")
    file = end.get_by_label("File", exact=True)
    file.fill("/proc/nobody/second.duckdb")
    end.get_by_role("button", name="Check", exact=True).click()
    expect(end.get_by_role("status")).to_contain_text("the folder /proc/nobody does not exist")
    file.fill(str(shop.rig.home / "second.duckdb"))
    end.get_by_role("button", name="Check", exact=True).click()
    expect(end.get_by_role("status")).to_contain_text("Nothing stands in the way")
    narrow(page)
    assert wider_than_screen(page) == []
    assert "second-target" not in {found["name"] for found in shop.api.items("/connections")}
    end.get_by_role("button", name="Create", exact=True).click()
    expect(end.get_by_role("radio", name="second-target")).to_be_checked()


def _delete(page: Page, shop: Shop) -> None:
    dialog = ask_for(page, "Delete", "second")
    button = dialog.get_by_role("button", name="Delete", exact=True)
    expect(button).to_be_disabled()
    dialog.get_by_label("Type second to confirm").fill("second")
    button.click()
    expect(heading(page, "Fleet")).to_be_visible()
    expect(row(page, "copy")).to_be_visible()
    expect(row(page, "second")).to_have_count(0)
    with pytest.raises(ProblemError):
        shop.api.get("/subscriptions/second")
    assert shop.execute("SELECT count(*) FROM pg_replication_slots") == [(1,)], "its slot is gone"
