"""What a session with two-phase decoding makes of its bytes, and how its start is checked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.control import ControlKind
from engine.model.fault import EngineFault, FaultKind
from engine.model.last_commit import LastCommit
from engine.model.position import ZERO, Lsn
from engine.records.history import HistoryCheck, SessionCommits
from engine.records.scan import find_controls
from engine.sources.postgres_log import stream as stream_module
from engine.sources.postgres_log.stream import PostgresLogStream, start_command
from engine.sources.postgres_log.terms import POSTGRES_LOG_TERMS
from tests.unit.net import pgoutput_encoder as pgoutput
from tests.unit.postgres_log.replication_wire import Pieces, framed, keepalive, xlog

START = 5000
AGREED = framed(b"W", b"\0\0\0")
PREPARED = [
    pgoutput.begin_prepare(0x500, 0x540, 7, b"g@1"),
    pgoutput.relation(1, ["id"]),
    pgoutput.insert(1, ["1"]),
    pgoutput.prepare(0x500, 0x540, 7, b"g@1"),
    pgoutput.commit_prepared(0x600, 0x640, 7, b"g@1"),
    pgoutput.rollback_prepared(0x700, 0x740, 8, b"g@2"),
]


def session(records: list[bytes], *, two_phase: bool, position: int = START + 1) -> PostgresLogStream:
    sent = AGREED + b"".join(xlog(record, position) for record in records)
    found = PostgresLogStream(Pieces(sent), "slot", Lsn(START), None, two_phase=two_phase)
    found.await_start()
    return found


def test_records_of_prepared_transactions_are_control_records_of_a_two_phase_session() -> None:
    chunk = session(PREPARED, two_phase=True).read(0.0)
    assert chunk is not None
    assert [int(kind) for kind in chunk.controls["kind"]] == [
        ControlKind.BEGIN_PREPARE,
        ControlKind.RELATION,
        ControlKind.PREPARE,
        ControlKind.COMMIT_PREPARED,
        ControlKind.ROLLBACK_PREPARED,
    ]
    assert chunk.relations == {1: PREPARED[1]}
    assert chunk.wal_end == Lsn(START + 1)


@pytest.mark.parametrize("letter", "bPKr")
def test_a_session_without_it_refuses_each_of_them(letter: str) -> None:
    records = [record for record in PREPARED if record[:1] == letter.encode()]
    with pytest.raises(EngineFault) as refused:
        session(records, two_phase=False).read(0.0)
    assert refused.value.kind is FaultKind.LOG_UNREADABLE
    assert f"unknown type {ord(letter)}" in refused.value.detail


@pytest.mark.parametrize("letter", "SEcAp")
def test_a_two_phase_session_refuses_records_of_streamed_transactions(letter: str) -> None:
    with pytest.raises(EngineFault) as refused:
        session([letter.encode() + bytes(40)], two_phase=True).read(0.0)
    assert refused.value.kind is FaultKind.LOG_UNREADABLE


def test_nothing_counts_as_read_before_the_session_has_sent_it() -> None:
    found = session([], two_phase=True)
    assert (found.read_to, found.clock_us) == (ZERO, 0)
    assert session([], two_phase=False).read_to == Lsn(START)
    found = session(PREPARED, two_phase=True, position=START - 100)
    assert found.read(0.0) is not None
    assert found.read_to == Lsn(START - 100)
    # The encoder's messages were sent 7 microseconds after the zero of PostgreSQL's clock, its keepalives 9.
    assert found.clock_us == pgoutput.PG_EPOCH_US + 7


def test_the_clock_moves_with_a_keepalive_that_brings_nothing_else() -> None:
    sent = AGREED + keepalive(START) + framed(b"d", b"k" + START.to_bytes(8) + (123).to_bytes(8) + b"\0")
    found = PostgresLogStream(Pieces(sent), "slot", Lsn(START), None, two_phase=True)
    found.await_start()
    while found.read(0.0) is not None:
        pass
    assert found.clock_us == pgoutput.PG_EPOCH_US + 123


class _Clock:
    """Time that passes only in pauses."""

    def __init__(self) -> None:
        self.now, self.naps = 100.0, 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.naps += seconds


class _Steady(Pieces):
    """Has one more position for each read."""

    position = START

    def receive(self, into: memoryview) -> int:
        if not self.data:
            self.position += 1
            self.data = keepalive(self.position)
        return super().receive(into)


@pytest.mark.parametrize(("two_phase", "timeout_s"), [(True, 5.0), (False, 0.0)])
def test_a_read_that_may_last_pauses(monkeypatch: pytest.MonkeyPatch, two_phase: bool, timeout_s: float) -> None:
    clock = _Clock()
    monkeypatch.setattr(stream_module, "time", clock)
    found = PostgresLogStream(_Steady(AGREED), "slot", Lsn(START), None, two_phase=two_phase)
    found.await_start()
    for _ in range(10):
        assert found.read(timeout_s) is not None
    assert clock.naps > 0


def test_a_two_phase_read_without_time_receives_nothing_during_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock()
    monkeypatch.setattr(stream_module, "time", clock)
    found = PostgresLogStream(_Steady(AGREED), "slot", Lsn(START), None, two_phase=True)
    found.await_start()
    for _ in range(10):
        assert found.pause_s == 0
        assert found.read(0.0) is not None
        assert found.pause_s > 0
        assert found.read(0.0) is None
        clock.now += found.pause_s
    assert clock.naps == 0


@pytest.mark.parametrize(("version", "protocol"), [(150001, 3), (160000, 4), (180004, 4)])
def test_a_two_phase_session_starts_where_the_slot_is_confirmed(version: int, protocol: int) -> None:
    command = start_command("n1", ZERO, ("p",), version, two_phase=True)
    assert command.startswith('START_REPLICATION SLOT "n1" LOGICAL 0/0 (')
    assert f"proto_version '{protocol}', streaming 'off', two_phase 'on', messages 'true'" in command


def test_a_version_that_cannot_send_prepared_transactions_is_refused() -> None:
    with pytest.raises(EngineFault, match="PostgreSQL 14") as refused:
        start_command("n1", ZERO, ("p",), 140010, two_phase=True)
    assert refused.value.kind is FaultKind.TWO_PHASE_UNSUPPORTED
    assert "two_phase" not in start_command("n1", ZERO, ("p",), 140010)


def check(last: LastCommit, start: Lsn, records: list[bytes], read: int) -> HistoryCheck:
    """The check of a session that begins far before `start` and sends these records."""
    found = HistoryCheck("slot", last, start, POSTGRES_LOG_TERMS)
    found.confirmed(ZERO)
    data, offsets = pgoutput.pack(records)
    controls, _ = find_controls(data, offsets, 0, two_phase=True)
    found.check_commits(SessionCommits().commits_of(data, offsets, controls), Lsn(read))
    return found


TIME_US = pgoutput.PG_EPOCH_US + 5
ROW = pgoutput.insert(1, ["1"])
EARLIER = [pgoutput.begin(0x100, 3), ROW, pgoutput.commit(0x100, 0x140, TIME_US)]
HELD = [
    pgoutput.begin_prepare(0x200, 0x240, 7, b"g"),
    ROW,
    pgoutput.prepare(0x200, 0x240, 7, b"g"),
    pgoutput.commit_prepared(0x300, 0x340, 7, b"g", TIME_US),
]


@given(st.sampled_from([0x240, 0x300]), st.booleans(), st.booleans())
def test_a_prepared_transaction_is_held_by_its_commit(after: int, certain: bool, alone: bool) -> None:
    last = LastCommit(Lsn(after), Lsn(0x340), TIME_US, certain=certain)
    assert check(last, Lsn(0x340), [*EARLIER, *(HELD[-1:] if alone else HELD)], 0x340).done


@pytest.mark.parametrize("records", [[*EARLIER, *HELD[:3]], EARLIER, []], ids=["prepared", "earlier", "nothing"])
def test_a_held_commit_that_does_not_come_is_a_gap(records: list[bytes]) -> None:
    with pytest.raises(EngineFault) as refused:
        check(LastCommit(Lsn(0x300), Lsn(0x340), TIME_US), Lsn(0x340), records, 0x340)
    assert refused.value.kind is FaultKind.LOG_GAP


@pytest.mark.parametrize("start", [0x340, 0x500])
def test_another_commit_at_the_same_position_or_later_is_a_gap(start: int) -> None:
    last = LastCommit(Lsn(0x100), Lsn(0x140), TIME_US)
    with pytest.raises(EngineFault) as refused:
        check(last, Lsn(start), [*EARLIER, *HELD], start)
    assert refused.value.kind is FaultKind.LOG_GAP
    with pytest.raises(EngineFault, match="is another one"):
        check(LastCommit(Lsn(0x300), Lsn(0x340), TIME_US + 1), Lsn(0x340), HELD, 0x340)


@pytest.mark.parametrize("ended", [HELD[:3], [pgoutput.rollback_prepared(0x240, 0x340, 7, b"g", TIME_US)]])
def test_what_was_prepared_or_rolled_back_is_no_commit(ended: list[bytes]) -> None:
    last = LastCommit(Lsn(0x100), Lsn(0x140), TIME_US)
    assert check(last, Lsn(0x400), [*EARLIER, *ended], 0x400).done


@given(st.booleans(), st.integers(1, 4))
def test_transactions_before_the_begin_are_not_judged(certain: bool, count: int) -> None:
    earlier = [
        record
        for n in range(count)
        for record in (pgoutput.begin(0x10 * n, 3), ROW, pgoutput.commit(0x10 * n, 0x10 * n + 8, TIME_US))
    ]
    held = [pgoutput.begin(0x200, 9), ROW, pgoutput.commit(0x200, 0x240, TIME_US)]
    last = LastCommit(Lsn(0x200), Lsn(0x240), TIME_US, certain=certain)
    assert check(last, Lsn(0x240), [*earlier, *held], 0x240).done
    unknown = LastCommit.unknown(Lsn(0x240))
    assert check(unknown, Lsn(0x240), [*earlier, *held], 0x240).done
