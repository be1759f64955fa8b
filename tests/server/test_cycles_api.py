"""Cycles over HTTP: what the engine is asked, how its answers are shown, and what is refused before it is asked."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlmodel import select

from engine.link.messages import Assign
from engine.model.positions.windows import end_of
from server.db.models.subscription import SubscriptionRow
from server.gateway.interface import EngineUnavailable
from server.security.principal import Role
from tests.fixtures.channel import DEADLINE_S, FakeEngine
from tests.server.conftest import PlayedEngine

PATH = "/api/v1/subscriptions/copy/cycles"
TABLE = {"schema": "public", "name": "orders", "method": "incremental", "rows_read": 9, "bytes_read": 80, "inserted": 3}


def cycle(number: int, **more: Any) -> dict[str, Any]:
    """A cycle as the engine reports it."""
    times = {"taken_us": 1_700_000_000_000_000, "ended_us": 1_700_000_002_500_000}
    tables = [TABLE, {**TABLE, "name": "lines", "filled": True, "inserted": 0, "deleted": 2}]
    return {"number": number, "position": str(end_of(number)), "state": "applied", **times, "tables": tables} | more


@pytest.fixture
def subscription(client: TestClient, connections: None, app: FastAPI) -> None:
    """`copy`, captured by queries, and running."""
    tables = [{"schema": "public", "name": "orders"}]
    body = {"source": "shop", "target": "mart", "tables": tables, "capture": {"kind": "query_diff"}}
    assert client.put("/api/v1/subscriptions/copy", json=body).status_code == 201
    with app.state.database.write() as session:
        session.exec(select(SubscriptionRow)).one().state = "running"


@pytest.mark.usefixtures("subscription")
def test_cycles_are_listed_page_by_page(client: TestClient, engine: PlayedEngine) -> None:
    requested = {"number": 8, "position": str(end_of(8)), "state": "requested"}
    times = {"as_of_us": 1_700_000_000_000_000, "due_us": 1_700_000_300_000_000}
    engine.answers["cycles"] = {"cycles": [requested, cycle(7), cycle(6)], **times}
    first = client.get(PATH, params={"page_size": 2}).json()
    assert engine.asked == [("cycles", {"subscription": "copy", "most": 3, "upto": None})]
    assert (first["as_of"], first["next_at"]) == ("2023-11-14T22:13:20Z", "2023-11-14T22:18:20Z")
    waiting, ended = first["items"]
    assert (waiting["position"], waiting["state"], waiting["taken_at"], waiting["seconds"]) == (
        "c8",
        "requested",
        None,
        None,
    )
    assert (ended["position"], ended["seconds"], ended["rows_read"], ended["bytes_read"]) == ("c7", 2.5, 18, 160)
    assert (ended["inserted"], ended["updated"], ended["deleted"]) == (3, 0, 2)
    assert [(table["name"], table["first"]) for table in ended["tables"]] == [("orders", False), ("lines", True)]

    engine.answers["cycles"] = {"cycles": [cycle(6)]}
    last = client.get(PATH, params={"page_size": 2, "page_token": first["next_page_token"]}).json()
    assert engine.asked[-1] == ("cycles", {"subscription": "copy", "most": 3, "upto": 6})
    assert ([item["number"] for item in last["items"]], last["next_page_token"]) == ([6], None)
    assert client.get(PATH, params={"page_token": "nonsense"}).json()["code"] == "page_token_invalid"


@pytest.mark.usefixtures("subscription")
def test_one_is_shown_and_others_are_not_found(client: TestClient, engine: PlayedEngine) -> None:
    engine.answers["cycles"] = {"cycles": [cycle(7, source_reads={"pages": 12}, one_snapshot=False)]}
    found = client.get(f"{PATH}/7").json()
    assert engine.asked == [("cycles", {"subscription": "copy", "most": 1, "upto": 7})]
    assert (found["number"], found["source_reads"], found["one_snapshot"]) == (7, {"pages": 12}, False)
    # The engine answers with the next older one if there is none of this number.
    assert client.get(f"{PATH}/9").json()["code"] == "not_found"
    assert client.get(f"{PATH}/0").status_code == 422


@pytest.mark.usefixtures("subscription")
def test_what_failed_is_told_with_its_cause(client: TestClient, engine: PlayedEngine) -> None:
    times = {"taken_us": 1_700_000_000_000_000, "ended_us": 1_700_000_001_000_000}
    fault = {"fault": "source_unreachable", "fault_detail": "shop: closed", "fault_table": "public.orders"}
    failed = {"number": 8, "position": str(end_of(8)), "began_us": times["taken_us"], "ended_us": times["ended_us"]}
    failed |= {"fault": fault["fault"], "detail": fault["fault_detail"], "table": fault["fault_table"]}
    unread = {**TABLE, "fault": "source_privilege", "detail": "permission denied"}
    engine.answers["cycles"] = {"cycles": [cycle(7, tables=[TABLE, unread])], "failed": [failed]}
    first, second = client.get(PATH).json()["items"]
    assert {name: first[name] for name in fault} == fault
    assert (first["state"], first["seconds"], first["tables"]) == ("failed", 1.0, [])
    assert [(table["fault"], table["fault_detail"]) for table in second["tables"]] == [
        (None, None),
        ("source_privilege", "permission denied"),
    ]
    assert second["fault"] is None
    assert client.get(f"{PATH}/8").json()["fault"] == "source_unreachable"
    older = {**failed, "number": 6, "position": str(end_of(6))}
    engine.answers["cycles"] = {"cycles": [cycle(7), cycle(5)], "failed": [failed, older]}
    first = client.get(PATH, params={"page_size": 2}).json()
    assert [item["number"] for item in first["items"]] == [8, 7]
    assert client.get(PATH, params={"page_token": first["next_page_token"]}).status_code == 200
    assert engine.asked[-1][1]["upto"] == 6


@pytest.mark.usefixtures("connections")
@pytest.mark.parametrize(
    ("capture", "wrong"),
    [
        ({"between": ["22:00", "06:00"], "time_zone": "Europe/Berlin", "only_between": True}, None),
        ({"max_time_share": 0.25, "snapshot_seconds": 60, "statement_seconds": 30}, None),
        ({"max_bytes_per_second": 10_000_000, "give_way": True}, None),
        ({"share_scans": False}, None),
        ({"max_bytes_per_second": 10}, "max_bytes_per_second"),
        ({"between": ["22:00", "24:00"]}, "between"),
        ({"between": ["22:00"]}, "between"),
        ({"time_zone": "Europe/Nowhere"}, "time_zone"),
        ({"time_zone": "../etc/passwd"}, "time_zone"),
        ({"only_between": True}, "only_between"),
        ({"max_time_share": 0}, "max_time_share"),
        ({"snapshot_seconds": 0}, "snapshot_seconds"),
    ],
)
def test_manners_are_checked(client: TestClient, capture: dict[str, Any], wrong: str | None) -> None:
    tables = [{"schema": "public", "name": "orders"}]
    body = {"source": "shop", "target": "mart", "tables": tables, "capture": {"kind": "query_diff", **capture}}
    made = client.put("/api/v1/subscriptions/copy", json=body)
    assert made.status_code == (201 if wrong is None else 422)
    assert wrong is None or wrong in made.text
    assert wrong is not None or made.json()["capture"].items() >= capture.items()


@pytest.mark.usefixtures("subscription")
def test_one_is_begun_by_operators(
    client: TestClient, engine: PlayedEngine, as_role: Callable[[Role], dict[str, str]]
) -> None:
    engine.answers["begin_cycle"] = {"number": 8, "position": str(end_of(8))}
    assert client.post(PATH, headers=as_role(Role.VIEWER)).status_code == 403
    answer = client.post(PATH, headers=as_role(Role.OPERATOR))
    assert (answer.status_code, answer.json()) == (202, {"number": 8, "position": "c8"})
    assert answer.headers["Location"] == f"{PATH}/8"


@pytest.mark.usefixtures("subscription")
def test_none_is_begun_while_the_subscription_is_halted(client: TestClient, engine: PlayedEngine, app: FastAPI) -> None:
    with app.state.database.write() as session:
        session.exec(select(SubscriptionRow)).one().state = "paused"
    answer = client.post(PATH)
    assert (answer.status_code, answer.json()["code"]) == (409, "subscription_not_running")
    assert engine.asked == []


@pytest.mark.usefixtures("subscription")
def test_no_engine_is_connected(client: TestClient, engine: PlayedEngine) -> None:
    engine.answers = dict.fromkeys(("cycles", "begin_cycle"), EngineUnavailable("None is connected."))
    for answer in (client.get(PATH), client.get(f"{PATH}/1"), client.post(PATH)):
        assert (answer.status_code, answer.json()["code"]) == (503, "engine_unavailable")


@pytest.mark.usefixtures("connections")
def test_subscriptions_with_another_capture_have_none(client: TestClient, engine: PlayedEngine) -> None:
    tables = [{"schema": "public", "name": "orders"}]
    body = {"source": "shop", "target": "mart", "tables": tables, "capture": {"kind": "triggers"}}
    assert client.put("/api/v1/subscriptions/copy", json=body).status_code == 201
    for answer in (client.get(PATH), client.get(f"{PATH}/1"), client.post(PATH)):
        assert (answer.status_code, answer.json()["code"]) == (422, "cycles_unsupported")
        assert "query_diff" in answer.json()["remedy"]
    assert engine.asked == []
    assert client.get("/api/v1/subscriptions/nothing/cycles").status_code == 404


@pytest.mark.usefixtures("connections")
@pytest.mark.parametrize(
    ("source", "capture", "consistency"),
    [
        ("shop", {}, "transactions"),
        ("shop", {"kind": "triggers"}, "transactions"),
        ("shop", {"kind": "query_diff"}, "snapshots"),
        ("shop", {"kind": "query_diff", "snapshot_seconds": 60}, "ranges"),
        ("file", {"kind": "query_diff", "snapshot_seconds": 60}, "ranges"),
        ("file", {}, "windows"),
    ],
)
def test_a_subscription_says_which_states_readers_see(
    client: TestClient, source: str, capture: dict[str, str], consistency: str
) -> None:
    file = {"kind": "sqlite", "settings": {"path": "/data/shop.sqlite"}}
    assert client.put("/api/v1/connections/file", json=file).status_code == 201
    schema = "public" if source == "shop" else "main"
    body = {"source": source, "target": "mart", "tables": [{"schema": schema, "name": "orders"}], "capture": capture}
    made = client.put("/api/v1/subscriptions/copy", json=body)
    assert (made.status_code, made.json()["consistency"]) == (201, consistency)


@pytest.mark.usefixtures("connections")
@pytest.mark.parametrize(
    ("source", "declared", "status"),
    [
        ("lake", {"key": ["id"], "columns": {"id": "bigint"}}, 201),
        ("shop", {"key": ["id"]}, 201),
        ("shop", {"columns": {"id": "bigint"}}, 422),
        ("file", {"key": ["id"]}, 422),
        ("lake", {"method": "timestamp_delete_flag", "stamp_column": "at", "flag_column": "gone"}, 422),
    ],
)
def test_a_table_has_the_options_of_its_source(
    client: TestClient, source: str, declared: dict[str, Any], status: int
) -> None:
    lake = {"kind": "files", "settings": {"path": "/data/lake", "format": "csv"}}
    file = {"kind": "sqlite", "settings": {"path": "/data/shop.sqlite"}}
    for name, connection in (("lake", lake), ("file", file)):
        assert client.put(f"/api/v1/connections/{name}", json=connection).status_code == 201
    capture = {"kind": "query_diff", "tables": {"files.orders": declared}}
    tables = [{"schema": "files", "name": "orders"}]
    body = {"source": source, "target": "mart", "tables": tables, "capture": capture}
    made = client.put("/api/v1/subscriptions/copy", json=body)
    assert made.status_code == status, made.text
    shown = client.get("/api/v1/subscriptions/copy")
    assert shown.status_code == (200 if status == 201 else 404)
    assert status != 201 or shown.json()["capture"]["tables"]["files.orders"].items() >= declared.items()


def test_the_last_cycle_is_measured(rig: tuple[httpx.Client, FakeEngine, Assign]) -> None:
    http, sender, assign = rig
    root = str(http.base_url).removesuffix("/api/v1/")

    def measured() -> dict[str, float]:
        answer = httpx.get(f"{root}/metrics", headers=http.headers, trust_env=False)
        lines = (line.rpartition(" ") for line in answer.text.splitlines() if line.startswith("penstock_cycle_"))
        return {name.partition("{")[0]: float(value) for name, _, value in lines}

    assert measured() == {}
    taken_at = datetime.now(UTC) - timedelta(hours=1)
    sender.progress(
        assign,
        "0/60",
        cycle={"number": 4, "taken_at": taken_at, "seconds": 2.5, "bytes_read": 80, "failures": 3, "unread": 1},
    )
    assert sender.link.flush(DEADLINE_S)
    sender.progress(assign, "0/70")  # Without a cycle, as between two checks of the source: the last one still counts.
    assert sender.link.flush(DEADLINE_S)
    assert http.post("/subscriptions/orders/freshness-waits", json={"position": "0/70"}).status_code == 200
    found = measured()
    assert (found["penstock_cycle_seconds"], found["penstock_cycle_read_bytes"]) == (2.5, 80.0)
    assert (found["penstock_cycle_failures"], found["penstock_cycle_unread_tables"]) == (3.0, 1.0)
    assert 3_600 <= found["penstock_cycle_snapshot_age_seconds"] < 7_200
