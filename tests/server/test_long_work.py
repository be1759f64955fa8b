"""Verifications, reloads and metrics over HTTP."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.link.message import Problem
from engine.link.messages import Assign, Cancel, Reload, ReloadReport
from engine.link.verifications import Difference, RowCounts, Verification, VerifiedTable, Verify
from engine.model.position import Lsn
from engine.model.subscription import ApplyMode
from engine.model.table_state import TableStateKind
from engine.model.verification import VerificationMethod
from server.paging import PageRequest
from tests.fixtures.channel import DEADLINE_S, FakeEngine, RunningServer, declare, running_server

Rig = tuple[httpx.Client, FakeEngine, Assign]
_VERIFICATIONS = "/subscriptions/orders/verifications"
_RELOADS = "/subscriptions/orders/reloads"


def _verified(assign: Assign, verification_id: str, state: str, equal: bool = True) -> Verification:
    differing = () if equal else (Difference(key=("7",), kind="missing"),)
    first = assign.tables[0].table
    table = VerifiedTable(
        table=first,
        equal=equal,
        source_rows=9,
        target_rows=9 - (not equal),
        differing=differing,
        method=VerificationMethod.CHECKSUM,
        ranges=40,
        ranges_different=int(not equal),
        bytes_from_source=4321,
    )
    return Verification.model_validate(
        {
            "subscription": "orders",
            "epoch": assign.epoch,
            "verification_id": verification_id,
            "state": state,
            "position": "0/55",
            "tables": [table],
            "total": 2,
        }
    )


def test_a_verification_runs_and_shows_what_differs(rig: Rig) -> None:
    client, engine, assign = rig
    answer = client.post(_VERIFICATIONS, json={"method": "checksum"})
    assert answer.status_code == 202
    body = answer.json()
    assert (body["state"], body["equal"], body["method"]) == ("queued", None, "checksum")
    where = answer.headers["Location"].removeprefix("/api/v1")
    assert engine.seen(Verify).verification_id == body["id"]
    assert engine.seen(Verify).tables is None
    assert engine.seen(Verify).method is VerificationMethod.CHECKSUM

    engine.link.report(_verified(assign, body["id"], "running"))
    assert engine.link.flush(DEADLINE_S)
    running = client.get(where).json()
    assert (running["state"], running["tables_done"], running["tables_total"]) == ("running", 1, 2)
    again = client.post(_VERIFICATIONS)
    assert again.status_code == 409
    assert again.json()["running"] == body["id"]

    engine.link.report(_verified(assign, body["id"], "succeeded", equal=False))
    engine.link.report(_verified(assign, body["id"], "running"))
    assert engine.link.flush(DEADLINE_S)
    ended = client.get(where).json()
    assert (ended["state"], ended["equal"], ended["position"]) == ("succeeded", False, "0/55")
    assert ended["tables"][0]["differing"] == [{"key": ["7"], "kind": "missing", "columns": []}]
    assert (ended["repair"], ended["tables"][0]["repaired"]) == ("none", None)
    assert ended["tables"][0]["name"] == assign.tables[0].source.name
    figures = ("method", "ranges", "ranges_different", "bytes_from_source", "by_rows_because")
    assert [ended["tables"][0][name] for name in figures] == ["checksum", 40, 1, 4321, None]
    kinds = [event["kind"] for event in client.get("/events?subscription=orders").json()["items"]]
    assert "verification_differs" in kinds
    assert [v["id"] for v in client.get(_VERIFICATIONS).json()["items"]] == [body["id"]]


def test_a_verification_with_repair_shows_what_was_repaired_and_what_was_not(rig: Rig) -> None:
    client, engine, assign = rig
    wrong = client.post(_VERIFICATIONS, json={"repair": "all"})
    assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (422, "/repair")
    body = client.post(_VERIFICATIONS, json={"repair": "apply"}).json()
    assert (body["repair"], engine.seen(Verify).repair) == ("apply", "apply")
    differing = (Difference(key=("7",), kind="different", columns=("note", "price")),)
    first, second = (table.table for table in assign.tables[:2])
    counts = RowCounts(inserted=1, updated=2, deleted=3)
    at = Lsn(0x44)
    tables = [
        VerifiedTable(
            table=first, equal=True, source_rows=9, target_rows=9, differing=differing, repaired=counts, repaired_at=at
        ),
        VerifiedTable(
            table=second, equal=False, source_rows=9, target_rows=9, not_repaired="no key", would_repair=counts
        ),
    ]
    ended = _verified(assign, body["id"], "succeeded").model_copy(update={"tables": tuple(tables)})
    engine.link.report(ended)
    assert engine.link.flush(DEADLINE_S)
    found = client.get(f"{_VERIFICATIONS}/{body['id']}").json()
    assert (found["equal"], found["repair"]) == (False, "apply")
    one, other = found["tables"]
    assert one["differing"] == [{"key": ["7"], "kind": "different", "columns": ["note", "price"]}]
    numbers = {"inserted": 1, "updated": 2, "deleted": 3}
    assert (one["repaired"], one["repaired_at"], one["not_repaired"]) == (numbers, "0/44", None)
    assert (other["repaired"], other["would_repair"], other["not_repaired"]) == (None, numbers, "no key")


def test_a_verification_keeps_to_a_share_of_the_time(rig: Rig) -> None:
    client, engine, _ = rig
    for wrong in (0, 0.009, 1.01, "half"):
        refused = client.post(_VERIFICATIONS, json={"budget": wrong})
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/budget")
    body = client.post(_VERIFICATIONS, json={"budget": 0.3}).json()
    assert body["budget"] == engine.seen(Verify).budget == 0.3


def test_a_verification_of_a_sample_says_so(rig: Rig) -> None:
    client, engine, assign = rig
    for wrong in (0, -0.5, 1.01, "all"):
        refused = client.post(_VERIFICATIONS, json={"sample": wrong})
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/sample")
    body = client.post(_VERIFICATIONS, json={"sample": 0.25}).json()
    assert body["sample"] == engine.seen(Verify).sample == 0.25
    report = _verified(assign, body["id"], "succeeded")
    (table,) = report.tables
    tables = (table.model_copy(update={"sample": 0.25}), table.model_copy(update={"whole_because": "no key"}))
    engine.link.report(report.model_copy(update={"tables": tables}))
    assert engine.link.flush(DEADLINE_S)
    shown = client.get(f"{_VERIFICATIONS}/{body['id']}").json()
    found = [(each["sample"], each["whole_because"]) for each in shown["tables"]]
    assert found == [(0.25, None), (1.0, "no key")]


def test_a_verification_names_the_tables_that_it_left_out(rig: Rig) -> None:
    client, engine, assign = rig
    second = assign.tables[1]
    engine.table(assign, second.table, "parked", code="row_refused", reason="A row.", remedy="Mend it.")
    assert engine.link.flush(DEADLINE_S)
    body = client.post(_VERIFICATIONS).json()
    assert body["left_out"] == []
    engine.link.report(_verified(assign, body["id"], "succeeded"))
    assert engine.link.flush(DEADLINE_S)
    ended = client.get(f"{_VERIFICATIONS}/{body['id']}").json()
    assert (ended["equal"], len(ended["tables"])) == (True, 1)
    assert ended["left_out"] == [
        {"id": second.table, "schema": "public", "name": second.source.name, "state": "parked", "reason": "A row."}
    ]


def test_a_verification_that_compared_nothing_says_nothing(rig: Rig) -> None:
    client, engine, assign = rig
    body = client.post(_VERIFICATIONS).json()
    ended = Verification(
        subscription="orders", epoch=assign.epoch, verification_id=body["id"], state="succeeded", total=0
    )
    engine.link.report(ended)
    assert engine.link.flush(DEADLINE_S)
    shown = client.get(f"{_VERIFICATIONS}/{body['id']}").json()
    assert (shown["state"], shown["equal"], len(shown["left_out"])) == ("succeeded", None, 2)


def test_a_verification_of_some_tables(rig: Rig) -> None:
    client, engine, assign = rig
    name = assign.tables[0].source
    wanted = {"tables": [{"schema": name.schema, "name": name.name}]}
    assert client.post(_VERIFICATIONS, json=wanted).status_code == 202
    assert engine.seen(Verify).tables == (assign.tables[0].table,)
    assert engine.seen(Verify).method is VerificationMethod.ROWS
    assert client.post(_VERIFICATIONS, json={"method": "hash"}).status_code == 422
    unknown = client.post("/subscriptions/orders/verifications", json={"tables": [{"schema": "public", "name": "no"}]})
    assert unknown.status_code in {409, 422}


def test_a_verification_can_be_cancelled_once(rig: Rig) -> None:
    client, engine, _ = rig
    verification_id = client.post(_VERIFICATIONS).json()["id"]
    assert client.delete(f"{_VERIFICATIONS}/{verification_id}").status_code == 204
    assert engine.seen(Cancel).request_id == verification_id
    assert client.get(f"{_VERIFICATIONS}/{verification_id}").json()["state"] == "cancelled"
    assert client.delete(f"{_VERIFICATIONS}/{verification_id}").status_code == 409
    assert client.delete(f"{_VERIFICATIONS}/v0").status_code == 404
    assert client.post(_VERIFICATIONS).status_code == 202


def test_an_idempotency_key_makes_one_verification_of_two_requests(rig: Rig) -> None:
    client, engine, _ = rig
    key = {"Idempotency-Key": "once"}
    first = client.post(_VERIFICATIONS, headers=key)
    second = client.post(_VERIFICATIONS, headers=key)
    assert second.status_code == first.status_code == 202
    assert second.json() == first.json()
    assert second.headers["Location"] == first.headers["Location"]
    engine.seen(Verify)
    assert engine.count(Verify) == 1


def test_a_paused_subscription_cannot_be_verified(rig: Rig) -> None:
    client, engine, assign = rig
    engine.state(assign, "paused")
    answer = client.post(_VERIFICATIONS)
    assert answer.status_code == 409
    assert answer.json()["code"] == "subscription_not_running"


def test_a_new_stream_names_work_that_has_not_ended(rig: Rig, tmp_path: Path) -> None:
    client, engine, _ = rig
    verification_id = client.post(_VERIFICATIONS).json()["id"]
    reload_id = client.post(_RELOADS).json()["id"]
    engine.seen(Reload)
    engine.close()
    second = FakeEngine(str(client.base_url).removesuffix("/api/v1/"))
    try:
        assert second.seen(Verify).verification_id == verification_id
        assert second.seen(Reload).request_id == reload_id
    finally:
        second.close()


def test_a_table_is_reloaded_with_progress(rig: Rig) -> None:
    client, engine, assign = rig
    table = assign.tables[0].table
    answer = client.post(f"/subscriptions/orders/tables/{table}/reloads")
    assert answer.status_code == 202
    where = answer.headers["Location"].removeprefix("/api/v1")
    command = engine.seen(Reload)
    assert command.tables == (table,)
    report = ReloadReport(
        subscription="orders",
        epoch=assign.epoch,
        request_id=command.request_id,
        state="running",
        rows=10,
        bytes=5 * 1024**3,
        percent=50.0,
        eta_seconds=2.0,
    )
    engine.link.report(report)
    assert engine.link.flush(DEADLINE_S)
    copied = client.get(where).json()["copied"]
    expected = {"rows": 10, "bytes": 5 * 1024**3, "percent": 50.0, "eta_seconds": 2.0}
    assert {name: copied[name] for name in expected} == expected
    busy = client.post(f"/subscriptions/orders/tables/{table}/reloads")
    assert busy.status_code == 409
    assert busy.json()["running"] == command.request_id
    assert client.post(_RELOADS).status_code == 409
    other = assign.tables[1].table
    assert client.post(f"/subscriptions/orders/tables/{other}/reloads").status_code == 202
    engine.link.report(report.model_copy(update={"state": "succeeded", "position": Lsn(0x60)}))
    assert engine.link.flush(DEADLINE_S)
    ended = client.get(where).json()
    assert (ended["state"], ended["position"]) == ("succeeded", "0/60")
    listed = client.get(f"/subscriptions/orders/tables/{table}/reloads").json()["items"]
    assert [r["id"] for r in listed] == [command.request_id]
    assert len(client.get(_RELOADS).json()["items"]) == 2


def test_a_reload_that_is_cancelled_too_late_has_succeeded(rig: Rig) -> None:
    client, engine, assign = rig
    answer = client.post(f"/subscriptions/orders/tables/{assign.tables[0].table}/reloads")
    where, request = answer.headers["Location"].removeprefix("/api/v1"), engine.seen(Reload).request_id
    report = ReloadReport(subscription="orders", epoch=assign.epoch, request_id=request, state="running", rows=10)
    assert client.delete(where).status_code == 204
    engine.link.report(report)
    assert engine.link.flush(DEADLINE_S)
    assert client.get(where).json()["state"] == "cancelled"
    engine.link.report(report.model_copy(update={"state": "succeeded", "position": Lsn(0x60)}))
    assert engine.link.flush(DEADLINE_S)
    ended = client.get(where).json()
    assert (ended["state"], ended["position"]) == ("succeeded", "0/60")


@pytest.mark.parametrize("heard", ["nothing", "progress", "state"])
def test_a_reload_that_is_cancelled_while_no_engine_is_there_names_its_table_to_the_next(rig: Rig, heard: str) -> None:
    """The next engine continues the copies that it finds, and does not know for which request they were begun."""
    client, engine, assign = rig
    table = assign.tables[0].table
    answer = client.post(f"/subscriptions/orders/tables/{table}/reloads")
    where, request = answer.headers["Location"].removeprefix("/api/v1"), engine.seen(Reload).request_id
    if heard != "nothing":
        report = ReloadReport(subscription="orders", epoch=assign.epoch, request_id=request, state="running", rows=10)
        engine.link.report(report)
        assert engine.link.flush(DEADLINE_S)
    if heard == "state":
        engine.table(assign, table, "reloading")
        assert engine.link.flush(DEADLINE_S)
    engine.close()
    assert client.delete(where).status_code == 204
    second = FakeEngine(str(client.base_url).removesuffix("/api/v1/"))
    try:
        assert second.seen(Cancel) == Cancel(request_id=request, subscription="orders", table=table)
        assert second.count(Reload) == 0
        second.table(second.seen(Assign), table, "parked")
        assert second.link.flush(DEADLINE_S)
    finally:
        second.close()
    third = FakeEngine(str(client.base_url).removesuffix("/api/v1/"))
    try:
        third.seen(Assign)
        client.post(_VERIFICATIONS)
        third.seen(Verify)
        assert third.count(Cancel) == 0
    finally:
        third.close()


def test_a_reload_is_the_remedy_of_a_failed_subscription(rig: Rig) -> None:
    client, engine, assign = rig
    engine.state(assign, "failed", code="log_gap", reason="The slot is gone.", remedy="Reload.")
    table = assign.tables[0].table
    assert client.post(f"/subscriptions/orders/tables/{table}/reloads").status_code == 409
    answer = client.post(_RELOADS)
    assert answer.status_code == 202
    command = engine.seen(Reload)
    assert command.tables is None
    failed = ReloadReport(
        subscription="orders",
        epoch=assign.epoch,
        request_id=command.request_id,
        state="failed",
        problem=Problem(status=502, code="source_unreachable", detail="No route.", remedy="Start it."),
    )
    engine.link.report(failed)
    assert engine.link.flush(DEADLINE_S)
    body = client.get(f"{_RELOADS}/{command.request_id}").json()
    assert (body["state"], body["problem"]["code"]) == ("failed", "source_unreachable")


def test_a_reload_is_the_remedy_also_where_the_subscription_failed_in_one(rig: Rig) -> None:
    client, engine, assign = rig
    engine.state(assign, "failed", code="log_gap", reason="The slot is gone.", remedy="Reload.")
    assert engine.link.flush(DEADLINE_S)
    assert client.post(_RELOADS).status_code == 202
    first = engine.seen(Reload)
    assert client.post(_RELOADS).json()["code"] == "reload_running"
    engine.link.report(
        ReloadReport(subscription="orders", epoch=assign.epoch, request_id=first.request_id, state="running")
    )
    engine.state(assign, "running")
    assert engine.link.flush(DEADLINE_S)
    assert client.post(_RELOADS).json()["code"] == "reload_running"
    engine.state(assign, "failed", code="log_not_decoded", reason="SQLSTATE XX000", remedy="Reload.")
    assert engine.link.flush(DEADLINE_S)
    assert client.post(_RELOADS).status_code == 202
    assert client.post(_RELOADS).json()["code"] == "reload_running"


def test_a_table_that_is_being_copied_cannot_be_reloaded(rig: Rig) -> None:
    client, engine, assign = rig
    table = assign.tables[0].table
    engine.table(assign, table, "copying")
    assert engine.link.flush(DEADLINE_S)
    answer = client.post(f"/subscriptions/orders/tables/{table}/reloads")
    assert answer.status_code == 409
    assert answer.json()["code"] == "table_not_reloadable"


def test_lists_are_paged(rig: Rig) -> None:
    client, engine, assign = rig
    for number in range(5):
        engine.batch(assign, number)
    assert engine.link.flush(DEADLINE_S)
    seen: list[int] = []
    token = ""
    while token is not None:
        page = client.get(
            "/subscriptions/orders/batches", params={"page_size": 2, "page_token": token} if token else {"page_size": 2}
        )
        seen += [item["batch"] for item in page.json()["items"]]
        token = page.json()["next_page_token"]
    assert seen == [4, 3, 2, 1, 0]


@pytest.mark.parametrize("kind", ["batches", "verifications", "reloads", "tickets"])
def test_made_up_page_tokens_are_refused(rig: Rig, kind: str) -> None:
    client, *_ = rig
    url = f"/subscriptions/orders/{kind}"
    mine = PageRequest(1, None, hashlib.sha256(json.dumps([f"/api/v1{url}", []]).encode()).hexdigest()[:12])
    keys: tuple[list[Any], ...] = (
        [],
        ["x"],
        [10**30],
        [1, 2],
        ["x", "y"],
        ["2026-01-01", "y"],
        ["2026-01-01T00:00:00+00:00", "a\0"],
    )
    for token in ("x", "W10", *map(mine.token, keys)):
        answer = client.get(url, params={"page_token": token})
        assert (answer.status_code, answer.json()["code"]) == (422, "page_token_invalid"), token


def test_work_is_listed_page_by_page(rig: Rig) -> None:
    client, *_ = rig
    made = []
    for _ in range(3):
        made.append(client.post(_VERIFICATIONS, json={}).json()["id"])
        assert client.delete(f"{_VERIFICATIONS}/{made[-1]}").status_code == 204
    seen: list[str] = []
    page: dict[str, Any] = {"next_page_token": None}
    while not seen or page["next_page_token"]:
        token = {"page_token": page["next_page_token"]} if seen else {}
        page = client.get(_VERIFICATIONS, params={"page_size": 1, **token}).json()
        seen += [item["id"] for item in page["items"]]
    assert seen == made[::-1]


def test_metrics_tell_positions_waits_and_rows(rig: Rig) -> None:
    client, engine, assign = rig
    engine.batch(assign, 1, ApplyMode.GROUPED)
    assert engine.link.flush(DEADLINE_S)
    assert client.post("/subscriptions/orders/freshness-waits", json={"position": "0/50"}).status_code == 200
    root = str(client.base_url).removesuffix("/api/v1/")
    answer = httpx.get(f"{root}/metrics", headers=client.headers, trust_env=False)
    assert answer.status_code == 200
    lines = answer.text.splitlines()
    assert 'penstock_subscription_applied_position_bytes{subscription="orders"} 80.0' in lines
    assert 'penstock_applied_rows_total{op="insert",subscription="orders"} 5.0' in lines
    assert 'penstock_batch_transactions_sum{mode="grouped",path="driver",subscription="orders"} 7.0' in lines
    assert 'penstock_freshness_waits_satisfied_on_arrival_total{subscription="orders"} 1.0' in lines
    assert 'penstock_freshness_wait_seconds_count{outcome="satisfied",subscription="orders"} 1.0' in lines
    assert "penstock_engines_connected 1.0" in lines
    tables = Counter(table["state"] for table in client.get("/subscriptions/orders/tables").json()["items"])
    assert tables.total() > 0
    for state in TableStateKind:
        assert f'penstock_tables{{state="{state.value}",subscription="orders"}} {tables[state.value]:.1f}' in lines
    assert 'penstock_rows_set_aside{subscription="orders"} 0.0' in lines
    assert 'penstock_subscription_lag_seconds{subscription="orders"} 0.0' in lines
    assert any(line.startswith("penstock_build_info{") for line in lines)
    assert httpx.get(f"{root}/metrics", trust_env=False).status_code == 401


def test_a_deleted_subscription_takes_its_work_along(tmp_path: Path) -> None:
    server: RunningServer
    with running_server(tmp_path) as server, server.client() as client:
        declare(client)
        assert client.post(_VERIFICATIONS).status_code == 202
        assert client.delete("/subscriptions/orders").status_code == 204
        assert client.get(_VERIFICATIONS).status_code == 404
