"""Retries: a parked table is tried again, unless an engine finds that it would park again."""

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
from server.gateway.interface import EngineTimeout, EngineUnavailable
from server.lookup.subscriptions import require_subscription
from server.security.principal import Role
from server.subscriptions import reports as subscriptions
from tests.fixtures.app_state import set_table_state
from tests.server.conftest import PlayedEngine

SUBSCRIPTION = "/api/v1/subscriptions/s"
UNFIT = {"code": "table_unfit", "reason": "no partition takes the row", "remedy": "Add one."}


@pytest.fixture
def table(client: TestClient, engine: PlayedEngine, connections: None) -> str:
    engine.answers["preflight"] = {"findings": []}
    body = {"source": "shop", "target": "mart", "tables": [{"schema": "public", "name": "orders"}]}
    assert client.put(SUBSCRIPTION, json=body).status_code == 201
    made: str = client.get(f"{SUBSCRIPTION}/tables").json()["items"][0]["id"]
    return made


def found(code: str, severity: str = "error") -> dict[str, Any]:
    return {"severity": severity, "code": code, "what": f"{code} it is", "remedy": f"Mend {code}."}


def retry(client: TestClient, table: str, **more: Any) -> Any:
    return client.post(f"{SUBSCRIPTION}/tables/{table}/retries", **more)


def reloads(app: FastAPI) -> list[OutboxRow]:
    with app.state.database.read() as session:
        return list(session.exec(select(OutboxRow).where(OutboxRow.kind == "reload")))


def test_a_parked_table_is_copied_anew_behind_a_look(
    client: TestClient, app: FastAPI, engine: PlayedEngine, table: str
) -> None:
    set_table_state(app, table, TableStateKind.PARKED, **UNFIT)
    answer = retry(client, table)
    assert answer.status_code == 202
    assert client.get(answer.headers["Location"]).json() == answer.json()
    assert (answer.json()["table_id"], answer.json()["state"]) == (table, "queued")
    assert [row.payload for row in reloads(app)] == [{"id": answer.json()["id"]}]
    asked = [(kind, asked["role"], [t.table for t in asked["tables"]]) for kind, asked in engine.asked]
    assert asked == [("preflight", "source", [table]), ("preflight", "target", [table])]
    assert [asked.get("capture", {}).get("kind") for _, asked in engine.asked] == ["postgres_log", None]
    (event,) = client.get("/api/v1/events", params={"kind": "table_retried"}).json()["items"]
    assert event["detail"] == (
        "The table 'public.orders' is tried again; it was parked with 'table_unfit': no partition takes the row"
    )
    again = retry(client, table)
    assert (again.status_code, again.json()["code"]) == (409, "reload_running")


@pytest.mark.parametrize(
    "code", ["table_missing", "table_no_identity", "table_name_collision", "table_not_logged", "table_not_published"]
)
def test_what_would_park_it_again_is_told_with_its_remedy(
    client: TestClient, app: FastAPI, engine: PlayedEngine, table: str, code: str
) -> None:
    set_table_state(app, table, TableStateKind.PARKED, **UNFIT)
    engine.answers["preflight"] = {"findings": [found(code), found("generated_columns", "info")]}
    problem = retry(client, table).json()
    assert (problem["status"], problem["code"]) == (409, "cause_remains")
    assert f"{code} it is" in problem["detail"]
    assert "generated" not in problem["detail"]
    assert problem["remedy"] == f"Mend {code}."
    assert [finding["code"] for finding in problem["findings"]] == [code, code]
    assert reloads(app) == []
    assert client.get("/api/v1/events", params={"kind": "table_retried"}).json()["items"] == []


@pytest.mark.parametrize(("parked_with", "status"), [("source_privilege", 409), ("value_out_of_domain", 202)])
def test_a_finding_of_the_source_as_a_whole_counts_where_the_table_parked_with_it(
    client: TestClient, app: FastAPI, engine: PlayedEngine, table: str, parked_with: str, status: int
) -> None:
    set_table_state(app, table, TableStateKind.PARKED, **{**UNFIT, "code": parked_with})
    engine.answers["preflight"] = {"findings": [found("source_privilege"), found("source_no_slots")]}
    assert retry(client, table).status_code == status


@pytest.mark.parametrize(
    "state", [s for s in TableStateKind if s not in {TableStateKind.REMOVED, TableStateKind.PARKED}]
)
def test_a_table_that_is_not_parked_has_nothing_to_retry(
    client: TestClient, app: FastAPI, engine: PlayedEngine, table: str, state: TableStateKind
) -> None:
    set_table_state(app, table, state)
    problem = retry(client, table).json()
    assert (problem["status"], problem["code"]) == (409, "nothing_to_retry")
    assert problem["detail"] == f"'public.orders' is {state.value}."
    assert "reload" in problem["remedy"]
    assert engine.asked == []


def test_a_table_that_waits_is_approved_and_not_retried(
    client: TestClient, app: FastAPI, engine: PlayedEngine, table: str
) -> None:
    why = {"code": "schema_change_waiting", "reason": "ALTER TABLE …", "remedy": "Approve it."}
    set_table_state(app, table, TableStateKind.PARKED, **why)
    problem = retry(client, table).json()
    assert (problem["code"], problem["remedy"]) == ("nothing_to_retry", "Approve it.")
    assert engine.asked == []


def test_a_table_that_is_mended_while_it_is_looked_at_is_left_alone(
    client: TestClient, app: FastAPI, engine: PlayedEngine, table: str
) -> None:
    set_table_state(app, table, TableStateKind.PARKED, **UNFIT)
    real = engine.request

    async def meanwhile(*arguments: Any) -> dict[str, Any]:
        set_table_state(app, table, TableStateKind.LIVE)
        return await real(*arguments)

    engine.request = meanwhile  # type: ignore[method-assign]
    assert retry(client, table).json()["code"] == "nothing_to_retry"
    assert reloads(app) == []


@pytest.mark.parametrize(
    ("error", "status"), [(EngineUnavailable("none is connected"), 503), (EngineTimeout("it took too long"), 504)]
)
def test_an_engine_that_does_not_answer(
    client: TestClient, app: FastAPI, engine: PlayedEngine, table: str, error: Exception, status: int
) -> None:
    set_table_state(app, table, TableStateKind.PARKED, **UNFIT)
    engine.answers["preflight"] = error
    assert retry(client, table).status_code == status
    assert reloads(app) == []


def test_what_is_not_there_or_does_not_run(client: TestClient, app: FastAPI, engine: PlayedEngine, table: str) -> None:
    assert retry(client, "t0").status_code == 404
    assert client.post(f"/api/v1/subscriptions/nope/tables/{table}/retries").status_code == 404
    set_table_state(app, table, TableStateKind.PARKED, **UNFIT)
    with app.state.database.write() as session:
        subscriptions.set_subscription_state(session, require_subscription(session, "s"), SubscriptionState.PAUSED)
    paused = retry(client, table)
    assert (paused.status_code, paused.json()["code"]) == (409, "subscription_not_running")
    assert client.delete(f"{SUBSCRIPTION}/tables/{table}").status_code == 204
    assert retry(client, table).json()["code"] == "table_removed"
    assert engine.asked == []


def test_only_operators_retry(
    client: TestClient, app: FastAPI, engine: PlayedEngine, table: str, as_role: Callable[[Role], dict[str, str]]
) -> None:
    set_table_state(app, table, TableStateKind.PARKED, **UNFIT)
    assert retry(client, table, headers=as_role(Role.VIEWER)).status_code == 403
    assert retry(client, table, headers=as_role(Role.OPERATOR)).status_code == 202
