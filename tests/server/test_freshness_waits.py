"""Freshness waits over HTTP: ended by progress, by deadlines, by states, by cancelling; many at once; over a restart."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.link.message import Problem
from engine.link.messages import Assign, Demand, Now, ReloadReport, Sync
from engine.model.position import Lsn
from tests.fixtures.channel import ADMIN, DEADLINE_S, ENGINE, FakeEngine, RunningServer, declare, running_server
from tests.fixtures.waiting import wait_until

_WAITS = "/subscriptions/orders/freshness-waits"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with running_server(tmp_path) as found:
        yield found


@pytest.fixture
def client(server: RunningServer) -> Iterator[httpx.Client]:
    with server.client() as found:
        declare(found)
        yield found


@pytest.fixture
def engine(server: RunningServer, client: httpx.Client) -> Iterator[FakeEngine]:
    found = FakeEngine(server.url)
    yield found
    found.close()


@pytest.fixture
def assign(engine: FakeEngine) -> Assign:
    return engine.run(applied="0/50")


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as found:
        yield found


def _begin(pool: ThreadPoolExecutor, client: httpx.Client, **body: Any) -> Future[httpx.Response]:
    return pool.submit(client.post, _WAITS, json={"timeout_ms": 10_000, **body})


def _demanded(engine: FakeEngine, position: str) -> None:
    """The wait for this position is registered once it is demanded."""
    engine.seen(Demand, lambda c: c.position == Lsn.parse(position))


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Nothing can be written to the control database."""
    database = sqlite3.connect(home / "penstock.db", isolation_level=None)
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        database.rollback()
        database.close()


