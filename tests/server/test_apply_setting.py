"""The setting `apply` of a subscription: accepted, shown, changed and sent to the engine; refused where it cannot be carried out."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from engine.model.subscription import ApplyMode, ApplyPolicy, LanePolicy, Visibility
from tests.fixtures.app_state import count_assignments, read_assigned
from tests.server.conftest import PlayedEngine

URL = "/api/v1/subscriptions/s"
TABLES = [{"schema": "public", "name": "orders"}]
DEFAULTS = {"mode": "auto", "policy": "pessimistic", "lanes": None, "group_size": None, "visibility": "atomic"}
LANES = (
    "one connection writes a batch that becomes visible at once; choose the mode 'grouped' or 'transactional', or the visibility"
    " 'relaxed', or leave lanes out (in a PATCH: null)."
)
PARTS = (
    "only the parts of a batch become visible one by one; choose the mode 'auto' or 'batch', or leave visibility out"
    " (in a PATCH: null)."
)
SIZE = "only the mode 'grouped' has groups; choose it, or leave group_size out (in a PATCH: null)."
REMEDY = "Use the mode 'auto' or 'batch', or a PostgreSQL target."

pytestmark = pytest.mark.usefixtures("connections")


@pytest.fixture(autouse=True)
def copy(client: TestClient) -> None:
    """A PostgreSQL target."""
    body = {
        "kind": "postgres",
        "settings": {"host": "db", "database": "copy", "user": "penstock"},
        "secrets": {"password": "other-word"},
    }
    assert client.put("/api/v1/connections/copy", json=body).status_code == 201


def declared(apply: dict[str, Any], target: str = "copy") -> dict[str, Any]:
    return {"source": "shop", "target": target, "tables": TABLES, "apply": apply}


@pytest.mark.parametrize("target", ["copy", "mart"])
def test_by_default_everything_is_chosen(client: TestClient, app: FastAPI, target: str) -> None:
    body = declared({}, target)
    del body["apply"]
    assert client.put(URL, json=body).json()["apply"] == DEFAULTS
    assert read_assigned(app).apply == ApplyPolicy()


@pytest.mark.parametrize(
    ("given", "policy"),
    [
        ({"mode": "batch"}, ApplyPolicy(ApplyMode.BATCH)),
        ({"mode": "batch", "lanes": 1}, ApplyPolicy(ApplyMode.BATCH, lanes=1)),
        ({"lanes": 64}, ApplyPolicy(lanes=64)),
        (
            {"mode": "grouped", "policy": "optimistic", "lanes": 4, "group_size": 100_000},
            ApplyPolicy(ApplyMode.GROUPED, LanePolicy.OPTIMISTIC, 4, 100_000),
        ),
        ({"mode": "transactional", "lanes": 2}, ApplyPolicy(ApplyMode.TRANSACTIONAL, lanes=2)),
        (
            {"mode": "batch", "visibility": "relaxed", "lanes": 2},
            ApplyPolicy(ApplyMode.BATCH, lanes=2, visibility=Visibility.RELAXED),
        ),
    ],
)
def test_what_was_declared_is_shown_told_and_can_be_put_again(
    client: TestClient, app: FastAPI, given: dict[str, Any], policy: ApplyPolicy
) -> None:
    assert client.put(URL, json=declared(given)).status_code == 201
    shown = client.get(URL).json()["apply"]
    assert shown == {**DEFAULTS, **given}
    assert read_assigned(app).apply == policy
    again = client.put(URL, json=declared(shown))
    assert (again.status_code, again.json()["apply"]) == (200, shown)
    assert read_assigned(app).apply == policy


@pytest.mark.parametrize(
    ("given", "errors"),
    [
        ({"group_size": 5}, {"/apply/group_size": SIZE}),
        ({"mode": "batch", "group_size": 5}, {"/apply/group_size": SIZE}),
        ({"mode": "transactional", "group_size": 1}, {"/apply/group_size": SIZE}),
        ({"mode": "batch", "lanes": 2}, {"/apply/lanes": LANES}),
        ({"mode": "grouped", "visibility": "relaxed", "lanes": 2}, {"/apply/visibility": PARTS}),
        ({"mode": "batch", "lanes": 2, "group_size": 5}, {"/apply/lanes": LANES, "/apply/group_size": SIZE}),
    ],
)
def test_what_the_mode_has_no_use_for_is_refused(
    client: TestClient, app: FastAPI, given: dict[str, Any], errors: dict[str, str]
) -> None:
    refused = client.put(URL, json=declared(given))
    assert client.put(URL, json=declared({})).status_code == 201
    for answer in (refused, client.patch(URL, json={"apply": given})):
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
        assert {error["pointer"]: error["detail"] for error in answer.json()["errors"]} == errors
    assert client.get(URL).json()["apply"] == DEFAULTS
    assert read_assigned(app).apply == ApplyPolicy()


@pytest.mark.parametrize("mode", ["grouped", "transactional"])
def test_a_target_of_batches_refuses_other_modes(client: TestClient, app: FastAPI, mode: str) -> None:
    refused = [client.put(URL, json=declared({"mode": mode}, "mart"))]
    assert client.get(URL).status_code == 404
    assert client.put(URL, json=declared({"mode": "batch"}, "mart")).status_code == 201
    refused += [
        client.put(URL, json=declared({"mode": mode}, "mart")),
        client.patch(URL, json={"apply": {"mode": mode}}),
        client.patch(URL, json={"apply": {"mode": mode}, "tables": [*TABLES, {"schema": "public", "name": "log"}]}),
    ]
    detail = f"'mart' is of the kind duckdb, which cannot apply in the mode '{mode}'; these can: postgres."
    for answer in refused:
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (422, "apply_mode_unsupported")
        assert (problem["detail"], problem["remedy"]) == (detail, REMEDY)
        assert problem["errors"] == [{"pointer": "/apply/mode", "detail": detail, "in": "body"}]
    shown = client.get(URL).json()
    assert (shown["apply"]["mode"], len(shown["tables"])) == ("batch", 1)
    assert count_assignments(app) == 1


def test_a_mode_that_the_target_refuses_costs_no_question_to_the_source(
    client: TestClient, engine: PlayedEngine
) -> None:
    body = {**declared({"mode": "grouped"}, "mart"), "tables": [{"schema": "public", "name": "*"}]}
    assert client.put(URL, json=body).json()["code"] == "apply_mode_unsupported"
    assert engine.asked == []


def test_a_target_of_batches_shows_them_whole(client: TestClient, app: FastAPI) -> None:
    assert client.put(URL, json=declared({"visibility": "atomic"}, "mart")).status_code == 201
    answer = client.patch(URL, json={"apply": {"visibility": "relaxed"}})
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, "visibility_unsupported")
    assert problem["errors"][0]["pointer"] == "/apply/visibility"
    assert read_assigned(app).apply == ApplyPolicy()


@pytest.mark.parametrize("mode", ["auto", "batch"])
def test_a_target_of_batches_takes_batches(client: TestClient, app: FastAPI, mode: str) -> None:
    assert client.put(URL, json=declared({}, "mart")).status_code == 201
    answer = client.patch(URL, json={"apply": {"mode": mode}})
    assert (answer.status_code, answer.json()["apply"]["mode"]) == (200, mode)
    assert read_assigned(app).apply.mode is ApplyMode(mode)


def test_patch_changes_what_it_names_and_null_goes_back_to_the_default(client: TestClient, app: FastAPI) -> None:
    tag = client.put(URL, json=declared({"mode": "grouped", "lanes": 4, "group_size": 500})).headers["ETag"]
    answer = client.patch(URL, json={"apply": {"lanes": None, "policy": "optimistic"}}, headers={"If-Match": tag})
    assert answer.status_code == 200
    assert answer.headers["ETag"] != tag
    assert read_assigned(app).apply == ApplyPolicy(ApplyMode.GROUPED, LanePolicy.OPTIMISTIC, lanes=None, group_size=500)
    assert count_assignments(app) == 2
    assert client.patch(URL, json={"apply": None}).json()["apply"] == DEFAULTS
    assert read_assigned(app).apply == ApplyPolicy()


def test_a_patch_of_the_mode_takes_back_what_only_the_old_one_had(client: TestClient, app: FastAPI) -> None:
    client.put(URL, json=declared({"mode": "grouped", "lanes": 4, "group_size": 500}))
    refused = client.patch(URL, json={"apply": {"mode": "batch"}})
    assert (refused.status_code, refused.json()["detail"]) == (422, "'apply' would not be valid.")
    found = {error["pointer"]: error["detail"] for error in refused.json()["errors"]}
    assert found == {"/apply/lanes": LANES, "/apply/group_size": SIZE}
    assert client.get(URL).json()["apply"]["mode"] == "grouped"
    change = {"mode": "batch", "lanes": None, "group_size": None}
    assert client.patch(URL, json={"apply": change}).status_code == 200
    assert read_assigned(app).apply == ApplyPolicy(ApplyMode.BATCH)
