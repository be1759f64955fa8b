"""Answers that replace the server's: with more items than it has, and with fields that it does not send yet."""

from __future__ import annotations

import re
from collections import Counter

from playwright.sync_api import Page, Route

from server.cli.client import Document
from tests.browser.shop import Shop
from tests.fixtures.rig import SUBSCRIPTION

_SUBSCRIPTIONS = "/api/v1/subscriptions"
_SUBSCRIPTION = f"{_SUBSCRIPTIONS}/{SUBSCRIPTION}"
_PARKED: Document = {
    "state": "parked",
    "code": "table_no_identity",
    "reason": "the table has no primary key and no other replica identity",
    "remedy": "Add a primary key or set a REPLICA IDENTITY on the source, or give 'insert_only': true.",
}
_COPYING: Document = {
    "state": "copying",
    "copied": {"rows": 123_456_789, "bytes": 98_765_432_100, "percent": 41.3, "eta_seconds": 754.0},
}
_STATES: tuple[Document, ...] = (
    _PARKED,
    _COPYING,
    {"state": "live"},
    {"state": "paused", "desired_state": "paused"},
    {"state": "live", "desired_state": "paused"},
    *({"state": "live"},) * 15,
)


def answer(page: Page, path: str, document: Document) -> None:
    """The tab gets `document` from this address, whatever the query string is."""

    def fulfill(route: Route) -> None:
        route.fulfill(json=document)

    page.route(re.compile(rf"{re.escape(path)}(\?|$)"), fulfill)


def give_tables(page: Page, shop: Shop, count: int) -> str:
    """The subscription has so many tables, of long names and in many states; the first is parked. Returns that one's address."""
    like = shop.table("orders")
    tables = [_made(like, number) for number in range(count)]
    first = tables[0]["id"]
    history = shop.api.get(f"{shop.rig.path}/tables/{like['id']}/versions")
    give_subscription(page, shop, {"table_states": Counter(table["state"] for table in tables)})
    give_list(page, f"{_SUBSCRIPTION}/tables", tables)
    answer(page, f"{_SUBSCRIPTION}/tables/{first}", tables[0])
    answer(page, f"{_SUBSCRIPTION}/tables/{first}/versions", history)
    give_list(page, f"{_SUBSCRIPTION}/tables/{first}/reloads", [])
    return f"/subscriptions/{SUBSCRIPTION}/tables/{first}"


def _made(like: Document, number: int) -> Document:
    name = f"measurements_of_the_northern_region_by_station_and_hour_{number:03}"
    return {
        **like,
        "id": f"t{number:012}",
        "name": name,
        "target": {"schema": "public", "name": name},
        **_STATES[number % len(_STATES)],
    }


def give_subscription(page: Page, shop: Shop, other: Document) -> None:
    """The subscription is as it is but for what `other` says."""
    subscription = {**shop.subscription, **other}
    give_list(page, _SUBSCRIPTIONS, [subscription])
    answer(page, _SUBSCRIPTION, subscription)


def give_table(page: Page, table: Document, other: Document) -> None:
    """The only table, as it is but for what `other` says."""
    changed = {**table, **other}
    give_list(page, f"{_SUBSCRIPTION}/tables", [changed])
    answer(page, f"{_SUBSCRIPTION}/tables/{table['id']}", changed)


def give_list(page: Page, path: str, items: list[Document]) -> None:
    answer(page, path, {"items": items, "next_page_token": None})
