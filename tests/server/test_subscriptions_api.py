"""Subscriptions over REST: declared, expanded, moved between states, deleted; and the commands that the engine gets for them."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlmodel import select

from engine.link.messages import Progress
from engine.model.position import Lsn
from engine.model.subscription import OriginFilter, QueueMode
from engine.model.subscription_state import SubscriptionState
from server.db.models.outbox import OutboxRow
from server.gateway.interface import EngineUnavailable
from server.lookup.subscriptions import require_subscription
from server.subscriptions import reports
from server.subscriptions.desire import slot_name
from tests.fixtures.app_state import read_assigned
from tests.server.conftest import PlayedEngine

URL = "/api/v1/subscriptions"
ORDERS = {"schema": "public", "name": "orders"}
BODY: dict[str, Any] = {"source": "shop", "target": "mart", "tables": [ORDERS]}

pytestmark = pytest.mark.usefixtures("connections")


def outbox(app: FastAPI) -> list[tuple[str | None, str, dict]]:
    with app.state.database.read() as session:
        return [
            (row.subscription, row.kind, row.payload) for row in session.exec(select(OutboxRow).order_by(OutboxRow.id))
        ]


def assigned(app: FastAPI, name: str = "s", epoch: int = 1) -> None:
    with app.state.database.write() as session:
        require_subscription(session, name).epoch = epoch


def put_state(app: FastAPI, state: SubscriptionState, **why: str) -> None:
    with app.state.database.write() as session:
        reports.set_subscription_state(session, require_subscription(session, "s"), state, **why)


def test_created_with_defaults(client: TestClient, app: FastAPI) -> None:
    answer = client.put(f"{URL}/s", json=BODY)
    assert answer.status_code == 201
    body = answer.json()
    assert (body["state"], body["desired_state"]) == ("created", "running")
    assert body["positions"] == {"source": None, "captured": None, "applied": None, "as_of": None}
    assert body["lag"] == {"bytes": None, "seconds": None, "tables": 0}
    assert body["table_states"] == {"registered": 1}
    assert [(table["schema"], table["name"]) for table in body["tables"]] == [("public", "orders")]
    assert outbox(app) == [("s", "assign", {})]
    assert client.get(f"{URL}/s").json() == body
    assert [item["name"] for item in client.get(URL).json()["items"]] == ["s"]


def test_put_is_safe_to_repeat(client: TestClient, app: FastAPI) -> None:
    first = client.put(f"{URL}/s", json=BODY)
    again = client.put(f"{URL}/s", json=BODY)
    assert (again.status_code, again.headers["ETag"]) == (200, first.headers["ETag"])
    assert again.json()["slot"] == first.json()["slot"]
    assert len(outbox(app)) == 1


def test_if_none_match_replaces_nothing(client: TestClient) -> None:
    only_new = {"If-None-Match": "*"}
    assert client.put(f"{URL}/s", json=BODY, headers=only_new).status_code == 201
    again = client.put(f"{URL}/s", json={**BODY, "tables": []}, headers=only_new)
    assert (again.status_code, again.json()["code"]) == (412, "precondition_failed")
    assert client.get(f"{URL}/s").json()["table_states"] == {"registered": 1}


def test_what_get_shows_can_be_put_again(client: TestClient, app: FastAPI) -> None:
    operations = ["delete", "insert", "truncate", "update"]
    table = {**ORDERS, "key": ["id"], "operations": operations, "target": {"name": "o"}}
    client.put(f"{URL}/s", json={**BODY, "tables": [{**table, "columns": {"n": {"map_as": "text"}}}]})
    shown = client.get(f"{URL}/s")
    names = ("source", "target", "tables", "desired_state", "batch", "apply", "queue", "schema_changes")
    declared = {key: shown.json()[key] for key in names}
    again = client.put(f"{URL}/s", json=declared)
    assert again.status_code == 200
    assert again.json()["tables"] == shown.json()["tables"]


@pytest.mark.parametrize(
    ("change", "pointers"),
    [
        ({"source": "nope"}, ["/source"]),
        ({"source": "nope", "target": "neither"}, ["/source", "/target"]),
        ({"source": "mart"}, ["/target"]),
        ({"target": "shop"}, ["/target"]),
        ({"tables": [ORDERS, ORDERS]}, ["/tables/1"]),
        ({"tables": [ORDERS, {"schema": "public", "name": "Orders"}]}, ["/tables/1"]),
        ({"tables": [ORDERS, {"schema": "a", "name": "b", "target": ORDERS}]}, ["/tables/1"]),
        ({"tables": [{"schema": "penstock", "name": "b"}]}, ["/tables/0"]),
        ({"tables": [{**ORDERS, "columns": {"a/b": {"map_as": "json"}}}]}, ["/tables/0/columns/a~1b/map_as"]),
        ({"tables": [{**ORDERS, "operations": ["upsert"]}]}, ["/tables/0/operations/0"]),
        ({"tables": [{**ORDERS, "operations": []}]}, ["/tables/0/operations"]),
        ({"tables": [{**ORDERS, "key": ["a", "a"]}]}, ["/tables/0/key"]),
        ({"tables": [{**ORDERS, "insert_only": True, "operations": ["update"]}]}, ["/tables/0"]),
        ({"tables": [{"schema": "public", "name": "*", "key": ["a"]}]}, ["/tables/0"]),
        ({"tables": [{"schema": "public", "name": "*", "target": {"name": "x"}}]}, ["/tables/0"]),
        ({"tables": [{"name": "x"}]}, ["/tables/0/schema"]),
        ({"desired_state": "asleep"}, ["/desired_state"]),
        ({"batch": {"max_age": 5}}, ["/batch/max_age"]),
        ({"batch": {"max_age_ms": 0}}, ["/batch/max_age_ms"]),
        ({"capture": {"guard": {"warn_share": 0.9}}}, ["/capture/guard"]),
        ({"capture": {"guard": {"drop_slot_share": 1.5}}}, ["/capture/guard/drop_slot_share"]),
        ({"queue": {"mode": "tape"}}, ["/queue/mode"]),
        ({"capture": {"kind": "trigger"}}, ["/capture/kind"]),
        ({"schema_changes": {"policy": "follow"}}, ["/schema_changes/policy"]),
        ({"schema_changes": "ask"}, ["/schema_changes"]),
        ({"apply": {"x": 1}}, ["/apply/x"]),
        ({"apply": {"mode": "sorted"}}, ["/apply/mode"]),
        ({"apply": {"mode": "sorted", "group_size": 5, "lanes": 2}}, ["/apply/mode"]),
        ({"apply": {"policy": "hopeful"}}, ["/apply/policy"]),
        ({"apply": {"lanes": 0}}, ["/apply/lanes"]),
        ({"apply": {"lanes": 65}}, ["/apply/lanes"]),
        ({"apply": {"mode": "grouped", "group_size": 0}}, ["/apply/group_size"]),
        ({"apply": {"mode": "grouped", "group_size": 100_001}}, ["/apply/group_size"]),
        ({"apply": {"mode": "batch", "lanes": 2, "group_size": 5}}, ["/apply/lanes", "/apply/group_size"]),
    ],
)
def test_wrong_parts_are_pointed_at(client: TestClient, app: FastAPI, change: dict, pointers: list[str]) -> None:
    answer = client.put(f"{URL}/s", json={**BODY, **change})
    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == pointers
    assert client.get(f"{URL}/s").status_code == 404
    assert outbox(app) == []


@pytest.mark.parametrize(
    ("table", "pointers"),
    [
        ({"where": "id > 5"}, []),
        ({"operations": ["insert"], "where": "id > 5"}, []),
        ({"operations": ["insert", "update", "delete"], "where": "x"}, ["/tables/1"]),
        ({"operations": ["insert"], "insert_only": True}, []),
        ({"operations": ["insert", "truncate"], "insert_only": True, "refused_rows": "set_aside"}, []),
        (
            {"name": "*", "operations": ["insert", "truncate"], "insert_only": True, "refused_rows": "set_aside"},
            ["/tables/1"],
        ),
        ({"operations": ["insert", "update", "truncate", "delete"]}, []),
    ],
)
def test_operations_that_cannot_be_followed_are_refused_of_several_tables(
    client: TestClient, engine: PlayedEngine, table: dict, pointers: list[str]
) -> None:
    tables = [ORDERS, {"schema": "public", "name": "log", **table}]
    engine.answers["preflight"] = {"findings": []}
    checked = client.post("/api/v1/connections/shop/checks", json={"tables": tables})
    answers = [checked, client.put(f"{URL}/s", json={**BODY, "tables": tables})]
    client.put(f"{URL}/s", json=BODY)
    answers.append(client.patch(f"{URL}/s", json={"tables": tables}))
    for answer in answers:
        assert answer.is_success is not bool(pointers)
        assert [error["pointer"] for error in answer.json().get("errors", [])] == pointers
        assert answer.json().get("code") == ("invalid_request" if pointers else answer.json().get("code"))
    if pointers:
        assert [row["name"] for row in client.get(f"{URL}/s/tables").json()["items"]] == ["orders"]


def test_queue_mode_auto_and_the_guards_shares_reach_the_engine(client: TestClient, app: FastAPI) -> None:
    guard = {"warn_share": 0.1, "drop_slot": False}
    changed = {**BODY, "queue": {"mode": "auto"}, "capture": {"guard": guard}}
    assert client.put(f"{URL}/s", json=changed).status_code == 201
    shown = client.get(f"{URL}/s").json()
    assert (shown["queue"]["mode"], shown["capture"]["guard"]["persist_share"]) == ("auto", 0.6)
    assert client.patch(f"{URL}/s", json={"capture": {"guard": {"warn_share": 0.9}}}).status_code == 422
    spec = read_assigned(app)
    assert spec.queue_mode is QueueMode.AUTO
    assert (spec.guard.warn_share, spec.guard.drop_slot, spec.guard.drop_slot_share) == (0.1, False, 0.95)


def test_a_patch_changes_only_the_named_shares_of_the_guard(client: TestClient, app: FastAPI) -> None:
    guard = {"warn_share": 0.1, "persist_share": 0.2}
    client.put(f"{URL}/s", json={**BODY, "capture": {"slot_budget_bytes": 10**9, "guard": guard}})

    def patched(change: dict[str, Any] | None) -> dict[str, Any]:
        answer = client.patch(f"{URL}/s", json={"capture": {"guard": change}})
        assert answer.status_code == 200, answer.text
        shown: dict[str, Any] = client.get(f"{URL}/s").json()["capture"]
        assert shown["slot_budget_bytes"] == 10**9
        return shown["guard"]

    shown = patched({"drop_slot": False, "persist_share": 0.3})
    assert (shown["warn_share"], shown["persist_share"], shown["drop_slot"]) == (0.1, 0.3, False)
    shown = patched({"persist_share": None})
    assert (shown["warn_share"], shown["persist_share"], shown["drop_slot"]) == (0.1, 0.6, False)
    spec = read_assigned(app)
    assert (spec.guard.warn_share, spec.guard.persist_share, spec.guard.drop_slot) == (0.1, 0.6, False)
    refused = client.patch(f"{URL}/s", json={"capture": {"guard": {"warn_share": 0.9}}})
    assert refused.status_code == 422
    shown = patched(None)
    assert (shown["warn_share"], shown["persist_share"], shown["drop_slot"]) == (0.5, 0.6, True)


def test_which_origins_are_followed_is_told_to_the_engine(client: TestClient, app: FastAPI) -> None:
    assert client.put(f"{URL}/s", json=BODY).json()["capture"]["origin"] == "any"
    assert read_assigned(app).origin is OriginFilter.ANY
    assert client.patch(f"{URL}/s", json={"capture": {"origin": "none"}}).json()["capture"]["origin"] == "none"
    assert read_assigned(app).origin is OriginFilter.NONE
    assert client.patch(f"{URL}/s", json={"capture": {"origin": "mine"}}).status_code == 422


def found(*tables: tuple[str, str, list[str], str]) -> dict[str, Any]:
    return {
        "tables": [
            {"schema": schema, "name": name, "key": key, "identity": identity} for schema, name, key, identity in tables
        ]
    }


def test_patterns_are_expanded_by_the_engine(client: TestClient, engine: PlayedEngine) -> None:
    engine.answers["discover"] = found(
        ("public", "orders", ["id"], "default"),
        ("public", "log", [], "default"),
        ("public", "bag", [], "full"),
        ("other", "x", ["id"], "default"),
    )
    pattern = {"schema": "public", "name": "*", "insert_only": True}
    body = {**BODY, "tables": [pattern, {**ORDERS, "key": ["id"]}]}
    answer = client.put(f"{URL}/s", json=body)
    assert answer.status_code == 201
    rows = client.get(f"{URL}/s/tables").json()["items"]
    shown = [(row["name"], row["key"], row["insert_only"], row["from_pattern"]) for row in rows]
    assert shown == [("bag", [], False, True), ("log", [], True, True), ("orders", ["id"], False, False)]
    assert rows[1]["operations"] == ["insert", "truncate"]
    assert [table["name"] for table in answer.json()["tables"]] == ["orders", "*"]
    assert engine.asked[0][1]["connection"]["secrets"] == {"password": "hidden-word"}


def test_repeating_a_pattern_adds_and_removes(client: TestClient, engine: PlayedEngine) -> None:
    body = {**BODY, "tables": [{"schema": "public", "name": "*"}]}
    engine.answers["discover"] = found(("public", "a", ["id"], "default"), ("public", "b", ["id"], "default"))
    client.put(f"{URL}/s", json=body)
    ids = {row["name"]: row["id"] for row in client.get(f"{URL}/s/tables").json()["items"]}
    engine.answers["discover"] = found(("public", "b", ["id"], "default"), ("public", "c", ["id"], "default"))
    client.put(f"{URL}/s", json=body)
    after = {row["name"]: row["id"] for row in client.get(f"{URL}/s/tables").json()["items"]}
    assert after.keys() == {"b", "c"}
    assert after["b"] == ids["b"]
    removed = client.get(f"{URL}/s/tables", params={"state": "removed"}).json()["items"]
    assert [row["id"] for row in removed] == [ids["a"]]


def test_a_pattern_that_finds_nothing_and_an_absent_engine(client: TestClient, engine: PlayedEngine) -> None:
    body = {**BODY, "tables": [{"schema": "nope", "name": "*"}]}
    engine.answers["discover"] = found(("public", "a", ["id"], "default"))
    assert client.put(f"{URL}/s", json=body).json()["code"] == "pattern_matches_nothing"
    engine.answers["discover"] = EngineUnavailable("None.")
    assert client.put(f"{URL}/s", json=body).status_code == 503
    assert client.get(f"{URL}/s").status_code == 404


def test_source_and_target_are_fixed(client: TestClient) -> None:
    client.put(f"{URL}/s", json=BODY)
    client.put("/api/v1/connections/mart2", json={"kind": "duckdb", "settings": {"path": "y"}})
    for answer in (
        client.put(f"{URL}/s", json={**BODY, "target": "mart2"}),
        client.patch(f"{URL}/s", json={"target": "x"}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (409, "subscription_endpoint_fixed")


def test_a_table_does_not_move_on_the_target(client: TestClient) -> None:
    client.put(f"{URL}/s", json=BODY)
    answer = client.put(f"{URL}/s", json={**BODY, "tables": [{**ORDERS, "target": {"name": "o"}}]})
    assert (answer.status_code, answer.json()["code"]) == (409, "table_target_fixed")


def test_desired_state_moves_the_state(client: TestClient, app: FastAPI) -> None:
    client.put(f"{URL}/s", json=BODY)
    assigned(app)
    put_state(app, SubscriptionState.RUNNING)
    paused = client.patch(f"{URL}/s", json={"desired_state": "paused"}).json()
    assert (paused["desired_state"], paused["state"]) == ("paused", "pausing")
    put_state(app, SubscriptionState.PAUSED)
    stopped = client.patch(f"{URL}/s", json={"desired_state": "stopped"}).json()
    assert stopped["state"] == "stopping"
    refused = client.patch(f"{URL}/s", json={"desired_state": "paused"})
    assert (refused.status_code, refused.json()["code"]) == (409, "transition_refused")
    assert client.get(f"{URL}/s").json()["desired_state"] == "stopped"
    assert [entry[1:] for entry in outbox(app)[1:]] == [
        ("desire", {"desired": "paused"}),
        ("desire", {"desired": "stopped"}),
    ]


def test_failed_is_tried_again_by_the_same_wish(client: TestClient, app: FastAPI) -> None:
    client.put(f"{URL}/s", json=BODY)
    put_state(app, SubscriptionState.FAILED, code="log_gap", reason="The log has a gap.", remedy="Reload.")
    failed = client.get(f"{URL}/s").json()
    assert (failed["state"], failed["code"], failed["remedy"]) == ("failed", "log_gap", "Reload.")
    again = client.patch(f"{URL}/s", json={"desired_state": "running"}).json()
    assert (again["state"], again["code"], again["reason"]) == ("starting", None, None)
    events = client.get("/api/v1/events", params={"kind": "log_gap"}).json()["items"]
    assert [(event["severity"], event["remedy"]) for event in events] == [("error", "Reload.")]


def test_patch_merges_policies(client: TestClient) -> None:
    client.put(f"{URL}/s", json={**BODY, "batch": {"max_age_ms": 50, "tasks": 4}})
    body = client.patch(f"{URL}/s", json={"batch": {"max_age_ms": None, "max_bytes": 1048576}}).json()
    assert (body["batch"]["max_age_ms"], body["batch"]["tasks"], body["batch"]["max_bytes"]) == (200, 4, 1048576)
    wrong = client.patch(f"{URL}/s", json={"batch": {"max_bites": 1}})
    assert [error["pointer"] for error in wrong.json()["errors"]] == ["/batch/max_bites"]
    assert client.patch(f"{URL}/s", json={"batch": None}).json()["batch"]["tasks"] is None


def test_etag_follows_the_declaration_only(client: TestClient, app: FastAPI) -> None:
    tag = client.put(f"{URL}/s", json=BODY).headers["ETag"]
    now = app.state.clock.now()
    with app.state.database.write() as session:
        row = require_subscription(session, "s")
        reached = {"applied": Lsn(100), "captured": Lsn(200), "source": Lsn(300), "at": now, "lag_seconds": 0.5}
        reports.set_progress(session, row, Progress(subscription="s", epoch=row.epoch, **reached))
    shown = client.get(f"{URL}/s")
    assert shown.headers["ETag"] == tag
    assert shown.json()["positions"]["applied"] == "0/64"
    assert shown.json()["lag"]["seconds"] is None, "no table is live"
    assert client.patch(f"{URL}/s", json={"desired_state": "paused"}, headers={"If-Match": tag}).status_code == 200
    assert client.patch(f"{URL}/s", json={"desired_state": "running"}, headers={"If-Match": tag}).status_code == 412


def test_delete_of_what_no_engine_ever_had(client: TestClient, app: FastAPI) -> None:
    client.put(f"{URL}/s", json=BODY)
    assert client.delete(f"{URL}/s").status_code == 204
    assert client.get(f"{URL}/s").status_code == 404
    assert outbox(app) == []


def test_delete_waits_for_the_engine(client: TestClient, app: FastAPI) -> None:
    client.put(f"{URL}/s", json=BODY)
    assigned(app)
    answer = client.delete(f"{URL}/s")
    assert (answer.status_code, answer.json()["state"], answer.json()["deleting"]) == (202, "stopping", True)
    assert outbox(app) == [("s", "forget", {})]
    for refused in (client.put(f"{URL}/s", json=BODY), client.patch(f"{URL}/s", json={"desired_state": "running"})):
        assert (refused.status_code, refused.json()["code"]) == (409, "subscription_deleting")
    put_state(app, SubscriptionState.RUNNING)
    assert client.get(f"{URL}/s").json()["state"] == "stopping"
    with app.state.database.write() as session:
        reports.finish_forget(session, "s", ["publication penstock_x"])
    assert client.get(f"{URL}/s").status_code == 404
    event = client.get("/api/v1/events", params={"kind": "subscription_deleted"}).json()["items"][0]
    assert (event["severity"], "publication penstock_x" in event["detail"]) == ("warning", True)
    assert client.delete("/api/v1/connections/mart").status_code == 204


def test_delete_by_force_names_what_is_left(client: TestClient, app: FastAPI) -> None:
    slot = client.put(f"{URL}/s", json=BODY).json()["slot"]
    assigned(app)
    assert client.delete(f"{URL}/s").status_code == 202
    assert client.delete(f"{URL}/s", params={"force": True}).status_code == 204
    event = client.get("/api/v1/events", params={"kind": "subscription_deleted"}).json()["items"][0]
    assert slot in event["detail"]
    assert outbox(app) == []


def test_assignment_fits_the_channel(client: TestClient, app: FastAPI) -> None:
    table = {**ORDERS, "insert_only": True, "target": {"schema": "x"}, "columns": {"n": {"map_as": "text"}}}
    client.put(f"{URL}/s", json={**BODY, "tables": [table], "queue": {"mode": "persist"}, "batch": {"tasks": 3}})
    assigned(app, epoch=7)
    spec = read_assigned(app)
    assert spec.source.secrets == {"password": "hidden-word"}
    assert (spec.epoch, spec.queue_mode, spec.batch.tasks, spec.desired) == (7, "persist", 3, "running")
    assert spec.tables[0].operations == {"insert", "truncate"}
    assert (spec.tables[0].target.schema, spec.tables[0].map_as) == ("x", {"n": "text"})


@pytest.mark.parametrize("name", ["s", "Shop.EU-1", "x" * 63, "a" * 41 + "-b"])
def test_slot_names_fit_postgresql(name: str) -> None:
    slot = slot_name(name)
    assert len(slot + "_ins") <= 63
    assert set(slot) <= set("abcdefghijklmnopqrstuvwxyz0123456789_")
    assert slot != slot_name(name)
