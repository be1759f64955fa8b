"""Tables that appear on the source while a subscription runs: its patterns take them in, and nothing else does."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlmodel import select

from engine.link.messages import FoundTable, Registration, Report, TableRenamed, TablesFound
from server.db.models.outbox import OutboxRow
from server.engines import assignments, reports
from server.lookup.subscriptions import require_subscription
from server.subscriptions.assignment import build_assignment
from tests.server.conftest import PlayedEngine

URL = "/api/v1/subscriptions/s"
PATTERN = {"schema": "public", "name": "order_*", "exclude": ["*_old"], "target": {"schema": "mart"}}


class Reporting:
    """An engine that holds the subscription."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._sequence = 0
        with app.state.database.write() as session:
            made = Registration(instance="i", name="e", version="1")
            self._id = assignments.register_engine(session, made).id
            self._epoch = assignments.claim_subscriptions(session, self._id, lambda _: True, lambda _: True)["s"]

    def report(self, *made: Report) -> None:
        self._sequence += 1
        with self._app.state.database.write() as session:
            reports.write_reports(session, self._id, self._sequence, made)

    def found(self, *names: str, identity: bool = True) -> TablesFound:
        tables = tuple(FoundTable(schema="public", name=name, identity=identity) for name in names)
        return TablesFound(subscription="s", epoch=self._epoch, tables=tables)

    def renamed(self, table: str, name: str) -> TableRenamed:
        return TableRenamed(subscription="s", epoch=self._epoch, table=table, schema="public", name=name)


def discovered(*names: str) -> dict[str, Any]:
    return {"tables": [{"schema": "public", "name": name, "key": ["id"], "identity": "default"} for name in names]}


@pytest.fixture
def body() -> dict[str, Any]:
    return {"source": "shop", "target": "mart", "tables": [PATTERN]}


@pytest.fixture
def reporting(
    client: TestClient, app: FastAPI, engine: PlayedEngine, connections: None, body: dict[str, Any]
) -> Reporting:
    engine.answers["discover"] = discovered("order_1", "order_1_old", "other")
    assert client.put(URL, json=body).status_code == 201
    return Reporting(app)


def tables(client: TestClient, **which: str) -> dict[str, Any]:
    return {row["name"]: row for row in client.get(f"{URL}/tables", params=which).json()["items"]}


def read_events(client: TestClient, kind: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = client.get("/api/v1/events", params={"kind": kind}).json()["items"]
    return items


def test_an_engine_is_told_what_to_look_for(app: FastAPI, client: TestClient, reporting: Reporting) -> None:
    assert tables(client).keys() == {"order_1"}
    assert client.get(URL).json()["tables"][0]["exclude"] == ["*_old"]
    with app.state.database.read() as session:
        assert build_assignment(session, app.state.secret_box, "s")["patterns"] == [
            {"schema": "public", "name": "order_*", "exclude": ["*_old"]}
        ]


def test_a_table_that_appears_is_declared_as_its_pattern_says(
    app: FastAPI, client: TestClient, reporting: Reporting
) -> None:
    for _ in range(2):
        reporting.report(reporting.found("order_1", "order_2", "order_2_old", "unknown"))
    added = tables(client)
    assert added.keys() == {"order_1", "order_2"}
    assert added["order_2"]["target"] == {"schema": "mart", "name": "order_2"}
    assert (added["order_2"]["state"], added["order_2"]["from_pattern"]) == ("registered", True)
    events = [event["detail"] for event in read_events(client, "table_added")]
    assert events[0] == "The table 'public.order_2' appeared on the source and was added by a pattern."
    versions = client.get(f"{URL}/tables/{added['order_2']['id']}/versions").json()["items"]
    assert [version["state"] for version in versions] == ["registered"]
    with app.state.database.read() as session:
        rows = session.exec(select(OutboxRow).where(OutboxRow.kind == "assign"))
        assert [row.subscription for row in rows] == ["s", "s"]


@pytest.mark.parametrize(("identity", "insert_only"), [(True, False), (False, True)])
def test_consent_to_inserts_only_counts_where_there_is_no_identity(
    client: TestClient, reporting: Reporting, body: dict[str, Any], identity: bool, insert_only: bool
) -> None:
    client.put(URL, json={**body, "tables": [{**PATTERN, "insert_only": True}]})
    reporting.report(reporting.found("order_2", identity=identity))
    assert tables(client)["order_2"]["insert_only"] is insert_only


def test_a_table_that_its_user_removed_stays_out_until_it_is_named(
    client: TestClient, reporting: Reporting, body: dict[str, Any]
) -> None:
    assert client.delete(f"{URL}/tables/{tables(client)['order_1']['id']}").status_code == 204
    reporting.report(reporting.found("order_1"))
    assert client.put(URL, json=body).status_code == 200
    assert tables(client) == {}
    again = client.post(f"{URL}/tables", json={"schema": "public", "name": "order_1", "target": {"schema": "mart"}})
    assert again.status_code == 201
    assert client.put(URL, json=body).status_code == 200
    assert tables(client)["order_1"]["from_pattern"] is True
    client.put(URL, json={**body, "tables": []})
    reporting.report(reporting.found("order_1"))
    assert tables(client) == {}
    client.put(URL, json=body)
    assert tables(client).keys() == {"order_1"}


def test_a_table_with_no_place_on_the_target_is_told_and_the_others_are_taken(
    client: TestClient, reporting: Reporting
) -> None:
    taken = {"schema": "mart", "name": "ORDER_2", "target": {"schema": "mart", "name": "ORDER_2"}}
    assert client.post(f"{URL}/tables", json=taken).status_code == 201
    reporting.report(reporting.found("order_2", "order_3"))
    assert tables(client, schema="public").keys() == {"order_1", "order_3"}
    (event,) = read_events(client, "table_not_taken_in")
    assert (event["severity"], event["subject"]) == ("warning", "public.order_2")
    assert "would be the same table on the target" in event["detail"]
    assert "'exclude'" in event["remedy"]


def test_a_table_that_was_renamed_is_none_that_appeared(client: TestClient, reporting: Reporting) -> None:
    known = tables(client)["order_1"]["id"]
    reporting.report(reporting.found("order_9"), reporting.renamed(known, "order_9"))
    assert {name: row["id"] for name, row in tables(client).items()} == {"order_9": known}


def test_what_is_being_deleted_takes_nothing_in(client: TestClient, app: FastAPI, reporting: Reporting) -> None:
    assert client.delete(URL).status_code == 202
    reporting.report(reporting.found("order_2"))
    with app.state.database.read() as session:
        assert require_subscription(session, "s").deleting
    assert tables(client).keys() == {"order_1"}
