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
