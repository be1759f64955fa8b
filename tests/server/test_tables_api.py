"""Tables over REST: added, paused, changed and removed while the subscription runs; their history."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlmodel import select

from engine.link.messages import CopyProgress
from engine.model.position import Lsn
from engine.model.table_state import TableStateKind
from server.db.models.outbox import OutboxRow
from server.db.models.schema_version import SchemaVersionRow
from server.engines.commands import outbox_commands
from server.schema_versions.service import record_structure
from server.subscriptions.assignment import build_assignment, build_table
from server.tables import reports

URL = "/api/v1/subscriptions/s/tables"
ODD = {"schema": "ünï/code", "name": 'a."b"/c*%', "exact": True}


@pytest.fixture
def table(client: TestClient, connections: None) -> dict[str, Any]:
    body = {"source": "shop", "target": "mart", "tables": [{"schema": "public", "name": "orders"}]}
    assert client.put("/api/v1/subscriptions/s", json=body).status_code == 201
    item: dict[str, Any] = client.get(URL).json()["items"][0]
    return item


def commands(app: FastAPI) -> list[tuple[str, dict]]:
    with app.state.database.read() as session:
        rows = session.exec(select(OutboxRow).where(OutboxRow.kind == "table").order_by(OutboxRow.id))
        return [(row.subscription, row.payload) for row in rows]


def report(app: FastAPI, table_id: str, state: TableStateKind, **more: Any) -> bool:
    with app.state.database.write() as session:
        return reports.set_state(session, table_id, state, **more)


def test_add_with_any_name(client: TestClient, app: FastAPI, table: dict[str, Any]) -> None:
    answer = client.post(URL, json=ODD)
    assert answer.status_code == 201
    made = answer.json()
    assert answer.headers["Location"] == f"{URL}/{made['id']}"
    assert client.get(answer.headers["Location"]).json() == made
    assert client.get(URL, params=ODD).json()["items"] == [made]
    assert commands(app) == [("s", {"table": made["id"], "removed": False})]
    assert made["id"].startswith("t")
    assert len(made["id"]) == 13


def test_what_cannot_be_added(client: TestClient, table: dict[str, Any]) -> None:
    twice = client.post(URL, json={"schema": "public", "name": "orders"})
    assert (twice.status_code, twice.json()["code"]) == (409, "table_exists")
    assert table["id"] in twice.json()["detail"]
    assert client.post(URL, json={"schema": "public", "name": "ORDERS"}).status_code == 422
    for pattern in ("*", "order_*"):
        refused = client.post(URL, json={"schema": "public", "name": pattern})
        assert refused.status_code == 422
        assert '"exact": true' in refused.json()["remedy"]
    assert client.post(URL, json={"schema": "public", "name": "a", "exclude": ["b"]}).status_code == 422
    assert client.post("/api/v1/subscriptions/nope/tables", json=ODD).status_code == 404


def test_idempotency_key(client: TestClient, app: FastAPI, table: dict[str, Any]) -> None:
    key = {"Idempotency-Key": "k1"}
    first = client.post(URL, json=ODD, headers=key)
    again = client.post(URL, json=ODD, headers=key)
    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["Location"] == first.headers["Location"]
    assert again.headers["Idempotency-Replayed"] == "true"
    other = client.post(URL, json={"schema": "public", "name": "x"}, headers=key)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert len(commands(app)) == 1


def test_a_refused_request_leaves_its_key_free(client: TestClient, table: dict[str, Any]) -> None:
    key = {"Idempotency-Key": "k1"}
    assert client.post(URL, json={"schema": "public", "name": "orders"}, headers=key).status_code == 409
    assert client.post(URL, json=ODD, headers=key).status_code == 201


def test_pause_and_resume(client: TestClient, app: FastAPI, table: dict[str, Any]) -> None:
    one = f"{URL}/{table['id']}"
    report(app, table["id"], TableStateKind.COPYING)
    refused = client.patch(one, json={"desired_state": "paused"})
    assert (refused.status_code, refused.json()["code"]) == (409, "transition_refused")
    report(app, table["id"], TableStateKind.CATCHING_UP)
    report(app, table["id"], TableStateKind.LIVE, position=Lsn(500))
    paused = client.patch(one, json={"desired_state": "paused"})
    assert (paused.status_code, paused.json()["desired_state"], paused.json()["state"]) == (200, "paused", "live")
    with app.state.database.read() as session:
        assert build_table(session, table["id"]).paused is True
    report(app, table["id"], TableStateKind.PAUSED)
    assert client.patch(one, json={"desired_state": "running"}).json()["desired_state"] == "running"
    assert len(commands(app)) == 2


def test_parked_is_not_resumed_but_told_how(client: TestClient, app: FastAPI, table: dict[str, Any]) -> None:
    one = f"{URL}/{table['id']}"
    client.patch(one, json={"desired_state": "paused"})
    why = {"code": "value_out_of_domain", "reason": "A value does not fit.", "remedy": "Map the column as text."}
    report(app, table["id"], TableStateKind.PARKED, **why)
    shown = client.get(one).json()
    assert {key: shown[key] for key in why} == why
    refused = client.patch(one, json={"desired_state": "running"})
    assert (refused.status_code, refused.json()["remedy"]) == (409, why["remedy"])
    mapped = client.patch(one, json={"columns": {"n": {"map_as": "text"}}})
    assert mapped.json()["columns"] == {"n": {"map_as": "text"}}
    event = client.get("/api/v1/events", params={"kind": "value_out_of_domain"}).json()["items"][0]
    assert (event["severity"], event["subject"]) == ("error", "public.orders")


def test_operations_of_a_tables_remedy_name_its_subscription_too(
    client: TestClient, app: FastAPI, table: dict[str, Any]
) -> None:
    remedy = "POST /subscriptions/{name}/tables/{table_id}/retries then copies it."
    report(app, table["id"], TableStateKind.PARKED, code="row_refused", reason="No.", remedy=remedy)
    one, [listed] = client.get(f"{URL}/{table['id']}").json(), client.get(URL).json()["items"]
    wanted = {"subscription": "s", "table": "public.orders"}
    for shown in (one, one["health"], listed, listed["health"]):
        assert [action["arguments"] for action in shown["actions"]] == [wanted]


def test_patch_of_options(client: TestClient, table: dict[str, Any]) -> None:
    one = f"{URL}/{table['id']}"
    client.patch(one, json={"columns": {"a": {"map_as": "text"}, "b": {"map_as": "text"}}, "key": ["a"]})
    shown = client.patch(one, json={"columns": {"a": None}, "key": None, "insert_only": True}).json()
    assert (shown["columns"], shown["key"]) == ({"b": {"map_as": "text"}}, [])
    assert shown["operations"] == ["insert", "truncate"]
    wrong = client.patch(one, json={"operations": ["update"], "insert_only": True})
    assert wrong.status_code == 422
    assert client.get(one).json() == shown


def test_deletes_are_marked_from_the_next_copy_on(client: TestClient, table: dict[str, Any]) -> None:
    one = f"{URL}/{table['id']}"
    assert table["deletes"] == "delete"
    assert client.patch(one, json={"deletes": "mark"}).json()["deletes"] == "mark"
    event = client.get("/api/v1/events", params={"kind": "table_settings_changed"}).json()["items"][0]
    assert "deletes" in event["detail"]
    for wrong in ({"deletes": "hide"}, {"insert_only": True}, {"refused_rows": "set_aside"}):
        assert client.patch(one, json=wrong).status_code == 422
    assert client.patch(one, json={"deletes": None}).json()["deletes"] == "delete"


def test_history_begins_with_the_next_copy(client: TestClient, table: dict[str, Any]) -> None:
    one = f"{URL}/{table['id']}"
    assert table["history"] is False
    plan = client.post(f"{one}/plans", json={"history": True}).json()
    assert plan["fields"] == [{"field": "history", "before": False, "after": True, "effect": "at_once"}]
    assert client.patch(one, json={"history": True}).json()["history"] is True
    event = client.get("/api/v1/events", params={"kind": "table_settings_changed"}).json()["items"][0]
    assert "history" in event["detail"]
    for wrong in ({"history": 3}, {"insert_only": True}, {"refused_rows": "set_aside"}):
        assert client.patch(one, json=wrong).status_code == 422
    assert client.patch(one, json={"history": None}).json()["history"] is False


def test_a_history_table_takes_no_name_of_another_table(client: TestClient, table: dict[str, Any]) -> None:
    one, taken = f"{URL}/{table['id']}", f"{table['name']}__history"
    other = client.post(URL, json={"schema": table["schema"], "name": taken}).json()
    refused = client.patch(one, json={"history": True})
    assert (refused.status_code, taken in refused.json()["detail"]) == (422, True)
    client.delete(f"{URL}/{other['id']}")
    assert client.patch(one, json={"history": True}).status_code == 200
    refused = client.post(URL, json={"schema": table["schema"], "name": taken})
    assert (refused.status_code, taken in refused.json()["detail"]) == (422, True)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"operations": ["update", "delete", "truncate"]}, "'insert' is not among them"),
        ({"operations": ["insert", "update", "delete"]}, "'truncate' is not"),
        ({"operations": ["insert"], "key": ["id"]}, "leave out 'key'"),
        ({"operations": ["insert"], "deletes": "mark"}, "need every operation"),
        ({"operations": ["insert"], "history": True}, "need every operation"),
        ({"operations": ["insert"], "refused_rows": "set_aside"}, "must be 'park'"),
    ],
)
def test_operations_that_cannot_be_followed_are_refused(
    client: TestClient, app: FastAPI, table: dict[str, Any], option: dict[str, Any], words: str
) -> None:
    one = f"{URL}/{table['id']}"
    for answer in (client.post(URL, json={**ODD, **option}), client.patch(one, json=option)):
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
        assert [words in error["detail"] for error in answer.json()["errors"]] == [True]
    assert client.get(URL).json()["items"] == [table]
    assert commands(app) == []


def test_other_operations_are_shown_and_mean_a_new_copy(client: TestClient, table: dict[str, Any]) -> None:
    one, wanted = f"{URL}/{table['id']}", {"operations": ["insert", "update"]}
    client.patch(one, json=wanted)
    assert client.get(one).json()["operations"] == ["insert", "update"]
    event = client.get("/api/v1/events", params={"kind": "table_settings_changed"}).json()["items"][0]
    assert "operations" in event["detail"]
    assert client.patch(one, json={"operations": None}).json()["operations"] == [
        "delete",
        "insert",
        "truncate",
        "update",
    ]


def test_if_match_on_a_table(client: TestClient, app: FastAPI, table: dict[str, Any]) -> None:
    one = f"{URL}/{table['id']}"
    tag = client.get(one).headers["ETag"]
    report(app, table["id"], TableStateKind.COPYING)
    assert client.get(one).headers["ETag"] == tag
    assert client.patch(one, json={"key": ["a"]}, headers={"If-Match": '"other"'}).status_code == 412
    assert client.patch(one, json={"key": ["a"]}, headers={"If-Match": tag}).status_code == 200
    assert client.delete(one, headers={"If-Match": tag}).status_code == 412


def test_remove_keeps_history_and_frees_the_name(client: TestClient, app: FastAPI, table: dict[str, Any]) -> None:
    one = f"{URL}/{table['id']}"
    assert client.delete(one).status_code == 204
    assert client.get(URL).json()["items"] == []
    assert client.get(one).json()["state"] == "removed"
    assert client.delete(one).json()["code"] == "table_removed"
    assert report(app, table["id"], TableStateKind.LIVE) is False
    assert [version["state"] for version in client.get(f"{one}/versions").json()["items"]] == ["registered", "removed"]
    again = client.post(URL, json={"schema": "public", "name": "orders"})
    assert again.status_code == 201
    assert again.json()["id"] != table["id"]
    assert commands(app)[0] == ("s", {"table": table["id"], "removed": True})


def told_of(app: FastAPI, table: str) -> tuple[bool, list[str]]:
    """Whether the command of the removal has an engine drop the table, and the tables that a new engine's assignment has it drop."""
    with app.state.database.write() as session:
        rows = session.exec(select(OutboxRow).where(OutboxRow.kind == "table").order_by(OutboxRow.id))
        removed = [c for _, c in outbox_commands(session, app.state.secret_box, rows) if c.table == table]
        return removed[-1].drop, build_assignment(session, app.state.secret_box, "s")["dropped"]


