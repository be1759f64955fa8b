"""Connections over REST: declared, merged, checked, deleted; secrets go in and never come out."""

from __future__ import annotations

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlmodel import select

from engine.model.identity import TableName
from server.db.models.connection import ConnectionRow
from server.db.models.outbox import OutboxRow
from server.errors import ReportedProblem
from server.gateway.interface import EngineUnavailable
from tests.server.conftest import PlayedEngine

URL = "/api/v1/connections"
SHOP = {
    "kind": "postgres",
    "settings": {"host": "db", "database": "shop", "user": "penstock"},
    "secrets": {"password": "hidden-word"},
}


def test_put_creates_then_repeats_without_change(client: TestClient) -> None:
    first = client.put(f"{URL}/shop", json=SHOP)
    again = client.put(f"{URL}/shop", json=SHOP)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.headers["ETag"] == again.headers["ETag"]
    assert first.json()["settings"] == {
        "host": "db",
        "port": 5432,
        "database": "shop",
        "user": "penstock",
        "sslmode": "prefer",
    }


def test_secrets_never_come_out(client: TestClient, app: FastAPI) -> None:
    answers = [
        client.put(f"{URL}/shop", json=SHOP),
        client.get(f"{URL}/shop"),
        client.get(URL),
        client.get("/api/v1/events"),
    ]
    assert all("hidden-word" not in answer.text for answer in answers)
    assert answers[1].json()["secrets_set"] == ["password"]
    with app.state.database.read() as session:
        row = session.exec(select(ConnectionRow)).one()
    assert "hidden-word" not in str(row)
    assert app.state.secret_box.open(row.secrets_sealed) == {"password": "hidden-word"}


@pytest.mark.parametrize(
    ("secrets", "left"),
    [(None, ["password"]), ({}, ["password"]), ({"password": None}, []), ({"password": "other"}, ["password"])],
)
def test_left_out_secrets_stay_and_null_removes(client: TestClient, secrets: dict | None, left: list[str]) -> None:
    client.put(f"{URL}/shop", json=SHOP)
    body = {key: value for key, value in {**SHOP, "secrets": secrets}.items() if value is not None}
    assert client.put(f"{URL}/shop", json=body).json()["secrets_set"] == left


def test_patch_merges_and_null_is_the_default(client: TestClient) -> None:
    client.put(f"{URL}/shop", json={**SHOP, "settings": {**SHOP["settings"], "port": 6000}})
    changed = client.patch(f"{URL}/shop", json={"settings": {"host": "db2", "port": None}})
    assert changed.status_code == 200
    assert changed.json()["settings"]["host"] == "db2"
    assert changed.json()["settings"]["port"] == 5432
    assert changed.json()["secrets_set"] == ["password"]


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"kind": "oracle"}, "/kind"),
        ({"settings": {"host": "db", "database": "shop"}}, "/settings/user"),
        ({"settings": {**SHOP["settings"], "prot": 1}}, "/settings/prot"),
        ({"settings": {**SHOP["settings"], "port": 70000}}, "/settings/port"),
        ({"settings": {**SHOP["settings"], "sslmode": "maybe"}}, "/settings/sslmode"),
        ({"secrets": {"pasword": "x"}}, "/secrets/pasword"),
        ({"secrets": {"password": ""}}, "/secrets/password"),
        ({"settings": 5}, "/settings"),
        ({"colour": "red"}, "/colour"),
    ],
)
def test_wrong_parts_are_pointed_at(client: TestClient, change: dict, pointer: str) -> None:
    answer = client.put(f"{URL}/shop", json={**SHOP, **change})
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]
    assert answer.json()["remedy"]


def test_refusals_do_not_echo_what_was_sent(client: TestClient) -> None:
    answer = client.put(f"{URL}/shop", json={**SHOP, "secrets": {"password": ["very-hidden"]}})
    assert answer.status_code == 422
    assert "very-hidden" not in answer.text


@pytest.mark.parametrize("name", ["-x", "a b", "ä", "x" * 64])
def test_names_are_checked(client: TestClient, name: str) -> None:
    answer = client.put(f"{URL}/{name}", json=SHOP)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["in"] == "path"


