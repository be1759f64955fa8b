"""The triggers that record a source's changes, over REST."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from server.errors import ReportedProblem
from tests.server.conftest import PlayedEngine

URL = "/api/v1/connections"
ADDRESS = f"{URL}/shop/change-triggers"
ORDERS = {"schema": "public", "name": "orders"}
BODY = {
    "installed": True,
    "version": 2,
    "current": True,
    "tables": [{"table": ORDERS, "variant": "json", "current": True}],
    "install_sql": [],
    "remove_sql": ["DROP …"],
    "plan": [{"sql": "CREATE …", "lock": "waits for writers", "cost": "little"}],
    "grants": ["GRANT …"],
}
VIEW = {
    "installed": True,
    "version": 2,
    "current": True,
    "tables": [{**ORDERS, "variant": "json", "current": True}],
    "install_sql": [],
    "remove_sql": ["DROP …"],
}


@pytest.fixture(autouse=True)
def shop(client: TestClient) -> None:
    settings = {"host": "db", "database": "shop", "user": "penstock"}
    secrets = {"password": "hidden-word"}
    client.put(f"{URL}/shop", json={"kind": "postgres", "settings": settings, "secrets": secrets})
    client.put(f"{URL}/mart", json={"kind": "duckdb", "settings": {"path": "/tmp/mart.duckdb"}})


def test_they_are_shown_planned_installed_and_removed(client: TestClient, engine: PlayedEngine) -> None:
    engine.answers["change_triggers"] = BODY
    wanted = {"tables": [ORDERS]}
    answers = [
        client.get(ADDRESS),
        client.post(f"{ADDRESS}/plans", json=wanted),
        client.put(ADDRESS, json=wanted),
        client.delete(ADDRESS),
    ]
    assert [answer.status_code for answer in answers] == [200] * 4
    assert answers[0].json() == answers[2].json() == answers[3].json() == VIEW
    assert answers[1].json() == {"statements": BODY["plan"], "grants": BODY["grants"]}
    asked = [(payload["action"], payload["tables"]) for _, payload in engine.asked]
    assert asked == [("look", []), ("plan", [ORDERS]), ("install", [ORDERS]), ("remove", [])]
    assert engine.asked[0][1]["connection"]["secrets"] == {"password": "hidden-word"}
    kinds = [event["kind"] for event in client.get("/api/v1/events").json()["items"]]
    assert [k for k in kinds if k.startswith("change_")] == ["change_triggers_removed", "change_triggers_installed"]


def test_a_removal_names_the_subscription_that_prevents_it(client: TestClient, engine: PlayedEngine) -> None:
    client.put("/api/v1/subscriptions/sales", json={"source": "shop", "target": "mart", "tables": [ORDERS]})
    slot = client.get("/api/v1/subscriptions/sales").json()["slot"]
    detail = f"change triggers: what they record is read by {slot}, penstock_of_another_server"
    engine.answers["change_triggers"] = ReportedProblem(409, "change_triggers_in_use", detail, "Delete …")
    refused = client.delete(ADDRESS)
    assert (refused.status_code, refused.json()["code"]) == (409, "change_triggers_in_use")
    assert "read by the subscription 'sales', penstock_of_another_server" in refused.json()["detail"]
    assert not any(e["kind"].startswith("change_") for e in client.get("/api/v1/events").json()["items"])


def test_what_the_engine_refuses_is_refused(client: TestClient, engine: PlayedEngine) -> None:
    engine.answers["change_triggers"] = ReportedProblem(422, "not_with_this_capture", "no triggers", "Ask …")
    for answer in (client.get(ADDRESS), client.put(ADDRESS, json={}), client.delete(ADDRESS)):
        assert (answer.status_code, answer.json()["code"]) == (422, "not_with_this_capture")
    assert client.put(f"{URL}/nope/change-triggers", json={}).status_code == 404
    assert client.put(ADDRESS, json={"tables": [ORDERS], "audit": True}).status_code == 422


def test_who_installs_them_is_part_of_the_capture(client: TestClient, engine: PlayedEngine) -> None:
    engine.answers["preflight"] = {"findings": []}
    for capture, settings in (
        ({"kind": "triggers"}, {}),
        ({"kind": "triggers", "install": True, "audit": False}, {}),
        ({"kind": "triggers", "install": False}, {"install": 0}),
        ({"kind": "triggers", "audit": True}, {"audit": 1}),
        (
            {"kind": "triggers", "changed_columns": ["public.b", "public.a"]},
            {"changed_columns": '["public.a", "public.b"]'},
        ),
        ({"kind": "triggers", "recorder": "application"}, {"recorder": "application"}),
    ):
        client.post(f"{URL}/shop/checks", json={"capture": capture})
        assert engine.asked[-1][1]["capture"].get("settings", {}) == settings