@pytest.mark.parametrize(
    ("left", "fate", "event"),
    [(None, "dropped", "table_dropped"), ("a view shows it", "not_dropped", "table_not_dropped")],
)
def test_remove_with_the_target_table(
    client: TestClient, app: FastAPI, table: dict[str, Any], left: str | None, fate: str, event: str
) -> None:
    one = f"{URL}/{table['id']}"
    assert client.delete(one, params={"target_table": "drop"}).status_code == 204
    assert client.get(one).json()["target_table"] == "to_be_dropped"
    assert told_of(app, table["id"]) == (True, [table["id"]])
    for _ in range(2):
        with app.state.database.write() as session:
            reports.set_dropped(session, table["id"], left, left and "Drop it yourself.")
    assert client.get(one).json()["target_table"] == fate
    assert told_of(app, table["id"]) == (False, [])
    (told,) = client.get("/api/v1/events", params={"kind": event}).json()["items"]
    assert told["subject"] == "public.orders"
    assert told["remedy"] == (left and "Drop it yourself.")
    assert left is None or told["detail"] == "'public.orders' stays on the target: a view shows it."


def test_the_target_table_stays_where_nothing_else_is_said(
    client: TestClient, app: FastAPI, table: dict[str, Any]
) -> None:
    assert table["target_table"] is None
    assert client.delete(f"{URL}/{table['id']}").status_code == 204
    assert client.get(f"{URL}/{table['id']}").json()["target_table"] == "kept"
    assert told_of(app, table["id"]) == (False, [])
    more = client.post(URL, json={"schema": "public", "name": "more"}).json()
    body = {"source": "shop", "target": "mart", "tables": [{"schema": "public", "name": "orders"}]}
    assert client.put("/api/v1/subscriptions/s", json=body).status_code == 200
    assert client.get(f"{URL}/{more['id']}").json()["target_table"] == "kept"


