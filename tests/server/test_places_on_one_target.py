"""Several subscriptions into one target: what each may put where."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.server.conftest import PlayedEngine

SUBSCRIPTIONS = "/api/v1/subscriptions"
ORDERS = {"schema": "public", "name": "orders"}


def body(*tables: dict[str, Any], source: str = "shop") -> dict[str, Any]:
    return {"source": source, "target": "mart", "tables": list(tables)}


@pytest.fixture
def eu(client: TestClient, engine: PlayedEngine, connections: None) -> None:
    """`eu` has its orders in the target; `us` is another source."""
    settings = {"host": "us", "database": "shop", "user": "penstock"}
    client.put("/api/v1/connections/us", json={"kind": "postgres", "settings": settings})
    assert client.put(f"{SUBSCRIPTIONS}/eu", json=body(ORDERS)).status_code == 201


@pytest.mark.usefixtures("eu")
def test_a_place_that_another_subscription_has_is_refused_with_its_name(client: TestClient) -> None:
    refused = client.put(f"{SUBSCRIPTIONS}/us", json=body({**ORDERS, "name": "lines"}, ORDERS, source="us"))
    problem = refused.json()
    assert (refused.status_code, problem["code"], problem["errors"][0]["pointer"]) == (
        422,
        "invalid_request",
        "/tables/1",
    )
    assert problem["detail"] == (
        "'public.orders' and 'public.orders of the subscription eu' would be the same table on the target: 'public.orders'."
    )
    assert problem["remedy"] == "Give one of them another target name or schema."
    assert client.get(f"{SUBSCRIPTIONS}/us").status_code == 404


@pytest.mark.usefixtures("eu")
def test_each_may_have_a_schema_of_its_own(client: TestClient, engine: PlayedEngine) -> None:
    found = [{"schema": "public", "name": name, "key": ["id"], "identity": "default"} for name in ("orders", "lines")]
    engine.answers["discover"] = {"tables": found}
    pattern = {"schema": "public", "name": "*", "target": {"schema": "us"}}
    assert client.put(f"{SUBSCRIPTIONS}/us", json=body(pattern, source="us")).status_code == 201
    tables = client.get(f"{SUBSCRIPTIONS}/us/tables").json()["items"]
    assert {table["target"]["schema"] for table in tables} == {"us"}
    added = client.post(
        f"{SUBSCRIPTIONS}/us/tables", json={"schema": "other", "name": "orders", "target": {"schema": "PUBLIC"}}
    )
    assert added.status_code == 422
    assert "of the subscription eu" in added.json()["detail"]


@pytest.mark.usefixtures("connections")
def test_schemas_are_mapped_for_all_their_tables(client: TestClient, engine: PlayedEngine) -> None:
    found = [
        {"schema": schema, "name": name, "key": ["id"], "identity": "default"}
        for schema, name in (("sales", "lines"), ("sales", "orders"), ("stock", "items"))
    ]
    engine.answers["discover"] = {"tables": found}
    tables: list[dict[str, Any]] = [
        ORDERS,
        {"schema": "public", "name": "people", "target": {"name": "persons"}},
        {"schema": "public", "name": "own", "target": {"schema": "elsewhere"}},
        {"schema": "sales", "name": "*"},
        {"schema": "stock", "name": "*"},
    ]
    given = {**body(*tables), "target_schemas": {"public": "shop", "sales": "shop_sales"}}
    assert client.put(f"{SUBSCRIPTIONS}/s", json=given).status_code == 201
    places = {
        f"{table['schema']}.{table['name']}": f"{table['target']['schema']}.{table['target']['name']}"
        for table in client.get(f"{SUBSCRIPTIONS}/s/tables").json()["items"]
    }
    assert places == {
        "public.orders": "shop.orders",
        "public.people": "shop.persons",
        "public.own": "elsewhere.own",
        "sales.lines": "shop_sales.lines",
        "sales.orders": "shop_sales.orders",
        "stock.items": "stock.items",
    }
    shown = client.get(f"{SUBSCRIPTIONS}/s").json()["tables"]
    assert [table["target"] for table in shown if table["name"] == "*"] == [
        {"schema": "shop_sales", "name": None},
        None,
    ]
    for same in (given, {**body(), "tables": shown}):
        assert client.post(f"{SUBSCRIPTIONS}/s/plans", json=same).json()["result"] == "unchanged"
    moved = client.put(f"{SUBSCRIPTIONS}/s", json=body(*tables))
    assert (moved.status_code, moved.json()["code"]) == (409, "table_target_fixed")


@pytest.mark.usefixtures("eu")
def test_mapped_schemas_collide_like_others(client: TestClient, engine: PlayedEngine) -> None:
    engine.answers["discover"] = {"tables": []}
    lines = {"schema": "sales", "name": "orders"}
    both = {**body(ORDERS, lines, source="us"), "target_schemas": {"public": "one", "sales": "one"}}
    refused = client.put(f"{SUBSCRIPTIONS}/us", json=both).json()
    assert (
        refused["detail"] == "'sales.orders' and 'public.orders' would be the same table on the target: 'one.orders'."
    )
    taken = {**body(lines, source="us"), "target_schemas": {"sales": "public"}}
    assert "of the subscription eu" in client.put(f"{SUBSCRIPTIONS}/us", json=taken).json()["detail"]
    reserved = {**body(lines, source="us"), "target_schemas": {"sales": "penstock"}}
    assert "is reserved" in client.put(f"{SUBSCRIPTIONS}/us", json=reserved).json()["detail"]
    unused = {**body(lines, source="us"), "target_schemas": {"sails": "x"}}
    assert "'sails'" in client.put(f"{SUBSCRIPTIONS}/us", json=unused).json()["errors"][0]["detail"]
    alone = client.patch(f"{SUBSCRIPTIONS}/eu", json={"target_schemas": {"public": "x"}})
    assert (alone.status_code, "send both" in alone.json()["errors"][0]["detail"]) == (422, True)


@pytest.mark.usefixtures("connections")
def test_the_rows_of_a_shared_table_are_mapped_with_it(client: TestClient) -> None:
    shared = {**ORDERS, "shared_into": {"source_value": "eu"}}
    own = {
        "schema": "public",
        "name": "lines",
        "target": {"name": "l"},
        "shared_into": {"schema": "all", "source_value": "eu"},
    }
    given = {**body(shared, own), "target_schemas": {"public": "shop"}}
    assert client.put(f"{SUBSCRIPTIONS}/s", json=given).status_code == 201
    tables = {table["name"]: table for table in client.get(f"{SUBSCRIPTIONS}/s/tables").json()["items"]}
    assert tables["orders"]["target"] == {"schema": "shop", "name": "orders__eu"}
    assert tables["orders"]["shared_into"]["schema"] == "shop"
    assert tables["lines"]["target"] == {"schema": "shop", "name": "l"}
    assert tables["lines"]["shared_into"]["schema"] == "all"


@pytest.mark.usefixtures("eu")
def test_a_place_is_free_again_when_its_table_was_removed(client: TestClient) -> None:
    mine = client.get(f"{SUBSCRIPTIONS}/eu/tables").json()["items"][0]["id"]
    assert client.delete(f"{SUBSCRIPTIONS}/eu/tables/{mine}", params={"target_table": "drop"}).status_code == 204
    assert client.put(f"{SUBSCRIPTIONS}/us", json=body(ORDERS, source="us")).status_code == 201


@pytest.mark.usefixtures("eu")
def test_another_target_is_another_place(client: TestClient) -> None:
    client.put("/api/v1/connections/other", json={"kind": "duckdb", "settings": {"path": "/data/other.duckdb"}})
    made = client.put(f"{SUBSCRIPTIONS}/us", json={**body(ORDERS, source="us"), "target": "other"})
    assert made.status_code == 201