def test_positions_end_waits_while_an_earlier_report_is_being_written(
    engine: FakeEngine, assign: Assign, client: httpx.Client, pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    waits = [_begin(pool, client, position=position) for position in ("0/60", "0/70", "0/80")]
    for position in ("0/60", "0/70", "0/80"):
        _demanded(engine, position)
    with _locked(tmp_path):
        for wait, position in zip(waits, ("0/60", "0/70", "0/80"), strict=True):
            engine.batch(assign, int(position[2:]))
            engine.progress(assign, position)
            assert wait.result(DEADLINE_S).status_code == 200
    assert engine.link.flush(DEADLINE_S)
    assert client.get("/subscriptions/orders").json()["positions"]["applied"] == "0/80"
    assert [one["batch"] for one in client.get("/subscriptions/orders/batches").json()["items"]] == [80, 70, 60]


def test_no_position_overtakes_the_writing_of_a_state(
    engine: FakeEngine, assign: Assign, client: httpx.Client, pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    wait = _begin(pool, client, position="0/60")
    _demanded(engine, "0/60")
    with _locked(tmp_path):
        engine.table(assign, assign.tables[0].table, "parked", reason="a value does not fit")
        engine.progress(assign, "0/60")
        assert not engine.link.flush(0.5)
        assert not wait.done()
    assert wait.result(DEADLINE_S).status_code == 409


def test_a_position_that_is_applied_already_is_answered_without_demand(
    engine: FakeEngine, assign: Assign, client: httpx.Client
) -> None:
    answer = client.post(_WAITS, json={"position": "0/50"})
    assert answer.status_code == 200
    body = answer.json()
    assert body["status"] == "satisfied"
    assert body["position"] == body["applied"] == "0/50"
    assert body["receipt"]["on_arrival"] is True
    assert [t["name"] for t in body["receipt"]["tables"]] == ["lines", "orders"]
    assert body["receipt"]["left_out"] == []
    assert engine.count(Demand) == 0
    assert client.get(f"{_WAITS}/{body['id']}").json()["status"] == "satisfied"


def test_a_wait_is_demanded_and_ends_with_the_progress_that_reaches_it(
    engine: FakeEngine, assign: Assign, client: httpx.Client, pool: ThreadPoolExecutor
) -> None:
    waiting = _begin(pool, client, position="0/60")
    _demanded(engine, "0/60")
    engine.progress(assign, "0/5F")
    assert engine.link.flush(DEADLINE_S)
    assert not waiting.done()
    engine.progress(assign, "0/64")
    body = waiting.result(DEADLINE_S).json()
    assert body["status"] == "satisfied"
    assert body["position"] == "0/60"
    assert body["applied"] == "0/64"
    assert body["receipt"]["on_arrival"] is False


def test_a_given_position_that_is_not_visible_soon_makes_the_source_flush_its_log(
    engine: FakeEngine, assign: Assign, client: httpx.Client, pool: ThreadPoolExecutor
) -> None:
    """An idle source sends what is inserted and not flushed only after its next record; reading "now" writes one."""
    waiting = _begin(pool, client, position="0/60")
    engine.seen(Now)
    engine.progress(assign, "0/60")
    body = waiting.result(DEADLINE_S).json()
    assert (body["position"], body["receipt"]["now_ms"]) == ("0/60", None)
    assert engine.count(Now) == 1


def test_the_source_flushes_its_log_also_if_its_engine_was_away(
    engine: FakeEngine, assign: Assign, client: httpx.Client, pool: ThreadPoolExecutor
) -> None:
    engine.refusal = Problem(status=503, code="target_unavailable", detail="the run begins", remedy="Wait.")
    waiting = _begin(pool, client, position="0/60")
    engine.seen(Now)
    engine.refusal = None
    wait_until(lambda: engine.count(Now) > 1)
    engine.progress(assign, "0/60")
    assert waiting.result(DEADLINE_S).status_code == 200


def test_without_a_position_the_source_is_asked_for_now(
    engine: FakeEngine, assign: Assign, client: httpx.Client, pool: ThreadPoolExecutor
) -> None:
    engine.now = "0/70"
    waiting = _begin(pool, client)
    _demanded(engine, "0/70")
    engine.progress(assign, "0/70")
    body = waiting.result(DEADLINE_S).json()
    assert body["position"] == "0/70"
    assert body["receipt"]["now_ms"] >= 0
    assert engine.count(Now) == 1


def test_the_deadline_ends_it_with_what_is_known(engine: FakeEngine, assign: Assign, client: httpx.Client) -> None:
    answer = client.post(_WAITS, json={"position": "0/60", "timeout_ms": 50})
    assert answer.status_code == 504
    problem = answer.json()
    assert problem["code"] == "freshness_timeout"
    assert problem["applied"] == "0/50"
    assert problem["position"] == "0/60"
    assert "estimate_ms" in problem
    assert problem["waited_ms"] >= 50
    assert problem["remedy"]
    assert client.get("/subscriptions/orders/freshness").json()["waits"] == 0


def test_a_timeout_of_zero_only_looks(engine: FakeEngine, assign: Assign, client: httpx.Client) -> None:
    assert client.post(_WAITS, json={"position": "0/50", "timeout_ms": 0}).status_code == 200
    assert client.post(_WAITS, json={"position": "0/51", "timeout_ms": 0}).status_code == 504


def _desire(client: httpx.Client, desired: str) -> None:
    answer = client.patch("/subscriptions/orders", json={"desired_state": desired})
    assert answer.status_code == 200, answer.text


_DESIRED = {"pausing": "paused", "paused": "paused", "stopping": "stopped", "stopped": "stopped", "failed": "running"}


@pytest.mark.parametrize("state", list(_DESIRED))
def test_nothing_is_reached_in_a_subscription_that_stands_still(
    engine: FakeEngine, assign: Assign, client: httpx.Client, state: str
) -> None:
    _desire(client, _DESIRED[state])
    engine.state(assign, state, code="log_gap", reason="The slot is gone.", remedy="Reload it.")
    for body in ({"position": "0/60"}, {}):
        answer = client.post(_WAITS, json=body)
        assert answer.status_code == 409
        assert answer.json()["code"] == "freshness_unreachable"
        assert answer.json()["remedy"] == "Reload it."
    assert engine.count(Now) == 0


@pytest.mark.parametrize("state", ["pausing", "paused"])
def test_what_was_applied_before_a_pause_stays_reached(
    engine: FakeEngine, assign: Assign, client: httpx.Client, state: str
) -> None:
    _desire(client, "paused")
    engine.state(assign, state)
    assert client.post(_WAITS, json={"position": "0/50"}).status_code == 200


@pytest.mark.parametrize("state", ["stopping", "stopped"])
def test_what_was_applied_counts_no_more_once_the_target_is_let_go(
    engine: FakeEngine, assign: Assign, client: httpx.Client, state: str
) -> None:
    _desire(client, "stopped")
    engine.state(assign, state)
    answer = client.post(_WAITS, json={"position": "0/50"})
    assert (answer.status_code, answer.json()["code"]) == (409, "freshness_unreachable")


def test_a_position_of_an_engine_that_is_gone_is_worth_nothing(
    server: RunningServer, engine: FakeEngine, assign: Assign, client: httpx.Client, pool: ThreadPoolExecutor
) -> None:
    """Its target may be replaced by an older one meanwhile."""
    assert client.get("/subscriptions/orders/freshness").json()["positions"]["confirmed"] is True
    engine.close()
    wait_until(lambda: server.app.state.hub.owner("orders") is None)
    shown = client.get("/subscriptions/orders/freshness").json()["positions"]
    assert (shown["applied"], shown["confirmed"]) == ("0/50", False)
    answer = client.post(_WAITS, json={"position": "0/50", "timeout_ms": 30})
    assert answer.status_code == 504
    assert answer.json()["applied"] == "0/50"
    waiting = _begin(pool, client, position="0/50")
    second = FakeEngine(server.url)
    try:
        again = second.run(applied="0/40")
        assert again.epoch > assign.epoch
        assert client.post(_WAITS, json={"position": "0/40"}).status_code == 200
        assert not waiting.done()
        second.progress(again, "0/50")
        assert waiting.result(DEADLINE_S).status_code == 200
    finally:
        second.close()


def test_a_server_that_was_restarted_counts_only_what_is_reported_to_it(tmp_path: Path) -> None:
    first = RunningServer(tmp_path)
    with first.client() as client:
        declare(client)
        engine = FakeEngine(first.url)
        assign = engine.run(applied="0/50")
    first.stop()
    with running_server(tmp_path, port=first.port) as second, second.client() as client:
        try:
            wait_until(lambda: second.app.state.hub.owner("orders") is not None)
            assert client.get("/subscriptions/orders/freshness").json()["positions"]["applied"] == "0/50"
            assert client.post(_WAITS, json={"position": "0/50", "timeout_ms": 30}).status_code == 504
            engine.seen(Sync, lambda _: engine.count(Sync) > 1)
            engine.progress(assign, "0/50")
            assert client.post(_WAITS, json={"position": "0/50", "timeout_ms": 5000}).status_code == 200
        finally:
            engine.close()


def test_a_new_run_takes_back_what_the_one_before_had_applied(
    engine: FakeEngine, assign: Assign, client: httpx.Client
) -> None:
    engine.state(assign, "starting", run=2)
    assert client.post(_WAITS, json={"position": "0/50", "timeout_ms": 0}).status_code == 504
    engine.state(assign, "running", run=2)
    engine.progress(assign, "0/90", run=1)
    assert engine.link.flush(DEADLINE_S)
    assert client.post(_WAITS, json={"position": "0/50", "timeout_ms": 0}).status_code == 504
    engine.progress(assign, "0/40", run=2)
    assert engine.link.flush(DEADLINE_S)
    assert client.post(_WAITS, json={"position": "0/40", "timeout_ms": 0}).status_code == 200
    assert client.post(_WAITS, json={"position": "0/50", "timeout_ms": 0}).status_code == 504


def test_a_bundle_that_is_sent_twice_does_not_bring_an_ended_run_back(
    server: RunningServer, engine: FakeEngine, assign: Assign, client: httpx.Client
) -> None:
    stream = server.app.state.hub.stream_of("orders")
    number = client.get("/engines").json()["items"][0]["id"]
    progress = {
        "kind": "progress",
        "subscription": "orders",
        "epoch": assign.epoch,
        "applied": "0/90",
        "stream": stream,
    }
    late = {"sequence": 1, "reports": [progress | {"at": "2026-01-01T00:00:00Z"}]}
    engine.progress(assign, "0/60")
    assert engine.link.flush(DEADLINE_S)
    with server.client(ENGINE) as channel:
        assert channel.post(f"/engines/{number}/reports", json=late).status_code == 204
    assert client.post(_WAITS, json={"position": "0/60", "timeout_ms": 0}).status_code == 200
    assert client.post(_WAITS, json={"position": "0/61", "timeout_ms": 0}).status_code == 504


def test_states_and_positions_that_came_together_are_judged_together(
    server: RunningServer, engine: FakeEngine, assign: Assign, client: httpx.Client, pool: ThreadPoolExecutor
) -> None:
    """In whatever order they are in the bundle: the wait sees all of it, or nothing."""
    lines = next(t for t in assign.tables if t.source.name == "lines")
    waiting = _begin(pool, client, position="0/60", tables=[{"schema": "public", "name": "lines"}])
    _demanded(engine, "0/60")
    of = {"subscription": "orders", "epoch": assign.epoch}
    stream = server.app.state.hub.stream_of("orders")
    progress = {"kind": "progress", "applied": "0/60", "stream": stream, "at": "2026-01-01T00:00:00Z", **of}
    parked = {"kind": "table_state", "table": lines.table, "schema": "public", "name": "lines", "state": "parked", **of}
    bundle = {"sequence": 1_000_000, "reports": [progress, {**parked, "code": "row_refused", "reason": "It is."}]}
    number = client.get("/engines").json()["items"][0]["id"]
    with server.client(ENGINE) as channel:
        assert channel.post(f"/engines/{number}/reports", json=bundle).status_code == 204
    assert waiting.result(DEADLINE_S).status_code == 409


def test_a_failed_subscription_promises_nothing_not_even_a_position_applied_before(
    engine: FakeEngine, assign: Assign, client: httpx.Client
) -> None:
    engine.state(assign, "failed", code="source_replaced", reason="The source is another one.", remedy="Reload all.")
    answer = client.post(_WAITS, json={"position": "0/50"})
    assert answer.status_code == 409
    problem = answer.json()
    assert problem["code"] == "freshness_unreachable"
    assert "The source is another one." in problem["detail"]
    assert problem["remedy"] == "Reload all."
    query = {"sql": "SELECT 1", "freshness": {"mode": "position", "position": "0/50", "timeout_ms": 1000}}
    refused = client.post("/subscriptions/orders/queries", json=query)
    assert refused.status_code == 409
    assert refused.json()["code"] == "freshness_unreachable"


def test_a_failure_ends_waits_at_once(
    engine: FakeEngine, assign: Assign, client: httpx.Client, pool: ThreadPoolExecutor
) -> None:
    waiting = _begin(pool, client, position="0/60")
    _demanded(engine, "0/60")
    engine.state(assign, "failed", code="log_gap", reason="The slot is gone.", remedy="Reload it.")
    answer = waiting.result(DEADLINE_S)
    assert answer.status_code == 409
    assert "The slot is gone." in answer.json()["detail"]


def test_pausing_by_the_user_ends_waits_at_once(
    engine: FakeEngine, assign: Assign, client: httpx.Client, pool: ThreadPoolExecutor
) -> None:
    waiting = _begin(pool, client, position="0/60")
    _demanded(engine, "0/60")
    client.patch("/subscriptions/orders", json={"desired_state": "paused"})
    assert waiting.result(DEADLINE_S).status_code == 409


def test_deleting_the_subscription_ends_waits(
    engine: FakeEngine, assign: Assign, client: httpx.Client, pool: ThreadPoolExecutor
) -> None:
    waiting = _begin(pool, client, position="0/60")
    _demanded(engine, "0/60")
    client.delete("/subscriptions/orders")
    assert waiting.result(DEADLINE_S).status_code == 409


@pytest.mark.parametrize("state", ["paused", "parked"])
def test_a_table_that_does_not_follow_is_refused_by_name_and_left_out_otherwise(
    engine: FakeEngine, assign: Assign, client: httpx.Client, state: str
) -> None:
    lines = next(t.table for t in assign.tables if t.source.name == "lines")
    if state == "paused":
        assert client.patch(f"/subscriptions/orders/tables/{lines}", json={"desired_state": state}).status_code == 200
    engine.table(assign, lines, state, reason="A value does not fit.", remedy="Use map_as.")
    assert engine.link.flush(DEADLINE_S)
    named = client.post(_WAITS, json={"position": "0/50", "tables": [{"schema": "public", "name": "lines"}]})
    assert named.status_code == 409
    assert "A value does not fit." in named.json()["detail"]
    every = client.post(_WAITS, json={"position": "0/50"})
    assert every.status_code == 200
    assert [t["name"] for t in every.json()["receipt"]["tables"]] == ["orders"]
    assert [(t["name"], t["state"]) for t in every.json()["receipt"]["left_out"]] == [("lines", state)]


def test_where_no_table_follows_there_is_nothing_to_wait_for(
    engine: FakeEngine, assign: Assign, client: httpx.Client
) -> None:
    for table in assign.tables:
        engine.table(assign, table.table, "parked")
    assert engine.link.flush(DEADLINE_S)
    assert client.post(_WAITS, json={"position": "0/50"}).status_code == 409


def test_a_table_that_parks_ends_the_waits_that_cover_it_and_no_others(
    engine: FakeEngine, assign: Assign, client: httpx.Client, pool: ThreadPoolExecutor
) -> None:
    lines = next(t.table for t in assign.tables if t.source.name == "lines")
    hit = _begin(pool, client, position="0/60", tables=[{"schema": "public", "name": "lines"}])
    spared = _begin(pool, client, position="0/61", tables=[{"schema": "public", "name": "orders"}])
    _demanded(engine, "0/61")
    engine.table(assign, lines, "parked")
    assert hit.result(DEADLINE_S).status_code == 409
    assert not spared.done()
    engine.progress(assign, "0/61")
    assert spared.result(DEADLINE_S).status_code == 200


def test_a_table_that_is_still_copied_is_waited_for(
    engine: FakeEngine, assign: Assign, client: httpx.Client, pool: ThreadPoolExecutor
) -> None:
    lines = next(t.table for t in assign.tables if t.source.name == "lines")
    engine.table(assign, lines, "reloading")
    waiting = _begin(pool, client, position="0/60")
    _demanded(engine, "0/60")
    engine.progress(assign, "0/70")
    engine.table(assign, lines, "catching_up")
    assert engine.link.flush(DEADLINE_S)
    assert not waiting.done()
    engine.table(assign, lines, "live")
    assert waiting.result(DEADLINE_S).status_code == 200


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        ({"position": "yesterday"}, "invalid_request", "/position"),
        ({"position": "0/16B3748x"}, "invalid_request", "/position"),
        ({"tables": [{"schema": "public", "name": "nothing"}]}, "invalid_request", "/tables/0"),
        ({"on_timeout": "source"}, "invalid_request", "/on_timeout"),
        ({"timeout_ms": 600_001}, "invalid_request", "/timeout_ms"),
        ({"timeout_ms": -1}, "invalid_request", "/timeout_ms"),
        ({"patience": 1}, "invalid_request", "/patience"),
    ],
)
def test_wrong_requests_say_what_is_wrong(
    engine: FakeEngine, assign: Assign, client: httpx.Client, body: dict[str, Any], code: str, pointer: str
) -> None:
    answer = client.post(_WAITS, json=body)
    assert answer.status_code == 422
    assert answer.json()["code"] == code
    assert answer.json()["errors"][0]["pointer"] == pointer


