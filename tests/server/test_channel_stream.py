"""Engines on the control channel: assignments, epochs, restarts of either side, two engines at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from engine.link.lag import Lag, LagBody, LagSpanPart
from engine.link.messages import (
    Approve,
    Assign,
    Desire,
    Discover,
    Forget,
    Forgotten,
    LedgerPart,
    Preflight,
    SchemaVersion,
    Table,
    TableRenamed,
)
from engine.model.lag import LagCause
from engine.model.position import Lsn
from engine.model.subscription import ApplyMode
from tests.fixtures.channel import DEADLINE_S, ENGINE, FakeEngine, RunningServer, declare, running_server
from tests.fixtures.waiting import wait_until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with running_server(tmp_path) as found:
        yield found


@pytest.fixture
def client(server: RunningServer) -> Iterator[httpx.Client]:
    with server.client() as found:
        yield found


@pytest.fixture
def engine(server: RunningServer) -> Iterator[FakeEngine]:
    found = FakeEngine(server.url)
    yield found
    found.close()


def test_an_engine_gets_what_exists_with_secrets_and_what_comes_later(
    server: RunningServer, client: httpx.Client
) -> None:
    declare(client)
    engine = FakeEngine(server.url)
    try:
        assign = engine.assigned()
        assert engine.commands[0].kind == "sync"
        assert engine.synced().subscriptions == {"orders": 1}
        assert assign.epoch == 1
        assert assign.to_spec().source.secrets == {"password": "hunter2"}
        assert [t.source.name for t in assign.tables] == ["lines", "orders"]
        declare(client, "later")
        assert engine.assigned("later").epoch == 1
    finally:
        engine.close()


def test_what_was_read_before_an_engine_took_a_subscription_is_not_sent_to_it(
    server: RunningServer, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would have the epoch before."""
    freshness, waiting, go = server.app.state.freshness, threading.Event(), threading.Event()
    refresh = freshness.refresh

    async def held(names: list[str] | None = None) -> None:
        if names == ["orders"] and not waiting.is_set():
            waiting.set()
            await asyncio.to_thread(go.wait, DEADLINE_S)
        await refresh(names)

    monkeypatch.setattr(freshness, "refresh", held)
    declare(client)
    assert waiting.wait(DEADLINE_S)
    engine = FakeEngine(server.url)
    try:
        assert engine.assigned().epoch == 1
        go.set()
        assert client.patch("/subscriptions/orders", json={"desired_state": "paused"}).status_code == 200
        assert engine.seen(Desire).desired == "paused"
        assert {command.epoch for command in engine.commands if isinstance(command, Assign)} == {1}
    finally:
        engine.close()


def test_changes_reach_the_engine_after_their_commit(engine: FakeEngine, client: httpx.Client) -> None:
    declare(client)
    engine.run()
    assert client.patch("/subscriptions/orders", json={"desired_state": "paused"}).status_code == 200
    assert engine.seen(Desire).desired == "paused"
    added = client.post("/subscriptions/orders/tables", json={"schema": "public", "name": "stock"})
    assert added.status_code == 201, added.text
    assert engine.seen(Table).spec.source.name == "stock"


def test_reports_show_in_the_resources(engine: FakeEngine, client: httpx.Client) -> None:
    declare(client)
    assign = engine.run(applied="0/50")
    engine.batch(assign, 1)
    assert engine.link.flush(DEADLINE_S)
    body = client.get("/subscriptions/orders").json()
    assert body["state"] == "running"
    assert {body["positions"][k] for k in ("source", "captured", "applied")} == {"0/50"}
    tables = client.get("/subscriptions/orders/tables").json()["items"]
    assert {t["state"] for t in tables} == {"live"}
    batch = client.get("/subscriptions/orders/batches").json()["items"][0]
    assert batch["rows"] == {"insert": 5, "update": 2}
    assert batch["demanded"] is True
    assert batch["mode"] == "batch"


def test_a_batch_tells_how_it_was_written(engine: FakeEngine, client: httpx.Client) -> None:
    declare(client)
    assign = engine.run(applied="0/50")
    engine.batch(assign, 1, ApplyMode.GROUPED)
    engine.batch(assign, 2, ApplyMode.TRANSACTIONAL)
    assert engine.link.flush(DEADLINE_S)
    batches = client.get("/subscriptions/orders/batches").json()["items"]
    assert [(batch["batch"], batch["mode"]) for batch in batches] == [(2, "transactional"), (1, "grouped")]


