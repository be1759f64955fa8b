"""Gathering longer while batches come too late, never longer than their own cost justifies, and not for long afterwards."""

from __future__ import annotations

from engine.sort.pace import LATE_MS, SHARE, SealPace

MOST_MS = 5_000


def late(pace: SealPace, now: int) -> int:
    """A batch that waited for the stages before it is sealed at `now`; how long to gather from then on."""
    pace.held_up(now - LATE_MS)
    pace.held_up(now - 1)
    pace.sealed(now)
    return pace.not_before_ms - now


def in_time(pace: SealPace, now: int) -> int:
    pace.sealed(now)
    return pace.not_before_ms - now


def warmed(tables: int, took_ms: float) -> SealPace:
    pace = SealPace(MOST_MS)
    for _ in range(30):
        pace.committed(tables, took_ms)
    return pace


def test_nothing_is_held_back_while_batches_are_in_time() -> None:
    pace = warmed(500, 1000.0)
    assert [in_time(pace, now) for now in (1_000, 2_000, 3_000)] == [0, 0, 0]


def test_batches_that_come_late_are_gathered_longer_up_to_their_share() -> None:
    pace = warmed(500, 1000.0)
    intervals = [late(pace, now) for now in range(10_000, 400_000, 10_000)]
    assert intervals == sorted(intervals)
    assert intervals[0] > 0
    assert SHARE * 1000 - 10 <= intervals[-1] <= SHARE * 1000


def test_no_batch_waits_longer_than_the_most() -> None:
    pace = warmed(500, 60_000.0)
    assert max(late(pace, now) for now in range(10_000, 400_000, 10_000)) == MOST_MS


def test_cheap_batches_are_hardly_held_back() -> None:
    pace = warmed(4, 10.0)
    assert max(late(pace, now) for now in range(10_000, 400_000, 10_000)) <= SHARE * 10


def test_the_delay_goes_when_batches_are_in_time_again() -> None:
    pace = warmed(500, 1000.0)
    for now in range(10_000, 400_000, 10_000):
        late(pace, now)
    intervals = [in_time(pace, now) for now in range(400_000, 600_000, 10_000)]
    assert intervals[0] <= SHARE * 500
    assert intervals[-1] == 0


def test_with_no_time_to_gather_nothing_is_ever_held_back() -> None:
    pace = SealPace(0)
    for _ in range(30):
        pace.committed(500, 1000.0)
    assert [late(pace, now) for now in (1_000, 2_000, 3_000)] == [0, 0, 0]
