"""Takes screenshots of every page of the console, for review: `python -m tests.browser.screens FOLDER [NAME …]`.

Each at desktop and phone width, in light and dark, with subscriptions of 1, 20 and 300 tables that are really followed; some of them
are paused, and one of each is parked. What is wider than the screen is printed on standard output.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.chromium import DESKTOP, PHONE, Tab, launch
from tests.browser.looks import SCHEMES, wider_than_screen
from tests.browser.reading import ask_for, expect_live, expect_loaded
from tests.browser.shop import BEYOND, Shop, open_shop

COUNTS = {"one": 1, "twenty": 20, "many": 300}
"""Subscriptions and how many tables each of them has."""
_LONG = "measurements_of_the_northern_region_by_station_and_hour"
_FOLLOWED_S = 600.0

Picture = Callable[[Page], None]


class Gallery:
    """The pictures of a shop with further subscriptions, by name."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self.pictures: dict[str, Picture] = {
            "fleet": self._at("/"),
            "connections": self._connections,
            "nothing-here": self._at("/nothing-here"),
            "subscription-many-last-page": self._at("/subscriptions/many?page=6"),
            "dialog-pause": self._dialog("Pause"),
            "dialog-remove": self._removal,
            "display": self._display,
            "table-live": self._table("twenty", "live"),
            "table-refused": self._refused,
            "freshness": self._freshness,
            "tickets": self._tickets,
            "table-options": self._options,
            "table-options-review": self._review,
            "table-partitions": self._partitions,
            "new-table": self._at("/subscriptions/many/add/table"),
            "new-table-options": self._new_table,
            "verifications": self._verifications,
            "snapshots": self._snapshots,
            "snapshots-form": self._snapshot_form,
            "snapshots-delete": self._snapshot_deletion,
            "read-points": self._read_points,
            "query-at-read-point": self._query_at_read_point,
            "selected-tables": self._selected,
            "connection": self._at("/connections/source"),
            "new-connection": self._at("/new-connection"),
            "alerts": self._at("/alerts"),
            "new-alert-channel": self._at("/new-alert-channel"),
        }
        for part in ("charts", "batches", "events", "settings"):
            self.pictures[part] = self._at(f"/subscriptions/many/{part}")
        for steps, step in enumerate(("ends", "tables", "options", "summary")):
            self.pictures[f"wizard-{step}"] = self._wizard(steps)
        for name, count in COUNTS.items():
            self.pictures[f"subscription-{name}"] = self._at(f"/subscriptions/{name}")
            self.pictures[f"table-parked-{name}"] = self._table(name, "parked")
            if count > 1:
                self.pictures[f"table-paused-{name}"] = self._table(name, "paused")

    def fill(self) -> None:
        """Make the subscriptions; returns when each of their tables is in the state that it is to be shown in."""
        shop = self._shop
        shop.execute("CREATE TABLE sales (id int PRIMARY KEY, n int) PARTITION BY RANGE (id)")
        shop.execute("CREATE TABLE sales_a PARTITION OF sales FOR VALUES FROM (0) TO (100)")
        shop.execute("CREATE TABLE sales_rest PARTITION OF sales DEFAULT")
        shop.execute("INSERT INTO sales SELECT n, n FROM generate_series(1, 150) n")
        shop.api.post(f"{shop.rig.path}/tables", {"schema": "public", "name": "sales"})
        for name, count in COUNTS.items():
            shop.execute(f"CREATE SCHEMA {name}")
            for number in range(count):
                table = f"{name}.{_LONG}_{number:03}"
                shop.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY, at timestamptz, value numeric)")
                shop.execute(
                    f"INSERT INTO {table} SELECT n, now(), n / 7.0 FROM generate_series(1, {number % 7 * 50}) n"
                )
            path = str(shop.rig.home / f"{name}.duckdb")
            shop.api.put(f"/connections/{name}", {"kind": "duckdb", "settings": {"path": path}})
            body = {"source": "source", "target": name, "tables": [{"schema": name, "name": "*"}]}
            shop.api.put(f"/subscriptions/{name}", {**body, "desired_state": "running"})
        for name, count in COUNTS.items():
            self._wait(name, {"live": count})
            shop.execute(f"ALTER TABLE {name}.{_LONG}_000 DROP CONSTRAINT {self._key(name)}")
            shop.execute(f"INSERT INTO {name}.{_LONG}_000 VALUES (100000)")
            if count > 1:
                paused = self._tables(name)[1]
                shop.api.patch(f"/subscriptions/{name}/tables/{paused['id']}", {"desired_state": "paused"})
            self._wait(name, {"parked": 1, "paused": 1, "live": count - 2} if count > 1 else {"parked": 1})
        path = f"/subscriptions/twenty/tables/{self._tables('twenty')[2]['id']}"
        shop.api.patch(path, {"refused_rows": "set_aside"})
        shop.execute(f"INSERT INTO twenty.{_LONG}_002 SELECT n, '{BEYOND}', 1 FROM generate_series(200001, 200003) n")
        shop.rig.wait_until(lambda: shop.api.get(path)["rows_set_aside"] == 3, _FOLLOWED_S, "three rows stood aside")

    def _key(self, schema: str) -> str:
        found = "SELECT conname FROM pg_constraint WHERE contype = 'p' AND conrelid = "
        return str(self._shop.execute(f"{found} '{schema}.{_LONG}_000'::regclass")[0][0])

    def _tables(self, name: str) -> list[dict[str, str]]:
        return sorted(self._shop.api.items(f"/subscriptions/{name}/tables"), key=lambda table: table["name"])

    def _wait(self, name: str, states: dict[str, int]) -> None:
        def come() -> bool:
            return bool(self._shop.api.get(f"/subscriptions/{name}")["table_states"] == states)

        self._shop.rig.wait_until(come, _FOLLOWED_S, f"the tables of {name} were {states}")

    def _at(self, address: str) -> Picture:
        return lambda page: self._go(page, address)

    def _go(self, page: Page, address: str) -> None:
        page.goto(address)
        expect_loaded(page)
        expect_live(page)

    def _table(self, subscription: str, state: str) -> Picture:
        def picture(page: Page) -> None:
            found = next(table for table in self._tables(subscription) if table["state"] == state)
            self._go(page, f"/subscriptions/{subscription}/tables/{found['id']}")
            for part in page.get_by_role("group").get_by_text("columns").all():
                part.click()

        return picture

    def _refused(self, page: Page) -> None:
        self._go(page, f"/subscriptions/twenty/tables/{self._tables('twenty')[2]['id']}")
        page.get_by_text("Its values").first.click()

    def _options(self, page: Page) -> None:
        self._go(page, f"/subscriptions/twenty/tables/{self._tables('twenty')[3]['id']}/options")
        page.get_by_role("combobox", name="Values of value").select_option("masked: a constant")
        page.get_by_role("checkbox", name="Replicate at").uncheck()

    def _review(self, page: Page) -> None:
        self._options(page)
        page.get_by_role("button", name="Review the change").click()
        expect(page.get_by_role("dialog").get_by_text("found", exact=False).first).to_be_visible()

    def _partitions(self, page: Page) -> None:
        self._go(page, f"/subscriptions/copy/tables/{self._shop.table('sales')['id']}")
        page.get_by_text("Show partitions").click()
        page.get_by_role("checkbox", name="public.sales_a").check()

    def _new_table(self, page: Page) -> None:
        self._go(page, "/subscriptions/copy/add/table")
        page.get_by_role("button", name="Choose one.").click()
        page.get_by_role("button", name="Check").click()
        expect(page.get_by_role("button", name="Check again")).to_be_visible()
        expect(page.get_by_text("Checking …")).to_have_count(0)

    def _verifications(self, page: Page) -> None:
        self._go(page, "/subscriptions/twenty/verifications")
        if page.get_by_text("never verified").count():
            page.get_by_role("button", name="Verify").click()
        expect(page.get_by_text("not compared")).to_be_visible()

    def _snapshots(self, page: Page) -> None:
        """One that is complete, one that failed, and a schedule."""
        path = "/subscriptions/twenty/snapshots"
        if not self._shop.api.get(path)["items"]:
            for body in ({}, {"on_unavailable": "leave_out"}):
                self._shop.api.post(path, body)
                self._shop.rig.wait_until(
                    lambda: all(item["ended_at"] for item in self._shop.api.get(path)["items"]), _FOLLOWED_S, "it ended"
                )
            schedule = {"interval_seconds": 5400, "keep": 3, "on_unavailable": "leave_out"}
            self._shop.api.put("/subscriptions/twenty/snapshot-schedule", schedule)
        self._go(page, path)
        page.get_by_text("Folder and files").last.click()

    def _snapshot_form(self, page: Page) -> None:
        self._go(page, "/subscriptions/copy/snapshots")
        page.get_by_role("radio", name="those that I name").check()
        page.get_by_role("radio", name="everything up to a position").check()
        page.get_by_role("button", name="Set a schedule").click()

    def _snapshot_deletion(self, page: Page) -> None:
        self._snapshots(page)
        page.get_by_role("button", name="Delete the snapshot").last.click()

    def _read_points(self, page: Page) -> None:
        self._keep_points()
        self._go(page, "/subscriptions/twenty/read-points")
        page.get_by_text("20 tables").first.click()

    def _query_at_read_point(self, page: Page) -> None:
        self._keep_points()
        self._go(page, "/freshness?subscription=twenty&read_point=month-end")
        page.get_by_label("One SELECT in the target's SQL").fill(f"SELECT * FROM twenty.{_LONG}_003 LIMIT 3")
        page.keyboard.press("Control+Enter")
        expect(page.get_by_role("region", name="Rows of the answer")).to_be_visible()

    def _keep_points(self) -> None:
        """A read point that lasts, and one that has ended."""
        path = "/subscriptions/twenty/read-points"
        kept = {item["name"]: item["state"] for item in self._shop.api.get(path)["items"]}
        for name, seconds in (("month-end", 3600), ("short", 1)):
            if name not in kept:
                self._shop.api.post(path, {"name": name, "ttl_seconds": seconds})

    def _selected(self, page: Page) -> None:
        self._go(page, "/subscriptions/twenty")
        page.get_by_role("button", name="Select all").click()

    def _connections(self, page: Page) -> None:
        self._go(page, "/connections")
        page.get_by_role("button", name="Check as a source: source").click()
        expect(page.get_by_text("No problems found").first).to_be_visible()

    def _dialog(self, verb: str) -> Picture:
        def picture(page: Page) -> None:
            self._go(page, "/subscriptions/twenty")
            page.get_by_role("button", name=f"{verb} twenty.").first.click()

        return picture

    def _removal(self, page: Page) -> None:
        self._go(page, "/subscriptions/twenty")
        dialog = ask_for(page, "Remove", f"twenty.{_LONG}_007")
        dialog.get_by_role("checkbox").check()

    def _freshness(self, page: Page) -> None:
        self._go(page, "/freshness?subscription=copy")
        page.get_by_role("button", name="Wait", exact=True).click()
        page.get_by_role("button", name="Query at this position").click()
        page.get_by_label("One SELECT in the target's SQL").fill(
            "SELECT id, name, changed, NULL AS nothing FROM public.orders LIMIT 7"
        )
        page.keyboard.press("Control+Enter")
        expect(page.get_by_role("region", name="Rows of the answer")).to_be_visible()

    def _tickets(self, page: Page) -> None:
        self._go(page, "/tickets?subscription=many")
        page.get_by_label("Name (optional)").fill("for the picture")
        page.get_by_role("button", name="Place a ticket").click()
        expect(page.get_by_role("row", name="for the picture ").first).to_contain_text("applied")

    def _wizard(self, steps: int) -> Picture:
        """The wizard, this many steps after the first."""

        def picture(page: Page) -> None:
            self._go(page, "/new-subscription?source=source")
            page.get_by_role("region", name="To", exact=True).get_by_role("radio", name="twenty").check()
            for number, button in enumerate(("Next: tables", "Next: options", "Next: check")[:steps]):
                page.get_by_role("button", name=button).click()
                if number == 0:
                    page.get_by_role("button", name="Choose all").click()
            if steps == 3:
                expect(page.get_by_role("button", name="Check again")).to_be_enabled()

        return picture

    def _display(self, page: Page) -> None:
        self._go(page, "/")
        page.get_by_text("Display").click()


