"""The way to a subscription: what prevents it is said before anything is made; what is made runs, and can be deleted."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from server.cli.client import ProblemError
from tests.browser.chromium import Visit
from tests.browser.looks import expect_accessible, narrow, wider_than_screen
from tests.browser.reading import ask_for, expect_live, heading, row
from tests.browser.shop import Shop

pytestmark = pytest.mark.xdist_group("browser")
_INSERTS = "Follow only inserts of "
_LOST = "Its updates and deletes are not replicated."


def test_the_wizard_checks_first_and_leads_to_a_running_subscription(visit: Visit, shop: Shop) -> None:
    page = visit("/new-subscription?source=source")
    _connect_target(page, shop)
    name = page.get_by_label("Name of the subscription")
    name.fill("copy")
    expect(page.get_by_text("A subscription with this name already exists.")).to_be_visible()
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


@pytest.fixture
def keyless(shop: Shop) -> Iterator[str]:
    """The name of a table of which only inserts can be followed."""
    shop.execute("CREATE TABLE readings (at timestamptz, value numeric)")
    yield "readings"
    shop.execute("DROP TABLE readings")


def test_a_table_without_a_key_is_taken_with_consent_only(visit: Visit, shop: Shop, keyless: str) -> None:
    page = visit("/new-subscription?source=source")
    end = page.get_by_role("region", name="To", exact=True)
    end.get_by_role("radio", name="Another target").check()
    end.get_by_label("Name of the connection").fill("relative")
    end.get_by_label("File", exact=True).fill("relative.duckdb")
    end.get_by_role("button", name="Check", exact=True).click()
    expect(end.get_by_role("status")).to_contain_text(f"the file is {shop.rig.home / 'relative.duckdb'}")
    end.get_by_role("radio", name=re.compile("^target")).check()
    page.get_by_label("Name of the subscription").fill("second")
    page.get_by_role("button", name="Next: tables").click()
    page.get_by_role("button", name="Choose all").click()
    expect(page.get_by_role("checkbox", name="public.customers")).to_be_checked()
    one, consent = (page.get_by_role("checkbox", name=f"{each}public.{keyless}", exact=True) for each in ("", _INSERTS))
    expect(one).not_to_be_checked()
    expect(consent).not_to_be_checked()
    warning = page.locator(".note.tone-warn")
    expect(warning).to_contain_text("no key")
    expect_accessible(page)
    warning.get_by_role("button", name="Choose it, with inserts only").click()
    expect(one).to_be_checked()
    expect(consent).to_be_checked()
    expect(warning).to_have_count(0)
    expect(row(page, f"public.{keyless}").locator(".status-badge.tone-warn")).to_have_text(_LOST)
    page.get_by_role("button", name="Next: options").click()
    page.get_by_role("button", name="Next: check").click()
    source = page.get_by_role("region", name="On the source")
    finding = source.get_by_role("listitem").filter(has_text="updates and deletes of public.readings are not followed")
    expect(finding.locator(".status-badge")).to_have_text("warning")


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
    expect(end.get_by_role("status")).to_contain_text("No problems found")
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