def test_what_cannot_be_said_of_the_target_table(client: TestClient, connections: None) -> None:
    settings = {"host": "db", "database": "mart", "user": "penstock"}
    client.put("/api/v1/connections/pg_mart", json={"kind": "postgres", "settings": settings})
    made = client.put(
        "/api/v1/subscriptions/s",
        json={
            "source": "shop",
            "target": "pg_mart",
            "tables": [{"schema": "public", "name": "orders", "into_existing": True}],
        },
    )
    assert made.status_code == 201
    one = f"{URL}/{client.get(URL).json()['items'][0]['id']}"
    unknown = client.delete(one, params={"target_table": "maybe"})
    assert unknown.status_code == 422
    refused = client.delete(one, params={"target_table": "drop"})
    assert (refused.status_code, refused.json()["code"]) == (409, "target_table_of_owner")
    assert "target_table=keep" in refused.json()["remedy"]
    assert client.get(one).json()["state"] == "registered"


def test_copy_progress_is_shown(client: TestClient, app: FastAPI, table: dict[str, Any]) -> None:
    report(app, table["id"], TableStateKind.COPYING)
    with app.state.database.write() as session:
        told = {"rows": 5_000_000_000, "bytes": 2**40, "percent": 41.5, "total_bytes": 2**41}
        named = {"subscription": "s", "epoch": 1, "table": table["id"]}
        reports.set_copy_progress(session, CopyProgress.model_validate({**named, **told, "eta_seconds": 12.0}))
    copied = client.get(f"{URL}/{table['id']}").json()["copied"]
    assert {name: copied[name] for name in told} == told
    assert copied["eta_seconds"] is None, "the subscription does not run yet"
    report(app, table["id"], TableStateKind.CATCHING_UP)
    assert client.get(f"{URL}/{table['id']}").json()["copied"]["percent"] == 100.0


