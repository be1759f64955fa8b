"""Changes counted while they are captured, and summed by the position of their commit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from engine.model.control import CONTROL_FIELDS, ControlKind
from engine.model.position import Lsn
from engine.records.change_counts import ChangeCounter
from engine.records.scan import find_controls
from engine.sort.capture_tally import CaptureTally
from tests.unit.net import pgoutput_encoder as pgoutput

ROW = ["1", "x"]
PLAIN = [
    pgoutput.begin(100, 1),
    pgoutput.relation(7, ["id", "a"]),
    pgoutput.insert(7, ROW),
    pgoutput.update(7, ROW),
    pgoutput.truncate([7, 8]),
    pgoutput.type_message(9),
    pgoutput.commit(100, 150),
]
STREAMED = [
    pgoutput.stream_start(5),
    pgoutput.insert(7, ROW, xid=5),
    pgoutput.truncate([7, 8, 9], xid=6),
    pgoutput.stream_stop(),
    pgoutput.stream_start(5, first=False),
    pgoutput.delete(7, ROW, xid=5),
    pgoutput.stream_stop(),
    pgoutput.stream_abort(5, 6),
    pgoutput.stream_commit(5, 200, 250),
]


def tally(chunks: Sequence[Sequence[bytes]], after: int = 0) -> CaptureTally:
    found, counter, stream = CaptureTally(Lsn(after)), ChangeCounter(), 0
    for records in chunks:
        data, offsets = pgoutput.pack(records)
        controls, stream = find_controls(data, offsets, stream)
        counter.count(data, offsets, controls)
        found.feed(controls)
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_a_transaction_is_counted_over_any_chunks(size: int) -> None:
    records = [*PLAIN, *STREAMED]
    chunks = [records[at : at + size] for at in range(0, len(records), size)]
    assert [tally(chunks).take(Lsn(end)) for end in (149, 150, 250)] == [0, 4, 9]


def test_what_was_taken_is_not_taken_again() -> None:
    found = tally([PLAIN, STREAMED])
    assert [found.take(Lsn(150)), found.take(Lsn(150)), found.take(Lsn(300)), found.take(Lsn(300))] == [4, 0, 5, 0]


def test_transactions_that_a_session_sends_again_count_once() -> None:
    assert tally([PLAIN, PLAIN]).take(Lsn(200)) == 4
    assert tally([PLAIN, STREAMED], after=150).take(Lsn(300)) == 5


def test_a_new_session_begins_its_open_transactions_again() -> None:
    found = tally([PLAIN, STREAMED[:4]])
    found.begin_session(Lsn(150))
    data, offsets = pgoutput.pack(STREAMED)
    controls, _ = find_controls(data, offsets, 0)
    ChangeCounter().count(data, offsets, controls)
    found.feed(controls)
    assert found.take(Lsn(300)) == 9


def test_a_transaction_that_was_not_counted_makes_the_sum_unknown() -> None:
    old = np.array([(ControlKind.COMMIT, 1, 0, 0, 300, 0, 0)], CONTROL_FIELDS)
    found = tally([PLAIN])
    found.feed(old)
    assert [found.take(Lsn(150)), found.take(Lsn(300)), found.take(Lsn(300))] == [4, None, 0]
    assert tally([PLAIN[2:]]).take(Lsn(300)) is None