def test_the_ledger_of_a_batch_is_shown_and_exported(engine: FakeEngine, client: httpx.Client) -> None:
    declare(client)
    assign = engine.run(applied="0/50")
    one, other = (table.table for table in assign.tables)
    tables = {one: {"captured": 5, "applied": 4, "netted": 1}, other: {"captured": 2, "applied": 2}}
    engine.batch(assign, 1)
    engine.batch(assign, 2, ledger=LedgerPart(captured=9, left_out=2, tables=tables))
    assert engine.link.flush(DEADLINE_S)
    last, first = client.get("/subscriptions/orders/batches").json()["items"]
    total = {"captured": 7, "applied": 6, "netted": 1}
    assert last["ledger"] == {"captured": 9, "left_out": 2, "tables": tables, "total": total}
    assert first["ledger"] is None
    lines = client.get("/subscriptions/orders/ledger").json()["lines"]
    assert [(line["batch"], line["table_id"], line["applied"], line["parked"]) for line in lines] == [
        (2, one, 4, 0),
        (2, other, 2, 0),
    ]
    exported = client.get("/subscriptions/orders/ledger", params={"format": "csv", "batches": 1})
    assert exported.headers["content-type"].startswith("text/csv")
    head, *rest = exported.text.splitlines()
    assert head.startswith("batch,epoch,end,committed_at,table_id,captured,retained,applied,netted")
    assert [line.split(",")[4:9] for line in rest] == [[one, "5", "0", "4", "1"], [other, "2", "0", "2", "0"]]
    root = str(client.base_url).removesuffix("/api/v1/").removesuffix("/api/v1")
    metrics = httpx.get(f"{root}/metrics", headers=client.headers, trust_env=False).text
    assert 'penstock_ledger_changes_total{outcome="netted",subscription="orders"} 1.0' in metrics
    assert 'penstock_ledger_changes_total{outcome="left_out",subscription="orders"} 2.0' in metrics
    refused = client.get("/subscriptions/orders/ledger", params={"format": "xml"})
    assert refused.status_code == 422


def test_a_lag_is_explained_by_what_the_engine_measures(engine: FakeEngine, client: httpx.Client) -> None:
    declare(client)
    engine.run(applied="0/50")
    lock = LagSpanPart(cause=LagCause.TARGET_LOCK, from_ms=900, evidence={"pid": 7})
    body = LagBody(commit_lag_ms=1000, spans=(LagSpanPart(cause=LagCause.GATHERING, from_ms=1000), lock))
    engine.answers = body.model_dump(mode="json")
    found = client.get("/subscriptions/orders/lag/explanation").json()
    assert (found["lag_ms"], found["commit_lag_ms"]) == (1000, 1000)
    assert [(one["cause"], one["share_ms"], one["share"]) for one in found["causes"]] == [
        ("target_lock", 900, 0.9),
        ("gathering", 100, 0.1),
    ]
    assert found["causes"][0]["evidence"] == {"pid": 7}
    assert engine.seen(Lag).subscription == "orders"
    assert client.get("/subscriptions/none/lag/explanation").status_code == 404


def test_an_approval_reaches_the_engine(engine: FakeEngine, client: httpx.Client) -> None:
    declare(client)
    assign = engine.run(applied="0/50")
    table = assign.tables[0].table
    engine.table(assign, table, "parked", code="schema_change_waiting", reason="ALTER TABLE …", remedy="Approve it.")
    assert engine.link.flush(DEADLINE_S)
    answer = client.post(f"/subscriptions/orders/tables/{table}/approvals", json={"reason": "ALTER TABLE …"})
    assert answer.status_code == 202, answer.text
    assert (engine.seen(Approve).subscription, engine.seen(Approve).table) == ("orders", table)


def test_a_renamed_table_is_shown_waited_for_and_told_back_by_its_new_name(
    engine: FakeEngine, client: httpx.Client
) -> None:
    declare(client)
    assign = engine.run(applied="0/50")
    ids = {part.source.name: part.table for part in assign.tables}
    for old, new in (("orders", "lines"), ("lines", "orders")):
        report = {"subscription": "orders", "epoch": assign.epoch, "table": ids[old], "schema": "public", "name": new}
        engine.link.report(TableRenamed.model_validate(report))
    engine.link.report(TableRenamed.model_validate({**report, "table": "t0", "name": "strange"}))
    engine.link.report(TableRenamed.model_validate({**report, "epoch": assign.epoch + 1, "name": "late"}))
    assert engine.link.flush(DEADLINE_S)
    for old, new in (("orders", "lines"), ("lines", "orders")):
        spec = engine.seen(Table, lambda command, table=ids[old]: command.table == table).spec
        assert (spec.source.name, spec.target.name) == (new, old)
    listed = client.get("/subscriptions/orders/tables").json()["items"]
    assert {item["id"]: item["name"] for item in listed} == {ids["orders"]: "lines", ids["lines"]: "orders"}
    wait = {"position": "0/50", "tables": [{"schema": "public", "name": "lines"}]}
    assert client.post("/subscriptions/orders/freshness-waits", json=wait).status_code == 200