def test_history_of_structure(client: TestClient, app: FastAPI, table: dict[str, Any]) -> None:
    column = {"name": "id", "type": "bigint", "attnum": 1, "nullable": False, "mapped": "BIGINT"}
    for _ in range(2):
        with app.state.database.write() as session:
            record_structure(session, table["id"], Lsn(0x16B3748), [column], ["id"])
    url = f"{URL}/{table['id']}/versions"
    items = client.get(url).json()["items"]
    assert [item["change"] for item in items] == ["state", "structure"]
    assert (items[1]["position"], items[1]["columns"], items[1]["key"]) == ("0/16B3748", [column], ["id"])
    first = client.get(url, params={"page_size": 1}).json()
    rest = client.get(url, params={"page_size": 1, "page_token": first["next_page_token"]}).json()
    assert (first["items"] + rest["items"], rest["next_page_token"]) == (items, None)


def test_a_structure_tells_what_changed_and_how_that_became_known(
    client: TestClient, app: FastAPI, table: dict[str, Any]
) -> None:
    first = {"name": "id", "type": "bigint", "attnum": 1, "nullable": False, "mapped": "BIGINT"}
    second = {"name": "note", "type": "text", "attnum": 2, "nullable": True, "mapped": "VARCHAR"}
    added = {"changes": ["column note was added"], "learnt": "catalog", "certain": False}

    def record(columns: list[dict[str, Any]], **more: Any) -> None:
        with app.state.database.write() as session:
            record_structure(session, table["id"], Lsn(0x60), columns, ["id"], **more)

    record([first], learnt="copied")
    record([first, second], **added)
    record([first, second], **{**added, "learnt": "log", "certain": True})
    record([first, second], **{**added, "changes": ["column id may not be NULL now"]})
    items = client.get(f"{URL}/{table['id']}/versions").json()["items"]
    told = [(item["change"], item["changes"], item["learnt"], item["certain"]) for item in items]
    assert told == [
        ("state", None, None, None),
        ("structure", [], "copied", True),
        ("structure", ["column note was added"], "catalog", False),
        ("structure", ["column id may not be NULL now"], "catalog", False),
    ]