def test_an_unknown_subscription_is_not_found(client: httpx.Client) -> None:
    assert client.post("/subscriptions/nobody/freshness-waits", json={}).status_code == 404
    assert client.get("/subscriptions/nobody/freshness").status_code == 404


def test_what_the_source_says_instead_of_now_is_passed_on(
    engine: FakeEngine, assign: Assign, client: httpx.Client
) -> None:
    engine.refusal = Problem(status=502, code="source_unreachable", detail="No route.", remedy="Start the database.")
    answer = client.post(_WAITS, json={})
    assert answer.status_code == 502
    assert answer.json()["code"] == "source_unreachable"
    assert answer.json()["remedy"] == "Start the database."


def test_now_waits_for_an_engineuntil_the_deadline(
    server: RunningServer, client: httpx.Client, pool: ThreadPoolExecutor
) -> None:
    answer = client.post(_WAITS, json={"timeout_ms": 30})
    assert answer.status_code == 504
    assert "no engine" in answer.json()["detail"]
    waiting = _begin(pool, client)
    engine = FakeEngine(server.url, now="0/40")
    try:
        engine.run(applied="0/50")
        assert waiting.result(DEADLINE_S).status_code == 200
    finally:
        engine.close()


def test_a_new_stream_hears_the_demand_again(
    server: RunningServer, engine: FakeEngine, assign: Assign, client: httpx.Client, pool: ThreadPoolExecutor
) -> None:
    waiting = _begin(pool, client, position="0/60")
    _demanded(engine, "0/60")
    engine.close()
    second = FakeEngine(server.url)
    try:
        _demanded(second, "0/60")
        second.run(applied="0/60")
        assert waiting.result(DEADLINE_S).status_code == 200
    finally:
        second.close()


