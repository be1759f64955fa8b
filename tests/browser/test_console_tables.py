"""Tables are added, changed and verified on the console, and the server has what was asked for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.chromium import Visit
from tests.browser.looks import expect_accessible
from tests.browser.reading import do, expect_loaded, fact, heading, row
from tests.browser.shop import Shop

pytestmark = pytest.mark.xdist_group("browser")
_SUBSCRIPTION = "/subscriptions/copy"


@pytest.fixture
def extra(shop: Shop) -> Iterator[str]:
    """The name of a table of the source that the subscription does not have."""
    shop.execute("CREATE TABLE extra (id int PRIMARY KEY, secret text, amount numeric(8, 2), part int)")
    shop.execute("INSERT INTO extra SELECT n, 'hidden', n, n % 2 FROM generate_series(1, 20) n")
    yield "extra"
    shop.api.delete(f"{shop.rig.path}/tables/{shop.table('extra')['id']}", target_table="drop")


def test_a_table_is_added_with_its_options_changed_and_verified(visit: Visit, shop: Shop, extra: str) -> None:
    page = visit(_SUBSCRIPTION)
    page.get_by_role("link", name="Add a table").click()
    expect(row(page, "public.orders")).to_contain_text("replicated")
    page.get_by_label("Find by schema or name").fill("extr")
    page.get_by_role("button", name="Choose public.extra").click()
    expect(heading(page, "Add public.extra to copy")).to_be_focused()
    page.get_by_role("combobox", name="Values of secret").select_option("masked: a constant")
    page.get_by_role("textbox", name="Constant in place of secret").fill("***")
    page.get_by_role("button", name="Check", exact=True).click()
    expect_accessible(page)
    page.get_by_role("button", name="Add the table", exact=True).click()
    expect(heading(page, "public.extra")).to_be_visible()
    shop.settle()
    assert shop.table(extra)["mask"] == {"secret": {"method": "constant", "type": "text", "value": "***"}}

    page.get_by_role("link", name="Change options").click()
    page.get_by_role("textbox", name="Only rows where").fill("now() > id")
    page.get_by_role("button", name="Review the change").click()
    wrong = page.get_by_role("textbox", name="Only rows where")
    expect(wrong).to_have_accessible_description("a row filter cannot call functions.")
    wrong.fill("")
    page.get_by_role("combobox", name="Values of amount").select_option("as text")
    page.get_by_role("button", name="Review the change").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Columns held as text: none → amount; the table is copied again automatically")
    expect_accessible(page)
    assert shop.table(extra)["columns"] == {}
    dialog.get_by_role("button", name="Save", exact=True).click()
    expect(heading(page, "public.extra")).to_be_visible()
    expect(fact(page, "Kept as text")).to_have_text("amount")
    expect(fact(page, "Masks")).to_have_text("secret: “***”")

    page.goto(f"{_SUBSCRIPTION}/verifications")
    expect_loaded(page)
    shop.rig.wait_until(
        lambda: any(
            version["change"] == "structure"
            and any(c["mapped"] == "text" for c in version["columns"] if c["name"] == "amount")
            for version in shop.api.items(f"{shop.rig.path}/tables/{shop.table(extra)['id']}/versions")
        ),
        60.0,
        "the column is text on the target",
    )
    shop.settle()
    page.get_by_role("button", name="Verify", exact=True).click()
    expect(page.get_by_role("listitem").get_by_text("equal", exact=True)).to_be_visible()
    live = sum(one["state"] == "live" for one in shop.api.items(f"{shop.rig.path}/tables"))
    page.get_by_text(f"{live} equal tables").click()
    expect(page.get_by_role("listitem").get_by_role("link", name="public.extra")).to_be_visible()
    expect_accessible(page)


def test_several_tables_are_reloaded_together(visit: Visit, shop: Shop) -> None:
    page = visit(_SUBSCRIPTION)
    for name in ("customers", "orders"):
        page.get_by_role("checkbox", name=f"Select public.{name}").check()
    do(page, "Reload", "2 selected tables")
    expect(page.get_by_text("2 tables selected")).to_have_count(0)
    for name in ("customers", "orders"):
        path = f"{shop.rig.path}/tables/{shop.table(name)['id']}/reloads"
        shop.rig.wait_until(
            lambda p=path: next(shop.api.items(p))["state"] == "succeeded", 60.0, f"{name} was reloaded"
        )  # type: ignore[misc]
