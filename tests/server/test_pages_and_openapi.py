"""Health pages, and the OpenAPI document that clients are generated from."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.server.conftest import PlayedEngine

GOLDEN = Path(__file__).parents[1] / "golden" / "openapi.json"


def test_health(client: TestClient, engine: PlayedEngine) -> None:
    client.headers.pop("Authorization")
    assert client.get("/livez").json() == {"status": "ok"}
    assert client.get("/readyz").status_code == 200
    engine.connected = False
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/engine"]


def _operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def test_operations_are_named_and_described(app: FastAPI) -> None:
    operations = _operations(app.openapi())
    ids = [operation["operationId"] for _, _, operation in operations]
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)+", name) for name in ids)
    assert all(
        operation["summary"] and operation["description"] and operation["tags"] for _, _, operation in operations
    )


def test_errors_are_documented_as_problems(app: FastAPI) -> None:
    document = app.openapi()
    wrong = [
        (method, path, status)
        for path, method, operation in _operations(document)
        for status, answer in operation["responses"].items()
        if status >= "400" and "application/problem+json" not in answer.get("content", {})
    ]
    assert wrong == []
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_every_reference_leads_somewhere(app: FastAPI) -> None:
    document = app.openapi()
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))
    assert named <= document["components"]["schemas"].keys()


def test_document_is_the_agreed_one(app: FastAPI) -> None:
    text = json.dumps(app.openapi(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8"), (
        "the API changed; UPDATE_GOLDEN=1 rewrites tests/golden/openapi.json"
    )
