"""Positions of the merged log: transactions, marks between them, and the marks of earlier sessions."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.merged_logs import MergedLogs, NodeLog
from engine.model.position import Lsn
from engine.sort.merge_records import Order
from engine.sources.postgres_logs import merged_stream
from engine.sources.postgres_logs.merged_numbers import BETWEEN, LONG_ROOM, NEVER, SHORT, MergedNumbers
from engine.sources.postgres_logs.merged_stream import MergedStream, MergeRules, NodeStreams
from engine.sources.postgres_logs.node_ends import NodeEnds
from engine.sources.postgres_logs.node_log import Naming
from engine.sources.postgres_logs.node_session import NodeSession
from tests.pg.postgres_logs.nodes import SameNumbers


class SilentStream:
    """A node that sends nothing."""

    verified = True
    read_to = Lsn(0)
    clock_us = 0
    pause_s = 0.0

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def read(self, timeout_s: float) -> None:
        assert timeout_s == 0

    def fileno(self) -> int:
        return self._read

    def ask_position(self) -> None:
        return

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


@contextmanager
def session_after(position: Lsn, ends: int) -> Iterator[MergedStream]:
    """A session of two silent nodes, whose logs end at `ends`, after a position of the merged log."""
    kept = MergedLogs((NodeLog.unknown(Lsn(5)), NodeLog.unknown(Lsn(7))))
    streams: Any = (SilentStream(), SilentStream())
    opened = ExitStack()
    rounds = [NodeEnds([lambda _: Lsn(ends)] * 2) for _ in range(2)]
    for each in (*streams, *rounds):
        opened.callback(each.close)
    sessions = tuple(NodeSession(stream) for stream in streams)
    nodes = NodeStreams(("n1", "n2"), sessions, rounds[0], rounds[1], opened)
    rules = MergeRules(Order.STRICT, Naming(re.compile("(?P<gtid>.*)"), None, nodes.names))
    with closing(MergedStream(nodes, rules, SameNumbers(), MergedNumbers(position.value), kept)) as stream:
        yield stream


def test_no_position_of_a_new_session_is_after_a_mark_of_an_earlier_one_before_the_logs_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(merged_stream, "_TELL_S", 3600.0)
    earlier = MergedNumbers(1000, clock=lambda: 1 << 20)
    mark = earlier.mark([9, 9])
    with session_after(Lsn(earlier.last), ends=9) as stream:
        chunk = stream.read(0.2)
        assert chunk is not None
        assert Lsn(1000) < chunk.wal_end < Lsn(mark)
        assert stream.read(0.2) is None
        assert stream.waits_for == frozenset()


def test_logs_without_anything_new_reach_every_earlier_mark() -> None:
    earlier = MergedNumbers(1000, clock=lambda: 1 << 20)
    mark = earlier.mark([5, 7])
    with session_after(Lsn(earlier.last), ends=5) as stream:
        positions = [chunk.wal_end for chunk in iter(lambda: stream.read(0.2), None)]
    assert positions[-1] > Lsn(mark)


def test_numbers_stay_below_a_mark_until_it_is_reached() -> None:
    clock = LONG_ROOM + (7 << 20)
    numbers = MergedNumbers(0, clock=lambda: clock)
    assert numbers.take(3) == 7 << 20
    mark = numbers.mark([10, 20])
    assert mark == clock
    assert [numbers.take(1) for _ in range(2)] == [(7 << 20) + 3, (7 << 20) + 4]
    assert not numbers.reach([10, 19])
    assert numbers.reach([10, 20])
    assert numbers.last == mark
    assert numbers.take(1) > mark


def test_marks_are_reached_in_their_order() -> None:
    numbers = MergedNumbers(0, clock=lambda: 7 << 20)
    first = numbers.mark([NEVER])
    second = numbers.mark([5])
    assert not numbers.reach([5])
    numbers.place(first, [4])
    assert numbers.reach([5])
    assert numbers.last == second > first


def test_transactions_that_have_no_number_before_a_mark_are_a_fault() -> None:
    numbers = MergedNumbers(0, clock=lambda: 7 << 20)
    numbers.mark([NEVER])
    numbers.take((1 << 22) - 1)
    with pytest.raises(EngineFault) as caught:
        numbers.take((7 << 20) + 1)
    assert caught.value.kind is FaultKind.NODE_SILENT


def test_marks_that_are_given_while_a_node_is_away_have_numbers_for_days() -> None:
    numbers = MergedNumbers(0, clock=lambda: 0)
    mark = numbers.mark([NEVER], LONG_ROOM)
    numbers.take(4 * 24 * 3600 * 10_000)
    assert numbers.last < mark
    assert not numbers.are_short()


def test_numbers_are_short_before_they_are_used_up() -> None:
    numbers = MergedNumbers(0, clock=lambda: 0)
    assert not numbers.are_short()
    numbers.mark([NEVER])
    numbers.take(BETWEEN - SHORT - 1)
    assert not numbers.are_short()
    numbers.take(1)
    assert numbers.are_short()
    numbers.take(SHORT - 1)
