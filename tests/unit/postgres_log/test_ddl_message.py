"""Messages of the DDL capture, and markers of tickets, are found among others; whatever they hold is either understood or refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.control import ControlKind
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TicketId
from engine.model.position import Lsn
from engine.model.ticket import PREFIX as TICKET
from engine.model.ticket import TicketMarker
from engine.records.messages import marker_record, read_marker
from engine.records.scan import find_controls
from engine.sort.batcher import part_announcements
from engine.sort.sorter import TransactionSorter
from engine.sources.postgres_log.ddl_capture import MOST_BYTES, PREFIX
from engine.sources.postgres_log.ddl_message import read_ddl_message
from engine.sources.postgres_log.own_messages import own_records
from tests.unit.net import pgoutput_encoder as pgoutput

_HEAD = {"v": 3, "tag": "ALTER TABLE", "by": "m"}
_TABLE = _HEAD | {
    "server": 180000,
    "writers": [700, 701],
    "table": ["16400", "public", "t", "r", "p", "d", 16400, -1.0],
    "columns": [
        ["16400", 1, "id", "23", -1, False, False, False, None, "", 700, []],
        ["16400", 3, "ä", "25", -1, True, True, True, "x\ny", "", 701, []],
        ["16400", 4, "v", "23", -1, True, True, False, None, "v", 701, []],
        ["16400", 5, "s", "23", -1, True, True, False, None, "s", 701, []],
    ],
    "indexes": [["16400", True, False, True, ["id"], True]],
    "types": [
        ["23", "int4", "pg_catalog", "b", "0", -1, "0", False, ","],
        ["25", "text", "pg_catalog", "b", "0", -1, "0", False, ","],
    ],
    "leaves": {"fills": None, "identities": None},
}
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*_TABLE, "unknown", "reason", "labels"]), inner),
)


def record(said: object, xid: int = 0) -> bytes:
    return pgoutput.message(PREFIX, json.dumps(said).encode(), xid)


def found(*records: bytes, stream: int = 0) -> dict[int, bytes]:
    data, offsets = pgoutput.pack(records)
    controls, _ = find_controls(data, offsets, stream)
    messages = controls[controls["kind"] == ControlKind.MESSAGE]
    return own_records(data, offsets, messages["ordinal"], messages["xid"] != 0)


def refused(payload: bytes) -> FaultKind | None:
    try:
        read_ddl_message(payload)
    except EngineFault as fault:
        return fault.kind
    return None


def test_ours_are_found_among_others_in_and_outside_streams() -> None:
    ours, others = record(_HEAD), pgoutput.message("penstock", b"now")
    short, longer = pgoutput.message("p", b""), pgoutput.message(PREFIX + ".other", b"{}")
    outside = b"M\0" + ours[2:]
    records = [others, ours, short, pgoutput.insert(1, ["v"]), longer, outside, ours]
    assert found(*records) == {1: ours, 6: ours}
    streamed = [pgoutput.stream_start(7), record(_HEAD, 8), pgoutput.message("p", b"", 7), pgoutput.stream_stop(), ours]
    assert found(*streamed) == {1: streamed[1], 4: ours}
    assert found(short) == {}


def test_long_ones_are_cut_and_then_make_no_sense() -> None:
    (cut,) = found(record(_TABLE | {"tag": "x" * MOST_BYTES})).values()
    assert MOST_BYTES < len(cut) < MOST_BYTES + 100
    with pytest.raises(EngineFault):
        read_ddl_message(cut)


@pytest.mark.parametrize(("server", "sent", "unsent"), [(180000, [("s", 5, None)], [4]), (160004, [], [4, 5])])
def test_a_structure_is_read_as_the_catalog_would_give_it(
    server: int, sent: list[tuple[str, int, None]], unsent: list[int]
) -> None:
    told = read_ddl_message(record(_TABLE | {"server": server}))
    assert told.writers == {700, 701}
    assert told.table is not None
    assert told.table.relation == RelationId(16400)
    table: Any = told.table
    assert [(c.column.name, c.column.attnum, c.column.fill) for c in table.table.columns] == [
        ("id", 1, None),
        ("ä", 3, "x\ny"),
        *sent,
    ]
    assert (table.table.unsent, table.table.identity_columns) == (unsent, ("id",))


@given(st.binary(max_size=200) | _JSON.map(lambda said: json.dumps(said).encode()))
def test_anything_else_is_refused_as_unreadable(content: bytes) -> None:
    assert refused(pgoutput.message(PREFIX, content)) in {None, FaultKind.LOG_UNREADABLE}


@given(st.sampled_from([*_TABLE]), _JSON)
def test_a_damaged_structure_is_refused_or_still_one(part: str, damage: object) -> None:
    assert refused(record(_TABLE | {part: damage})) in {None, FaultKind.LOG_UNREADABLE}


def test_messages_keep_their_places_among_relation_records_and_know_their_transactions() -> None:
    records = [
        pgoutput.begin(50, 5),
        record(_HEAD),
        pgoutput.relation(1, ["a"]),
        record(_TABLE),
        pgoutput.commit(50, 60),
        pgoutput.stream_start(7),
        pgoutput.relation(1, ["a"], 8),
        record(_HEAD, 7),
        pgoutput.relation(1, ["a"], 7),
        pgoutput.stream_stop(),
        pgoutput.stream_abort(7, 8),
        pgoutput.stream_commit(7, 90, 95),
    ]
    data, offsets = pgoutput.pack(records)
    controls, _ = find_controls(data, offsets, 0)
    payloads = {i: one for i, one in enumerate(records) if one[:1] in (b"R", b"M")}
    sorter = TransactionSorter(Lsn(0))
    sorter.feed(controls, payloads)
    relations, messages, tickets = part_announcements(sorter.drain())
    assert tickets == ()
    assert [(seen.ordinal, seen.void) for seen in relations] == [(2, False), (6, True), (8, False)]
    assert [(one.behind, one.message.ordinal, one.end.value) for one in messages] == [
        (0, 1, 60),
        (1, 3, 60),
        (2, 7, 95),
    ]
    assert [one.message.aborted for one in messages] == [frozenset(), frozenset(), {8}]
    assert np.array_equal([one.message.payload == record(_HEAD) for one in messages], [True, False, True])


def marker(content: bytes, xid: int = 0) -> bytes:
    return pgoutput.message(TICKET, content, xid)


def test_markers_of_tickets_are_found_among_others_in_and_outside_streams() -> None:
    ours, ddl = marker(b"tk1 1700000000000000"), record(_HEAD)
    strange = [marker(b"tk1"), marker(b"TK1 5"), marker(b"tk1 5 6"), marker(b"%s 5" % (b"a" * 41)), b"M\0" + ours[2:]]
    other = pgoutput.message(TICKET + "s", b"tk1 5")
    assert found(*strange, ours, other, ddl) == {5: ours, 7: ddl}
    streamed = [pgoutput.stream_start(7), marker(b"tk1 5", 8), pgoutput.stream_stop(), ours]
    assert found(*streamed) == {1: streamed[1], 3: ours}


def test_a_marker_says_whose_it_is_where_it_stands_and_when_it_was_written() -> None:
    whole = marker(b"tk1 1700000000000001")
    record_at = whole[:2] + (0x16B3748).to_bytes(8, "big") + whole[10:]
    assert read_marker(record_at) == TicketMarker(TicketId("tk1"), Lsn(0x16B3748), 1700000000000001)
    assert marker_record(TicketMarker(TicketId("tk1"), Lsn(0x16B3748), 1700000000000001)) == record_at
    assert read_marker(record(_HEAD)) is None
    assert read_marker(whole[:-1] + b"x") is None


@given(st.binary(max_size=60))
def test_whatever_stands_in_a_marker_is_a_ticket_or_nothing(content: bytes) -> None:
    seen = read_marker(marker(content))
    assert seen is None or content == f"{seen.ticket} ".encode() + content.partition(b" ")[2]


def test_a_marker_is_in_the_batch_of_its_transaction_and_tells_nothing_of_structures() -> None:
    records = [
        pgoutput.begin(50, 5),
        marker(b"tk1 7"),
        record(_HEAD),
        pgoutput.commit(50, 60),
        pgoutput.stream_start(7),
        marker(b"tk2 8", 7),
        pgoutput.stream_stop(),
        pgoutput.stream_start(9),
        marker(b"tk3 9", 9),
        pgoutput.stream_stop(),
        pgoutput.stream_abort(9, 9),
        pgoutput.stream_commit(7, 90, 95),
    ]
    data, offsets = pgoutput.pack(records)
    controls, _ = find_controls(data, offsets, 0)
    sorter = TransactionSorter(Lsn(0))
    sorter.feed(controls, {i: one for i, one in enumerate(records) if one[:1] == b"M"})
    relations, messages, tickets = part_announcements(sorter.drain())
    assert [one.ticket for one in tickets] == ["tk1", "tk2"]
    assert (relations, [one.message.ordinal for one in messages]) == ((), [2])