def _sign_in(page: Page) -> None:
    page.goto("/")
    page.get_by_label("Token").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_be_visible()


def _no_engine(page: Page) -> None:
    page.goto("/")
    expect(page.get_by_text("No engine is connected.")).to_be_visible()


def take(browser: Browser, shop: Shop, folder: Path, name: str, picture: Picture, token: str | None) -> None:
    """At both widths and in both schemes: `FOLDER/NAME-WIDTH-SCHEME.png`."""
    for width in (DESKTOP, PHONE):
        for scheme in SCHEMES:
            tab = Tab(browser, shop.url, token, width=width, scheme=scheme)
            picture(tab.page)
            file = folder / f"{name}-{width}-{scheme}.png"
            # A dialog is placed in the middle of the visible part of the page.
            tab.page.screenshot(path=file, full_page=tab.page.get_by_role("dialog").count() == 0)
            troubles = [*wider_than_screen(tab.page), *tab.troubles]
            print(file, *troubles, sep="\n  ", flush=True)
            tab.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="only these pictures")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=30_000)
    with sync_playwright() as playwright, launch(playwright) as browser, open_shop() as shop:
        gallery = Gallery(shop)
        gallery.fill()
        for name, picture in gallery.pictures.items():
            if not chosen.names or name in chosen.names:
                take(browser, shop, chosen.folder, name, picture, shop.token)
        take(browser, shop, chosen.folder, "sign-in", _sign_in, None)
        with shop.without_engine():
            take(browser, shop, chosen.folder, "no-engine", _no_engine, shop.token)


if __name__ == "__main__":
    main()