def test_a_structure_is_recorded_with_what_changed(engine: FakeEngine, client: httpx.Client) -> None:
    declare(client)
    assign = engine.run(applied="0/50")
    table = assign.tables[0].table
    engine.link.report(
        SchemaVersion(
            subscription="orders",
            epoch=assign.epoch,
            table=table,
            position=Lsn(0x60),
            columns=(),
            changes=("column note was dropped",),
            learnt="catalog",
            certain=False,
        )
    )
    assert engine.link.flush(DEADLINE_S)
    newest = client.get(f"/subscriptions/orders/tables/{table}/versions").json()["items"][-1]
    assert (newest["change"], newest["position"]) == ("structure", "0/60")
    assert (newest["changes"], newest["learnt"], newest["certain"]) == (["column note was dropped"], "catalog", False)


def test_a_report_of_a_past_epoch_changes_nothing(engine: FakeEngine, client: httpx.Client) -> None:
    declare(client)
    assign = engine.run(applied="0/50")
    engine.progress(assign, "0/99", epoch=assign.epoch + 1)
    assert engine.link.flush(DEADLINE_S)
    assert client.get("/subscriptions/orders").json()["positions"]["applied"] == "0/50"
    assert client.get("/subscriptions/orders/freshness").json()["positions"]["applied"] == "0/50"


def test_the_same_engine_keeps_its_epoch_over_a_restart_of_the_server(tmp_path: Path) -> None:
    first = RunningServer(tmp_path)
    with first.client() as client:
        declare(client)
    engine = FakeEngine(first.url)
    try:
        assign = engine.run(applied="0/50")
        first.stop()
        engine.progress(assign, "0/60")  # Reported while no server listens.
        engine.table(assign, assign.tables[0].table, "parked", code="copy_failed", reason="r", remedy="m")
        engine.commands.clear()
        with running_server(tmp_path, port=first.port) as second, second.client() as client:
            assert engine.assigned().epoch == assign.epoch
            assert engine.link.flush(DEADLINE_S)
            body = client.get("/subscriptions/orders").json()
            assert body["positions"]["applied"] == "0/60"
            states = {t["name"]: t["state"] for t in client.get("/subscriptions/orders/tables").json()["items"]}
            assert sorted(states.values()) == ["live", "parked"]
    finally:
        engine.close()


def test_only_one_of_two_engines_gets_a_subscription(server: RunningServer, client: httpx.Client) -> None:
    declare(client)
    first = FakeEngine(server.url, "one")
    second = None
    try:
        first.run()
        second = FakeEngine(server.url, "two")
        assert second.synced().subscriptions == {}
        assert client.get("/subscriptions/orders").json()["state"] == "running"
        listed = {e["name"]: e for e in client.get("/engines").json()["items"]}
        assert listed["one"]["subscriptions"] == ["orders"]
        assert listed["two"]["subscriptions"] == []
        assert listed["two"]["connected"]
    finally:
        first.close()
        if second is not None:
            second.close()


def test_a_lost_engines_subscriptions_pass_to_another_in_a_new_epoch(tmp_path: Path) -> None:
    with running_server(tmp_path, lease_s=0.3) as server, server.client() as client:
        declare(client)
        first = FakeEngine(server.url, "one")
        second = FakeEngine(server.url, "two")
        try:
            owner, other = (
                (first, second)
                if first.synced().subscriptions or not second.synced().subscriptions
                else (second, first)
            )
            old = owner.run()
            assert other.synced().subscriptions == {}
            owner.close()
            taken = other.assigned()
            assert taken.epoch == old.epoch + 1
            kinds = [e["kind"] for e in client.get("/events?subscription=orders").json()["items"]]
            assert "engine_lost" in kinds
        finally:
            first.close()
            second.close()


def test_a_restarted_engine_of_the_same_name_takes_over_at_once(server: RunningServer, client: httpx.Client) -> None:
    declare(client)
    first = FakeEngine(server.url)
    old = first.run()
    first.close()
    second = FakeEngine(server.url)
    try:
        assert second.assigned().epoch == old.epoch + 1
    finally:
        second.close()


