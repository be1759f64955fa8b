"""Everything that goes wrong leaves as one form of problem, and tells nothing of the inside."""

from __future__ import annotations

import re

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy.exc import IntegrityError
from sqlmodel import select

from server.db.dependencies import Writing
from server.db.models.outbox import OutboxRow
from server.db.models.token import TokenRow
from server.db.outbox import enqueue
from server.errors import Problem, ProblemBody

MEMBERS = {"type", "title", "status", "code", "detail", "remedy", "errors", "trace_id"}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/nothing", None, 404, "not_found"),
        ("GET", "/api/v1/nothing", None, 404, "not_found"),
        ("DELETE", "/api/v1/connections", None, 405, "method_not_allowed"),
        ("PUT", "/api/v1/connections/a", b"{", 422, "invalid_request"),
        ("PUT", "/api/v1/connections/a", b"[]", 422, "invalid_request"),
        ("GET", "/api/v1/connections?page_size=x", None, 422, "invalid_request"),
        ("GET", "/static/nothing.js", None, 404, "not_found"),
        ("PUT", "/api/v1/connections/a", b" " * (17 * 1024 * 1024), 413, "body_too_large"),
    ],
)
def test_one_form(client: TestClient, method: str, path: str, body: bytes | None, status: int, code: str) -> None:
    answer = client.request(method, path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem.keys() >= MEMBERS
    assert (problem["status"], problem["code"], problem["type"]) == (status, code, f"urn:penstock:problem:{code}")
    assert problem["trace_id"] == answer.headers["X-Trace-Id"]
    assert problem["remedy"]
    ProblemBody.model_validate(problem)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"a": "\xff"}', "not UTF-8 text at byte 7"),
        (b"[" * 50_000, "nests too deeply"),
        (b'{"a":' + b"9" * 5_000 + b"}", "too many digits"),
        (b'{"kind": "x"}}', "at character 13"),
    ],
)
def test_a_body_that_is_no_json_is_refused_with_the_place(client: TestClient, body: bytes, words: str) -> None:
    answer = client.put("/api/v1/connections/a", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert words in answer.json()["errors"][0]["detail"]


def test_a_body_of_unknown_length_is_counted(client: TestClient) -> None:
    pieces = (b" " * 1024 * 1024 for _ in range(17))
    answer = client.put("/api/v1/connections/a", content=pieces, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


def test_allowed_methods_are_named(client: TestClient) -> None:
    assert "GET" in client.post("/livez").headers["Allow"]


def test_pointers_of_parameters_say_where(client: TestClient) -> None:
    error = client.get("/api/v1/connections?page_size=0").json()["errors"][0]
    assert (error["in"], error["pointer"]) == ("query", "/page_size")


def test_unexpected_errors_tell_nothing(client: TestClient, app: FastAPI) -> None:
    @app.get("/boom")
    def boom() -> None:
        raise RuntimeError("hunter2 in /etc/passwd")

    answer = client.get("/boom")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
    assert "hunter2" not in answer.text


def test_collisions_in_the_database_are_conflicts(client: TestClient, app: FastAPI) -> None:
    @app.get("/collide")
    def collide() -> None:
        raise IntegrityError("INSERT hunter2", None, Exception("hunter2"))

    answer = client.get("/collide")
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert "hunter2" not in answer.text


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", True),
        ("00-00000000000000000000000000000000-b7ad6b7169203331-01", False),
        ("junk\twith-0af7651916cd43dd8448eb211c80319c", False),
    ],
)
def test_trace_ids_come_from_the_caller_where_valid(client: TestClient, sent: str, kept: bool) -> None:
    trace_id = client.get("/livez", headers={"traceparent": sent}).headers["X-Trace-Id"]
    assert re.fullmatch("[0-9a-f]{32}", trace_id)
    assert (trace_id == "0af7651916cd43dd8448eb211c80319c") is kept


def _subclasses(kind: type[Problem]) -> set[type[Problem]]:
    return {kind}.union(*(_subclasses(sub) for sub in kind.__subclasses__()))


def test_codes_are_unique_and_explained() -> None:
    own = [kind for kind in _subclasses(Problem) if "code" in vars(kind)]
    codes = [kind.code for kind in own]
    assert len(codes) == len(set(codes))
    assert all(re.fullmatch("[a-z_0-9]+", code) for code in codes)
    assert all(kind.title and kind.default_remedy.endswith(".") for kind in own)


def test_what_fails_at_the_commit_is_answered_as_a_problem(client: TestClient, app: FastAPI) -> None:
    @app.get("/late")
    def late(session: Writing) -> dict[str, str]:
        enqueue(session, None, "x", {})
        session.add(TokenRow(id="1", name="preset-admin", role="admin", digest="d", created_at=session.now()))
        return {"all": "well"}

    answer = client.get("/late")
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    with app.state.database.read() as session:
        assert session.exec(select(OutboxRow)).all() == []
