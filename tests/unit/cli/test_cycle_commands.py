"""Commands about cycles, against a fake server."""

from __future__ import annotations

import json
from typing import Any

from server.cli.exit_codes import ExitCode
from server.cycles.schemas import CycleRequestedView, CycleView
from tests.fixtures.stand_in import Run, StandIn, a_problem

CYCLE: dict[str, Any] = CycleView.model_json_schema()["examples"][0]
TABLE = CYCLE["tables"][0]
REQUESTED: dict[str, Any] = CycleRequestedView.model_json_schema()["examples"][0]
RUNNING = {
    **CYCLE,
    "number": 4712,
    "position": "c4712",
    "state": "running",
    "taken_at": None,
    "ended_at": None,
    "seconds": None,
    "tables": [],
}
LIST = "GET", "/subscriptions/m/cycles"


def test_cycles_are_listed_with_the_age_of_what_readers_see(stand_in: StandIn, run: Run) -> None:
    stand_in.replies["GET", "/subscriptions"] = (200, {"items": [{"name": "m"}]})
    times = {"as_of": "2026-05-04T10:00:00Z", "next_at": "2026-05-04T10:05:00Z"}
    stand_in.replies[LIST] = (200, {"items": [RUNNING, CYCLE], "next_page_token": "more", **times})
    shown = run("cycles", "--limit", "2")
    assert shown.exit_code == ExitCode.DONE, shown.output
    running, applied = shown.stdout.splitlines()[1:]
    assert running.split() == ["4712", "running", *["–"] * 10]
    assert applied.split()[:5] == ["4711", "applied", CYCLE["taken_at"], "2.4", "s"]
    assert "as of 2026-05-04T10:00:00Z" in shown.stderr
    assert "2026-05-04T10:05:00Z" in shown.stderr
    assert stand_in.requests[-1][1].endswith("/cycles?page_size=2")
    assert json.loads(run("cycles", "--json").stdout) == {"subscription": "m", **times, "cycles": [RUNNING, CYCLE]}


def test_a_subscription_without_cycles_says_so(stand_in: StandIn, run: Run) -> None:
    problem = {**a_problem(422, "cycles_unsupported"), "detail": "It has another capture.", "remedy": "None."}
    stand_in.replies[LIST] = (422, problem)
    refused = run("cycles", "-s", "m")
    assert refused.exit_code == ExitCode.REFUSED
    assert "It has another capture." in refused.stderr


def test_one_is_shown_with_its_tables(stand_in: StandIn, run: Run) -> None:
    again = {**TABLE, "name": "lines", "copied_again": True}
    first = {**TABLE, "name": "notes", "first": True}
    ranged = {**TABLE, "name": "big", "ranges": 64, "ranges_different": 2}
    stamped = {**TABLE, "name": "log", "since_stamp": True}
    resumed = {**TABLE, "name": "wide", "snapshots": 3}
    whole = {**CYCLE, "source_reads": {"pages": 1200}, "tables": [TABLE, again, first, ranged, stamped, resumed]}
    stand_in.replies["GET", "/subscriptions/m/cycles/4711"] = (200, whole)
    shown = run("cycles", "show", "4711", "-s", "m").stdout
    notes = ("copied again", "first time", "2 of 64 ranges differed", "by stamps", "in 3 snapshots")
    for text in ("Cycle 4711, c4711: applied", "pages: 1,200", *notes):
        assert text in shown
    stand_in.replies["GET", "/subscriptions/m/cycles/4712"] = (200, RUNNING)
    assert run("cycles", "show", "4712", "-s", "m").stdout == "Cycle 4712, c4712: running\n"


def test_what_failed_is_listed_and_shown_with_its_cause(stand_in: StandIn, run: Run) -> None:
    fault = {"fault": "source_unreachable", "fault_detail": "shop: closed", "fault_table": "public.orders"}
    failed = {**CYCLE, "number": 4713, "position": "c4713", "state": "failed", "tables": [], **fault}
    denied = {**TABLE, "name": "lines", "fault": "source_privilege", "fault_detail": "permission denied"}
    partly = {**CYCLE, "tables": [TABLE, denied]}
    stand_in.replies[LIST] = (200, {"items": [failed, partly], "next_page_token": None, "as_of": None, "next_at": None})
    first, second = run("cycles", "-s", "m").stdout.splitlines()[1:]
    assert first.split()[-3:] == ["source_unreachable", "at", "public.orders"]
    assert second.rstrip().endswith("1 of 2 tables not read")
    stand_in.replies["GET", "/subscriptions/m/cycles/4713"] = (200, failed)
    shown = run("cycles", "show", "4713", "-s", "m").stdout
    assert "while it read public.orders: source_unreachable" in shown
    assert "shop: closed" in shown
    stand_in.replies["GET", "/subscriptions/m/cycles/4711"] = (200, partly)
    assert "not read: source_privilege: permission denied" in run("cycles", "show", "4711", "-s", "m").stdout


def test_one_is_started_and_waited_for(stand_in: StandIn, run: Run) -> None:
    stand_in.replies["POST", "/subscriptions/m/cycles"] = (202, REQUESTED)
    assert "a wait for c4712 ends" in run("cycles", "start", "-s", "m").stdout
    waited = {"position": "c4712", "applied": "c4712", "waited_ms": 1500}
    stand_in.replies["POST", "/subscriptions/m/freshness-waits"] = (200, waited)
    shown = run("cycles", "start", "--wait", "--timeout", "10s", "-s", "m")
    assert shown.stdout == "visible c4712 after 1.5 s\n"
    assert stand_in.requests[-1][2] == {"position": "c4712", "timeout_ms": 10_000}
    answer = json.loads(run("cycles", "start", "--wait", "-s", "m", "--json").stdout)
    assert answer == {**REQUESTED, "wait": waited}


def test_a_wait_for_one_that_is_late_has_an_exit_code(stand_in: StandIn, run: Run) -> None:
    stand_in.replies["POST", "/subscriptions/m/cycles"] = (202, REQUESTED)
    late = a_problem(504, "freshness_timeout")
    stand_in.replies["POST", "/subscriptions/m/freshness-waits"] = (504, late)
    assert run("cycles", "start", "--wait", "-s", "m").exit_code == ExitCode.TIMEOUT
