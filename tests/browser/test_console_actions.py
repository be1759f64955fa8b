"""What the console's buttons do, seen on the page and on the server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.chromium import Visit
from tests.browser.looks import expect_accessible
from tests.browser.reading import ask_for, do, expect_loaded, heading, row
from tests.browser.shop import BEYOND, ROWS, Shop

pytestmark = pytest.mark.xdist_group("browser")
_SUBSCRIPTION = "/subscriptions/copy"


_GOAL = "Goal"


@pytest.fixture
def keyless(shop: Shop) -> Iterator[str]:
    """The name of a table that has lost its key, for which it parks."""
    shop.execute("ALTER TABLE notes DROP CONSTRAINT notes_pkey")
    shop.execute("INSERT INTO notes SELECT max(id) + 1 FROM notes")
    yield "notes"
    if not shop.execute("SELECT 1 FROM pg_constraint WHERE conname = 'notes_pkey'"):
        shop.execute("ALTER TABLE notes ADD PRIMARY KEY (id)")


@pytest.fixture
def refused(shop: Shop) -> Iterator[str]:
    """The name of a table with a value that the target refuses, for which it parks until it is tried again."""
    shop.execute(f"UPDATE notes SET changed = '{BEYOND}' WHERE id = 1")
    yield "notes"
    shop.execute("UPDATE notes SET changed = now() WHERE id = 1")


def test_a_table_is_paused_and_resumed(visit: Visit, shop: Shop) -> None:
    page = visit(_SUBSCRIPTION)
    entry = row(page, "public.customers")
    dialog = ask_for(page, "Pause", "public.customers")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(entry.get_by_role("button", name="Pause public.customers")).to_be_focused()
    assert shop.table("customers")["desired_state"] == "running"
    do(page, "Pause", "public.customers")
    expect(entry.get_by_role("cell").first).to_have_text("paused")
    assert shop.table("customers")["state"] == "paused"
    do(page, "Resume", "public.customers")
    expect(entry.get_by_role("cell").first).to_have_text("live")
    assert shop.table("customers")["state"] == "live"


def test_a_subscription_is_paused_and_resumed(visit: Visit, shop: Shop) -> None:
    page = visit(_SUBSCRIPTION)
    do(page, "Pause", "copy")
    expect(page.get_by_text("It is paused by request; the source keeps its log for it.")).to_be_visible()
    assert shop.subscription["state"] == "paused"
    do(page, "Resume", "copy")
    expect(page.get_by_text("tables are live")).to_be_visible()
    assert shop.subscription["state"] == "running"


def test_a_table_is_reloaded(visit: Visit, shop: Shop) -> None:
    shop.execute("INSERT INTO orders SELECT max(id) + 1 FROM orders")
    rows = shop.execute("SELECT count(*) FROM orders")[0][0]
    assert rows > ROWS
    page = visit(f"{_SUBSCRIPTION}/tables/{shop.table('orders')['id']}")
    reloads = page.get_by_role("region", name="Reloads").get_by_role("listitem")
    expect(page.get_by_text("It was never reloaded by request.")).to_be_visible()
    do(page, "Reload", "public.orders")
    expect(reloads.first).to_contain_text("succeeded")
    expect(reloads.first).to_contain_text(f"{rows} rows")
    asked = page.get_by_role("region", name="Time line").get_by_role("listitem").filter(has_text="in effect after")
    expect(asked.first).to_contain_text("reload")
    assert shop.rig.query("SELECT count(*) FROM orders") == [[rows]]


def test_a_parked_table_is_not_tried_again_before_it_is_mended(visit: Visit, shop: Shop, keyless: str) -> None:
    page = visit(f"{_SUBSCRIPTION}/tables/{shop.table(keyless)['id']}")
    lead = page.get_by_role("main")
    expect(lead).to_contain_text("the table has no primary key and no other replica identity")
    expect(lead).to_contain_text("Add a primary key or set a REPLICA IDENTITY on the source")
    expect_accessible(page)
    dialog = ask_for(page, "Try again", f"public.{keyless}")
    dialog.get_by_role("button", name="Try again").click()
    expect(dialog.get_by_role("alert")).to_be_visible()
    assert shop.table(keyless)["state"] == "parked"
    # The engine sees by itself that there is a key; the dialog does not vanish under the hand of who reads it.
    shop.execute(f"ALTER TABLE {keyless} ADD PRIMARY KEY (id)")
    expect(lead).to_contain_text("It follows the source.")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)
    expect_followed(shop, keyless)


def test_a_parked_table_goes_on_by_its_button_once_it_is_mended(visit: Visit, shop: Shop, refused: str) -> None:
    page = visit(f"{_SUBSCRIPTION}/tables/{shop.table(refused)['id']}")
    lead = page.get_by_role("main")
    expect(lead).to_contain_text("a value cannot be represented exactly by a timestamptz column")
    shop.execute(f"UPDATE {refused} SET changed = now() WHERE id = 1")
    do(page, "Try again", f"public.{refused}")
    expect(lead).to_contain_text("It follows the source.")
    expect_followed(shop, refused)


@pytest.fixture
def set_aside(shop: Shop) -> Iterator[str]:
    """The name of a table whose refused rows are set aside; two do."""
    path = f"{shop.rig.path}/tables/{shop.table('notes')['id']}"
    shop.api.patch(path, {"refused_rows": "set_aside"})
    shop.execute(f"UPDATE notes SET changed = '{BEYOND}' WHERE id IN (2, 3)")
    yield "notes"
    shop.execute("UPDATE notes SET changed = now() WHERE id IN (2, 3)")
    shop.api.patch(path, {"refused_rows": "park"})


def test_a_refused_row_is_seen_tried_again_and_left_out(visit: Visit, shop: Shop, set_aside: str) -> None:
    page = visit(f"{_SUBSCRIPTION}/tables/{shop.table(set_aside)['id']}")
    refused = page.get_by_role("region", name="Refused rows")
    second = refused.get_by_role("listitem").filter(has_text="2: column changed")
    expect(second).to_contain_text("set aside")
    second.get_by_text("Its values").click()
    expect(second).to_contain_text(BEYOND[:10])
    expect_accessible(page)
    dialog = ask_for(page, "Try again", "row 2 of public.notes")
    dialog.get_by_role("button", name="Try again").click()
    expect(dialog.get_by_role("alert")).to_contain_text("The target refused it again")
    dialog.get_by_role("button", name="Cancel").click()
    do(page, "Leave out", "row 2 of public.notes")
    expect(second).to_contain_text("left out by")
    assert shop.table(set_aside)["rows_set_aside"] == 2
    shop.execute("UPDATE notes SET changed = now() WHERE id IN (2, 3)")
    expect(refused).to_have_count(0)
    expect_followed(shop, set_aside)


def test_a_setting_that_somebody_else_changed_is_not_written_over(visit: Visit, shop: Shop) -> None:
    page = visit(f"{_SUBSCRIPTION}/settings")
    page.get_by_label(_GOAL).fill("30")
    dialog = ask_for(page, "Save", "copy")
    shop.api.patch(shop.rig.path, {"freshness": {"goal_seconds": 45}})
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text(f"{_GOAL} is 45 s now")
    dialog.get_by_role("button", name="Cancel").click()
    assert shop.subscription["freshness"]["goal_seconds"] == 45
    do(page, "Save", "copy")
    assert shop.subscription["freshness"]["goal_seconds"] == 30


def test_who_may_only_look_is_offered_nothing_else(visit: Visit, shop: Shop) -> None:
    token = shop.api.post("/tokens", {"name": "reader", "role": "viewer"})["token"]
    page = visit("/", token=token)
    expect(row(page, "copy")).to_contain_text("live")
    expect(page.get_by_role("banner")).to_contain_text("read-only")
    for name in ("fleet", "subscription", "verifications", "settings", "table", "tickets", "connections"):
        page.goto(shop.address(name))
        expect_loaded(page)
        expect(page.get_by_role("banner")).to_contain_text("read-only")
        expect(page.get_by_role("main").get_by_role("button")).to_have_count(0)
    page.goto(shop.address("settings"))
    expect(page.get_by_label(_GOAL)).to_be_disabled()
    expect(page.get_by_text("Changes require an operator's token")).not_to_have_count(0)


def expect_followed(shop: Shop, name: str) -> None:
    count = f"SELECT count(*), max(id) FROM {name}"
    assert shop.rig.query(count) == [list(row) for row in shop.execute(count)]


def test_nothing_is_dropped_before_its_name_was_typed(visit: Visit, shop: Shop) -> None:
    page = visit(_SUBSCRIPTION)
    dialog = ask_for(page, "Remove", "public.leftovers")
    button = dialog.get_by_role("button", name="Remove")
    expect(button).to_be_enabled()
    dialog.get_by_role("checkbox", name="Drop public.leftovers on the target, too").check()
    expect(dialog).to_contain_text("All rows of public.leftovers on the target are lost.")
    expect(button).to_be_disabled()
    typed = dialog.get_by_label("Type public.leftovers to confirm")
    typed.fill("public.left")
    page.keyboard.press("Enter")
    expect(button).to_be_disabled()
    expect_accessible(page)
    assert shop.table("leftovers")["state"] == "live"
    typed.fill("public.leftovers")
    button.click()
    expect(row(page, "public.leftovers")).to_have_count(0)
    page.get_by_role("link", name="Show removed tables").click()
    row(page, "public.leftovers").get_by_role("link").click()
    expect(heading(page, "public.leftovers")).to_be_visible()
    expect(page.get_by_role("definition").filter(has_text="dropped")).to_be_visible()
