"""Refused rows over HTTP: the policy of a table, what the engine is asked, what is shown and recorded, and what receipts say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from engine.link.messages import RowsSetAside
from engine.model.table_state import TableStateKind
from server.security.principal import Role
from server.subscriptions.assignment import build_table
from tests.fixtures.app_state import set_table_state
from tests.fixtures.channel import FakeEngine, declare, running_server
from tests.server.conftest import PlayedEngine

SUBSCRIPTION = "/api/v1/subscriptions/s"
SECRET = "a secret value"


def row(number: int, state: str = "set_aside") -> dict[str, Any]:
    """A refused row as the engine reports it."""
    return {
        "row": f"r{number}",
        "state": state,
        "operation": "update",
        "key": [str(number)],
        "columns": [["id", "int4"], ["note", "text"]],
        "values": [str(number), SECRET],
        "code": "row_refused",
        "detail": "the target refused a row (SQLSTATE 23514, cheap)",
        "sqlstate": "23514",
        "position": "0/16B3748",
        "batch": 7,
        "refused_at": "2026-05-04T10:00:00.000+00:00",
        "ended_by": None,
        "ended_at": None,
    }


@pytest.fixture
def table(client: TestClient, app: FastAPI, connections: None) -> str:
    body = {"source": "shop", "target": "mart", "tables": [{"schema": "public", "name": "orders"}]}
    assert client.put(SUBSCRIPTION, json=body).status_code == 201
    made: str = client.get(f"{SUBSCRIPTION}/tables").json()["items"][0]["id"]
    set_table_state(app, made, TableStateKind.LIVE)
    return made


def test_a_tables_policy_is_declared_and_changed(client: TestClient, app: FastAPI, table: str) -> None:
    url = f"{SUBSCRIPTION}/tables/{table}"
    assert client.get(url).json()["refused_rows"] == "park"
    for given, shown in (("set_aside", "set_aside"), (None, "park")):
        assert client.patch(url, json={"refused_rows": given}).json()["refused_rows"] == shown
        with app.state.database.read() as session:
            assert build_table(session, table).refused_rows == shown
    assert client.patch(url, json={"refused_rows": "drop"}).status_code == 422
    body = {"tables": [{"schema": "public", "name": "orders", "refused_rows": "set_aside"}]}
    assert client.patch(SUBSCRIPTION, json=body).json()["tables"][0]["refused_rows"] == "set_aside"


def test_rows_are_listed_by_pages_as_the_engine_has_them(
    client: TestClient, engine: PlayedEngine, table: str, as_role: Callable[[Role], dict[str, str]]
) -> None:
    url = f"{SUBSCRIPTION}/tables/{table}/refused-rows"
    engine.answers["refused_rows"] = {"rows": [row(n) for n in range(3)]}
    first = client.get(url, params={"page_size": 2}, headers=as_role(Role.VIEWER)).json()
    assert [item["id"] for item in first["items"]] == ["r0", "r1"]
    assert first["items"][0] == {
        "id": "r0",
        "state": "set_aside",
        "operation": "update",
        "key": ["0"],
        "values": [
            {"column": "id", "type": "int4", "value": "0"},
            {"column": "note", "type": "text", "value": SECRET},
        ],
        "cause": {
            "code": "row_refused",
            "detail": "the target refused a row (SQLSTATE 23514, cheap)",
            "sqlstate": "23514",
        },
        "position": "0/16B3748",
        "batch": 7,
        "refused_at": "2026-05-04T10:00:00Z",
        "skipped_by": None,
        "skipped_at": None,
    }
    rest = client.get(url, params={"page_size": 2, "page_token": first["next_page_token"]}).json()
    assert ([item["id"] for item in rest["items"]], rest["next_page_token"]) == (["r2"], None)
    assert engine.asked[0] == (
        "refused_rows",
        {"subscription": "s", "table": table, "action": "list", "rows": None, "by": ""},
    )


@pytest.mark.parametrize("path", ["", "/r1"])
@pytest.mark.parametrize(("verb", "action", "kind"), [("retries", "retry", "retried"), ("skips", "skip", "skipped")])
def test_rows_are_dealt_with_and_that_is_recorded(
    client: TestClient,
    engine: PlayedEngine,
    table: str,
    as_role: Callable[[Role], dict[str, str]],
    path: str,
    verb: str,
    action: str,
    kind: str,
) -> None:
    url = f"{SUBSCRIPTION}/tables/{table}/refused-rows{path}/{verb}"
    engine.answers["refused_rows"] = {"found": 2, "done": ["r1"], "left": 4}
    assert client.post(url, headers=as_role(Role.VIEWER)).status_code == 403
    answer = client.post(url, headers=as_role(Role.OPERATOR))
    assert (answer.status_code, answer.json()) == (200, {"done": ["r1"], "rows_set_aside": 4})
    asked = engine.asked[-1][1]
    assert (asked["action"], asked["rows"], asked["by"]) == (action, ["r1"] if path else None, "a-operator")
    assert client.get(f"{SUBSCRIPTION}/tables/{table}").json()["rows_set_aside"] == 4
    (event,) = client.get("/api/v1/events", params={"kind": f"refused_rows_{kind}"}).json()["items"]
    assert event["detail"].startswith("1 refused rows of 'public.orders'")
    assert "'a-operator'" in event["detail"]


def test_what_cannot_be_is_refused_before_or_behind_the_engine(
    client: TestClient, app: FastAPI, engine: PlayedEngine, table: str
) -> None:
    url = f"{SUBSCRIPTION}/tables/{table}/refused-rows"
    engine.answers["refused_rows"] = {"found": 0, "done": [], "left": 0}
    gone = client.post(f"{url}/none/skips")
    assert (gone.status_code, gone.json()["code"]) == (404, "not_found")
    assert client.post(f"{SUBSCRIPTION}/tables/none/refused-rows/skips").status_code == 404
    asked = len(engine.asked)
    set_table_state(app, table, TableStateKind.PARKED, code="row_refused", reason="It refused.", remedy="Mend it.")
    parked = client.post(f"{url}/retries")
    assert (parked.status_code, parked.json()["code"]) == (409, "table_not_live")
    assert len(engine.asked) == asked
    engine.answers["refused_rows"] = {"rows": [row(1, "parked")]}
    assert client.get(url).json()["items"][0]["state"] == "parked"


def test_a_receipt_says_how_many_rows_stand_aside(tmp_path: Path) -> None:
    with running_server(tmp_path) as server, server.client() as client:
        declare(client)
        engine = FakeEngine(server.url)
        try:
            assign = engine.run()
            table = assign.tables[0]
            told = {"subscription": "orders", "epoch": assign.epoch}
            engine.link.report(RowsSetAside(**told, counts={table.table: 2}))
            assert engine.link.flush(10)
            body = {"position": "0/40", "timeout_ms": 5000}
            receipt = client.post("/subscriptions/orders/freshness-waits", json=body).json()["receipt"]
            name = {"schema": "public", "name": table.source.name}
            assert receipt["exceptions"] == [{**name, "kind": "rows_set_aside", "rows": 2}]
            assert client.get(f"/subscriptions/orders/tables/{table.table}").json()["rows_set_aside"] == 2
            engine.link.report(RowsSetAside(**told, counts={}, whole=True))
            assert engine.link.flush(10)
            receipt = client.post("/subscriptions/orders/freshness-waits", json=body).json()["receipt"]
            assert receipt["exceptions"] == []
        finally:
            engine.close()
