"""How far behind a target may be before it is called late: shown, changed, refused where it means nothing."""

from __future__ import annotations

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from server.goals.repository import declared_goals

URL = "/api/v1/subscriptions/s"
BODY = {"source": "shop", "target": "mart", "tables": [{"schema": "public", "name": "orders"}]}
REST = {"goal_percent": None, "window_hours": 168, "count_pauses": True}

pytestmark = pytest.mark.usefixtures("connections")


def test_the_goal_is_shown_and_changed(client: TestClient) -> None:
    assert client.put(URL, json=BODY).json()["freshness"] == {"goal_seconds": 60, **REST}
    assert client.put(URL, json={**BODY, "freshness": {"goal_seconds": 5}}).json()["freshness"] == {
        "goal_seconds": 5,
        **REST,
    }
    for given, shown in (
        ({"goal_seconds": 0.5}, 0.5),
        ({"goal_seconds": None}, 60),
        ({"goal_seconds": 9}, 9),
        (None, 60),
    ):
        answer = client.patch(URL, json={"freshness": given})
        assert (answer.status_code, answer.json()["freshness"]) == (200, {"goal_seconds": shown, **REST})


@pytest.mark.parametrize(("every", "goal"), [(None, 600), (10, 60), (604_800, 1_209_600)])
def test_the_usual_goal_of_cycles_is_twice_their_time(
    client: TestClient, app: FastAPI, every: int | None, goal: int
) -> None:
    capture = {"kind": "query_diff"} | ({} if every is None else {"every_seconds": every})
    body = {**BODY, "capture": capture, "freshness": {"goal_percent": 99.5}}
    assert client.put(URL, json=body).json()["freshness"]["goal_seconds"] == goal
    with app.state.database.read() as session:
        assert declared_goals(session)["s", ""].lag_seconds == goal
    answer = client.patch(URL, json={"freshness": {"goal_seconds": 5}, "capture": {"every_seconds": 20}})
    assert answer.json()["freshness"]["goal_seconds"] == 5
    answer = client.patch(URL, json={"freshness": {"goal_seconds": None}})
    assert answer.json()["freshness"]["goal_seconds"] == 60


@pytest.mark.parametrize("wrong", [{"goal_seconds": 0}, {"goal_seconds": 1e9}, {"goal": 5}])
def test_what_means_nothing_is_refused(client: TestClient, wrong: dict[str, float]) -> None:
    assert client.put(URL, json={**BODY, "freshness": wrong}).status_code == 422
    client.put(URL, json=BODY)
    assert client.patch(URL, json={"freshness": wrong}).status_code == 422
