"""Reloads by partition over HTTP: what the engine is asked, what is refused, and how partitions are shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.link.messages import Assign, Cancel, EventReport, Reload, ReloadReport
from engine.link.partitions import LoadedPartitionPart, Partitions
from engine.model.partitions import LoadReason
from engine.model.position import Lsn
from tests.fixtures.channel import DEADLINE_S, FakeEngine, declare, running_server

Rig = tuple[httpx.Client, FakeEngine, Assign, str]


def part(name: str, **more: Any) -> dict[str, Any]:
    """A partition as the engine reports it."""
    return {"name": name, "parent": "public.orders", "leaf": True, "bound": "DEFAULT", "generation": 1} | more


KNOWN = {
    "partitions": [
        part("public.orders_1", reason="asked", position="0/40", loaded_us=1_700_000_000_000_000, generation=3),
        part("public.orders_2", obstacle="public.orders is partitioned by hash"),
    ]
}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with running_server(tmp_path) as server, server.client() as client:
        declare(client)
        engine = FakeEngine(server.url)
        engine.answers = KNOWN
        try:
            assign = engine.run(applied="0/50")
            yield client, engine, assign, f"/subscriptions/orders/tables/{assign.tables[0].table}"
        finally:
            engine.close()


def test_partitions_are_listed_with_their_loads(rig: Rig) -> None:
    client, engine, assign, path = rig
    listed = client.get(f"{path}/partitions").json()
    assert engine.seen(Partitions).table == assign.tables[0].table == listed["table_id"]
    first, second = listed["partitions"]
    assert first == {
        "name": "public.orders_1",
        "parent": "public.orders",
        "has_rows": True,
        "bound": "DEFAULT",
        "reloadable": True,
        "obstacle": None,
        "generation": 3,
        "reason": "asked",
        "position": "0/40",
        "loaded_at": "2023-11-14T22:13:20Z",
    }
    assert (second["reloadable"], second["reason"], second["loaded_at"]) == (False, None, None)
    assert client.get("/subscriptions/orders/tables/tnone/partitions").status_code == 404
    engine.close()
    away = client.get(f"{path}/partitions")
    assert (away.status_code, away.json()["code"]) == (503, "engine_unavailable")


def test_named_partitions_are_reloaded_and_shown(rig: Rig) -> None:
    client, engine, assign, path = rig
    answer = client.post(f"{path}/reloads", json={"partitions": ["public.orders_1"]})
    assert answer.status_code == 202
    asked = {"name": "public.orders_1", "reason": "asked", "generation": None}
    assert (answer.json()["asked"], answer.json()["partitions"]) == (["public.orders_1"], [asked])
    command = engine.seen(Reload)
    assert (command.tables, command.partitions) == ((assign.tables[0].table,), ("public.orders_1",))
    busy = client.post(f"{path}/reloads", json={"partitions": ["public.orders_1"]})
    assert (busy.status_code, busy.json()["running"]) == (409, command.request_id)
    loaded = LoadedPartitionPart(name="public.orders_1", reason=LoadReason.ASKED, generation=4)
    report = ReloadReport(
        subscription="orders",
        epoch=assign.epoch,
        request_id=command.request_id,
        state="succeeded",
        position=Lsn(0x60),
        partitions=(loaded,),
    )
    engine.link.report(report)
    assert engine.link.flush(DEADLINE_S)
    ended = client.get(answer.headers["Location"].removeprefix("/api/v1")).json()
    assert (ended["state"], ended["position"]) == ("succeeded", "0/60")
    assert ended["partitions"] == [asked | {"generation": 4}]
    assert _read_events(client, assign) == [
        ("table_partitions_reloaded", "has 1 of its partitions reloaded."),
        ("table_reload_asked", "was requested to be reloaded by partition (public.orders_1); it is live."),
    ]


def _read_events(client: httpx.Client, assign: Assign) -> list[tuple[str, str]]:
    """The newest two events of the table: kind, and the detail after the table's name."""
    name = assign.tables[0].source
    subject = f"{name.schema}.{name.name}"
    items = client.get("/events", params={"subject": subject, "page_size": 2}).json()["items"]
    return [(item["kind"], item["detail"].removeprefix(f"The table '{subject}' ")) for item in items]


