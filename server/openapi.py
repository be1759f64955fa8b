"""The OpenAPI document: adds the parts that all endpoints share."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from server.errors import (
    Forbidden,
    InvalidRequest,
    Problem,
    ProblemBody,
    Unauthenticated,
    responses,
)

DESCRIPTION = """Keeps analytic copies of operational tables up to date within seconds, and lets a query wait until it sees a commit.

Errors are `application/problem+json` with a stable `code` and a `remedy`. 502, 503 and 504 always mean your own database or
pipeline. Lists take `page_size` and `page_token`. Resources carry `ETag`; changes honour `If-Match`. PUT may be repeated;
POST takes `Idempotency-Key` where it creates something. Positions are strings; times are RFC 3339 in UTC."""

TAGS = [
    {"name": "connections", "description": "How to reach one database, with its secrets; used as source or as target."},
    {"name": "subscriptions", "description": "One pipeline: a source, a target, a set of tables, policies."},
    {"name": "tables", "description": "The tables of a subscription, each with a state and a history."},
    {"name": "events", "description": "State changes, faults and user actions."},
    {"name": "alert channels", "description": "Receivers of alerts: webhooks, Slack, e-mail."},
    {"name": "tokens", "description": "Bearer tokens and their roles."},
    {"name": "health", "description": "Liveness and readiness for process monitors."},
]

PUBLISHED_NAMES = {
    "server__assessment__health__Health": "server__subscriptions__health__Health",
    "TableStateKind": "TableState",
    "PostgresLogCapture": "CapturePolicy",
}
"""Names of schemas that clients know by an earlier name of the class or of its module."""


def install(app: FastAPI) -> None:
    """Replace the application's document by ours, which is built once."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    generated = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes, tags=TAGS
    )
    document = _with_published_names(generated)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    own = ProblemBody.model_json_schema(ref_template="#/components/schemas/{model}", by_alias=True)
    schemas.update(own.pop("$defs", {}))
    schemas["ProblemBody"] = own
    for path in document["paths"].values():
        for operation in path.values():
            _complete(operation)
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    return document


def _with_published_names(document: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(document, ensure_ascii=False)
    for name, published in PUBLISHED_NAMES.items():
        text = text.replace(name, published)
    renamed: dict[str, Any] = json.loads(text)
    return renamed


def _complete(operation: dict[str, Any]) -> None:
    """Add to an operation the problems that every operation of its kind can answer with."""
    answers: dict[str, Any] = operation["responses"]
    if "$ref" in str(answers.get("422", {})) and "HTTPValidationError" in str(answers["422"]):
        del answers["422"]
    common: list[type[Problem]] = (
        [InvalidRequest] if operation.get("parameters") or operation.get("requestBody") else []
    )
    if operation.get("security"):
        common += [Unauthenticated, Forbidden]
    for status, answer in responses(*common).items():
        if str(status) in answers:
            answers[str(status)]["content"].setdefault("application/problem+json", {}).setdefault(
                "examples", {}
            ).update(answer["content"]["application/problem+json"]["examples"])
        else:
            answers[str(status)] = answer
    operation["responses"] = dict(sorted(answers.items()))
