"""Whatever is sent to any operation of the OpenAPI document, the answer is the documented one or a problem; never an error of ours."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.app import create_app
from server.errors import MEDIA_TYPE, ProblemBody
from server.settings import load_settings
from tests.server.conftest import PlayedSample

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from fastapi.testclient import TestClient

ADMIN, ENGINE = "test-admin-token-0123456789", "test-engine-token-0123456789"
DOCUMENT = json.loads((Path(__file__).parents[1] / "golden" / "openapi.json").read_text())
# A stream that begins never ends by itself.
STREAMS = {"events_stream"}
THEIRS = {502, 503, 504}
"""The user's own database or pipeline."""


@dataclass(frozen=True, slots=True)
class Operation:
    method: str
    path: str
    content: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.content["operationId"])

    @property
    def parameters(self) -> list[dict[str, Any]]:
        return list(self.content.get("parameters", []))

    @property
    def example(self) -> Any:
        """A body that is right, or at least an object with every member; None where there is no body."""
        body = self.content.get("requestBody", {}).get("content", {}).get("application/json")
        return None if body is None else _example(body["schema"], 0)


def _example(schema: dict[str, Any], depth: int) -> Any:
    if "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    if schema.get("examples"):
        return max(schema["examples"], key=lambda example: len(json.dumps(example)))
    for choice in schema.get("anyOf", schema.get("oneOf", ())):
        return _example(choice, depth)
    if depth < 4 and schema.get("properties"):
        return {name: _example(part, depth + 1) for name, part in schema["properties"].items()}
    if schema.get("type") == "array":
        return [_example(schema.get("items", {}), depth + 1)]
    return {"string": "a", "integer": 1, "number": 0.5, "boolean": True, "object": {}}.get(schema.get("type", ""))


OPERATIONS = [
    Operation(method, path, content)
    for path, methods in DOCUMENT["paths"].items()
    for method, content in methods.items()
    if content["operationId"] not in STREAMS
]

huge = st.sampled_from([0, -1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**40, 1e308, float("nan"), float("inf"), -0.0])
texts = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["", "*", "\0", "a\0b", "\ud800", "..", "/", "%00", "'; --", "a" * 300, "ü" * 70_000, "0/0", "P1D"]
    ),
)
junk = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), huge, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
raw_bodies = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [
            *(b"", b"{", b"null", b"nul", b"NaN", b"[]", b"{}{}", b"'x'", b"\0", b"a=1&b=2", b"--x\r\n"),
            *(b"[" * 50_000, b'{"a":' * 3000, b"9" * 5000, b'{"a":1e999}', b'{"":""}'),
            *(b'"\xff"', b"\xef\xbb\xbf{}", b"\xff\xfe{\0}\0", b'{"a":"\\ud800"}'),
            *(b'{"partitions":[""]}', b'{"partitions":["\\u0000"]}', b'{"tables":[""]}'),
        ]
    ),
)
content_types = st.sampled_from(
    [
        *["application/json"] * 8,
        *("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "multipart/form-data"),
        *("application/json; charset=utf-16", "application/merge-patch+json", "no type"),
    ]
)
tokens = st.one_of(texts, st.just("W10"), st.binary(max_size=20).map(lambda noise: noise.hex()))
headers = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=300).map(str.strip)


def _places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every (container, key) below `value`."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found.append((value, key))
        _places(inner, found)
    return found


@st.composite
def bodies(draw: st.DrawFn, example: Any) -> bytes:
    """Noise, any JSON, or the example with some places spoilt."""
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return draw(raw_bodies)
    if kind == 1:
        return json.dumps(draw(junk)).encode()
    body = copy.deepcopy(example)
    for _ in range(draw(st.integers(0, 2))):
        places = _places(body, [])
        if not places:
            break
        container, key = draw(st.sampled_from(places))
        change = draw(st.integers(0, 3))
        if change == 0 and isinstance(container, dict):
            container[draw(texts)] = draw(junk)
        elif change == 1:
            del container[key]
        else:
            container[key] = draw(junk)
    return json.dumps(body).encode()


@st.composite
def requests(draw: st.DrawFn, operation: Operation) -> dict[str, Any]:
    path, query, sent = operation.path, {}, {}
    for parameter in operation.parameters:
        name = parameter["name"]
        if parameter["in"] == "path":
            known = st.sampled_from(["s", "shop"]) if name == "name" else texts
            value = draw(st.one_of(known, known, texts)).encode("utf-8", "replace").decode() or "x"
            # A client takes dot segments out of an address before it is sent: another operation's would be left.
            value = "x" if value in {".", ".."} else value
            path = path.replace(f"{{{name}}}", quote(value[:2000], safe=""))
        elif draw(st.booleans()):
            if parameter["in"] == "query":
                query[name] = draw(tokens if name == "page_token" else texts).encode("utf-8", "replace").decode()[:2000]
            else:
                sent[name] = draw(headers)
    request: dict[str, Any] = {"method": operation.method.upper(), "url": path, "params": query, "headers": sent}
    if "requestBody" in operation.content:
        request["content"] = draw(bodies(operation.example))
        request["headers"] = {"Content-Type": draw(content_types), **sent}
    return request


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """All of it runs, but no engine is there."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ADMIN_TOKEN", "ENGINE_TOKEN", "DATABASE_URL", "SECRET_KEYS", "HOME", "HOST", "PORT"):
            patch.delenv(f"PENSTOCK_{name}", raising=False)
        home = tmp_path_factory.mktemp("fuzz")
        made = load_settings(home=home, admin_token=ADMIN, engine_token=ENGINE, log_level="error")
        app = create_app(made)
        app.state.sample = PlayedSample()
        with TestClient(app, raise_server_exceptions=False, follow_redirects=False) as client:
            yield client


def _prepare(client: TestClient) -> None:
    own = {"Authorization": f"Bearer {ADMIN}"}
    shop = {"kind": "postgres", "settings": {"host": "db", "database": "shop", "user": "u"}}
    client.put("/api/v1/connections/shop", json=shop, headers=own)
    mart = {"kind": "duckdb", "settings": {"path": "/data/mart.duckdb"}}
    client.put("/api/v1/connections/mart", json=mart, headers=own)
    body = {"source": "shop", "target": "mart", "tables": [{"schema": "public", "name": "orders"}]}
    answer = client.put("/api/v1/subscriptions/s", json={**body, "desired_state": "paused"}, headers=own)
    assert answer.status_code in {200, 201}, answer.text


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_wrong_requests_end_in_problems(server: TestClient, operation: Operation) -> None:
    _prepare(server)
    token = ENGINE if operation.name.startswith("engines_") and operation.name != "engines_list" else ADMIN

    @settings(max_examples=15, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(requests(operation))
    def check(request: dict[str, Any]) -> None:
        sent = {**request["headers"], "Authorization": f"Bearer {token}"}
        answer = server.request(**{**request, "headers": sent})
        if answer.status_code < 400 or (operation.name == "health_ready" and answer.status_code == 503):
            return
        assert answer.status_code < 500 or answer.status_code in THEIRS, (answer.status_code, answer.text[:500])
        assert answer.headers["content-type"] == MEDIA_TYPE
        problem = ProblemBody.model_validate(answer.json())
        assert problem.status == answer.status_code
        assert problem.code
        assert problem.detail
        if not problem.detail.startswith("Nothing is found at "):  # else the path is not this operation's
            assert str(answer.status_code) in operation.content["responses"], answer.text[:500]

    check()
