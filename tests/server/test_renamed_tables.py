"""Tables that were renamed on the source: the name shown and sent to the engine follows, their names on the target stay."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlmodel import select

from engine.model.identity import TableName
from server.db.models.outbox import OutboxRow
from server.lookup.subscriptions import require_subscription
from server.subscriptions.assignment import build_table
from server.tables import renaming
from tests.server.conftest import PlayedEngine

URL = "/api/v1/subscriptions/s"
BODY = {"source": "shop", "target": "mart"}

pytestmark = pytest.mark.usefixtures("connections")


def declare(client: TestClient, *names: str) -> dict[str, str]:
    """The tables of a new subscription: ids by name."""
    body = {**BODY, "tables": [{"schema": "public", "name": name} for name in names]}
    assert client.put(URL, json=body).status_code == 201
    return {item["name"]: item["id"] for item in client.get(f"{URL}/tables").json()["items"]}


def rename(app: FastAPI, names: dict[str, tuple[str, str]]) -> None:
    with app.state.database.write() as session:
        renaming.rename_tables(session, require_subscription(session, "s"), names)


def shown(client: TestClient) -> dict[str, tuple[str, str]]:
    """Source and target name of each present table, by id."""
    items = client.get(f"{URL}/tables").json()["items"]
    return {
        item["id"]: (f"{item['schema']}.{item['name']}", f"{item['target']['schema']}.{item['target']['name']}")
        for item in items
    }


def commands(app: FastAPI) -> list[dict[str, Any]]:
    with app.state.database.read() as session:
        query = select(OutboxRow).where(OutboxRow.kind == "table").order_by(OutboxRow.id)
        return [row.payload for row in session.exec(query)]


def events(client: TestClient, kind: str) -> list[dict[str, Any]]:
    return list(client.get("/api/v1/events", params={"kind": kind}).json()["items"])


def test_the_name_follows_and_the_place_stays(client: TestClient, app: FastAPI) -> None:
    table = declare(client, "orders")["orders"]
    tag = client.get(f"{URL}/tables/{table}").headers["ETag"]
    for _ in range(2):
        rename(app, {table: ("sales", "orders_2026")})
    assert shown(client) == {table: ("sales.orders_2026", "public.orders")}
    assert client.get(f"{URL}/tables/{table}").headers["ETag"] != tag
    assert commands(app) == [{"table": table, "removed": False}]
    with app.state.database.read() as session:
        spec = build_table(session, table)
    assert (spec.source, spec.target) == (TableName("sales", "orders_2026"), TableName("public", "orders"))
    (event,) = events(client, "table_renamed")
    assert (event["severity"], event["subject"], event["subscription"]) == ("info", "sales.orders_2026", "s")
    assert event["detail"] == (
        "The source's table 'public.orders' is now 'sales.orders_2026'; on the target it remains 'public.orders'."
    )
    assert "a PUT with the old name removes the table" in event["remedy"]


def test_what_get_shows_afterwards_can_be_put_again(client: TestClient, app: FastAPI) -> None:
    table = declare(client, "orders")["orders"]
    rename(app, {table: ("public", "orders_old")})
    before = shown(client)
    declared = client.get(URL).json()["tables"]
    assert declared[0]["target"] == {"schema": "public", "name": "orders"}
    assert client.put(URL, json={**BODY, "tables": declared}).status_code == 200
    assert shown(client) == before
    refused = client.put(URL, json={**BODY, "tables": [{"schema": "public", "name": "orders_old"}]})
    assert (refused.status_code, refused.json()["code"]) == (409, "table_target_fixed")
    assert "with its current target" in refused.json()["remedy"]
    assert shown(client) == before


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_tables_may_take_over_each_others_names(client: TestClient, app: FastAPI, order: str) -> None:
    ids = declare(client, "a", "b")
    new = {"a": ("public", "b"), "b": ("public", "a")}
    rename(app, {ids[name]: new[name] for name in order})
    assert shown(client) == {ids["a"]: ("public.b", "public.a"), ids["b"]: ("public.a", "public.b")}
    assert {payload["table"] for payload in commands(app)} == set(ids.values())


@pytest.mark.parametrize("order", ["abc", "cba", "bac"])
def test_one_may_take_the_name_that_another_gives_up(client: TestClient, app: FastAPI, order: str) -> None:
    ids = declare(client, "a", "b", "c")
    new = {"a": ("public", "b"), "b": ("public", "c"), "c": ("old", "c")}
    rename(app, {ids[name]: new[name] for name in order})
    assert [shown(client)[ids[name]][0] for name in "abc"] == ["public.b", "public.c", "old.c"]
    assert events(client, "table_rename_not_shown") == []


def test_a_name_that_another_table_keeps_is_not_taken(client: TestClient, app: FastAPI) -> None:
    ids = declare(client, "a", "b", "c", "d")
    before = shown(client)
    rename(app, {ids["a"]: ("public", "b"), ids["c"]: ("public", "a"), ids["d"]: ("public", "e")})
    after = shown(client)
    assert {table: after[table] for table in after if table != ids["d"]} == {
        table: before[table] for table in before if table != ids["d"]
    }
    assert after[ids["d"]] == ("public.e", "public.d")
    assert [payload["table"] for payload in commands(app)] == [ids["d"]]
    told = {event["subject"]: event for event in events(client, "table_rename_not_shown")}
    assert told.keys() == {"public.a", "public.c"}
    assert {event["severity"] for event in told.values()} == {"warning"}
    assert f"(id {ids['b']})" in told["public.a"]["detail"]
    assert f"Remove the table {ids['b']}" in told["public.a"]["remedy"]
    assert client.delete(f"{URL}/tables/{ids['b']}").status_code == 204
    rename(app, {ids["a"]: ("public", "b")})
    assert shown(client)[ids["a"]] == ("public.b", "public.a")


def test_of_two_that_were_given_one_name_the_later_has_it(client: TestClient, app: FastAPI) -> None:
    ids = declare(client, "a", "b")
    rename(app, {ids["a"]: ("public", "x"), ids["b"]: ("public", "x")})
    assert shown(client) == {ids["a"]: ("public.a", "public.a"), ids["b"]: ("public.x", "public.b")}
    assert len(events(client, "table_rename_not_shown")) == 1


def test_removed_and_unknown_tables_are_passed_over(client: TestClient, app: FastAPI) -> None:
    ids = declare(client, "a", "b")
    assert client.delete(f"{URL}/tables/{ids['a']}").status_code == 204
    rename(app, {ids["a"]: ("public", "c"), "t0": ("public", "d")})
    assert client.get(f"{URL}/tables/{ids['a']}").json()["name"] == "a"
    assert shown(client) == {ids["b"]: ("public.b", "public.b")}
    assert events(client, "table_renamed") == []


def test_a_pattern_finds_its_table_again_where_it_stands(
    client: TestClient, app: FastAPI, engine: PlayedEngine
) -> None:
    def discovered(*names: str) -> dict[str, Any]:
        return {"tables": [{"schema": "public", "name": n, "key": ["id"], "identity": "default"} for n in names]}

    body = {**BODY, "tables": [{"schema": "public", "name": "*"}]}
    engine.answers["discover"] = discovered("orders")
    assert client.put(URL, json=body).status_code == 201
    (table,) = shown(client)
    rename(app, {table: ("public", "orders_old")})
    assert events(client, "table_renamed")[0]["remedy"] is None
    engine.answers["discover"] = discovered("orders_old")
    assert client.put(URL, json=body).status_code == 200
    assert shown(client) == {table: ("public.orders_old", "public.orders")}
    engine.answers["discover"] = discovered("orders", "orders_old")
    refused = client.put(URL, json=body)
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/tables/0")
    assert "'public.orders' and 'public.orders_old' would be the same table on the target" in refused.json()["detail"]
    elsewhere = {"schema": "public", "name": "orders", "target": {"name": "orders_new"}}
    assert client.put(URL, json={**BODY, "tables": [*body["tables"], elsewhere]}).status_code == 200
    assert sorted(shown(client).values()) == [
        ("public.orders", "public.orders_new"),
        ("public.orders_old", "public.orders"),
    ]
