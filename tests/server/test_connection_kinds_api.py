"""Kinds of connections over REST and the command line: what a form for one is drawn from, and which captures a source has."""

from __future__ import annotations

from typing import ClassVar, Literal

import pytest
from fastapi.testclient import TestClient

from engine.connectors import CONNECTIONS, SOURCES, TARGETS, open_source
from engine.duckdb.declaration import DuckDbSettings
from engine.kinds import Capture, ConnectionKind, SourceKind
from engine.model.source import SourceTerms
from server.db.models.connection import ConnectionRow
from server.declarations.captures import CAPTURES
from server.errors import InvalidRequest
from server.subscriptions import service

URL = "/api/v1/connection-kinds"
SHOP = {"kind": "postgres", "settings": {"host": "db", "database": "shop", "user": "penstock"}}
MART = {"kind": "duckdb", "settings": {"path": "/data/mart.duckdb"}}
BODY = {"source": "shop", "target": "mart", "tables": []}


class LedgerCapture(Capture):
    """A capture that no kind of connection has but those of a test."""

    title: ClassVar[str] = "Ledger"
    words: ClassVar[str] = "A ledger of changes."

    kind: Literal["ledger"] = "ledger"
    pages: int = 1


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CAPTURES, "ledger", LedgerCapture)


def test_every_kind_says_what_a_form_needs(client: TestClient) -> None:
    answer = client.get(URL)
    assert (answer.status_code, answer.json()["next_page_token"]) == (200, None)
    found = {item["kind"]: item for item in answer.json()["items"]}
    assert list(found) == list(CONNECTIONS)
    shop, mart = found["postgres"], found["duckdb"]
    assert (shop["title"], shop["source"], shop["target"], shop["embedded"]) == ("PostgreSQL", True, True, False)
    assert (mart["title"], mart["source"], mart["target"], mart["embedded"]) == ("DuckDB", True, True, True)
    assert list(shop["settings"]["properties"])[:4] == ["host", "port", "database", "user"]
    assert shop["settings"]["required"] == ["host", "database", "user"]
    assert mart["settings"]["properties"]["path"]["title"] == "File"
    assert list(shop["secrets"]["properties"]) == ["mask_key", "password", "query_password"]
    assert list(mart["secrets"]["properties"]) == ["mask_key"]
    assert [capture["kind"] for capture in shop["captures"]] == ["postgres_log", "triggers", "query_diff"]
    options = [[each["table_options"] for each in found[kind]["captures"]] for kind in ("postgres", "files", "mariadb")]
    assert options == [[[], [], ["flag_column", "key", "stamps_below"]], [["columns", "key"]], [[], ["flag_column"]]]
    assert [capture["kind"] for capture in mart["captures"]] == ["query_diff"]
    assert [capture["kind"] for capture in found["files"]["captures"]] == ["query_diff"]
    assert (found["files"]["source"], found["files"]["target"]) == (True, False)
    other = found["mariadb"]
    assert (other["title"], other["source"], other["target"], other["embedded"]) == ("MariaDB", True, False, False)
    assert other["settings"]["required"] == ["host", "database", "user"]
    assert list(other["secrets"]["properties"]) == ["mask_key", "password"]
    assert [capture["kind"] for capture in other["captures"]] == ["triggers", "query_diff"]
    assert "penstock on the source: three triggers" in other["captures"][0]["description"]
    assert "a replica does, too" in other["captures"][1]["description"]
    assert [capture["kind"] for capture in found["sqlite"]["captures"]] == ["triggers", "query_diff"]


def test_every_kind_and_label_is_real() -> None:
    assert {(name, capture) for name, kind in CONNECTIONS.items() for capture in kind.captures} == set(SOURCES)
    assert {name for name, kind in CONNECTIONS.items() if kind.target} == set(TARGETS)
    assert CAPTURES.keys() == {capture for _, capture in SOURCES}
    for kind in CONNECTIONS.values():
        assert kind.labels.keys() <= kind.settings.model_fields.keys() | kind.secrets


def test_a_viewer_may_look_and_others_may_not(client: TestClient) -> None:
    token = client.post("/api/v1/tokens", json={"name": "looks", "role": "viewer"}).json()["token"]
    assert client.get(URL, headers={"Authorization": f"Bearer {token}"}).status_code == 200
    client.headers.pop("Authorization")
    assert client.get(URL).status_code == 401


def _declared(client: TestClient) -> None:
    client.put("/api/v1/connections/shop", json=SHOP)
    client.put("/api/v1/connections/mart", json=MART)


@pytest.mark.usefixtures("ledger")
def test_a_capture_that_the_source_does_not_have_is_refused(client: TestClient) -> None:
    _declared(client)
    for call in (client.put, client.patch):
        answer = call("/api/v1/subscriptions/s", json={**BODY, "capture": {"kind": "ledger"}})
        assert (answer.status_code, answer.json()["code"]) == (422, "capture_unsupported")
        assert [error["pointer"] for error in answer.json()["errors"]] == ["/capture/kind"]
        assert (
            "'shop' is of the kind postgres, which has no capture 'ledger'; it has: postgres_log, triggers, query_diff."
            in answer.text
        )
        client.put("/api/v1/subscriptions/s", json=BODY)
    assert client.get("/api/v1/subscriptions/s").json()["capture"]["kind"] == "postgres_log"


def test_a_capture_that_no_source_has_is_refused_with_those_that_there_are(client: TestClient) -> None:
    _declared(client)
    answer = client.put("/api/v1/subscriptions/s", json={**BODY, "capture": {"kind": "guess"}})
    assert (answer.status_code, answer.json()["detail"]) == (
        422,
        "There is no such kind of capture; there are postgres_log, triggers, query_diff, postgres_logs.",
    )


def test_a_setting_of_the_capture_of_another_kind_is_refused(client: TestClient) -> None:
    """Captures of one name are read as one class; what only PostgreSQL has would be ignored without a word."""
    client.put("/api/v1/connections/shop", json={"kind": "sqlite", "settings": {"path": "/data/shop.db"}})
    client.put("/api/v1/connections/mart", json=MART)
    for given in ({"install": False}, {"audit": True}, {"recorder": "application"}):
        answer = client.put("/api/v1/subscriptions/s", json={**BODY, "capture": {"kind": "triggers", **given}})
        assert (answer.status_code, [error["pointer"] for error in answer.json()["errors"]]) == (
            422,
            [f"/capture/{next(iter(given))}"],
        )
        assert "for a source of the kind sqlite" in answer.text
    body = {**BODY, "capture": {"kind": "triggers", "budget_bytes": 1024**3}}
    assert client.put("/api/v1/subscriptions/s", json=body).status_code == 201


@pytest.mark.usefixtures("ledger")
def test_a_source_without_a_log_has_its_own_usual_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    paper = ConnectionKind("paper", "Paper", DuckDbSettings, {}, frozenset(), captures=("ledger",))
    monkeypatch.setitem(CONNECTIONS, "paper", paper)
    monkeypatch.setitem(SOURCES, ("paper", "ledger"), SourceKind(paper, LedgerCapture, SourceTerms(), open_source))
    source = ConnectionRow(name="books", kind="paper")
    assert service._captured(source, {}) == {"kind": "ledger"}
    assert service._captured(source, {"kind": "ledger", "pages": 3}) == {"kind": "ledger", "pages": 3}
    with pytest.raises(InvalidRequest, match="has no capture 'postgres_log'"):
        service._captured(source, {"kind": "postgres_log"})
