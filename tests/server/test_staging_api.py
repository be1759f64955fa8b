"""The setting `staging` of a subscription: chosen at its creation, part of each table, and refused where it is not possible."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.fixtures.app_state import read_assigned

URL = "/api/v1/subscriptions/s"
BODY: dict[str, Any] = {"source": "shop", "target": "mart", "tables": [{"schema": "public", "name": "orders"}]}
STAGED = {**BODY, "staging": True}

pytestmark = pytest.mark.usefixtures("connections")


@pytest.fixture(autouse=True)
def warehouse(client: TestClient, connections: None) -> None:
    """A PostgreSQL target."""
    settings = {"host": "db", "database": "mart", "user": "penstock"}
    answer = client.put("/api/v1/connections/warehouse", json={"kind": "postgres", "settings": settings})
    assert answer.status_code == 201


def _assert_refused(answer: Any, pointer: str, words: str) -> None:
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    (error,) = answer.json()["errors"]
    assert (error["pointer"], words in error["detail"]) == (pointer, True), error


def test_by_default_there_are_none(client: TestClient, app: FastAPI) -> None:
    assert client.put(URL, json=BODY).json()["staging"] is False
    assert [table.staging for table in read_assigned(app).tables] == [False]


def test_every_table_has_one(client: TestClient, app: FastAPI) -> None:
    assert client.put(URL, json=STAGED).json()["staging"] is True
    assert client.post(f"{URL}/tables", json={"schema": "public", "name": "lines"}).status_code == 201
    assert [table.staging for table in read_assigned(app).tables] == [True, True]
    again = client.put(URL, json={**STAGED, "tables": [*BODY["tables"], {"schema": "public", "name": "lines"}]})
    assert (again.status_code, again.json()["staging"]) == (200, True)


@pytest.mark.parametrize(("first", "then"), [(STAGED, False), (BODY, True)])
def test_it_stays_as_it_is(client: TestClient, first: dict[str, Any], then: bool) -> None:
    assert client.put(URL, json=first).status_code == 201
    assert client.patch(URL, json={"staging": not then}).status_code == 200
    assert client.patch(URL, json={"staging": None}).status_code == 200
    for answer in (client.patch(URL, json={"staging": then}), client.put(URL, json={**first, "staging": then})):
        assert (answer.status_code, answer.json()["code"]) == (409, "staging_fixed")
        assert answer.json()["errors"][0]["pointer"] == "/staging"
    assert client.get(URL).json()["staging"] is not then


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"refused_rows": "set_aside"}, "refused_rows must be 'park'"),
        ({"operations": ["insert", "truncate"]}, "every operation"),
    ],
)
def test_options_that_leave_something_out_are_refused(client: TestClient, option: dict[str, Any], words: str) -> None:
    (name,) = option
    wrong = {"schema": "public", "name": "notes", **option}
    _assert_refused(client.put(URL, json={**STAGED, "tables": [wrong]}), f"/tables/0/{name}", words)
    assert client.put(URL, json=STAGED).status_code == 201
    _assert_refused(client.post(f"{URL}/tables", json=wrong), f"/{name}", words)
    _assert_refused(client.put(URL, json={**STAGED, "tables": [wrong]}), f"/tables/0/{name}", words)
    table = client.get(f"{URL}/tables").json()["items"][0]["id"]
    _assert_refused(client.patch(f"{URL}/tables/{table}", json=option), f"/{name}", words)


def test_existing_tables_have_none(client: TestClient) -> None:
    tables = [{**BODY["tables"][0], "into_existing": True}]
    answer = client.put(URL, json={**STAGED, "target": "warehouse", "tables": tables})
    _assert_refused(answer, "/tables/0/into_existing", "leave out into_existing")


@pytest.mark.parametrize("apply", [{"mode": "grouped"}, {"mode": "transactional"}, {"visibility": "relaxed"}])
def test_batches_are_one_target_transaction(client: TestClient, apply: dict[str, str]) -> None:
    body = {**STAGED, "target": "warehouse"}
    refused = client.put(URL, json={**body, "apply": apply})
    assert client.put(URL, json=body).status_code == 201
    for answer in (refused, client.patch(URL, json={"apply": apply})):
        assert (answer.status_code, answer.json()["code"]) == (422, "staging_unsupported")
        assert answer.json()["errors"][0]["pointer"] == f"/apply/{next(iter(apply))}"
        assert answer.json()["remedy"]


def test_a_cd_table_takes_no_name_of_another_table(client: TestClient) -> None:
    twin = {"schema": "public", "name": "orders__cd"}
    answer = client.put(URL, json={**STAGED, "tables": [*BODY["tables"], twin]})
    assert (answer.status_code, "orders__cd" in answer.json()["detail"]) == (422, True)
    assert client.put(URL, json=STAGED).status_code == 201
    answer = client.put("/api/v1/subscriptions/other", json={**BODY, "tables": [twin]})
    assert (answer.status_code, "orders__cd" in answer.json()["detail"]) == (422, True)
    answer = client.post(f"{URL}/tables", json={"schema": "public", "name": "x" * 60})
    assert (answer.status_code, "longer than 63 bytes" in answer.json()["detail"]) == (422, True)
