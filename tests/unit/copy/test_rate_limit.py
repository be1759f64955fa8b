"""Reading for copies is limited to rows per second or to a share of the time, and a change is effective at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from engine.copy.rate_limit import (
    LOOK_S,
    LOWER_BY,
    PIECE_ROWS,
    UNLIMITED,
    RateLimiter,
    at_lower_priority,
    in_pieces,
    read_pace,
    write_pace,
)
from engine.model.subscription import CopyPolicy


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.pauses = 0

    def monotonic(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds
        self.pauses += 1

    def pieces(self, count: int, rows: int, seconds: float) -> Iterator[bytes]:
        for _ in range(count):
            self.now += seconds
            yield b"x\n" * rows


def read(clock: Clock, policy: CopyPolicy, readers: int = 1) -> float:
    pacer = RateLimiter(lambda: policy, readers, clock)
    assert len(list(pacer.paced(clock.pieces(10, 100, 0.01)))) == 10
    return clock.now


@pytest.mark.parametrize(
    ("policy", "readers", "seconds"),
    [
        (UNLIMITED, 4, 0.1),
        (CopyPolicy(max_rows_per_second=1000), 1, 1.0),
        (CopyPolicy(max_rows_per_second=1000), 3, 3.0),
        (CopyPolicy(max_rows_per_second=1_000_000), 1, 0.1),
    ],
)
def test_rows_come_no_faster_than_they_may(policy: CopyPolicy, readers: int, seconds: float) -> None:
    assert read(Clock(), policy, readers) == pytest.approx(seconds, abs=0.11)


def test_the_source_is_left_alone_for_the_rest_of_the_time() -> None:
    clock = Clock()

    def work(pieces: Iterator[bytes]) -> None:
        for _ in pieces:
            clock.now += 0.05

    work(RateLimiter(lambda: CopyPolicy(max_time_share=0.2), 1, clock).paced(clock.pieces(10, 1, 0.0)))
    assert clock.now == pytest.approx(10 * 0.05 / 0.2, abs=0.1)


def test_a_change_ends_a_wait_under_way(tmp_path: Path) -> None:
    file = tmp_path / "below" / "pace"
    write_pace(file, CopyPolicy(max_rows_per_second=1000))

    class Until(Clock):
        def pause(self, seconds: float) -> None:
            super().pause(seconds)
            if self.pauses == 3:
                write_pace(file, UNLIMITED)

    clock = Until()
    pacer = RateLimiter(lambda: read_pace(file), 1, clock)
    assert len(list(pacer.paced(clock.pieces(3, 1_000_000, 0.0)))) == 3
    assert clock.pauses == 3


def test_the_file_says_what_was_written_and_nothing_limits_where_there_is_none(tmp_path: Path) -> None:
    for policy in (CopyPolicy(5000, 0.25), CopyPolicy(give_way=False), UNLIMITED):
        write_pace(tmp_path / "pace", policy)
        assert read_pace(tmp_path / "pace") == policy
    assert read_pace(tmp_path / "other") == read_pace(None) == UNLIMITED


class Writing:
    """A clock, and a target that takes 0.1 s for each piece."""

    def __init__(self) -> None:
        self.now = 0.0
        self.began: list[float] = []
        self.taken: list[pa.Table] = []

    def write(self, files: list[pa.Table], share: float, over: Callable[[], bool] = lambda: False) -> None:
        for piece in in_pieces(files, lambda: CopyPolicy(max_time_share=share), over, self):
            self.taken.append(piece)
            self.began.append(round(self.now, 3))
            self.now += 0.1

    def monotonic(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        assert 0 < seconds <= LOOK_S
        self.now += seconds


@pytest.mark.parametrize(
    ("share", "began"),
    [
        (1.0, [0, 0.1]),
        (0.5, [LOOK_S, LOOK_S + 0.2, LOOK_S + 0.4, LOOK_S + 0.6]),
        (0.1, [LOOK_S, LOOK_S + 1, LOOK_S + 2, LOOK_S + 3]),
        (0.01, [LOOK_S, LOOK_S + 10, LOOK_S + 20, LOOK_S + 30]),
    ],
)
def test_rows_go_to_the_target_in_pieces_where_copies_are_slowed_down(share: float, began: list[float]) -> None:
    files = [pa.table({"c0": range(PIECE_ROWS * 2 + 5)}), pa.table({"c0": range(7)})]
    writing = Writing()
    writing.write(files, share)
    assert pa.concat_tables(writing.taken).equals(pa.concat_tables(files))
    assert writing.began == pytest.approx(began)


def test_a_copy_that_is_over_does_not_rest_any_more() -> None:
    writing = Writing()
    writing.write([pa.table({"c0": range(PIECE_ROWS * 3)})], 0.01, over=lambda: len(writing.taken) > 1)
    assert writing.began == pytest.approx([LOOK_S, LOOK_S + 10, LOOK_S + 10.1])


def test_no_rows_are_no_piece() -> None:
    assert list(in_pieces([pa.table({"c0": pa.array([], pa.int64())})], CopyPolicy)) == []


def priority() -> int:
    """The nice value of the calling thread."""
    return os.getpriority(os.PRIO_PROCESS, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads have no priority of their own")
def test_what_goes_on_behind_others_has_a_lower_priority_and_nothing_else_has() -> None:
    usual = priority()
    assert at_lower_priority(priority) == min(usual + LOWER_BY, 19)
    assert at_lower_priority(lambda: at_lower_priority(priority)) == min(usual + 2 * LOWER_BY, 19)
    assert priority() == usual


def test_what_fails_behind_others_fails() -> None:
    with pytest.raises(ZeroDivisionError):
        at_lower_priority(lambda: 1 // 0)