def test_kind_is_fixed(client: TestClient) -> None:
    client.put(f"{URL}/shop", json=SHOP)
    answer = client.put(f"{URL}/shop", json={"kind": "duckdb", "settings": {"path": "x"}})
    assert (answer.status_code, answer.json()["code"]) == (409, "connection_kind_fixed")


def test_if_match(client: TestClient) -> None:
    tag = client.put(f"{URL}/shop", json=SHOP).headers["ETag"]
    fresh = client.patch(f"{URL}/shop", json={"settings": {"host": "b"}}, headers={"If-Match": tag})
    stale = client.patch(f"{URL}/shop", json={"settings": {"host": "c"}}, headers={"If-Match": tag})
    assert (fresh.status_code, stale.status_code) == (200, 412)
    assert stale.headers["ETag"] == fresh.headers["ETag"] != tag
    assert client.delete(f"{URL}/shop", headers={"If-Match": tag}).status_code == 412
    assert client.put(f"{URL}/new", json=SHOP, headers={"If-Match": "*"}).status_code == 412
    assert client.delete(f"{URL}/shop", headers={"If-Match": f'"x", {fresh.headers["ETag"]}'}).status_code == 204


def test_a_tag_does_not_fit_the_next_one_of_the_same_name(client: TestClient) -> None:
    tag = client.put(f"{URL}/shop", json=SHOP).headers["ETag"]
    client.delete(f"{URL}/shop")
    client.put(f"{URL}/shop", json=SHOP)
    assert client.delete(f"{URL}/shop", headers={"If-Match": tag}).status_code == 412


def test_used_connections_stay_and_changes_reach_the_engine(
    client: TestClient, app: FastAPI, connections: None
) -> None:
    body = {"source": "shop", "target": "mart", "tables": [{"schema": "public", "name": "orders"}]}
    client.put("/api/v1/subscriptions/s", json=body)
    answer = client.delete(f"{URL}/mart")
    assert (answer.status_code, answer.json()["code"]) == (409, "connection_in_use")
    assert "'s'" in answer.json()["detail"]
    client.patch(f"{URL}/shop", json={"secrets": {"password": "new"}})
    with app.state.database.read() as session:
        sent = [(row.subscription, row.kind, row.payload) for row in session.exec(select(OutboxRow))]
    assert sent == [("s", "assign", {}), ("s", "assign", {})]


