"""Freshness goals over HTTP: declared with the subscription and its tables, shown with their budgets, exposed as metrics, alerted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from engine.link.messages import Assign
from server.db.models.freshness_goal import FreshnessGoalRow
from tests.fixtures.alert_receivers import HttpReceiver, http_receiver
from tests.fixtures.channel import DEADLINE_S, FakeEngine
from tests.fixtures.waiting import wait_until
from tests.server.test_alerts import Bench, bench, statuses

__all__ = ["bench"]

URL = "/api/v1/subscriptions/s"
BODY = {"source": "shop", "target": "mart", "tables": [{"schema": "public", "name": "orders"}]}
Rig = tuple[httpx.Client, FakeEngine, Assign]


# Declarations


@pytest.mark.usefixtures("connections")
def test_a_table_declares_what_differs_from_its_subscription(client: TestClient) -> None:
    table = {"schema": "public", "name": "orders", "freshness": {"goal_seconds": 5}}
    body = {**BODY, "tables": [table, {"schema": "public", "name": "lines"}], "freshness": {"goal_percent": 99}}
    answer = client.put(URL, json=body).json()
    assert [each.get("freshness") for each in answer["tables"]] == [None, {"goal_seconds": 5, **_REST}]
    tables = {each["name"]: each for each in client.get(f"{URL}/tables").json()["items"]}
    assert tables["lines"]["freshness"] is None
    path = f"{URL}/tables/{tables['orders']['id']}"
    for given, shown in (
        ({"goal_percent": 95}, {"goal_seconds": 5, "goal_percent": 95}),
        ({"goal_seconds": None}, {"goal_percent": 95}),
        ({"window_hours": 24, "count_pauses": False}, {"goal_percent": 95, "window_hours": 24, "count_pauses": False}),
    ):
        answer = client.patch(path, json={"freshness": given}).json()
        assert answer["freshness"] == {**dict.fromkeys(("goal_seconds", *_REST)), **shown}
    assert client.patch(path, json={"freshness": None}).json()["freshness"] is None
    kinds = [each["kind"] for each in client.get("/api/v1/events?subject=public.orders").json()["items"]]
    assert kinds.count("table_settings_changed") == 4
    # A PUT declares the whole again, and the same PUT changes nothing.
    client.put(URL, json=body)
    assert client.get(path).json()["freshness"]["goal_seconds"] == 5
    plan = client.post(f"{URL}/plans", json=body).json()
    assert (plan["result"], plan["tables"]) == ("unchanged", [])


_REST = dict.fromkeys(("goal_percent", "window_hours", "count_pauses"))


@pytest.mark.usefixtures("connections")
@pytest.mark.parametrize(
    "wrong",
    [
        {"goal_percent": 100},
        {"goal_percent": 49},
        {"window_hours": 5},
        {"window_hours": 2161},
        {"goal_seconds": 0},
        {"count_pauses": "x"},
        {"goal": 5},
    ],
)
def test_what_means_nothing_is_refused(client: TestClient, wrong: dict[str, Any]) -> None:
    assert client.put(URL, json={**BODY, "freshness": wrong}).status_code == 422
    assert client.put(URL, json={**BODY, "tables": [{**BODY["tables"][0], "freshness": wrong}]}).status_code == 422  # type: ignore[dict-item]
    client.put(URL, json=BODY)
    assert client.patch(URL, json={"freshness": wrong}).status_code == 422
    table = client.get(f"{URL}/tables").json()["items"][0]["id"]
    assert client.patch(f"{URL}/tables/{table}", json={"freshness": wrong}).status_code == 422


# What is measured


def goals(api: httpx.Client, **query: Any) -> list[dict[str, Any]]:
    answer = api.get("/subscriptions/orders/freshness-goals", params=query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    for each in found:
        assert sum(each["shares_seconds"].values()) == pytest.approx(each["goal"]["window_hours"] * 3600)
    return found


def report(engine: FakeEngine, assign: Assign, lag_s: float) -> None:
    engine.progress(assign, "0/60", lag_seconds=lag_s)
    assert engine.link.flush(DEADLINE_S)


def late_s(api: httpx.Client) -> float:
    found: float = goals(api)[0]["shares_seconds"]["late"]
    return found


def test_reports_of_an_engine_use_the_budget(rig: Rig) -> None:
    api, engine, assign = rig
    assert goals(api) == []
    freshness = {"goal_seconds": 10, "goal_percent": 99.5}
    assert api.patch("/subscriptions/orders", json={"freshness": freshness}).status_code == 200
    (begun,) = goals(api)
    assert begun["goal"] == {"lag_seconds": 10, "percent": 99.5, "window_hours": 168, "count_pauses": True}
    assert (begun["table"], begun["late_since"], begun["worst"]) == (None, None, None)
    assert begun["budget"]["total_seconds"] == 3024

    def fresh() -> bool:
        report(engine, assign, 0.0)
        return bool(goals(api)[0]["shares_seconds"]["fresh"])

    wait_until(fresh)
    assert goals(api)[0]["budget"]["used_seconds"] < 5
    report(engine, assign, 500.0)
    wait_until(lambda: late_s(api) > 0.05 or report(engine, assign, 500.0))
    (found,) = goals(api)
    assert found["late_since"] is not None
    assert found["worst"]["seconds"] > 0
    assert found["budget"]["used_seconds"] >= found["shares_seconds"]["late"]
    assert found["compliance_percent"] < 100


def test_a_table_has_its_own_goal_and_the_others_that_of_the_subscription(rig: Rig) -> None:
    api, engine, assign = rig
    orders, lines = (next(t.table for t in assign.tables if t.source.name == name) for name in ("orders", "lines"))
    api.patch("/subscriptions/orders", json={"freshness": {"goal_percent": 99}})
    api.patch(f"/subscriptions/orders/tables/{lines}", json={"freshness": {"goal_seconds": 5}})
    assert [each["goal"]["lag_seconds"] for each in goals(api)] == [60, 5]
    assert goals(api)[1]["table"] == {"id": lines, "schema": "public", "name": "lines"}
    assert [each["table"] for each in goals(api, table_id=orders)] == [None]
    assert [each["goal"]["lag_seconds"] for each in goals(api, table_id=lines)] == [5]
    assert api.get("/subscriptions/orders/freshness-goals", params={"table_id": "t0"}).status_code == 404
    assert api.get("/subscriptions/none/freshness-goals").status_code == 404
    engine.table(assign, lines, "parked", code="x", reason="y")
    report(engine, assign, 0.0)
    wait_until(lambda: goals(api)[1]["late_since"] is not None)
    assert goals(api)[0]["late_since"] is None


def test_what_was_measured_outlives_the_server_and_is_exposed(rig: Rig) -> None:
    api, engine, assign = rig
    api.patch("/subscriptions/orders", json={"freshness": {"goal_percent": 99}})
    assert goals(api)[0]["measured_since"]
    plain = httpx.Client(base_url=str(api.base_url).removesuffix("/api/v1/"), headers=api.headers, trust_env=False)

    def exposed() -> dict[str, float]:
        lines = [line.rsplit(" ", 1) for line in plain.get("/metrics").text.splitlines()]
        return {name: float(value) for name, value in lines if name.startswith("penstock_freshness_") and "{" in name}

    labels = '{subscription="orders",table=""}'
    with plain:
        wait_until(
            lambda: f"penstock_freshness_budget_seconds{labels}" in exposed() or report(engine, assign, 0.0),
            what="the metrics of a goal that was set",
        )
        found = exposed()
    assert found[f"penstock_freshness_goal_seconds{labels}"] == 60
    assert found[f"penstock_freshness_goal_ratio{labels}"] == 0.99
    assert found[f"penstock_freshness_budget_seconds{labels}"] == pytest.approx(6048)


# Alerts


@pytest.fixture
def receiver() -> Iterator[HttpReceiver]:
    with http_receiver() as found:
        yield found


def test_each_alarm_of_a_budget_gives_a_notice_and_a_recovery(bench: Bench, receiver: HttpReceiver) -> None:
    bench.webhook(receiver)
    table = bench.client.get("/api/v1/subscriptions/s/tables").json()["items"][0]

    def alarms(**found: str) -> None:
        with bench.app.state.database.write() as session:
            row = session.get(FreshnessGoalRow, 1) or FreshnessGoalRow(
                id=1,
                subscription_id=1,
                table_id=table["id"],
                lag_seconds=10,
                count_pauses=True,
                since=datetime(2026, 5, 4, tzinfo=UTC),
            )
            row.alarms = found
            session.add(row)

    alarms()
    bench.round()
    assert receiver.notices == []
    alarms(fast_burn="fast", slow_burn="slow")
    bench.round(5)
    bench.round(5)
    assert statuses(receiver) == [
        ("freshness_budget_fast_burn", "firing"),
        ("freshness_budget_slow_burn", "firing"),
    ]
    assert {notice["table"] for notice in receiver.notices} == {f"{table['schema']}.{table['name']}"}
    assert receiver.notices[0]["detail"] == "Freshness goal: fast"
    alarms(spent="spent")
    for _ in range(2):
        bench.round(61)
    assert sorted(statuses(receiver)[2:]) == [
        ("freshness_budget_fast_burn", "recovered"),
        ("freshness_budget_slow_burn", "recovered"),
        ("freshness_budget_spent", "firing"),
    ]