def test_a_lost_engine_that_comes_back_takes_up_its_own_in_the_same_epoch(tmp_path: Path) -> None:
    with running_server(tmp_path, lease_s=0.2) as server, server.client() as client:
        declare(client)
        engine = FakeEngine(server.url)
        assign = engine.run()
        engine.close()
        wait_until(lambda: client.get("/subscriptions/orders").json()["state"] == "starting")
        back = FakeEngine(server.url, instance=engine.instance)
        try:
            assert back.assigned().epoch == assign.epoch
            back.run(applied="0/60")
            body = client.get("/subscriptions/orders").json()
            assert (body["state"], body["positions"]["applied"]) == ("running", "0/60")
        finally:
            back.close()


def test_deleting_tells_the_engine_and_ends_with_its_report(engine: FakeEngine, client: httpx.Client) -> None:
    declare(client)
    assign = engine.run()
    assert client.delete("/subscriptions/orders").status_code == 202
    forget = engine.seen(Forget)
    assert forget.assignment is not None
    assert forget.assignment.slot == assign.slot
    engine.link.report(Forgotten(subscription="orders", left=("the slot",)))
    assert engine.link.flush(DEADLINE_S)
    assert client.get("/subscriptions/orders").status_code == 404
    assert client.get("/subscriptions/orders/freshness").status_code == 404
    details = [e["detail"] for e in client.get("/events?subscription=orders").json()["items"]]
    assert any("the slot" in detail for detail in details)


def test_deleting_by_force_makes_the_engine_let_go(engine: FakeEngine, client: httpx.Client) -> None:
    declare(client)
    engine.run()
    assert client.delete("/subscriptions/orders?force=true").status_code == 204
    assert engine.seen(type(engine.synced()), lambda c: c.subscriptions == {}) is not None


def test_a_connection_is_checked_by_the_engine(engine: FakeEngine, client: httpx.Client) -> None:
    declare(client)
    engine.run()
    finding = {"severity": "error", "code": "source_wal_level", "what": "wal_level is replica.", "remedy": "Set it."}
    engine.answers = {"findings": [finding]}
    answer = client.post("/connections/shop/checks")
    assert answer.status_code == 200, answer.text
    assert "source_wal_level" in answer.text
    command = engine.seen(Preflight)
    assert command.connection.secrets == {"password": "hunter2"}


def test_tables_of_a_pattern_are_discovered_by_the_engine(engine: FakeEngine, client: httpx.Client) -> None:
    declare(client)
    engine.run()
    table = {"schema": "public", "name": "stock", "key": ["id"], "identity": "default", "columns": []}
    engine.answers = {"tables": [table]}
    listed = client.get("/connections/shop/tables")
    assert listed.status_code == 200, listed.text
    assert "stock" in listed.text
    body = {"source": "shop", "target": "mart-orders", "tables": [{"schema": "public", "name": "*"}]}
    answer = client.put("/subscriptions/everything", json=body)
    assert answer.status_code == 201, answer.text
    assert [t.source.name for t in engine.assigned("everything").tables] == ["stock"]
    assert engine.seen(Discover).connection.name == "shop"


def test_users_tokens_do_not_open_the_engines_end(client: httpx.Client, server: RunningServer) -> None:
    body = {"instance": "i", "name": "n", "version": "v"}
    assert client.post("/engines", json=body).status_code == 403
    with server.client(ENGINE) as as_engine:
        assert as_engine.get("/subscriptions").status_code == 403
        refused = as_engine.post("/engines", json={**body, "protocol": 99})
        assert refused.status_code == 409
        assert refused.json()["code"] == "engine_protocol"
        assert as_engine.post("/engines/e0/reports", json={"sequence": 1, "reports": []}).status_code == 404


def test_a_report_that_nobody_understands_spoils_only_itself(engine: FakeEngine, client: httpx.Client) -> None:
    declare(client)
    assign = engine.run()
    with httpx.Client(base_url=client.base_url, headers={"Authorization": f"Bearer {ENGINE}"}, trust_env=False) as raw:
        engine_id = client.get("/engines").json()["items"][0]["id"]
        good = {
            "kind": "progress",
            "subscription": "orders",
            "epoch": assign.epoch,
            "applied": "0/70",
            "at": "2026-01-01T00:00:00Z",
        }
        body = {"sequence": 1000, "reports": [{"kind": "from_the_future"}, good]}
        assert raw.post(f"/engines/{engine_id}/reports", json=body).status_code == 204
        again = {"sequence": 1000, "reports": [{**good, "applied": "0/71"}]}
        assert raw.post(f"/engines/{engine_id}/reports", json=again).status_code == 204
    assert client.get("/subscriptions/orders").json()["positions"]["applied"] == "0/70"
