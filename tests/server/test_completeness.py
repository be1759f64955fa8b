"""Whether a table has everything up to a position or a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from engine.link.message import Problem
from engine.link.messages import Assign, Now, RowsSetAside
from tests.fixtures.channel import DEADLINE_S, FakeEngine

Rig = tuple[httpx.Client, FakeEngine, Assign]


def _asked(rig: Rig, until: str | datetime, table: str = "orders") -> dict[str, Any]:
    client, _, assign = rig
    number = next(each.table for each in assign.tables if each.source.name == table)
    text = until if isinstance(until, str) else until.isoformat()
    answer = client.get(f"/subscriptions/orders/tables/{number}/completeness", params={"until": text})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def _applied(rig: Rig, position: str, **more: Any) -> None:
    rig[1].progress(rig[2], position, **more)
    assert rig[1].link.flush(DEADLINE_S)


def test_up_to_a_position(rig: Rig) -> None:
    complete = _asked(rig, "0/50")
    assert (complete["complete"], complete["until_position"], complete["reason"]) == (True, "0/50", None)
    assert complete["complete_to"] == {"position": "0/50", "time": None}
    later = _asked(rig, "0/51")
    assert (later["complete"], later["blocked"], later["reason"]) == (False, False, "0/50 is applied, not yet 0/51")
    assert rig[1].count(Now) == 0


def test_a_time_is_proven_only_by_a_position_that_was_read_after_it(rig: Rig) -> None:
    _, engine, _ = rig
    began = datetime.now(UTC)
    engine.now = "0/60"
    _applied(rig, "0/5F", source="0/60")
    early = _asked(rig, began)
    assert (early["complete"], early["until_position"], early["complete_to"]["time"]) == (False, "0/60", None)
    engine.now = "0/70"  # The source moves on; what was read first is proof enough.
    assert _asked(rig, began)["until_position"] == "0/60"
    assert engine.count(Now) == 1
    _applied(rig, "0/60")
    done = _asked(rig, began)
    assert (done["complete"], done["until_position"], done["reason"]) == (True, "0/60", None)
    proven = datetime.fromisoformat(done["complete_to"]["time"])
    assert proven >= began
    assert not _asked(rig, proven + timedelta(microseconds=1))["complete"]
    assert _asked(rig, proven - timedelta(days=1))["complete"]
    assert engine.count(Now) == 2


def test_a_time_to_come_is_never_complete(rig: Rig) -> None:
    found = _asked(rig, datetime.now(UTC) + timedelta(hours=1))
    assert (found["complete"], found["blocked"], found["until_position"]) == (False, False, None)
    assert "still to come" in found["reason"]
    assert rig[1].count(Now) == 0


def test_readings_of_waits_count_and_end_with_their_run(rig: Rig) -> None:
    client, engine, assign = rig
    began = datetime.now(UTC)
    engine.now = "0/50"
    assert client.post("/subscriptions/orders/freshness-waits", json={}).status_code == 200
    assert _asked(rig, began)["complete"]
    assert engine.count(Now) == 1
    engine.state(assign, "starting", run=1)
    engine.state(assign, "running", run=1)
    engine.now = "0/90"
    _applied(rig, "0/50", run=1)
    found = _asked(rig, began)
    assert (found["complete"], found["until_position"]) == (False, "0/90")


def test_a_table_that_was_not_live_when_the_position_was_read_is_read_for_again(rig: Rig) -> None:
    _, engine, assign = rig
    began, lines = datetime.now(UTC), next(each.table for each in assign.tables if each.source.name == "lines")
    engine.table(assign, lines, "reloading")
    engine.now = "0/50"
    _applied(rig, "0/50")
    assert _asked(rig, began)["complete"]
    copying = _asked(rig, began, "lines")
    assert (copying["complete"], copying["blocked"], copying["reason"]) == (False, False, "the table is reloading")
    assert copying["complete_to"] == {"position": None, "time": None}
    engine.table(assign, lines, "live")
    engine.now = "0/55"
    _applied(rig, "0/50")
    assert _asked(rig, began, "lines")["until_position"] == "0/55"


def test_what_a_user_has_to_do_is_said(rig: Rig) -> None:
    client, engine, assign = rig
    named = {each.source.name: each.table for each in assign.tables}
    orders, lines = named["orders"], named["lines"]
    engine.table(assign, orders, "parked", reason="a value does not fit", remedy="Mend it.")
    counts = RowsSetAside(subscription="orders", epoch=assign.epoch, counts={lines: 2})
    engine.link.report(counts)
    _applied(rig, "0/50")
    for until in ("0/50", datetime.now(UTC)):
        parked = _asked(rig, until)
        assert (parked["complete"], parked["blocked"], parked["remedy"]) == (False, True, "Mend it.")
        assert "public.orders is parked" in parked["reason"]
    rows = _asked(rig, "0/50", "lines")
    assert (rows["complete"], rows["blocked"], rows["reason"]) == (False, True, "2 rows are quarantined")
    assert [one["kind"] for one in rows["exceptions"]] == ["rows_set_aside"]
    assert client.patch("/subscriptions/orders", json={"desired_state": "paused"}).status_code == 200
    halted = _asked(rig, "0/60", "lines")
    assert (halted["blocked"], "paus" in halted["reason"]) == (True, True)


def test_without_a_reading_or_a_known_position_nothing_is_claimed(rig: Rig) -> None:
    _, engine, assign = rig
    began = datetime.now(UTC)
    engine.refusal_of_now = Problem(status=502, code="source_unreachable", detail="away", remedy="Start it.")
    found = _asked(rig, began)
    assert (found["complete"], "away" in found["reason"]) == (False, True)
    engine.state(assign, "starting", run=1)
    unknown = _asked(rig, "0/50")
    assert (unknown["complete"], "not known" in unknown["reason"]) == (False, True)
    assert unknown["complete_to"]["position"] is None


@pytest.mark.parametrize("until", ["yesterday", "2026-01-31", "2026-01-31T06:00:00", "2026-13-31T06:00:00Z", ""])
def test_what_is_neither_a_position_nor_a_time_is_refused(rig: Rig, until: str) -> None:
    client, _, assign = rig
    path = f"/subscriptions/orders/tables/{assign.tables[0].table}/completeness"
    answer = client.get(path, params={"until": until})
    assert (answer.status_code, bool(answer.json()["remedy"])) == (422, True)
    assert client.get("/subscriptions/orders/tables/none/completeness", params={"until": "0/1"}).status_code == 404
    assert client.get(path).status_code == 422