def test_unknown_one(client: TestClient) -> None:
    for answer in (
        client.get(f"{URL}/nope"),
        client.patch(f"{URL}/nope", json={}),
        client.delete(f"{URL}/nope"),
        client.post(f"{URL}/nope/checks"),
        client.get(f"{URL}/nope/tables"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_paging(client: TestClient) -> None:
    for name in ("c", "a", "b", "B"):
        client.put(f"{URL}/{name}", json=SHOP)
    names, token, pages = [], None, 0
    while token or not pages:
        page = client.get(URL, params={"page_size": 3, **({"page_token": token} if token else {})}).json()
        names += [item["name"] for item in page["items"]]
        token, pages = page["next_page_token"], pages + 1
    assert (names, pages) == (["B", "a", "b", "c"], 2)


@pytest.mark.parametrize("token", ["x", "e30", "WyIiLDFd", "äö", "W10", "bnVsbA"])
def test_made_up_page_tokens_are_refused(client: TestClient, token: str) -> None:
    answer = client.get(URL, params={"page_token": token})
    assert (answer.status_code, answer.json()["code"]) == (422, "page_token_invalid")


def test_checks_are_for_the_place_that_a_connection_is_to_take(
    client: TestClient, engine: PlayedEngine, connections: None
) -> None:
    engine.answers["preflight"] = {"findings": []}
    for name, body, role in (
        ("shop", {}, "source"),
        ("shop", {"role": "target"}, "target"),
        ("mart", {}, "target"),
        ("mart", {"role": "target"}, "target"),
        ("mart", {"role": "source"}, "source"),
        ("mart", {"capture": {"kind": "query_diff"}}, "source"),
    ):
        assert client.post(f"{URL}/{name}/checks", json=body).status_code == 200
        assert engine.asked[-1][1]["role"] == role


@pytest.mark.usefixtures("no_duckdb_sources", "connections")
def test_what_is_no_source_is_neither_checked_nor_read_as_one(client: TestClient) -> None:
    answer = client.post(f"{URL}/mart/checks", json={"role": "source"})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/role")
    for what in ("tables", "ddl-capture", "change-triggers"):
        assert client.get(f"{URL}/mart/{what}").json()["code"] == "not_a_source"


def test_checks_ask_the_engine_with_secrets(client: TestClient, engine: PlayedEngine, connections: None) -> None:
    finding = {
        "severity": "error",
        "code": "source_wal_level",
        "what": "wal_level is replica.",
        "remedy": "Set it.",
    }
    engine.answers["preflight"] = {"findings": [finding]}
    body = {"tables": [{"schema": "public", "name": "orders"}], "origin": "none"}
    answer = client.post(f"{URL}/shop/checks", json=body)
    assert answer.json() == {"ok": False, "findings": [{**finding, "sql": [], "actions": []}]}
    kind, payload = engine.asked[0]
    assert kind == "preflight"
    assert payload["connection"]["secrets"] == {"password": "hidden-word"}
    assert payload["tables"][0].source == TableName("public", "orders")
    assert payload["origin"] == "none"
    engine.answers["preflight"] = {"findings": []}
    assert client.post(f"{URL}/shop/checks").json() == {"ok": True, "findings": []}


def test_checks_ask_for_the_intended_capture(client: TestClient, engine: PlayedEngine, connections: None) -> None:
    engine.answers["preflight"] = {"findings": []}
    capture = {"publication": "theirs", "slot": "their_slot", "origin": "none"}
    assert client.post(f"{URL}/shop/checks", json={"capture": capture}).status_code == 200
    _, payload = engine.asked[-1]
    settings = {"publication": "theirs", "slot": "their_slot"}
    assert (payload["capture"], payload["origin"]) == ({"kind": "postgres_log", "settings": settings}, "none")
    answer = client.post(f"{URL}/mart/checks", json={"capture": capture})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/capture")


def test_problems_of_the_engine_reach_the_user(client: TestClient, engine: PlayedEngine, connections: None) -> None:
    engine.answers["preflight"] = EngineUnavailable("None.")
    assert client.post(f"{URL}/shop/checks").status_code == 503
    engine.answers["preflight"] = ReportedProblem(502, "source_unreachable", "No route to db:5432.", "Check the host.")
    answer = client.post(f"{URL}/shop/checks")
    assert (answer.status_code, answer.json()["code"]) == (502, "source_unreachable")


def test_tables_of_a_source_are_paged(client: TestClient, engine: PlayedEngine, connections: None) -> None:
    engine.answers["discover"] = {
        "tables": [
            {
                "schema": "public",
                "name": name,
                "key": ["id"],
                "identity": "default",
                "partitioned": False,
                "rows_estimate": 5,
                "bytes": 8192,
                "columns": [{"name": "id", "type": "bigint"}],
                "problems": [],
            }
            for name in ("b", "a", "c")
        ]
    }
    first = client.get(f"{URL}/shop/tables", params={"page_size": 2}).json()
    assert [(item["schema"], item["name"]) for item in first["items"]] == [("public", "a"), ("public", "b")]
    rest = client.get(f"{URL}/shop/tables", params={"page_size": 2, "page_token": first["next_page_token"]}).json()
    assert [item["name"] for item in rest["items"]] == ["c"]
    assert rest["next_page_token"] is None
    assert all("capture" not in payload for _, payload in engine.asked)
    client.get(f"{URL}/shop/tables", params={"capture": "query_diff"})
    assert engine.asked[-1][1]["capture"] == {"kind": "query_diff", "settings": {}}
    refused = client.get(f"{URL}/shop/tables", params={"capture": "ledger"})
    assert (refused.status_code, "no capture 'ledger'" in refused.json()["detail"]) == (422, True)


_CAPTURE = {"installed": True, "version": 1, "current": True, "install_sql": ["CREATE …"], "remove_sql": ["DROP …"]}


def test_ddl_capture_is_shown_installed_and_removed(
    client: TestClient, engine: PlayedEngine, connections: None
) -> None:
    engine.answers["ddl_capture"] = _CAPTURE
    for method in ("GET", "PUT", "DELETE"):
        answer = client.request(method, f"{URL}/shop/ddl-capture")
        assert (answer.status_code, answer.json()) == (200, _CAPTURE)
    assert [payload["action"] for _, payload in engine.asked] == ["look", "install", "remove"]
    assert engine.asked[0][1]["connection"]["secrets"] == {"password": "hidden-word"}
    kinds = [event["kind"] for event in client.get("/api/v1/events").json()["items"]]
    assert [kind for kind in kinds if kind.startswith("ddl_")] == ["ddl_capture_removed", "ddl_capture_installed"]
    assert client.put(f"{URL}/nope/ddl-capture").status_code == 404


def test_a_user_who_may_not_install_ddl_capture_is_told_what_else(
    client: TestClient, engine: PlayedEngine, connections: None
) -> None:
    engine.answers["ddl_capture"] = ReportedProblem(502, "ddl_capture_privilege", "permission denied", "Without it …")
    answer = client.put(f"{URL}/shop/ddl-capture")
    assert (answer.json()["code"], answer.json()["remedy"]) == ("ddl_capture_privilege", "Without it …")
    kinds = [event["kind"] for event in client.get("/api/v1/events").json()["items"]]
    assert not any(kind.startswith("ddl_") for kind in kinds)


def test_checked_before_it_is_stored(client: TestClient, engine: PlayedEngine) -> None:
    finding = {"severity": "error", "code": "source_wal_level", "what": "wal_level is replica", "remedy": "Set it."}
    finding["sql"] = ["ALTER SYSTEM SET wal_level = 'logical'"]
    engine.answers["preflight"] = {"findings": [finding]}
    answer = client.post(f"{URL}/shop/checks", json={"role": "source", "connection": SHOP})
    assert (answer.status_code, answer.json()) == (200, {"ok": False, "findings": [{**finding, "actions": []}]})
    kind, payload = engine.asked[-1]
    assert (kind, payload["connection"]["secrets"]) == ("preflight", {"password": "hidden-word"})
    assert payload["connection"]["settings"]["port"] == 5432
    assert client.get(f"{URL}/shop").status_code == 404


def test_check_of_a_change_has_the_secrets_that_are_left_out(client: TestClient, engine: PlayedEngine) -> None:
    client.put(f"{URL}/shop", json=SHOP)
    engine.answers["preflight"] = {"findings": []}
    changed = {"kind": "postgres", "settings": {**SHOP["settings"], "host": "db2"}}
    answer = client.post(f"{URL}/shop/checks", json={"connection": changed})
    assert answer.json() == {"ok": True, "findings": []}
    asked = engine.asked[-1][1]["connection"]
    assert (asked["settings"]["host"], asked["secrets"]) == ("db2", {"password": "hidden-word"})
    assert client.get(f"{URL}/shop").json()["settings"]["host"] == "db"


@pytest.mark.parametrize(
    ("connection", "status", "pointer"),
    [
        ({"kind": "duckdb", "settings": {"path": "x"}}, 409, None),
        ({"kind": "postgres", "settings": {"host": "db"}}, 422, "/settings/database"),
        ({**SHOP, "secrets": {"pasword": "very-hidden"}}, 422, "/secrets/pasword"),
    ],
)
def test_check_refuses_what_a_put_would(
    client: TestClient, engine: PlayedEngine, connection: dict, status: int, pointer: str | None
) -> None:
    client.put(f"{URL}/shop", json=SHOP)
    answer = client.post(f"{URL}/shop/checks", json={"connection": connection})
    assert answer.status_code == status
    assert pointer is None or pointer in [error["pointer"] for error in answer.json()["errors"]]
    assert "very-hidden" not in answer.text
    assert engine.asked == []


def test_if_none_match_creates_only(client: TestClient) -> None:
    only_new = {"If-None-Match": "*"}
    first = client.put(f"{URL}/shop", json=SHOP, headers=only_new)
    again = client.put(f"{URL}/shop", json=SHOP, headers=only_new)
    assert (first.status_code, again.status_code, again.json()["code"]) == (201, 412, "precondition_failed")
    assert again.headers["ETag"] == first.headers["ETag"]
    assert client.put(f"{URL}/other", json=SHOP, headers={"If-None-Match": '"a-tag"'}).status_code == 422
