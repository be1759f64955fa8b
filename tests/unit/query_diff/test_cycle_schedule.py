"""When cycles begin: on schedule, for requests, within hours of the day, and not far ahead of the target."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given as given_any
from hypothesis import strategies as st

from engine.model.identity import TableName
from engine.sources.query_diff import stream
from engine.sources.query_diff.database import Method
from engine.sources.query_diff.given import Given, Manners
from engine.sources.query_diff.hours import Hours
from engine.sources.query_diff.rests import Read
from engine.sources.query_diff.source_copies import NoSourceCopies
from engine.sources.query_diff.stream import CycleThread
from engine.sources.query_diff.table_reading import StoppedError

NOON = int(datetime(2026, 5, 4, 12, tzinfo=UTC).timestamp()) * 1_000_000
HOUR_US = 3_600_000_000
READ = Read(TableName("public", "goods"), "rows", seconds=3.0, amount=100, size=100)
_ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Australia/Lord_Howe")


class Looks:
    """In place of the event that ends the thread: it ends after so many looks, each of which takes no time."""

    def __init__(self, looks: int) -> None:
        self.left = looks
        self.waited_s = 0.0
        self.ends_at = float("inf")

    def wait(self, seconds: float) -> bool:
        self.left -= 1
        self.waited_s += seconds
        return self.left < 0 or self.waited_s >= self.ends_at

    def is_set(self) -> bool:
        return False

    def set(self) -> None:
        """It ends by itself."""


class Nothing:
    """A database without tables."""

    copies = NoSourceCopies()

    @contextmanager
    def snapshot(self, timeout_s: float) -> Iterator[str]:
        assert timeout_s > 0
        yield "snapshot"

    def tables(self, followed: object) -> dict[Any, Any]:
        assert followed == {}
        return {}

    def open_for_s(self) -> float:
        return 0.0


Run = Callable[..., tuple[CycleThread, Looks]]


@pytest.fixture
def settings(tmp_path: Path) -> Given:
    made = Given(0, Method.INCREMENTAL, 10.0, tmp_path / "reader", "shop")
    made.folder.make()
    return made


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    threads: list[CycleThread] = []

    def start(given: Given, looks: int, now_us: int = NOON) -> tuple[CycleThread, Looks]:
        """The thread, which has ended after so many looks; the time is always this one."""
        event = Looks(looks)
        monkeypatch.setattr(stream, "threading", SimpleNamespace(Event=lambda: event, Thread=threading.Thread))
        monkeypatch.setattr(stream, "SystemClock", lambda: SimpleNamespace(wall_us=lambda: now_us))
        thread: Any = CycleThread(Nothing(), given.folder, given)  # type: ignore[arg-type]
        thread._thread.join()
        thread.check()
        threads.append(thread)
        return thread, event

    yield start
    for thread in threads:
        thread.close()


def begun(given: Given) -> int:
    return given.folder.numbers.read()[0]


def test_no_cycle_begins_on_schedule_while_many_wait_for_the_target(settings: Given, run: Run) -> None:
    run(settings, looks=50)
    assert begun(settings) == stream._MOST_AHEAD
    # One that was requested does: a wait must not depend on others.
    assert settings.folder.numbers.request() == stream._MOST_AHEAD + 1
    run(settings, looks=50)
    assert begun(settings) == stream._MOST_AHEAD + 1
    settings.folder.files.confirm(6)
    run(settings, looks=50)
    assert len(settings.folder.files.published()) == stream._MOST_AHEAD
    assert begun(settings) == stream._MOST_AHEAD + 6


@pytest.mark.parametrize(
    ("hours", "only", "requested", "expected"),
    [
        (None, False, False, 5),
        (Hours.of("11:00", "13:00", "UTC"), False, False, 5),
        (Hours.of("13:00", "11:00", "UTC"), False, False, 0),
        (Hours.of("13:00", "11:00", "UTC"), False, True, 1),
        (Hours.of("13:00", "11:00", "UTC"), True, True, 0),
        (Hours.of("11:00", "13:00", "UTC"), True, True, 5),
        (Hours.of("13:00", "15:00", "Europe/Berlin"), False, False, 5),
    ],
)
def test_cycles_begin_in_their_hours(
    settings: Given, run: Run, hours: Hours | None, only: bool, requested: bool, expected: int
) -> None:
    given = replace(settings, manners=Manners(hours=hours, only_within=only))
    if requested:
        given.folder.numbers.request()
    run(given, looks=5)
    assert begun(given) == expected


def test_the_next_cycle_is_due_in_the_hours(settings: Given, run: Run) -> None:
    assert settings.due_us(NOON) is None
    run(settings, looks=1)
    last = settings.last_us()
    assert last is not None
    hourly = replace(settings, every_us=HOUR_US)
    assert hourly.due_us(NOON) == last + HOUR_US
    assert hourly.is_due(last, last + HOUR_US - 1) is False
    assert hourly.is_due(last, last + HOUR_US) is True
    assert hourly.is_due(last, last - 1) is True, "the clock was set back"
    nightly = replace(hourly, manners=Manners(hours=Hours.of("22:00", "06:00", "UTC")))
    due = nightly.due_us(NOON)
    assert due is not None
    assert due >= max(last + HOUR_US, NOON)
    assert nightly.is_due(last, due)


def test_cycles_rest_for_the_rest_of_the_time(settings: Given, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    given = replace(settings, manners=Manners(time_share=0.25))
    thread, event = run(given, looks=0)
    event.left = 1_000_000
    monkeypatch.setattr(stream, "time", SimpleNamespace(monotonic=lambda: event.waited_s))
    given.folder.numbers.begin(1)
    event.waited_s = 0.0
    thread._rest(READ)
    assert event.waited_s == pytest.approx(9.0)
    # As soon as the next cycle was requested, the one that runs hurries.
    event.waited_s = 0.0
    given.folder.numbers.request()
    thread._rest(READ)
    assert event.waited_s == 0.0
    given.folder.numbers.begin(2)
    thread._rest(READ)
    assert event.waited_s == 0.0, "the cycle was requested"
    given.folder.numbers.begin(3)
    event.ends_at = 1.0
    with pytest.raises(StoppedError):
        thread._rest(READ)
    thread, event = run(replace(settings, manners=Manners(time_share=1.0)), looks=0)
    event.left, event.waited_s = 1_000_000, 0.0
    thread._rest(READ)
    assert event.waited_s == 0.0


_TIMES = st.integers(0, 24 * 60 - 1)


@given_any(_TIMES, _TIMES, st.sampled_from(_ZONES), st.integers(NOON - 9_000 * HOUR_US, NOON + 9_000 * HOUR_US))
def test_hours_are_those_of_the_clock_of_their_zone(first: int, end: int, zone: str, at_us: int) -> None:
    hours = Hours.of(f"{first // 60:02}:{first % 60:02}", f"{end // 60:02}:{end % 60:02}", zone)
    local = datetime.fromtimestamp(at_us / 1e6, tz=UTC).astimezone(ZoneInfo(zone))
    minute = local.hour * 60 + local.minute
    within = first <= minute < end if first < end else minute >= first or minute < end
    assert hours.hold(at_us) is within
    following = hours.next_within(at_us)
    assert following >= at_us
    assert (following == at_us) is within or following > at_us
    assert following - at_us <= int(timedelta(hours=25) / timedelta(microseconds=1))
    if within:
        assert following == at_us
    else:
        begins = datetime.fromtimestamp(following / 1e6, tz=UTC).astimezone(ZoneInfo(zone))
        # Where clocks are set forward over it, the next minute that exists.
        assert abs(begins.hour * 60 + begins.minute - first) % (24 * 60) <= 60