def test_what_the_target_has_at_a_start_is_news_only_where_nobody_told(
    client: TestClient, app: FastAPI, table: dict[str, Any]
) -> None:
    first = {"name": "id", "type": "bigint", "attnum": 1, "nullable": False, "mapped": "BIGINT"}
    second = {"name": "note", "type": "text", "attnum": 2, "nullable": True, "mapped": "VARCHAR"}

    def record(position: int, columns: list[dict[str, Any]], learnt: str) -> None:
        with app.state.database.write() as session:
            record_structure(session, table["id"], Lsn(position), columns, ["id"], learnt=learnt)

    record(0x60, [first], "copied")
    record(0x70, [{**first, "nullable": True}], "target")
    for _ in range(2):
        record(0x80, [first, second], "target")
    items = client.get(f"{URL}/{table['id']}/versions").json()["items"]
    assert [(item["position"], item["learnt"]) for item in items[1:]] == [("0/60", "copied"), ("0/80", "target")]


def test_a_structure_from_before_there_were_changes_is_not_recorded_twice(
    client: TestClient, app: FastAPI, table: dict[str, Any]
) -> None:
    with app.state.database.write() as session:
        old = {"table_id": table["id"], "change": "structure", "position": Lsn(0x60), "columns": [], "key": []}
        session.add(SchemaVersionRow(**old, at=session.now()))
        session.flush()
        record_structure(session, table["id"], Lsn(0x60), [], [])
    found = client.get(f"{URL}/{table['id']}/versions").json()["items"][1:]
    assert [(item["changes"], item["learnt"], item["certain"]) for item in found] == [(None, None, None)]


def test_a_table_that_is_copied_anew_by_itself_says_why(
    client: TestClient, app: FastAPI, table: dict[str, Any]
) -> None:
    why = {
        "code": "table_structure_changed",
        "reason": "column n changed its type, and its existing values with it",
        "remedy": "None needed: the table is copied anew.",
    }
    report(app, table["id"], TableStateKind.LIVE)
    report(app, table["id"], TableStateKind.RELOADING, **why)
    report(app, table["id"], TableStateKind.RELOADING, **why)
    shown = client.get(f"{URL}/{table['id']}").json()
    assert {key: shown[key] for key in ("state", *why)} == {"state": "reloading", **why}
    (event,) = client.get("/api/v1/events", params={"kind": "table_reloading"}).json()["items"]
    assert event["detail"] == f"The table 'public.orders' is reloading: {why['reason']}"
    assert (event["severity"], event["remedy"]) == ("warning", why["remedy"])
    newest = client.get(f"{URL}/{table['id']}/versions").json()["items"][-1]
    assert (newest["state"], newest["code"], newest["reason"]) == ("reloading", why["code"], why["reason"])


def test_a_table_that_somebody_has_reloaded_needs_no_reason(
    client: TestClient, app: FastAPI, table: dict[str, Any]
) -> None:
    report(app, table["id"], TableStateKind.LIVE)
    report(app, table["id"], TableStateKind.RELOADING)
    (event,) = client.get("/api/v1/events", params={"kind": "table_reloading"}).json()["items"]
    assert (event["severity"], event["detail"]) == ("info", "The table 'public.orders' is reloading.")