def test_an_event_that_the_engine_tells_of_a_table_goes_by_its_name(rig: Rig) -> None:
    client, engine, assign, _ = rig
    told = {"severity": "info", "code": "table_copied", "detail": "3 rows as of 0/50"}
    report = EventReport(subscription="orders", epoch=assign.epoch, subject=assign.tables[0].table, **told)
    engine.link.report(report)
    assert engine.link.flush(DEADLINE_S)
    assert _read_events(client, assign)[0] == ("table_copied", "3 rows as of 0/50")


@pytest.mark.parametrize("name", ["", "orders_1", ".orders_1", "public.", "public.a\0"])
def test_what_is_no_name_of_a_partition_is_refused_before_the_source_is_asked(rig: Rig, name: str) -> None:
    client, engine, _, path = rig
    engine.answers = {"partitions": []}
    answer = client.post(f"{path}/reloads", json={"partitions": [name]})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


def test_many_partitions_are_counted(rig: Rig) -> None:
    client, engine, assign, path = rig
    names = [f"public.orders_{number}" for number in range(5)]
    engine.answers = {"partitions": [part(name) for name in names]}
    assert client.post(f"{path}/reloads", json={"partitions": names}).status_code == 202
    several = "public.orders_0, public.orders_1, public.orders_2 and 2 more"
    assert _read_events(client, assign)[0][1] == f"was requested to be reloaded by partition ({several}); it is live."


def test_those_that_differ_are_asked_for_and_a_new_stream_asks_again(rig: Rig) -> None:
    client, engine, assign, path = rig
    answer = client.post(f"{path}/reloads", json={"partitions": "changed"})
    assert (answer.json()["asked"], answer.json()["partitions"]) == ("changed", [])
    assert (
        _read_events(client, assign)[0][1]
        == "was requested to be reloaded by partition (those that differ); it is live."
    )
    assert engine.seen(Reload).partitions == "changed"
    engine.close()
    second = FakeEngine(str(client.base_url).removesuffix("/api/v1/"))
    try:
        again = second.seen(Reload)
        assert (again.request_id, again.partitions) == (answer.json()["id"], "changed")
        assert client.delete(f"{path}/reloads/{again.request_id}").status_code == 204
        assert second.seen(Cancel).request_id == again.request_id
    finally:
        second.close()


@pytest.mark.parametrize(
    ("partitions", "status", "code"),
    [
        (["public.orders_9"], 422, "partition_unknown"),
        (["public.orders_2"], 409, "partition_not_comparable"),
        ([], 422, "invalid_request"),
        ("all", 422, "invalid_request"),
    ],
)
def test_what_cannot_be_reloaded_by_itself_is_refused(rig: Rig, partitions: Any, status: int, code: str) -> None:
    client, engine, _, path = rig
    refused = client.post(f"{path}/reloads", json={"partitions": partitions})
    assert (refused.status_code, refused.json()["code"]) == (status, code)
    if code == "partition_unknown":
        assert refused.json()["known"] == ["public.orders_1", "public.orders_2"]
    assert engine.count(Reload) == 0


def test_a_table_without_partitions_or_one_that_is_not_live_is_refused(rig: Rig) -> None:
    client, engine, assign, path = rig
    engine.answers = {"partitions": []}
    refused = client.post(f"{path}/reloads", json={"partitions": "changed"})
    assert (refused.status_code, refused.json()["code"]) == (409, "table_not_partitioned")
    engine.answers = KNOWN
    engine.table(assign, assign.tables[0].table, "paused")
    assert engine.link.flush(DEADLINE_S)
    paused = client.post(f"{path}/reloads", json={"partitions": ["public.orders_1"]})
    assert (paused.status_code, paused.json()["code"]) == (409, "table_not_reloadable")
    assert engine.count(Reload) == 0