def test_a_far_position_is_waited_for_but_not_demanded(
    engine: FakeEngine, assign: Assign, client: httpx.Client, pool: ThreadPoolExecutor
) -> None:
    far = _begin(pool, client, position="1/0")
    near = _begin(pool, client, position="0/60")
    _demanded(engine, "0/60")
    engine.progress(assign, "0/60")
    assert near.result(DEADLINE_S).status_code == 200
    assert not far.done()
    engine.progress(assign, "0/FFFFFFF0")
    _demanded(engine, "1/0")
    engine.progress(assign, "1/0")
    assert far.result(DEADLINE_S).status_code == 200


def test_an_asynchronous_wait_is_polled(engine: FakeEngine, assign: Assign, client: httpx.Client) -> None:
    answer = client.post(_WAITS, json={"position": "0/60"}, headers={"Prefer": "respond-async, wait=5"})
    assert answer.status_code == 202
    assert answer.headers["Preference-Applied"] == "respond-async"
    where = answer.headers["Location"].removeprefix("/api/v1")
    assert client.get(where).json()["status"] == "waiting"
    _demanded(engine, "0/60")
    engine.progress(assign, "0/60")
    body = _poll(client, where)
    assert body["status"] == "satisfied"
    assert body["receipt"]["position"] == "0/60"
    assert client.delete(where).status_code == 409


def test_an_asynchronous_wait_shows_why_it_failed(engine: FakeEngine, assign: Assign, client: httpx.Client) -> None:
    answer = client.post(_WAITS, json={"position": "0/60", "timeout_ms": 20}, headers={"Prefer": "respond-async"})
    body = _poll(client, answer.headers["Location"].removeprefix("/api/v1"))
    assert body["status"] == "timed_out"
    assert body["problem"]["code"] == "freshness_timeout"
    assert body["problem"]["status"] == 504


def test_at_the_deadline_a_wait_may_say_how_far_the_target_is_behind(
    engine: FakeEngine, assign: Assign, client: httpx.Client
) -> None:
    engine.progress(assign, "0/50", lag_seconds=3.0)
    assert engine.link.flush(DEADLINE_S)
    asked = {"position": "0/60", "timeout_ms": 20, "on_timeout": "stale"}
    body = client.post(_WAITS, json=asked).json()
    assert (body["status"], body["position"], body["receipt"]["position"]) == ("stale", "0/50", "0/50")
    assert (body["stale"]["wanted"], body["stale"]["position"]) == ("0/60", "0/50")
    assert body["stale"]["seconds_behind"] >= 3
    assert client.get(f"{_WAITS}/{body['id']}").json()["stale"] == body["stale"]
    later = client.post(_WAITS, json=asked, headers={"Prefer": "respond-async"})
    polled = _poll(client, later.headers["Location"].removeprefix("/api/v1"))
    assert (polled["status"], polled["stale"]["wanted"], polled["problem"]) == ("stale", "0/60", None)
    in_time = client.post(_WAITS, json={**asked, "position": "0/50"}).json()
    assert (in_time["status"], in_time["stale"]) == ("satisfied", None)
    engine.state(assign, "starting", run=1)
    unknown = client.post(_WAITS, json=asked)
    assert (unknown.status_code, unknown.json()["code"]) == (504, "freshness_timeout")


def _slowly(engine: FakeEngine, assign: Assign) -> None:
    """Reports of a subscription that needs years for what is left."""
    for position in ("0/50", "0/51"):
        engine.progress(assign, position, source="FFFF/0")
        assert engine.link.flush(DEADLINE_S)