def test_lists_are_paged_and_tokens_bound_to_their_filters(client: TestClient, table: dict[str, Any]) -> None:
    for name in ("a", "b", "c"):
        client.post(URL, json={"schema": "other", "name": name})
    names, token = [], None
    for _ in range(2):
        page = client.get(URL, params={"page_size": 2, **({"page_token": token} if token else {})}).json()
        names += [item["name"] for item in page["items"]]
        token = page["next_page_token"] or token
    assert names == ["a", "b", "c", "orders"]
    answer = client.get(URL, params={"page_size": 2, "page_token": token, "schema": "other"})
    assert answer.json()["code"] == "page_token_invalid"


def test_columns_are_selected_by_name_and_pattern(client: TestClient, app: FastAPI, table: dict[str, Any]) -> None:
    one = f"{URL}/{table['id']}"
    assert (table["include_columns"], table["exclude_columns"]) == ([], [])
    shown = client.patch(one, json={"exclude_columns": ["password*", "ssn"], "include_columns": ["*"]}).json()
    assert (shown["include_columns"], shown["exclude_columns"]) == (["*"], ["password*", "ssn"])
    assert client.patch(one, json={"include_columns": None}).json()["include_columns"] == []
    for wrong in ({"exclude_columns": [""]}, {"exclude_columns": "ssn"}, {"include_columns": ["a\0"]}):
        assert client.patch(one, json=wrong).status_code == 422
    pattern = {"schema": "public", "name": "log_*", "exclude_columns": ["ssn"]}
    refused = client.post(URL, json=pattern)
    assert refused.status_code == 422
    assert "patterns of columns" in refused.text


def test_columns_are_renamed(client: TestClient, app: FastAPI, table: dict[str, Any]) -> None:
    one = f"{URL}/{table['id']}"
    assert table["rename"] == {}
    assert client.patch(one, json={"rename": {"a": "b", "b": "a"}}).json()["rename"] == {"a": "b", "b": "a"}
    for wrong in ({"a": ""}, {"a": "x", "b": "x"}, {"a": "x" * 64}, {"a": 1}):
        assert client.patch(one, json={"rename": wrong}).status_code == 422
    assert client.get(one).json()["rename"] == {"a": "b", "b": "a"}
    assert client.patch(one, json={"rename": None}).json()["rename"] == {}
    refused = client.post(URL, json={"schema": "public", "name": "log_*", "rename": {"a": "b"}})
    assert (refused.status_code, "takes no 'rename'" in refused.text) == (422, True)


def test_columns_are_masked(client: TestClient, app: FastAPI, table: dict[str, Any]) -> None:
    one = f"{URL}/{table['id']}"
    assert table["mask"] == {}
    masks = {
        "a": {"method": "hash", "type": "bytea"},
        "b": {"method": "null"},
        "c": {"method": "constant", "value": "x"},
    }
    shown = client.patch(one, json={"mask": masks}).json()["mask"]
    assert {name: each["method"] for name, each in shown.items()} == {"a": "hash", "b": "null", "c": "constant"}
    assert (shown["a"]["type"], shown["c"]["value"]) == ("bytea", "x")
    assert client.patch(one, json={"mask": shown}).json()["mask"] == shown
    for wrong in (
        {"method": "md5"},
        {"method": "constant"},
        {"method": "hash", "key": "k"},
        {"method": "null", "value": "x"},
        "hash",
    ):
        assert client.patch(one, json={"mask": {"a": wrong}}).status_code == 422
    assert client.patch(one, json={"mask": None}).json()["mask"] == {}
    refused = client.post(URL, json={"schema": "public", "name": "log_*", "mask": {"a": {"method": "null"}}})
    assert (refused.status_code, "takes no 'mask'" in refused.text) == (422, True)


def test_rows_are_filtered(client: TestClient, app: FastAPI, table: dict[str, Any]) -> None:
    one = f"{URL}/{table['id']}"
    condition = "region = 'eu' and (total > 10 or note is null)"
    assert client.patch(one, json={"where": condition}).json()["where"] == condition
    for wrong, words in {
        "true) ; drop table users --": "closed that was not opened",
        "id in (select 1 from (users))": "",
        "pg_sleep(1) is null": "cannot call functions",
        "a = 1; b": "cannot hold",
    }.items():
        refused = client.patch(one, json={"where": wrong})
        if words:
            assert (refused.status_code, words in refused.text) == (422, True)
    client.patch(one, json={"where": condition})
    assert client.patch(one, json={"where": None}).json()["where"] is None
    assert client.post(URL, json={"schema": "public", "name": "log_*", "where": "a = 1"}).status_code == 422
