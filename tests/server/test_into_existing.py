"""`into_existing` of a table over REST: declared, shown, sent to the engine, changed, and refused by a target that does not support it."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.fixtures.app_state import read_assigned
from tests.server.conftest import PlayedEngine

URL = "/api/v1/subscriptions/s"
INTO = {"schema": "public", "name": "orders", "into_existing": True}
PLAIN = {"schema": "public", "name": "lines"}
DETAIL = "A target of the kind duckdb does not support into_existing."


@pytest.fixture(autouse=True)
def a_copy(client: TestClient, connections: None) -> None:
    body = {
        "kind": "postgres",
        "settings": {"host": "h", "database": "copy", "user": "u"},
        "secrets": {"password": "p"},
    }
    assert client.put("/api/v1/connections/copy", json=body).status_code == 201


def read_into_existing(app: FastAPI) -> dict[str, bool]:
    """By source name, as an engine takes it from the assignment."""
    return {table.source.name: table.into_existing for table in read_assigned(app).tables}


def test_what_was_declared_is_shown_told_and_can_be_changed(client: TestClient, app: FastAPI) -> None:
    body = {"source": "shop", "target": "copy", "tables": [INTO, PLAIN]}
    assert client.put(URL, json=body).status_code == 201
    shown = {table["name"]: table for table in client.get(f"{URL}/tables").json()["items"]}
    assert {name: table["into_existing"] for name, table in shown.items()} == {"orders": True, "lines": False}
    assert read_into_existing(app) == {"orders": True, "lines": False}
    declared = {table["name"]: table for table in client.get(URL).json()["tables"]}
    assert declared["orders"]["into_existing"] is True
    for value, kept in ((None, False), (True, True)):
        answer = client.patch(f"{URL}/tables/{shown['orders']['id']}", json={"into_existing": value})
        assert (answer.status_code, answer.json()["into_existing"]) == (200, kept)
        assert read_into_existing(app)["orders"] is kept
    assert client.put(URL, json={**body, "tables": [PLAIN, {**INTO, "into_existing": False}]}).status_code == 200
    assert read_into_existing(app) == {"orders": False, "lines": False}


def test_a_target_that_takes_none_so_refuses_it(client: TestClient, app: FastAPI, engine: PlayedEngine) -> None:
    tables = [PLAIN, INTO, {"schema": "public", "name": "*", "into_existing": True}]
    refused = [client.put(URL, json={"source": "shop", "target": "mart", "tables": tables})]
    pointers = [["/tables/1/into_existing", "/tables/2/into_existing"]]
    assert client.put(URL, json={"source": "shop", "target": "mart", "tables": [PLAIN]}).status_code == 201
    one = client.get(f"{URL}/tables").json()["items"][0]["id"]
    refused.append(client.patch(URL, json={"tables": [INTO]}))
    refused.append(client.post("/api/v1/connections/mart/checks", json={"role": "target", "tables": [INTO]}))
    refused.append(client.post(f"{URL}/tables", json=INTO))
    refused.append(client.patch(f"{URL}/tables/{one}", json={"into_existing": True}))
    pointers += [["/tables/0/into_existing"]] * 2 + [["/into_existing"]] * 2
    for answer, wrong in zip(refused, pointers, strict=True):
        problem: dict[str, Any] = answer.json()
        assert (answer.status_code, problem["code"], problem["detail"]) == (422, "into_existing_unsupported", DETAIL)
        assert [error["pointer"] for error in problem["errors"]] == wrong
    assert engine.asked == []
    assert read_into_existing(app) == {"lines": False}
