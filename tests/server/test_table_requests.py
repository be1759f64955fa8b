"""What is asked of a table is an event with its name as the subject: its time line. What changes nothing is none."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from engine.model.subscription_state import SubscriptionState
from engine.model.table_state import TableStateKind
from server.lookup.subscriptions import require_subscription
from server.subscriptions import reports as subscriptions
from server.tables import reports
from tests.server.conftest import PlayedEngine

SUBSCRIPTION = "/api/v1/subscriptions/s"
DECLARED = {"source": "shop", "target": "mart", "tables": [{"schema": "public", "name": "orders"}]}


@pytest.fixture
def table(client: TestClient, engine: PlayedEngine, connections: None) -> str:
    """The address of a live table of a running subscription."""
    assert client.put(SUBSCRIPTION, json=DECLARED).status_code == 201
    made: str = client.get(f"{SUBSCRIPTION}/tables").json()["items"][0]["id"]
    return f"{SUBSCRIPTION}/tables/{made}"


@pytest.fixture
def live(app: FastAPI, table: str) -> str:
    with app.state.database.write() as session:
        subscriptions.set_subscription_state(session, require_subscription(session, "s"), SubscriptionState.RUNNING)
    report(app, table, TableStateKind.LIVE)
    return table


def report(app: FastAPI, table: str, state: TableStateKind, **why: str) -> None:
    with app.state.database.write() as session:
        assert reports.set_state(session, table.rsplit("/", 1)[1], state, **why)


def read_events(client: TestClient, **only: str) -> list[dict[str, Any]]:
    """Events about the table, the oldest first."""
    query = {"subscription": "s", "subject": "public.orders", **only}
    items: list[dict[str, Any]] = client.get("/api/v1/events", params=query).json()["items"]
    return items[::-1]


def test_a_pause_and_its_end_stand_with_the_states_that_they_brought(
    client: TestClient, app: FastAPI, live: str
) -> None:
    for _ in range(2):
        client.patch(live, json={"desired_state": "paused"})
    report(app, live, TableStateKind.PAUSED)
    for _ in range(2):
        client.patch(live, json={"desired_state": "running"})
    assert [(event["kind"], event["table_state"], event["detail"]) for event in read_events(client)] == [
        ("table_added", "registered", "The table 'public.orders' was added."),
        ("table_live", "live", "The table 'public.orders' is live."),
        ("table_pause_asked", None, "The table 'public.orders' was requested to be paused; it is live."),
        ("table_paused", "paused", "The table 'public.orders' is paused."),
        ("table_resume_asked", None, "The table 'public.orders' was requested to be running; it is paused."),
    ]


def test_a_pause_that_is_refused_was_not_asked(client: TestClient, app: FastAPI, live: str) -> None:
    report(app, live, TableStateKind.RELOADING)
    assert client.patch(live, json={"desired_state": "paused"}).status_code == 409
    assert read_events(client, kind="table_pause_asked") == []


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"priority": 3}, "has new settings: priority"),
        ({"columns": {"n": {"map_as": "text"}}}, "has new settings: columns; from its next copy on"),
        ({"priority": 3, "key": ["a"]}, "has new settings: key, priority; from its next copy on: key"),
    ],
)
def test_settings_tell_whether_they_wait_for_a_copy(
    client: TestClient, live: str, given: dict[str, Any], what: str
) -> None:
    for _ in range(2):
        assert client.patch(live, json=given).status_code == 200
    (event,) = read_events(client, kind="table_settings_changed")
    assert (event["detail"], event["remedy"]) == (f"The table 'public.orders' {what}.", None)


def test_settings_of_a_parked_table_wait_for_a_reload(client: TestClient, app: FastAPI, live: str) -> None:
    report(app, live, TableStateKind.PARKED, code="value_out_of_domain", reason="NaN")
    client.patch(live, json={"priority": 3, "rename": {"a": "b"}})
    (event,) = read_events(client, kind="table_settings_changed")
    assert event["detail"].endswith("has new settings: rename, priority; from its next copy on: rename.")
    assert event["remedy"] == "POST /subscriptions/{name}/tables/{table_id}/reloads applies them."


def test_settings_of_a_table_that_was_not_copied_yet_wait_for_nothing(client: TestClient, table: str) -> None:
    client.patch(table, json={"key": ["a"]})
    (event,) = read_events(client, kind="table_settings_changed")
    assert (event["detail"], event["remedy"]) == ("The table 'public.orders' has new settings: key.", None)


def test_settings_that_the_whole_declaration_changes_are_told_too(client: TestClient, live: str) -> None:
    for _ in range(2):
        body = {**DECLARED, "tables": [{"schema": "public", "name": "orders", "priority": 5}]}
        assert client.put(SUBSCRIPTION, json=body).status_code == 200
    (event,) = read_events(client, kind="table_settings_changed")
    assert event["detail"] == "The table 'public.orders' has new settings: priority."


def test_a_reload_and_its_cancelling(client: TestClient, live: str) -> None:
    where = client.post(f"{live}/reloads").headers["Location"]
    assert client.post(f"{live}/reloads").status_code == 409
    assert client.delete(where).status_code == 204
    assert client.delete(where).status_code == 409
    assert [(event["kind"], event["detail"]) for event in read_events(client)][2:] == [
        ("table_reload_asked", "The table 'public.orders' was requested to be reloaded; it is live."),
        ("table_reload_cancelled", "The table 'public.orders' shall not be reloaded after all; it is live."),
    ]


def test_a_reload_of_all_tables_is_asked_of_the_subscription(client: TestClient, live: str) -> None:
    where = client.post(f"{SUBSCRIPTION}/reloads").headers["Location"]
    refused = client.delete(where)
    assert (refused.status_code, refused.json()["code"]) == (409, "reload_not_cancellable")
    assert client.get(where).json()["state"] == "queued"
    (event,) = client.get("/api/v1/events", params={"subscription": "s", "page_size": 1}).json()["items"]
    assert (event["kind"], event["subject"]) == ("reload_asked", None)
    assert event["detail"] == "All tables of 's' shall be reloaded; it is running."


def test_trying_again_is_one_request(client: TestClient, app: FastAPI, engine: PlayedEngine, live: str) -> None:
    engine.answers["preflight"] = {"findings": []}
    report(app, live, TableStateKind.PARKED, code="table_unfit", reason="no partition takes the row")
    assert client.post(f"{live}/retries").status_code == 202
    kinds = [(event["kind"], event["table_state"]) for event in read_events(client)]
    assert kinds[2:] == [("table_unfit", "parked"), ("table_retried", None)]


def test_removal_is_a_state(client: TestClient, live: str) -> None:
    assert client.delete(live).status_code == 204
    assert [(event["kind"], event["table_state"]) for event in read_events(client)][-1] == ("table_removed", "removed")


def test_a_subject_is_meant_exactly_and_bound_to_its_pages(client: TestClient, live: str) -> None:
    for name in ("order", "orders_old", "ORDERS"):
        body = {"schema": "public", "name": name, "target": {"name": f"t_{len(name)}_{name[0]}"}}
        assert client.post(f"{SUBSCRIPTION}/tables", json=body).status_code == 201
    assert {event["subject"] for event in read_events(client)} == {"public.orders"}
    assert read_events(client, subject="public.order%") == []
    query = {"subject": "public.orders", "page_size": 1}
    first = client.get("/api/v1/events", params=query).json()
    rest = client.get("/api/v1/events", params={**query, "page_token": first["next_page_token"]}).json()
    assert [event["kind"] for event in first["items"] + rest["items"]] == ["table_live", "table_added"]
    assert rest["next_page_token"] is None
    other = {"subject": "public.order", "page_token": first["next_page_token"]}
    assert client.get("/api/v1/events", params=other).json()["code"] == "page_token_invalid"
