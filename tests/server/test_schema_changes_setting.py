"""The setting `schema_changes` of a subscription: accepted, shown, changed and sent to the engine; invalid values are refused."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from engine.model.subscription import SchemaPolicy
from tests.fixtures.app_state import count_assignments, read_assigned

URL = "/api/v1/subscriptions/s"
BODY: dict[str, Any] = {"source": "shop", "target": "mart", "tables": [{"schema": "public", "name": "orders"}]}

pytestmark = pytest.mark.usefixtures("connections")


def test_by_default_the_target_follows(client: TestClient, app: FastAPI) -> None:
    assert client.put(URL, json=BODY).json()["schema_changes"] == {"policy": "apply"}
    assert read_assigned(app).schema_changes is SchemaPolicy.APPLY


@pytest.mark.parametrize("policy", list(SchemaPolicy))
def test_what_was_declared_is_shown_told_and_can_be_put_again(
    client: TestClient, app: FastAPI, policy: SchemaPolicy
) -> None:
    given = {**BODY, "schema_changes": {"policy": policy.value}}
    assert client.put(URL, json=given).status_code == 201
    shown = client.get(URL).json()["schema_changes"]
    assert shown == {"policy": policy.value}
    again = client.put(URL, json={**BODY, "schema_changes": shown})
    assert (again.status_code, again.json()["schema_changes"]) == (200, shown)
    assert read_assigned(app).schema_changes is policy
    assert count_assignments(app) == 1


def test_patch_changes_it_and_null_goes_back_to_the_default(client: TestClient, app: FastAPI) -> None:
    tag = client.put(URL, json=BODY).headers["ETag"]
    answer = client.patch(URL, json={"schema_changes": {"policy": "ask"}}, headers={"If-Match": tag})
    assert (answer.status_code, answer.json()["schema_changes"]) == (200, {"policy": "ask"})
    assert answer.headers["ETag"] != tag
    assert (read_assigned(app).schema_changes, count_assignments(app)) == (SchemaPolicy.ASK, 2)
    assert client.patch(URL, json={"batch": {"tasks": 2}}).json()["schema_changes"] == {"policy": "ask"}
    for back in ({"policy": None}, None):
        assert client.patch(URL, json={"schema_changes": {"policy": "ignore"}}).status_code == 200
        assert client.patch(URL, json={"schema_changes": back}).json()["schema_changes"] == {"policy": "apply"}
        assert read_assigned(app).schema_changes is SchemaPolicy.APPLY


@pytest.mark.parametrize(
    ("given", "pointer", "words"),
    [
        ({"policy": "follow"}, "/schema_changes/policy", "'apply', 'ask' or 'ignore'"),
        ({"policy": ""}, "/schema_changes/policy", "'apply', 'ask' or 'ignore'"),
        ({"policies": "ask"}, "/schema_changes/policies", "Nothing of this name exists here."),
    ],
)
def test_any_other_is_refused_and_pointed_at(
    client: TestClient, app: FastAPI, given: dict[str, str], pointer: str, words: str
) -> None:
    refused = client.put(URL, json={**BODY, "schema_changes": given})
    assert client.put(URL, json=BODY).status_code == 201
    for answer in (refused, client.patch(URL, json={"schema_changes": given})):
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
        (error,) = answer.json()["errors"]
        assert (error["pointer"], words in error["detail"]) == (pointer, True), error
    assert (read_assigned(app).schema_changes, count_assignments(app)) == (SchemaPolicy.APPLY, 1)