def test_a_wait_is_refused_early_where_that_is_wanted_and_it_would_be_late(
    engine: FakeEngine, assign: Assign, client: httpx.Client
) -> None:
    asked = {"position": "FFF0/0", "timeout_ms": 60_000, "refuse_early": True}
    _slowly(engine, assign)
    refused = client.post(_WAITS, json=asked)
    assert (refused.status_code, refused.json()["code"]) == (504, "freshness_refused_early")
    assert refused.json()["estimate_ms"] > 60_000
    assert refused.json()["waited_ms"] < 60_000
    stale = client.post(_WAITS, json={**asked, "on_timeout": "stale"}).json()
    assert (stale["status"], stale["position"]) == ("stale", "0/51")
    later = client.post(_WAITS, json=asked, headers={"Prefer": "respond-async"})
    polled = _poll(client, later.headers["Location"].removeprefix("/api/v1"))
    assert (polled["status"], polled["problem"]["code"]) == ("timed_out", "freshness_refused_early")
    assert client.post(_WAITS, json={**asked, "position": "0/51"}).status_code == 200
    for wanted in ({"position": "FFF0/0"}, {"position": "FFFF/FF", "refuse_early": True}):
        late = client.post(_WAITS, json={"timeout_ms": 0, **wanted})
        assert (late.status_code, late.json()["code"]) == (504, "freshness_timeout")
    engine.now = "FFF0/0"
    now = client.post(_WAITS, json={"timeout_ms": 60_000, "refuse_early": True})
    assert now.json()["code"] == "freshness_refused_early"
    for table in ("orders", "lines"):
        engine.table(assign, _table(assign, table), "parked")
    assert engine.link.flush(DEADLINE_S)
    assert client.post(_WAITS, json=asked).json()["code"] == "freshness_unreachable"


def test_a_query_that_would_be_late_goes_to_the_source_at_once_where_that_is_wanted(
    engine: FakeEngine, assign: Assign, client: httpx.Client
) -> None:
    _slowly(engine, assign)
    engine.position = "FFF0/0"
    fresh = {"mode": "position", "position": "FFF0/0", "timeout_ms": 60_000, "refuse_early": True}
    path = "/subscriptions/orders/queries"
    refused = client.post(path, json={"sql": "s", "freshness": fresh})
    assert (refused.status_code, refused.json()["code"]) == (504, "freshness_refused_early")
    answer = client.post(path, json={"sql": "s", "freshness": {**fresh, "on_timeout": "source"}})
    assert (answer.status_code, answer.json()["ran_on"]) == (200, "source")


def test_a_wait_can_be_cancelled(engine: FakeEngine, assign: Assign, client: httpx.Client) -> None:
    answer = client.post(_WAITS, json={"position": "0/60"}, headers={"Prefer": "respond-async"})
    where = answer.headers["Location"].removeprefix("/api/v1")
    assert client.delete(where).status_code == 204
    assert client.get(where).json()["status"] == "cancelled"
    assert client.get("/subscriptions/orders/freshness").json()["waits"] == 0
    assert client.delete(f"{_WAITS}/w0").status_code == 404


def test_asynchronous_waits_survive_a_restart_of_the_server(tmp_path: Path) -> None:
    first = RunningServer(tmp_path)
    with first.client() as client:
        declare(client)
        engine = FakeEngine(first.url)
        try:
            assign = engine.run(applied="0/50")
            asked = [{"position": "0/60"}, {}, {"position": "0/99", "timeout_ms": 1500}]
            prefer = {"Prefer": "respond-async"}
            engine.now = None  # It does not answer before the restart.
            places = [client.post(_WAITS, json=body, headers=prefer).headers["Location"] for body in asked]
            engine.seen(Now)
            first.stop()
            engine.now = "0/58"
            with running_server(tmp_path, port=first.port) as second, second.client() as again:
                engine.seen(Sync, lambda _: engine.count(Sync) > 1)
                engine.progress(assign, "0/60")
                ended = [_poll(again, place.removeprefix("/api/v1")) for place in places]
                assert [body["status"] for body in ended] == ["satisfied", "satisfied", "timed_out"]
                assert ended[1]["position"] == "0/58"
        finally:
            engine.close()


def test_a_client_that_goes_away_leaves_no_wait_behind(
    engine: FakeEngine, assign: Assign, client: httpx.Client, server: RunningServer
) -> None:
    with server.client() as impatient, pytest.raises(httpx.ReadTimeout):
        impatient.post(_WAITS, json={"position": "0/60"}, timeout=0.2)
    wait_until(lambda: client.get("/subscriptions/orders/freshness").json()["waits"] == 0)


async def test_two_thousand_waits_at_once_are_demanded_once_each_and_all_end(
    engine: FakeEngine, assign: Assign, client: httpx.Client, server: RunningServer
) -> None:
    count = 2000
    base = 0x1000

    def demands() -> list[Lsn]:
        return [c.position for c in list(engine.commands) if isinstance(c, Demand)]

    async def post(position: Lsn) -> int:
        body = json.dumps({"position": str(position), "timeout_ms": 60_000})
        head = f"POST /api/v1{_WAITS} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {ADMIN}\r\n"
        head += f"Content-Type: application/json\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(f"{head}{body}".encode())
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return int(answer.split(b" ", 2)[1])

    async def wait_for_all() -> tuple[list[int], float]:
        posts = [asyncio.ensure_future(post(Lsn(base + i))) for i in range(count)]
        await asyncio.to_thread(
            wait_until, lambda: client.get("/subscriptions/orders/freshness").json()["waits"] == count, 60.0
        )
        await asyncio.to_thread(wait_until, lambda: len(demands()) >= count, 60.0)
        began = time.perf_counter()
        engine.progress(assign, str(Lsn(base + count - 1)))
        return list(await asyncio.gather(*posts)), time.perf_counter() - began

    codes, seconds = await wait_for_all()
    assert codes == [200] * count
    # An engine that opens its stream again meanwhile gets those of the open waits again.
    assert sorted(set(demands())) == [Lsn(base + i) for i in range(count)]
    assert len(demands()) < 1.1 * count
    print(f"{count} waits answered in {seconds:.2f} s")
    assert seconds < 20


