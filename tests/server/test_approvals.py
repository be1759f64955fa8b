"""Approvals: a table that waits with a change of structure continues once a user with the right, who has seen the change, approves it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlmodel import select

from engine.model.subscription_state import SubscriptionState
from engine.model.table_state import TableStateKind
from server.db.models.outbox import OutboxRow
from server.engines.commands import outbox_commands
from server.lookup.subscriptions import require_subscription
from server.security.principal import Role
from server.subscriptions import reports as subscriptions
from tests.fixtures.app_state import set_table_state
from tests.server.conftest import PlayedEngine

SUBSCRIPTION = "/api/v1/subscriptions/s"
WAITING = {
    "code": "schema_change_waiting",
    "reason": 'ALTER TABLE "public"."orders" ADD COLUMN "note" text',
    "remedy": "Approve it.",
}


@pytest.fixture
def table(client: TestClient, engine: PlayedEngine, connections: None) -> str:
    body = {"source": "shop", "target": "mart", "tables": [{"schema": "public", "name": "orders"}]}
    body["schema_changes"] = {"policy": "ask"}
    assert client.put(SUBSCRIPTION, json=body).status_code == 201
    made: str = client.get(f"{SUBSCRIPTION}/tables").json()["items"][0]["id"]
    return made


def put_state(app: FastAPI, state: SubscriptionState, **why: str) -> None:
    with app.state.database.write() as session:
        subscriptions.set_subscription_state(session, require_subscription(session, "s"), state, **why)


def url(table: str) -> str:
    return f"{SUBSCRIPTION}/tables/{table}/approvals"


def approvals(app: FastAPI) -> list[OutboxRow]:
    with app.state.database.read() as session:
        return list(session.exec(select(OutboxRow).where(OutboxRow.kind == "approve")))


@pytest.mark.parametrize("body", [None, {}, {"reason": None}, {"reason": WAITING["reason"]}])
def test_a_table_that_waits_is_approved(client: TestClient, app: FastAPI, table: str, body: Any) -> None:
    set_table_state(app, table, TableStateKind.PARKED, **WAITING)
    answer = client.post(url(table), **({} if body is None else {"json": body}))
    assert answer.status_code == 202
    shown = client.get(f"{SUBSCRIPTION}/tables/{table}")
    assert (answer.json(), answer.headers["ETag"]) == (shown.json(), shown.headers["ETag"])
    assert answer.headers["Location"] == f"{SUBSCRIPTION}/tables/{table}"
    assert (shown.json()["state"], shown.json()["code"]) == ("parked", WAITING["code"])
    assert [(row.subscription, row.payload) for row in approvals(app)] == [
        ("s", {"table": table, "reason": WAITING["reason"]})
    ]
    event = client.get("/api/v1/events", params={"kind": "schema_change_approved"}).json()["items"][0]
    assert (event["severity"], event["subject"], event["subscription"]) == ("info", "public.orders", "s")
    assert WAITING["reason"] in event["detail"]


def test_what_nobody_has_seen_is_not_approved(client: TestClient, app: FastAPI, table: str) -> None:
    set_table_state(app, table, TableStateKind.PARKED, **{**WAITING, "reason": "ALTER TABLE … DROP COLUMN"})
    answer = client.post(url(table), json={"reason": WAITING["reason"]})
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (409, "approval_outdated")
    assert problem["reason"] == "ALTER TABLE … DROP COLUMN"
    assert problem["detail"].endswith("waits for the approval of another change now: ALTER TABLE … DROP COLUMN")
    assert problem["remedy"] == "Look at the change that now waits for approval, and approve it by its reason."
    assert client.post(url(table), json={"reason": ""}).json()["code"] == "approval_outdated"
    assert approvals(app) == []


@pytest.mark.parametrize("state", [state for state in TableStateKind if state is not TableStateKind.REMOVED])
def test_a_table_that_waits_with_nothing_has_nothing_to_approve(
    client: TestClient, app: FastAPI, table: str, state: TableStateKind
) -> None:
    set_table_state(app, table, state)
    answer = client.post(url(table), json={"reason": WAITING["reason"]})
    assert (answer.status_code, answer.json()["code"]) == (409, "nothing_to_approve")
    assert state.value in answer.json()["detail"]
    assert "schema_change_waiting" in answer.json()["remedy"]
    assert approvals(app) == []


def test_a_table_that_is_parked_for_something_else_tells_its_own_remedy(
    client: TestClient, app: FastAPI, table: str
) -> None:
    why = {"code": "value_out_of_domain", "reason": "A value does not fit.", "remedy": "Map the column as text."}
    set_table_state(app, table, TableStateKind.PARKED, **why)
    problem = client.post(url(table)).json()
    assert (problem["code"], problem["remedy"]) == ("nothing_to_approve", why["remedy"])
    assert problem["detail"] == "'public.orders' is parked with the code 'value_out_of_domain': A value does not fit."


def test_what_is_not_there_cannot_be_approved(client: TestClient, app: FastAPI, table: str) -> None:
    assert client.post(url("t0")).status_code == 404
    assert client.post(f"/api/v1/subscriptions/nope/tables/{table}/approvals").status_code == 404
    assert client.delete(f"{SUBSCRIPTION}/tables/{table}").status_code == 204
    removed = client.post(url(table))
    assert (removed.status_code, removed.json()["code"]) == (409, "table_removed")


@pytest.mark.parametrize(("body", "pointer"), [({"reason": 1}, "/reason"), ({"why": "x"}, "/why"), ([], "")])
def test_a_wrong_body_is_pointed_at(client: TestClient, app: FastAPI, table: str, body: Any, pointer: str) -> None:
    set_table_state(app, table, TableStateKind.PARKED, **WAITING)
    answer = client.post(url(table), json=body)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
    assert approvals(app) == []


def test_nobody_is_told_while_nothing_runs(client: TestClient, app: FastAPI, engine: PlayedEngine, table: str) -> None:
    set_table_state(app, table, TableStateKind.PARKED, **WAITING)
    engine.connected = False
    away = client.post(url(table))
    assert (away.status_code, away.json()["code"]) == (503, "engine_unavailable")
    engine.connected = True
    put_state(app, SubscriptionState.PAUSED)
    paused = client.post(url(table))
    assert (paused.status_code, paused.json()["code"]) == (409, "subscription_not_running")
    assert paused.json()["remedy"] == "Set its desired_state to 'running' first."
    assert approvals(app) == []
    assert client.get("/api/v1/events", params={"kind": "schema_change_approved"}).json()["items"] == []


def test_only_operators_approve(
    client: TestClient, app: FastAPI, table: str, as_role: Callable[[Role], dict[str, str]]
) -> None:
    set_table_state(app, table, TableStateKind.PARKED, **WAITING)
    assert client.post(url(table), headers=as_role(Role.VIEWER)).status_code == 403
    assert client.post(url(table), headers=as_role(Role.OPERATOR)).status_code == 202
    assert len(approvals(app)) == 1


def test_an_idempotency_key_makes_one_approval_of_two_requests(client: TestClient, app: FastAPI, table: str) -> None:
    set_table_state(app, table, TableStateKind.PARKED, **WAITING)
    key, body = {"Idempotency-Key": "once"}, {"reason": WAITING["reason"]}
    first = client.post(url(table), json=body, headers=key)
    set_table_state(app, table, TableStateKind.LIVE)
    again = client.post(url(table), json=body, headers=key)
    assert (again.status_code, again.json()) == (202, first.json())
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.headers["Location"] == first.headers["Location"]
    other = client.post(url(table), json={}, headers=key)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert len(approvals(app)) == 1


def test_an_approval_that_has_become_moot_does_not_leave(client: TestClient, app: FastAPI, table: str) -> None:
    set_table_state(app, table, TableStateKind.PARKED, **WAITING)
    assert client.post(url(table)).status_code == 202

    def leaving() -> list[str]:
        with app.state.database.write() as session:
            rows = session.exec(select(OutboxRow).where(OutboxRow.kind == "approve"))
            return [command.kind for _, command in outbox_commands(session, app.state.secret_box, rows)]

    assert leaving() == ["approve"]
    set_table_state(app, table, TableStateKind.RELOADING)
    assert leaving() == []
