"""The scan of raw pgoutput records: control records of a chunk, and changes of committed ranges."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.batch import LogRange, TablePart
from engine.model.control import CONTROL_FIELDS, ControlKind
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import Ordinal
from engine.model.merged_logs import commit_mark
from engine.model.position import Lsn
from engine.model.source import ScannedChanges
from engine.records.scan import RecordScanner, find_controls
from tests.unit.net import pgoutput_encoder as pgoutput
from tests.unit.net.batch_builder import FIRST, column, part, table, whole

_ONE = table([column("id")], ["id"], oid=1)
_TWO = table([column("id")], ["id"], oid=2)
_TIME = 1_700_000_000_123_456


def controls(records: list[bytes], stream: int = 0) -> tuple[list[tuple[int, ...]], int]:
    found, after = find_controls(*pgoutput.pack(records), stream)
    assert found.dtype == np.dtype(CONTROL_FIELDS)
    return [tuple(int(value) for value in row) for row in found.tolist()], after


def test_controls_of_plain_transactions() -> None:
    records = [
        pgoutput.begin(0x500, 77, _TIME),
        pgoutput.relation(1, ["id"]),
        pgoutput.insert(1, ["1"]),
        pgoutput.type_message(9),
        pgoutput.truncate([1, 2]),
        pgoutput.message("penstock", b"x"),
        pgoutput.commit(0x500, 0x1_0000_0538, _TIME),
    ]
    found, after = controls(records)
    assert found == [
        (ControlKind.BEGIN, 0, 77, 0, 0, 0, 0),
        (ControlKind.RELATION, 1, 0, 0, 0, 0, 0),
        (ControlKind.TRUNCATE, 4, 0, 0, 0, 0, 0),
        (ControlKind.MESSAGE, 5, 0, 0, 0, 0, 0),
        (ControlKind.COMMIT, 6, 0, 0, 0x1_0000_0538, _TIME, 0x500),
    ]
    assert after == 0


@pytest.mark.parametrize("mark", [1, commit_mark(0, Lsn(2**56 - 1)), commit_mark(63, Lsn(2**56 - 1)), 2**64 - 1])
def test_a_commit_carries_its_own_position_in_all_bits(mark: int) -> None:
    data, offsets = pgoutput.pack([pgoutput.begin(1, 7), pgoutput.commit(mark, 2, _TIME), pgoutput.commit(0, 3)])
    found, _ = find_controls(data, offsets, 0)
    assert found["commit_lsn"].tolist() == [0, mark, 0]
    assert found["end_lsn"].tolist() == [0, 2, 3]


def test_the_end_of_a_chunk_tells_whether_the_transaction_wrote_rows_itself() -> None:
    own, other = pgoutput.insert(1, ["1"], xid=900), pgoutput.insert(1, ["1"], xid=901)
    start, stop = pgoutput.stream_start(900), pgoutput.stream_stop()
    found, _ = controls(
        [start, other, stop, start, other, own, other, stop, start, pgoutput.message("p", b"", 900), stop]
    )
    assert [one[3] for one in found if one[0] == ControlKind.STREAM_STOP] == [0, 1, 0]


def test_controls_of_streams_carry_their_transaction() -> None:
    records = [
        pgoutput.stream_start(900),
        pgoutput.relation(1, ["id"], xid=901),
        pgoutput.insert(1, ["1"], xid=901),
        pgoutput.truncate([1], xid=900),
        pgoutput.stream_stop(),
        pgoutput.stream_abort(900, 901),
        pgoutput.relation(2, ["id"]),
        pgoutput.stream_commit(900, 0x600, 0x640, _TIME),
    ]
    found, after = controls(records)
    assert found == [
        (ControlKind.STREAM_START, 0, 900, 0, 0, 0, 0),
        (ControlKind.RELATION, 1, 900, 0, 0, 0, 0),
        (ControlKind.TRUNCATE, 3, 900, 0, 0, 0, 0),
        (ControlKind.STREAM_STOP, 4, 0, 1, 0, 0, 0),
        (ControlKind.STREAM_ABORT, 5, 900, 901, 0, 0, 0),
        (ControlKind.RELATION, 6, 0, 0, 0, 0, 0),
        (ControlKind.STREAM_COMMIT, 7, 900, 0, 0x640, _TIME, 0),
    ]
    assert after == 0


def test_an_open_stream_goes_on_in_the_next_chunk() -> None:
    _, open_stream = controls([pgoutput.stream_start(4_000_000_000), pgoutput.insert(1, ["1"], xid=5)])
    assert open_stream == 4_000_000_000
    found, after = controls([pgoutput.relation(1, ["id"], xid=5), pgoutput.stream_stop()], open_stream)
    assert found[0] == (ControlKind.RELATION, 0, 4_000_000_000, 0, 0, 0, 0)
    assert after == 0


def test_an_empty_chunk_has_no_controls() -> None:
    found, after = find_controls(np.empty(0, np.uint8), np.zeros(1, np.int32), 12)
    assert (len(found), after) == (0, 12)


@pytest.mark.parametrize("records", [[b""], [b"B123"], [pgoutput.begin(1, 1), b"C\0\0"], [b"S", b"E"]])
def test_a_short_control_record_is_a_fault(records: list[bytes]) -> None:
    with pytest.raises(EngineFault) as caught:
        controls(records)
    assert caught.value.kind is FaultKind.LOG_UNREADABLE


def scan(records: list[bytes], parts: list[TablePart], ranges: list[LogRange] | None = None) -> ScannedChanges:
    data, offsets = pgoutput.pack(records)
    first = np.arange(FIRST, FIRST + len(records), dtype=np.int64)
    return RecordScanner().scan(data, offsets.astype(np.int64), first, ranges or whole(records), parts)


def keys(found: ScannedChanges) -> list[str]:
    """What was found, readable: operation and the first value of the new or old image."""
    shown = []
    for op, new, old, relation in zip(found.op, found.new, found.old, found.relation, strict=True):
        at = new if new >= 0 else old
        text = ""
        if at >= 0 and found.data[at + 2] == ord("t"):
            (length,) = struct.unpack_from(">i", found.data, at + 3)
            text = bytes(found.data[at + 7 : at + 7 + length]).decode(errors="replace")
        shown.append(f"{' IUDT'[op]}{relation}{text and ' ' + text}")
    return shown


def span(start: int, stop: int, end: int = 1, xid: int = 0, aborted: frozenset[int] = frozenset()) -> LogRange:
    return LogRange(Ordinal(FIRST + start), Ordinal(FIRST + stop), Lsn(end), xid, aborted)


def test_changes_of_the_parts_in_order() -> None:
    records = [
        pgoutput.begin(1, 1),
        pgoutput.insert(2, ["a"]),
        pgoutput.insert(3, ["not ours"]),
        pgoutput.update(1, ["b"]),
        pgoutput.update(1, ["d"], ["c"], "K"),
        pgoutput.update(1, ["f"], ["e"], "O"),
        pgoutput.delete(2, ["g"], "K"),
        pgoutput.type_message(2),
        pgoutput.message("penstock", b"x"),
        pgoutput.truncate([3, 2, 1]),
        pgoutput.commit(1, 2),
    ]
    found = scan(records, [part(_TWO), part(_ONE)])
    assert keys(found) == ["I2 a", "U1 b", "U1 d", "U1 f", "D2 g", "T2", "T1"]
    assert found.old_kind.tolist() == [0, 0, 1, 2, 1, 0, 0]
    assert found.old[1] == -1
    assert found.old[2] > 0


def test_ranges_are_walked_in_their_order() -> None:
    records = [pgoutput.insert(1, [c]) for c in "abcd"]
    found = scan(records, [part(_ONE)], [span(2, 4, 5), span(0, 1, 6)])
    assert keys(found) == ["I1 c", "I1 d", "I1 a"]
    assert found.end.tolist() == [5, 5, 6]


def test_changes_of_aborted_subtransactions_are_left_out() -> None:
    records = [
        pgoutput.stream_start(9),
        pgoutput.insert(1, ["a"], xid=9),
        pgoutput.insert(1, ["b"], xid=10),
        pgoutput.relation(1, ["id"], xid=10),
        pgoutput.truncate([1], xid=11),
        pgoutput.update(1, ["c"], xid=12),
        pgoutput.truncate([1], xid=12),
        pgoutput.stream_stop(),
    ]
    found = scan(records, [part(_ONE)], [span(0, 8, xid=9, aborted=frozenset({10, 11, 99}))])
    assert keys(found) == ["I1 a", "U1 c", "T1"]
    assert found.version.tolist() == [0, 1, 1]


def test_versions_count_relation_records_of_each_table() -> None:
    records = [
        pgoutput.insert(1, ["a"]),
        pgoutput.relation(1, ["id"]),
        pgoutput.relation(3, ["id"]),
        pgoutput.insert(1, ["b"]),
        pgoutput.insert(2, ["c"]),
        pgoutput.relation(2, ["id"]),
        pgoutput.relation(1, ["id"]),
        pgoutput.insert(2, ["d"]),
        pgoutput.truncate([1, 2]),
    ]
    found = scan(records, [part(_ONE), part(_TWO)])
    assert list(zip(keys(found), found.version.tolist(), strict=True)) == [
        ("I1 a", 0), ("I1 b", 1), ("I2 c", 0), ("I2 d", 1), ("T1", 2), ("T2", 1),
    ]  # fmt: skip


def test_what_a_table_has_already_is_left_out_but_its_versions_count() -> None:
    records = [
        pgoutput.relation(1, ["id"]),
        pgoutput.insert(1, ["a"]),
        pgoutput.insert(2, ["b"]),
        pgoutput.truncate([1, 2]),
        pgoutput.insert(1, ["c"]),
    ]
    found = scan(records, [part(_ONE, after=10), part(_TWO)], [span(0, 4, 10), span(4, 5, 11)])
    assert keys(found) == ["I2 b", "T2", "I1 c"]
    assert found.version.tolist() == [0, 0, 1]


def test_positions_above_half_of_their_range_compare_right() -> None:
    high = 2**63
    found = scan([pgoutput.insert(1, ["a"])], [part(_ONE, after=high + 1)], [span(0, 1, high + 2)])
    assert keys(found) == ["I1 a"]
    assert keys(scan([pgoutput.insert(1, ["a"])], [part(_ONE, after=high + 1)], [span(0, 1, high + 1)])) == []


def test_records_between_ranges_may_be_missing_those_of_a_range_not() -> None:
    data, offsets = pgoutput.pack([pgoutput.insert(1, [c]) for c in "abc"])
    first = np.array([FIRST, FIRST + 5, FIRST + 6])
    scanner, parts = RecordScanner(), [part(_ONE)]
    found = scanner.scan(data, offsets.astype(np.int64), first, [span(0, 1), span(5, 7)], parts)
    assert keys(found) == ["I1 a", "I1 b", "I1 c"]
    with pytest.raises(EngineFault) as caught:
        scanner.scan(data, offsets.astype(np.int64), first, [span(0, 6)], parts)
    assert caught.value.kind is FaultKind.QUEUE_CORRUPT


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_a_damaged_record_is_a_fault_or_read_within_its_borders(data: st.DataObject) -> None:
    good = [
        pgoutput.insert(1, ["abc", None]),
        pgoutput.update(1, ["abc", pgoutput.UNCHANGED], ["d", None], "K"),
        pgoutput.delete(1, ["abc", "x"]),
        pgoutput.truncate([1, 2]),
    ]
    damaged = bytearray(data.draw(st.sampled_from(good)))
    if data.draw(st.booleans()):
        damaged = damaged[: data.draw(st.integers(1, len(damaged)))]
    else:
        damaged[data.draw(st.integers(5, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    records = [bytes(damaged), pgoutput.insert(1, ["behind"])]
    try:
        found = scan(records, [part(_ONE), part(_TWO)])
    except EngineFault as fault:
        assert fault.kind is FaultKind.LOG_UNREADABLE  # noqa: PT017 - both outcomes are right
    else:
        assert keys(found)[-1] == "I1 behind"


def test_a_value_in_binary_form_is_a_fault() -> None:
    record = pgoutput.insert(1, ["abc"]).replace(b"t", b"b")
    with pytest.raises(EngineFault):
        scan([record], [part(_ONE)])
