"""Messages about merged logs: how they are written and found, and that only the fold of the state reads them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.batch import BlockRef, LogsSeen, MessageSeen, TicketSeen
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import Ordinal
from engine.model.merged_logs import PREFIX, LogsMessage
from engine.model.position import Lsn
from engine.model.source import Landed
from engine.pipeline.tickets import RunTickets
from engine.records.messages import logs_record, message_at, messages_in
from engine.records.scan import find_controls
from engine.safety.log_evidence import LogEvidence
from engine.sort.committed import part_announcements
from engine.sort.sorter import TransactionSorter
from engine.sources.postgres_log.own_messages import own_records
from tests.unit.net import pgoutput_encoder as pgoutput

_CONTENT = b'{"read":[[0,"0/10"]]}'
_MESSAGE = LogsMessage(read=((0, Lsn(16)),))


def landed_of(*records: bytes) -> Landed:
    data, offsets = pgoutput.pack(records)
    controls, _ = find_controls(data, offsets, 0)
    payloads = {at: one for at, one in enumerate(records) if one[:1] in (b"R", b"M")}
    return Landed(BlockRef("q", 0, 0, 0, Ordinal(0), len(records)), controls, payloads, Lsn(100))


@given(st.binary(max_size=80))
def test_the_content_is_what_was_written_whatever_it_is(content: bytes) -> None:
    assert message_at(7, pgoutput.message(PREFIX, content)) == LogsSeen(Ordinal(7), content)


def test_a_record_is_written_as_postgresql_writes_messages() -> None:
    assert logs_record(_MESSAGE) == pgoutput.message(PREFIX, _CONTENT)
    assert message_at(3, logs_record(_MESSAGE)) == LogsSeen(Ordinal(3), _CONTENT)


@pytest.mark.parametrize("cut", range(1, len(_CONTENT) + 5))
def test_a_record_that_is_cut_off_is_unreadable(cut: int) -> None:
    whole = logs_record(_MESSAGE)
    for record in (whole[:-cut], whole + b"x" * cut):
        with pytest.raises(EngineFault) as caught:
            message_at(0, record)
        assert caught.value.kind is FaultKind.LOG_UNREADABLE


@pytest.mark.parametrize("prefix", ["penstock.log", "penstock.logsx", "xpenstock.logs", "penstock.ddl"])
def test_a_message_with_another_prefix_is_another_message(prefix: str) -> None:
    assert isinstance(message_at(0, pgoutput.message(prefix, _CONTENT)), MessageSeen)


def test_they_are_among_the_messages_of_a_landing_and_of_streams() -> None:
    ticket, ddl = pgoutput.message("penstock.ticket", b"tk1 5"), pgoutput.message("penstock.ddl", b"{}")
    landed = landed_of(
        pgoutput.begin(1, 7),
        logs_record(_MESSAGE),
        ticket,
        ddl,
        pgoutput.commit(1, 2),
        pgoutput.stream_start(9),
        pgoutput.message(PREFIX, _CONTENT, 9),
        pgoutput.stream_stop(),
    )
    found = messages_in(landed)
    assert [(type(seen), seen.ordinal) for seen in found] == [
        (LogsSeen, 1),
        (TicketSeen, 2),
        (MessageSeen, 3),
        (LogsSeen, 6),
    ]
    assert [seen.content for seen in found if isinstance(seen, LogsSeen)] == [_CONTENT, _CONTENT]


def test_they_are_neither_ddl_messages_nor_tickets_of_a_batch() -> None:
    landed = landed_of(pgoutput.begin(1, 7), logs_record(_MESSAGE), pgoutput.commit(1, 2))
    sorter = TransactionSorter(Lsn(0))
    sorter.feed(landed.controls, landed.relations)
    (closed,) = sorter.drain()
    assert closed.announcements == (LogsSeen(Ordinal(1), _CONTENT),)
    assert part_announcements([closed]) == ((), (), ())


def test_evidence_and_tickets_pass_them_over() -> None:
    landed = landed_of(pgoutput.begin(1, 7), logs_record(_MESSAGE), pgoutput.commit(1, 2))
    parsed: list[bytes] = []

    def parse(payload: bytes) -> Any:
        parsed.append(payload)
        return SimpleNamespace(partition=None)

    LogEvidence(parse, lambda _: pytest.fail("a block is read")).landed(landed, messages_in(landed))
    assert parsed == []
    nothing = cast("Any", SimpleNamespace(wall_us=lambda: 5, begin_run=lambda: None))
    tickets = RunTickets(nothing, nothing, nothing, nothing, Lsn(0))
    tickets.landed(landed, messages_in(landed))


def test_a_source_of_one_log_hands_none_on() -> None:
    # Its users may write any message; only what the engine writes counts.
    data, offsets = pgoutput.pack([pgoutput.begin(1, 7), logs_record(_MESSAGE), pgoutput.commit(1, 2)])
    assert own_records(data, offsets, np.array([1]), np.array([False])) == {}
