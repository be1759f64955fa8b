"""The console's time line of a table: each request with what it brought, and the rest as it came."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from engine.model.table_state import TableStateKind
from tests.fixtures.console import run_module

MODULE = "src/labels/timeLine.ts"
READ = "given.map(({events, present}) => found.timeLine(events, present))"
BEGIN = datetime(2026, 5, 4, 10, tzinfo=UTC)


@dataclass
class Course:
    """Events of a table, one at each tenth of a second."""

    events: list[dict[str, Any]] = field(default_factory=list)

    def happened(self, kind: str, **more: Any) -> Course:
        at = BEGIN + timedelta(milliseconds=100 * len(self.events))
        event = {"id": str(len(self.events)), "at": at.isoformat(), "severity": "info", "kind": kind, "detail": kind}
        self.events.append(event | more)
        return self

    def became(self, *states: TableStateKind) -> Course:
        for state in states:
            parked = {"severity": "error"} if state is TableStateKind.PARKED else {}
            self.happened(f"table_{state.value}", table_state=state.value, **parked)
        return self

    def read_entries(self, present: str | None = "?") -> list[tuple[str, list[tuple[str, int]], Any]]:
        """Per entry, the oldest first: its kind, the steps with their milliseconds, and the outcome."""
        given = [{"events": self.events[::-1], "present": present}]
        (entries,) = json.loads(run_module(MODULE, READ, given))
        return [
            (
                entry["event"]["kind"],
                [(step["state"], step["afterMs"]) for step in entry["steps"]],
                None if entry["outcome"] is None else tuple(entry["outcome"].values()),
            )
            for entry in entries[::-1]
        ]


S = TableStateKind


def test_a_life_of_requests_that_came_into_effect() -> None:
    course = Course().happened("table_added", table_state="registered")
    course.became(S.COPYING, S.CATCHING_UP, S.LIVE)
    course.happened("table_pause_asked").became(S.PAUSED)
    course.happened("table_resume_asked").became(S.CATCHING_UP, S.LIVE)
    course.happened("table_reload_asked").became(S.RELOADING, S.CATCHING_UP, S.LIVE)
    course.happened("table_removed", table_state="removed")
    assert course.read_entries() == [
        ("table_added", [("copying", 100), ("catching_up", 200)], ("in effect", 300)),
        ("table_pause_asked", [], ("in effect", 100)),
        ("table_resume_asked", [("catching_up", 100)], ("in effect", 200)),
        ("table_reload_asked", [("reloading", 100), ("catching_up", 200)], ("in effect", 300)),
        ("table_removed", [], ("in effect", 0)),
    ]


def test_what_came_by_itself_stands_as_it_is() -> None:
    course = Course().became(S.LIVE, S.PARKED).happened("rows_set_aside", severity="warning")
    course.happened("table_reloading", table_state="reloading", severity="warning").became(S.CATCHING_UP, S.LIVE)
    kinds = [event["kind"] for event in course.events]
    assert course.read_entries() == [(kind, [], None) for kind in kinds]


def test_a_fault_ends_what_waits_and_trying_again_begins_anew() -> None:
    course = Course().happened("table_reload_asked").became(S.RELOADING, S.PARKED)
    course.happened("table_retried").became(S.RELOADING)
    assert course.read_entries() == [
        ("table_reload_asked", [("reloading", 100)], ("parked", 200)),
        ("table_parked", [], None),
        ("table_retried", [("reloading", 100)], ("waiting",)),
    ]


def test_an_approval_goes_by_a_pause() -> None:
    course = Course().became(S.PARKED).happened("schema_change_approved").became(S.PAUSED, S.CATCHING_UP, S.LIVE)
    assert course.read_entries()[1:] == [
        ("schema_change_approved", [("paused", 100), ("catching_up", 200)], ("in effect", 300))
    ]


def test_who_changes_the_mind_is_told_so() -> None:
    course = Course().happened("table_pause_asked").happened("table_resume_asked").became(S.LIVE)
    course.happened("table_reload_asked").happened("table_reload_cancelled")
    course.happened("table_pause_asked").happened("table_removed", table_state="removed")
    assert course.read_entries() == [
        ("table_pause_asked", [], ("overtaken", "resume", 100)),
        ("table_resume_asked", [], ("in effect", 100)),
        ("table_reload_asked", [], ("overtaken", "cancel the reload", 100)),
        ("table_reload_cancelled", [], None),
        ("table_pause_asked", [], ("overtaken", "remove", 100)),
        ("table_removed", [], ("in effect", 0)),
    ]


def test_what_was_taken_back_may_come_about_all_the_same() -> None:
    course = Course().happened("table_pause_asked").happened("table_resume_asked").became(S.PAUSED, S.LIVE, S.PAUSED)
    assert course.read_entries() == [
        ("table_pause_asked", [], ("in effect", 200)),
        ("table_resume_asked", [], ("in effect", 200)),
        ("table_paused", [], None),
    ]


def test_what_was_taken_back_in_time_leaves_nothing_to_wait_for() -> None:
    course = Course().happened("table_pause_asked").happened("table_resume_asked")
    assert course.read_entries(present="live") == [
        ("table_pause_asked", [], ("overtaken", "resume", 100)),
        ("table_resume_asked", [], ("in effect", 0)),
    ]
    assert course.read_entries(present="paused")[1] == ("table_resume_asked", [], ("waiting",))


def test_settings_wait_for_a_copy_where_they_say_so_also_over_a_fault() -> None:
    course = Course().happened("table_settings_changed").happened("table_settings_changed", remedy="Reload it.")
    course.became(S.PAUSED, S.LIVE, S.PARKED).happened("table_retried").became(S.RELOADING, S.LIVE)
    told = course.read_entries()
    assert told[0] == ("table_settings_changed", [], None)
    assert told[1] == ("table_settings_changed", [], ("in effect", 600))
    assert told[-1] == ("table_retried", [("reloading", 100)], ("in effect", 200))


def test_settings_that_are_changed_again_before_a_copy_are_told_so() -> None:
    course = Course().happened("table_settings_changed", remedy="Reload it.").happened("table_settings_changed")
    course.happened("table_settings_changed", remedy="Reload it.").became(S.RELOADING, S.LIVE)
    assert [outcome for _, _, outcome in course.read_entries()[:3]] == [
        ("overtaken", "settings", 200),
        None,
        ("in effect", 200),
    ]


def test_a_reload_by_partition_leaves_the_table_live() -> None:
    course = Course().happened("table_reload_asked").happened("table_partitions_reloaded")
    assert course.read_entries() == [("table_reload_asked", [], ("in effect", 100))]
    assert Course().happened("table_partitions_reloaded").read_entries() == [("table_partitions_reloaded", [], None)]


def test_of_an_older_page_nothing_is_said_that_a_newer_one_may_tell() -> None:
    course = Course().happened("table_pause_asked")
    assert course.read_entries() == [("table_pause_asked", [], ("waiting",))]
    assert course.read_entries(present=None) == [("table_pause_asked", [], None)]


def test_unknown_kinds_and_states_are_shown() -> None:
    course = Course().happened("constructor").happened("table_resting", table_state="resting")
    assert course.read_entries() == [("constructor", [], None), ("table_resting", [], None)]


def test_outcomes_in_words() -> None:
    outcomes = [
        {"is": "waiting"},
        {"is": "in effect", "afterMs": 0},
        {"is": "in effect", "afterMs": 1200},
        {"is": "parked", "afterMs": 1200},
        {"is": "overtaken", "by": "resume", "afterMs": 1200},
        {"is": "overtaken", "by": "settings", "afterMs": 1200},
    ]
    words = json.loads(run_module(MODULE, "given.map((one) => found.outcomeWords(one, (ms) => `${ms} ms`))", outcomes))
    assert words == [
        "not in effect yet",
        "in effect at once",
        "in effect after 1200 ms",
        "not in effect: the table was parked after 1200 ms",
        "not in effect: “resume” was requested after 1200 ms",
        "changed again after 1200 ms",
    ]
