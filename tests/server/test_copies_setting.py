"""How fast and in which order tables are copied: accepted, shown, changed and sent to the engine; invalid values are refused."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlmodel import select

from engine.model.subscription import CopyPolicy
from server.db.models.outbox import OutboxRow
from server.subscriptions.assignment import build_table
from tests.fixtures.app_state import read_assigned

URL = "/api/v1/subscriptions/s"
BODY: dict[str, Any] = {"source": "shop", "target": "mart", "tables": [{"schema": "public", "name": "orders"}]}
SLOW = {"max_rows_per_second": 20_000, "max_time_share": 0.5, "give_way": False}

pytestmark = pytest.mark.usefixtures("connections")


def test_by_default_copies_are_not_slowed_down(client: TestClient, app: FastAPI) -> None:
    shown = client.put(URL, json=BODY).json()
    assert shown["copies"] == {"max_rows_per_second": None, "max_time_share": 1.0, "give_way": True}
    assert (read_assigned(app).copies, read_assigned(app).tables[0].priority) == (CopyPolicy(), 0)


def test_limits_are_shown_told_and_changed(client: TestClient, app: FastAPI) -> None:
    assert client.put(URL, json={**BODY, "copies": SLOW}).json()["copies"] == SLOW
    assert read_assigned(app).copies == CopyPolicy(20_000, 0.5, give_way=False)
    changed = client.patch(URL, json={"copies": {"max_rows_per_second": 5000}}).json()["copies"]
    assert changed == {"max_rows_per_second": 5000, "max_time_share": 0.5, "give_way": False}
    assert read_assigned(app).copies == CopyPolicy(5000, 0.5, give_way=False)
    assert client.patch(URL, json={"copies": None}).json()["copies"] == {
        "max_rows_per_second": None,
        "max_time_share": 1.0,
        "give_way": True,
    }
    with app.state.database.read() as session:
        assert len([row for row in session.exec(select(OutboxRow)) if row.kind == "assign"]) == 3


@pytest.mark.parametrize(
    "wrong", [{"max_rows_per_second": 0}, {"max_time_share": 0}, {"max_time_share": 1.5}, {"rows": 1}]
)
def test_what_means_nothing_is_refused(client: TestClient, wrong: dict[str, Any]) -> None:
    assert client.put(URL, json={**BODY, "copies": wrong}).status_code == 422
    client.put(URL, json=BODY)
    assert client.patch(URL, json={"copies": wrong}).status_code == 422


def test_a_tables_priority_is_declared_and_changed(client: TestClient, app: FastAPI) -> None:
    client.put(URL, json={**BODY, "tables": [{"schema": "public", "name": "orders", "priority": 7}]})
    table = client.get(f"{URL}/tables").json()["items"][0]
    assert (table["priority"], read_assigned(app).tables[0].priority) == (7, 7)
    assert client.get(URL).json()["tables"][0]["priority"] == 7
    for given, shown in ((-3, -3), (None, 0)):
        answer = client.patch(f"{URL}/tables/{table['id']}", json={"priority": given})
        assert (answer.status_code, answer.json()["priority"]) == (200, shown)
        with app.state.database.read() as session:
            assert build_table(session, table["id"]).priority == shown
    assert client.patch(f"{URL}/tables/{table['id']}", json={"priority": 1001}).status_code == 422