def _poll(client: httpx.Client, where: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def ended() -> bool:
        found.update(client.get(where).json())
        return found["status"] != "waiting"

    wait_until(ended)
    return found


def test_now_is_read_again_for_a_table_that_was_not_live_when_it_was_read(
    engine: FakeEngine, assign: Assign, client: httpx.Client, pool: ThreadPoolExecutor
) -> None:
    orders = assign.tables[0].table
    engine.table(assign, orders, "reloading")
    assert engine.link.flush(DEADLINE_S)
    engine.now = "0/70"
    waiting = _begin(pool, client)
    _demanded(engine, "0/70")
    engine.progress(assign, "0/70")
    engine.now = "0/80"
    engine.table(assign, orders, "live")
    _demanded(engine, "0/80")
    assert not waiting.done()
    engine.progress(assign, "0/80")
    assert waiting.result(DEADLINE_S).json()["position"] == "0/80"
    assert engine.count(Now) == 2


@pytest.mark.parametrize("who", ["another run", "another engine"])
def test_now_is_read_again_where_another_run_reaches_it(
    server: RunningServer, engine: FakeEngine, assign: Assign, client: httpx.Client, pool: ThreadPoolExecutor, who: str
) -> None:
    """Its target may be an older one, and what only the catalog showed at the first position is not in force there."""
    engine.now, engine.structure = "0/70", "0/71"
    waiting = _begin(pool, client)
    _demanded(engine, "0/70")
    new, mine = engine, assign
    if who == "another run":
        engine.state(assign, "starting", run=2)
        engine.state(assign, "running", run=2)
    else:
        engine.close()
        wait_until(lambda: server.app.state.hub.owner("orders") is None)
        new = FakeEngine(server.url, now="0/80")
        mine = new.run(applied="0/40")
    try:
        new.now, new.structure = "0/80", "0/82"
        new.progress(mine, "0/70", run=2)
        _demanded(new, "0/80")
        assert not waiting.done()
        assert client.post(_WAITS, json={"position": "0/70"}).json()["receipt"]["structure"] == "0/82"
        new.progress(mine, "0/80", run=2)
        ended = waiting.result(DEADLINE_S).json()
        assert (ended["position"], ended["receipt"]["structure"]) == ("0/80", "0/82")
    finally:
        new.close()


def test_what_was_known_of_the_structure_ends_with_its_run(
    engine: FakeEngine, assign: Assign, client: httpx.Client
) -> None:
    engine.progress(assign, "0/60", structure="0/60", structure_at="2026-01-02T03:04:05Z")
    engine.state(assign, "starting", run=2)
    engine.state(assign, "running", run=2)
    engine.progress(assign, "0/60", run=2)
    assert engine.link.flush(DEADLINE_S)
    receipt = client.post(_WAITS, json={"position": "0/60"}).json()["receipt"]
    assert receipt["structure"] is receipt["structure_at"] is None


def test_a_receipt_says_up_to_where_the_structure_is_known(
    engine: FakeEngine, assign: Assign, client: httpx.Client
) -> None:
    receipt = client.post(_WAITS, json={"position": "0/50"}).json()["receipt"]
    assert receipt["structure"] is receipt["structure_at"] is None
    seen = "2026-01-02T03:04:05Z"
    engine.progress(assign, "0/60", structure="0/55", structure_at=seen)
    assert engine.link.flush(DEADLINE_S)
    receipt = client.post(_WAITS, json={"position": "0/60"}).json()["receipt"]
    assert (receipt["structure"], receipt["structure_at"]) == ("0/55", seen)
    engine.now, engine.structure = "0/60", "0/62"
    receipt = client.post(_WAITS, json={}).json()["receipt"]
    assert (receipt["position"], receipt["structure"]) == ("0/60", "0/62")


# What was declared decides, not the state that lags it


def _table(assign: Assign, name: str) -> str:
    return next(t.table for t in assign.tables if t.source.name == name)


def _named(name: str) -> list[dict[str, str]]:
    return [{"schema": "public", "name": name}]


@pytest.fixture
def undelivered(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the outbox holds stays there, so nothing but the wait itself can find out what was declared."""

    async def nothing() -> int:
        return 0

    monkeypatch.setattr(server.app.state.channel, "_deliver_batch", nothing)


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.usefixtures("undelivered")
def test_a_subscription_that_was_told_to_run_is_waited_for_from_then_on(
    engine: FakeEngine, assign: Assign, client: httpx.Client, pool: ThreadPoolExecutor, late: bool
) -> None:
    _desire(client, "paused")
    engine.state(assign, "paused")
    assert client.post(_WAITS, json={"position": "0/60"}).status_code == 409
    _desire(client, "running")
    waiting = _begin(pool, client, position="0/60")
    _demanded(engine, "0/60")
    if late:
        engine.state(assign, "paused")  # This report was under way when the user resumed the subscription.
        assert client.post(_WAITS, json={"position": "0/60", "timeout_ms": 0}).status_code == 504
        assert client.get("/subscriptions/orders").json()["health"]["word"] == "starting"
    assert not waiting.done()
    engine.state(assign, "running", run=1)
    engine.progress(assign, "0/60", run=1)
    assert waiting.result(DEADLINE_S).status_code == 200


@pytest.mark.usefixtures("undelivered")
def test_a_failed_subscription_that_was_told_to_run_is_waited_for_from_then_on(
    engine: FakeEngine, assign: Assign, client: httpx.Client, pool: ThreadPoolExecutor
) -> None:
    engine.state(assign, "failed", code="target_unavailable", reason="full", remedy="Make room.")
    assert client.post(_WAITS, json={"position": "0/60"}).status_code == 409
    _desire(client, "running")
    waiting = _begin(pool, client, position="0/60")
    _demanded(engine, "0/60")
    engine.state(assign, "running", run=1)
    engine.progress(assign, "0/60", run=1)
    assert waiting.result(DEADLINE_S).status_code == 200


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("desired", ["paused", "stopped"])
@pytest.mark.usefixtures("undelivered")
def test_a_subscription_that_was_told_to_rest_is_not_waited_for_from_then_on(
    engine: FakeEngine, assign: Assign, client: httpx.Client, desired: str, late: bool
) -> None:
    _desire(client, desired)
    if late:
        engine.state(assign, "running")
    for body in ({"position": "0/60"}, {}):
        answer = client.post(_WAITS, json=body)
        assert (answer.status_code, answer.json()["code"]) == (409, "freshness_unreachable")
        assert "'running'" in answer.json()["remedy"]


@pytest.mark.usefixtures("undelivered")
def test_a_table_that_was_resumed_is_waited_for_from_then_on(
    engine: FakeEngine, assign: Assign, client: httpx.Client, pool: ThreadPoolExecutor
) -> None:
    lines = _table(assign, "lines")
    place = f"/subscriptions/orders/tables/{lines}"
    assert client.patch(place, json={"desired_state": "paused"}).status_code == 200
    every = client.post(_WAITS, json={"position": "0/50"}).json()["receipt"]
    assert [(t["name"], t["state"], t["reason"]) for t in every["left_out"]] == [
        ("lines", "live", "its desired_state is 'paused'")
    ]
    engine.table(assign, lines, "paused")
    assert engine.link.flush(DEADLINE_S)
    refused = client.post(_WAITS, json={"position": "0/50", "tables": _named("lines")})
    assert (refused.status_code, "public.lines is paused" in refused.json()["detail"]) == (409, True)
    assert client.patch(place, json={"desired_state": "running"}).status_code == 200
    assert client.post(_WAITS, json={"position": "0/50", "timeout_ms": 0}).status_code == 504
    waiting = _begin(pool, client, position="0/60", tables=_named("lines"))
    _demanded(engine, "0/60")
    engine.progress(assign, "0/60")
    assert engine.link.flush(DEADLINE_S)
    assert not waiting.done()
    engine.table(assign, lines, "live")
    assert waiting.result(DEADLINE_S).status_code == 200


@pytest.mark.usefixtures("undelivered")
def test_a_table_that_was_added_is_waited_for_from_then_on(
    engine: FakeEngine, assign: Assign, client: httpx.Client
) -> None:
    assert client.post(_WAITS, json={"position": "0/50"}).status_code == 200
    assert client.post("/subscriptions/orders/tables", json={"schema": "public", "name": "new"}).status_code == 201
    answer = client.post(_WAITS, json={"position": "0/50", "timeout_ms": 0})
    assert (answer.status_code, "public.new is registered" in answer.json()["detail"]) == (504, True)
    assert (answer.json()["estimate_ms"], "copying" in answer.json()["remedy"]) == (None, True)
    assert client.delete(f"/subscriptions/orders/tables/{_table(assign, 'lines')}").status_code == 204
    named = client.post(_WAITS, json={"position": "0/50", "tables": _named("lines")})
    assert named.status_code == 422


@pytest.mark.usefixtures("undelivered")
def test_a_subscription_that_was_just_made_is_waited_for_and_one_that_is_gone_is_not_found(
    engine: FakeEngine, assign: Assign, client: httpx.Client
) -> None:
    declare(client, "other")
    path = "/subscriptions/other/freshness-waits"
    assert client.post(path, json={"position": "0/50", "timeout_ms": 0}).status_code == 504
    assert client.delete("/subscriptions/other?force=true").status_code == 204
    assert client.post(path, json={"position": "0/50", "timeout_ms": 0}).status_code == 404
    assert client.delete("/subscriptions/orders?force=true").status_code == 204
    assert client.post(_WAITS, json={"position": "0/50", "timeout_ms": 0}).status_code == 404
    # The engine hears of that, though a wait has found it out before.
    engine.seen(Sync, lambda sync: not sync.subscriptions)


def test_a_parked_table_that_is_to_be_reloaded_is_waited_for(
    engine: FakeEngine, assign: Assign, client: httpx.Client, pool: ThreadPoolExecutor
) -> None:
    lines = _table(assign, "lines")
    engine.table(assign, lines, "parked", code="row_refused", reason="A row.", remedy="Reload it.")
    assert engine.link.flush(DEADLINE_S)
    asked = {"position": "0/50", "tables": _named("lines")}
    assert client.post(_WAITS, json=asked).status_code == 409
    place = f"/subscriptions/orders/tables/{lines}/reloads"
    reload = client.post(place, json={}).json()["id"]
    waiting = _begin(pool, client, **asked)
    assert client.post(_WAITS, json={**asked, "timeout_ms": 0}).status_code == 504
    engine.link.report(
        ReloadReport(subscription="orders", epoch=assign.epoch, request_id=reload, state="failed", rows=0)
    )
    assert waiting.result(DEADLINE_S).status_code == 409
    again = client.post(place, json={}).json()["id"]
    waiting = _begin(pool, client, **asked)
    assert client.post(_WAITS, json={**asked, "timeout_ms": 0}).status_code == 504
    assert client.delete(f"{place}/{again}").status_code == 204
    assert waiting.result(DEADLINE_S).status_code == 409


def test_a_failed_subscription_that_is_to_be_reloaded_is_waited_for(
    engine: FakeEngine, assign: Assign, client: httpx.Client, pool: ThreadPoolExecutor
) -> None:
    engine.state(assign, "failed", code="log_gap", reason="The slot is gone.", remedy="Reload it.", run=1)
    assert client.post(_WAITS, json={"position": "0/50"}).status_code == 409
    assert client.post("/subscriptions/orders/reloads", json={}).status_code == 202
    waiting = _begin(pool, client, position="0/50")
    engine.progress(assign, "0/60", run=0)
    assert engine.link.flush(DEADLINE_S)
    assert client.post(_WAITS, json={"position": "0/50", "timeout_ms": 0}).status_code == 504
    engine.state(assign, "running", run=1)
    engine.progress(assign, "0/60", run=1)
    assert waiting.result(DEADLINE_S).status_code == 200


# What is known to be gone ends a wait, unless it is to wait on


_SHOP = {"code": "source_unreachable", "reason": "shop: no route", "remedy": "Mend the network."}


@pytest.fixture
def gone_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.freshness.subscription_status.GONE_AFTER_S", 0.0)


@pytest.mark.usefixtures("gone_at_once")
@pytest.mark.parametrize("body", [{}, {"position": "0/50"}, {"position": "0/60"}])
def test_without_an_engine_for_too_long_a_wait_is_refused_and_says_why(
    server: RunningServer, engine: FakeEngine, assign: Assign, client: httpx.Client, body: dict[str, str]
) -> None:
    engine.close()
    wait_until(lambda: server.app.state.hub.owner("orders") is None)
    answer = client.post(_WAITS, json=body)
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["cause"]) == (503, "freshness_unavailable", "no_engine")
    assert "no engine that runs it has been connected for" in problem["detail"]
    assert "penstock engine" in problem["remedy"]
    late = client.post(_WAITS, json={**body, "on_unreachable": "wait", "timeout_ms": 30})
    assert (late.status_code, late.json()["code"], late.json()["cause"]) == (504, "freshness_timeout", "no_engine")
    assert "no engine that runs it has been connected for" in late.json()["detail"]
    _desire(client, "paused")
    declared = client.post(_WAITS, json={"position": "0/60"})
    assert (declared.status_code, declared.json()["code"]) == (409, "freshness_unreachable")


@pytest.mark.parametrize("body", [{}, {"position": "0/60"}])
def test_a_wait_under_way_ends_once_its_engine_is_away_for_too_long(
    engine: FakeEngine,
    assign: Assign,
    client: httpx.Client,
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    body: dict[str, str],
) -> None:
    monkeypatch.setattr("server.freshness.subscription_status.GONE_AFTER_S", 0.5)
    engine.now = "0/60"
    waiting = _begin(pool, client, timeout_ms=600_000, **body)
    patient = _begin(pool, client, timeout_ms=600_000, on_unreachable="wait", **body)
    wait_until(lambda: client.get("/subscriptions/orders/freshness").json()["waits"] == 2)
    engine.close()
    assert waiting.result(DEADLINE_S).json()["code"] == "freshness_unavailable"
    assert not patient.done()
    client.delete("/subscriptions/orders?force=true")
    assert patient.result(DEADLINE_S).status_code in {404, 409}


def test_a_wait_for_an_engine_that_has_just_left_goes_on(
    server: RunningServer, engine: FakeEngine, assign: Assign, client: httpx.Client, pool: ThreadPoolExecutor
) -> None:
    engine.close()
    wait_until(lambda: server.app.state.hub.owner("orders") is None)
    waiting = _begin(pool, client, position="0/60")
    again = FakeEngine(server.url)
    try:
        again.run(applied="0/60")
        assert waiting.result(DEADLINE_S).status_code == 200
    finally:
        again.close()


def test_what_keeps_the_source_away_is_named_at_the_deadline(
    engine: FakeEngine, assign: Assign, client: httpx.Client, pool: ThreadPoolExecutor
) -> None:
    engine.state(assign, "starting", run=1, **_SHOP)
    for body in ({"position": "0/60"}, {"position": "0/50"}):
        late = client.post(_WAITS, json={**body, "timeout_ms": 30})
        assert (late.status_code, late.json()["cause"]) == (504, "source_unreachable")
        assert "because of a fault, shop: no route" in late.json()["detail"]
        assert late.json()["remedy"] == "Mend the network."
    waiting = _begin(pool, client, position="0/60")
    engine.state(assign, "running", run=1)
    engine.progress(assign, "0/60", run=1)
    assert waiting.result(DEADLINE_S).status_code == 200


@pytest.mark.usefixtures("gone_at_once")
def test_a_source_that_is_away_for_too_long_ends_waits(
    engine: FakeEngine, assign: Assign, client: httpx.Client
) -> None:
    engine.state(assign, "starting", **_SHOP)
    for body in ({"position": "0/60"}, {}):
        answer = client.post(_WAITS, json=body)
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (503, "freshness_unavailable")
        assert (problem["cause"], problem["remedy"]) == ("source_unreachable", "Mend the network.")
    engine.refusal = Problem(status=502, code="source_unreachable", detail="No route.", remedy="Start the database.")
    assert client.post(_WAITS, json={"timeout_ms": 300, "on_unreachable": "wait"}).status_code == 504
    engine.state(assign, "running", run=1)
    assert client.post(_WAITS, json={"timeout_ms": 300}).json()["code"] == "source_unreachable"
    assert client.post(_WAITS, json={"timeout_ms": 300, "on_unreachable": "wait"}).status_code == 504
    query = {"sql": "SELECT 1", "freshness": {"mode": "position", "position": "0/99", "timeout_ms": 100}}
    assert client.post("/subscriptions/orders/queries", json=query).status_code == 504


def test_a_wait_that_goes_on_over_a_restart_of_the_server_stays_patient(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = RunningServer(tmp_path)
    with first.client() as client:
        declare(client)
        prefer = {"Prefer": "respond-async"}
        asked = [{"position": "0/60", "timeout_ms": 600_000, "on_unreachable": how} for how in ("error", "wait")]
        places = [client.post(_WAITS, json=body, headers=prefer).headers["Location"] for body in asked]
    first.stop()
    monkeypatch.setattr("server.freshness.subscription_status.GONE_AFTER_S", 0.1)
    with running_server(tmp_path, port=first.port) as second, second.client() as client:
        ended = _poll(client, places[0].removeprefix("/api/v1"))
        assert (ended["status"], ended["problem"]["code"]) == ("unreachable", "freshness_unavailable")
        assert client.get(places[1].removeprefix("/api/v1")).json()["status"] == "waiting"


def test_of_a_position_beyond_the_log_there_is_no_estimate(
    engine: FakeEngine, assign: Assign, client: httpx.Client
) -> None:
    for position in ("0/60", "0/70"):
        engine.progress(assign, position)
        assert engine.link.flush(DEADLINE_S)
    beyond = client.post(_WAITS, json={"position": "FF/0", "timeout_ms": 20}).json()
    assert (beyond["estimate_ms"], beyond["beyond_source"]) == (None, True)
    assert "beyond 0/70, the last known end of the source's log" in beyond["detail"]
    assert "pg_current_wal_insert_lsn()" in beyond["remedy"]
    for position in ("0/78", "0/80"):
        engine.progress(assign, position, source="0/100")
        assert engine.link.flush(DEADLINE_S)
    within = client.post(_WAITS, json={"position": "0/90", "timeout_ms": 20}).json()
    assert (within["estimate_ms"] is not None, within["beyond_source"]) == (True, False)


def test_a_parked_table_that_is_to_be_paused_is_not_waited_for_though_its_reload_was_asked_for(
    engine: FakeEngine, assign: Assign, client: httpx.Client
) -> None:
    lines = _table(assign, "lines")
    assert client.patch(f"/subscriptions/orders/tables/{lines}", json={"desired_state": "paused"}).status_code == 200
    engine.table(assign, lines, "parked", code="row_refused", reason="A row.", remedy="Reload it.")
    assert engine.link.flush(DEADLINE_S)
    assert client.post(f"/subscriptions/orders/tables/{lines}/reloads", json={}).status_code == 202
    assert client.post(_WAITS, json={"position": "0/50", "tables": _named("lines")}).status_code == 409
