"""`shared_into` over REST and by command: declared, shown, sent to the engine, refused, and listed with its members."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from engine.model.identity import TableName
from engine.model.shared import SharedInto
from server.db.models.table import TableRow
from tests.fixtures.app_state import read_assigned
from tests.server.conftest import PlayedEngine

SUBSCRIPTIONS = "/api/v1/subscriptions"
LIST = "/api/v1/connections/mart/shared-tables"
ORDERS: dict[str, Any] = {"schema": "public", "name": "orders"}
SHARED = {**ORDERS, "shared_into": {"schema": "all"}}


def body(*tables: dict[str, Any], source: str = "shop") -> dict[str, Any]:
    return {"source": source, "target": "mart", "tables": list(tables)}


@pytest.fixture(autouse=True)
def eu(client: TestClient, connections: None) -> None:
    """`eu` shows its orders in `all.orders`; `us` is another source."""
    settings = {"host": "us", "database": "shop", "user": "penstock"}
    client.put("/api/v1/connections/us", json={"kind": "postgres", "settings": settings})
    assert client.put(f"{SUBSCRIPTIONS}/eu", json=body(SHARED)).status_code == 201


def only(client: TestClient, name: str) -> dict[str, Any]:
    (found,) = client.get(f"{SUBSCRIPTIONS}/{name}/tables").json()["items"]
    return dict(found)


def test_what_is_left_out_follows_from_the_subscription_and_the_table(client: TestClient, app: FastAPI) -> None:
    shown = only(client, "eu")
    assert shown["target"] == {"schema": "all", "name": "orders__eu"}
    assert shown["shared_into"] == {"schema": "all", "name": "orders", "source_column": "source", "source_value": "eu"}
    spec = read_assigned(app, "eu").tables[0]
    assert (spec.target, spec.shared) == (
        TableName("all", "orders__eu"),
        SharedInto(TableName("all", "orders"), "source", "eu"),
    )
    declared = client.get(f"{SUBSCRIPTIONS}/eu").json()
    assert client.put(f"{SUBSCRIPTIONS}/eu", json=body(*declared["tables"])).status_code == 200
    assert client.put(f"{SUBSCRIPTIONS}/eu", json=body(SHARED)).status_code == 200
    assert only(client, "eu")["id"] == shown["id"]


def test_everything_can_be_said(client: TestClient, app: FastAPI) -> None:
    into = {"schema": "all", "name": "orders", "source_column": "source", "source_value": "america"}
    table = {**ORDERS, "target": {"schema": "us"}, "shared_into": into}
    assert client.put(f"{SUBSCRIPTIONS}/us", json=body(table, source="us")).status_code == 201
    assert read_assigned(app, "us").tables[0].target == TableName("us", "orders")
    assert only(client, "us")["shared_into"] == into
    found = client.get(LIST).json()["items"]
    assert [(t["schema"], t["name"], t["source_column"]) for t in found] == [("all", "orders", "source")]
    assert [(m["subscription"], m["source_value"], m["target"]["name"], m["state"]) for m in found[0]["members"]] == [
        ("us", "america", "orders", "registered"),
        ("eu", "eu", "orders__eu", "registered"),
    ]


def test_a_pattern_shares_each_table_that_it_takes(client: TestClient, app: FastAPI, engine: PlayedEngine) -> None:
    found = [{"schema": "public", "name": name, "key": ["id"], "identity": "default"} for name in ("orders", "lines")]
    engine.answers["discover"] = {"tables": found}
    pattern = {"schema": "public", "name": "*", "shared_into": {"schema": "all"}}
    for _ in range(2):
        answer = client.put(f"{SUBSCRIPTIONS}/us", json=body(pattern, source="us"))
        assert answer.status_code in (200, 201), answer.text
    places = [
        (t["target"]["name"], t["shared_into"]["name"])
        for t in client.get(f"{SUBSCRIPTIONS}/us/tables").json()["items"]
    ]
    assert places == [("lines__us", "lines"), ("orders__us", "orders")]
    assert [(t["name"], len(t["members"])) for t in client.get(LIST).json()["items"]] == [("lines", 1), ("orders", 2)]
    named = {**pattern, "shared_into": {"name": "one"}}
    refused = client.put(f"{SUBSCRIPTIONS}/us", json=body(named, source="us"))
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
    fixed = client.put(
        f"{SUBSCRIPTIONS}/us", json=body({**pattern, "target": {"schema": "all"}, "shared_into": None}, source="us")
    )
    assert (fixed.status_code, fixed.json()["code"]) == (409, "table_target_fixed")


@pytest.mark.parametrize(
    ("table", "pointer", "detail"),
    [
        (
            {"shared_into": {"schema": "ALL", "name": "Orders", "source_value": "eu"}, "target": {"schema": "us"}},
            "/tables/0/shared_into/source_value",
            "has the source value 'eu'",
        ),
        (
            {"shared_into": {"schema": "all", "source_column": "region"}},
            "/tables/0/shared_into/source_column",
            "is 'source' for",
        ),
        ({"target": {"schema": "all"}}, "/tables/0", "is a shared table for"),
        ({"target": {"schema": "all"}, "shared_into": {"schema": "all"}}, "/tables/0", "is a shared table for"),
        (
            {"target": {"schema": "us"}, "shared_into": {"schema": "penstock"}},
            "/tables/0/shared_into/schema",
            "is reserved",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(
    client: TestClient, table: dict[str, Any], pointer: str, detail: str
) -> None:
    refused = client.put(f"{SUBSCRIPTIONS}/us", json=body({**ORDERS, **table}, source="us"))
    problem = refused.json()
    assert (refused.status_code, problem["code"]) == (422, "shared_table_conflict")
    assert pointer in [error["pointer"] for error in problem["errors"]]
    assert detail in problem["detail"]
    assert client.get(f"{SUBSCRIPTIONS}/us").status_code == 404


def test_a_derived_name_that_is_too_long_is_refused(client: TestClient) -> None:
    shared = {**ORDERS, "shared_into": {"source_value": "v" * 60}}
    refused = client.post(f"{SUBSCRIPTIONS}/eu/tables", json={**shared, "name": "lines"})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/shared_into")
    assert (
        client.post(f"{SUBSCRIPTIONS}/eu/tables", json={**shared, "name": "lines", "target": {"name": "l"}}).status_code
        == 201
    )


def test_where_a_table_is_shown_does_not_change(client: TestClient) -> None:
    for shared in ({**SHARED["shared_into"], "source_value": "eu2"}, None):
        place = {"schema": "all", "name": "orders__eu"}
        refused = client.put(f"{SUBSCRIPTIONS}/eu", json=body({**ORDERS, "target": place, "shared_into": shared}))
        assert (refused.status_code, refused.json()["code"]) == (409, "table_target_fixed")


def test_a_table_of_its_owner_is_not_shared(client: TestClient) -> None:
    refused = client.post(f"{SUBSCRIPTIONS}/eu/tables", json={**SHARED, "name": "lines", "into_existing": True})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")


def test_deletes_of_a_shared_table_are_not_marked(client: TestClient) -> None:
    one = f"{SUBSCRIPTIONS}/eu/tables/{only(client, 'eu')['id']}"
    refused = client.patch(one, json={"deletes": "mark"})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/deletes")


def test_a_check_of_the_target_is_told(client: TestClient, engine: PlayedEngine) -> None:
    check = "/api/v1/connections/mart/checks"
    refused = client.post(check, json={"role": "target", "tables": [SHARED]})
    assert refused.json()["errors"][0]["pointer"] == "/tables/0/shared_into/source_value"
    engine.answers["preflight"] = {"findings": []}
    into = {"schema": "all", "source_value": "eu"}
    assert client.post(check, json={"role": "target", "tables": [{**ORDERS, "shared_into": into}]}).status_code == 200
    kind, payload = engine.asked[-1]
    shared = {"schema": "all", "name": "orders", "source_column": "source", "source_value": "eu"}
    assert kind == "preflight"
    assert [(t.target.name, t.shared.document()) for t in payload["tables"]] == [("orders__eu", shared)]


def test_a_removed_table_says_whether_its_rows_are_still_shown(client: TestClient, app: FastAPI) -> None:
    table = only(client, "eu")["id"]
    with app.state.database.write() as session:
        row = session.get(TableRow, table)
        row.copied_rows = 2
        session.add(row)
    assert client.delete(f"{SUBSCRIPTIONS}/eu/tables/{table}").status_code == 204
    (event,) = client.get("/api/v1/events", params={"kind": "table_removed"}).json()["items"]
    assert event["detail"].endswith(
        "its rows stay on the target, and the shared table 'all.orders' still shows them as 'eu'."
    )
    (shared,) = client.get(LIST).json()["items"]
    assert [(member["state"], member["target_table"]) for member in shared["members"]] == [("removed", "kept")]
    client.post(f"{SUBSCRIPTIONS}/eu/tables", json=SHARED)
    (shared,) = client.get(LIST).json()["items"]
    assert [member["state"] for member in shared["members"]] == ["registered"]


def test_a_table_that_never_had_rows_is_no_member_any_more(client: TestClient) -> None:
    client.delete(f"{SUBSCRIPTIONS}/eu/tables/{only(client, 'eu')['id']}")
    assert client.get(LIST).json()["items"] == []
    assert client.get("/api/v1/connections/nothing/shared-tables").status_code == 404
