"""Tickets in the engine: each is reported at every stage, ends exactly once, and never stays without an end."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from engine.model.batch import BlockRef, SealedBatch
from engine.model.control import ControlKind
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import Ordinal, TicketId
from engine.model.position import Lsn
from engine.model.source import Landed
from engine.model.ticket import PREFIX, TicketMarker, TicketState, TicketWritten
from engine.pipeline.tickets import RunTickets, TicketTracker
from engine.records.messages import messages_in
from engine.records.scan import find_controls
from engine.sources.postgres_log.own_messages import own_records
from engine.tables.reporter import Reporter, TicketPassage
from tests.fixtures.waiting import wait_until
from tests.unit.net import pgoutput_encoder as pgoutput

ONE = TicketId("tk1")
Told = tuple[TicketState, TicketPassage, str | None]


class Bench:
    """A subscription's book, and runs whose stages are played. The clock rises by one at each look."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self.written: list[TicketId] = []
        self.demanded: list[Lsn] = []
        self.refusal: Exception | None = None
        self.held: Callable[[], None] | None = None
        """If it is set, markers are given to a log reader; called while one is given."""
        self.book = TicketTracker(cast("Reporter", SimpleNamespace(ticket=self._take)))
        self._us = 1000
        self._next = 0
        self.run = self.new_run()

    def new_run(self, after: int = 0) -> RunTickets:
        self.run = RunTickets(self.book, cast("Any", self), self._write, self.demanded.append, Lsn(after))
        return self.run

    def wall_us(self) -> int:
        self._us += 1
        return self._us

    def ask(self, until: int | None = None) -> None:
        self.book.ask(ONE, None if until is None else Lsn(until))
        self.run.send(ONE)

    def land(self, *records: bytes) -> None:
        data, offsets = pgoutput.pack(records)
        controls, _ = find_controls(data, offsets, 0)
        messages = controls[controls["kind"] == ControlKind.MESSAGE]
        ours = own_records(data, offsets, messages["ordinal"], messages["xid"] != 0)
        controls["ordinal"] += self._next
        block = BlockRef("q", 0, 0, 0, Ordinal(self._next), len(records))
        landed = Landed(block, controls, {self._next + at: one for at, one in ours.items()}, Lsn(0))
        self.run.landed(landed, messages_in(landed))
        self._next += len(records)

    def pass_on(self, end: int, *positions: int) -> None:
        """A batch up to `end`, with markers at these positions, goes through all stages."""
        markers = tuple(TicketMarker(ONE, Lsn(at), 7) for at in positions)
        batch = SealedBatch(Lsn(0), Lsn(end), len(markers), (), (), 0, 0, tickets=markers)
        self.run.sealed(batch, self.wall_us())
        self.run.computed(batch)
        self.run.applied(batch, self.wall_us())

    def states(self) -> list[TicketState]:
        return [state for state, *_ in self.told]

    def _write(self, ticket: TicketId) -> TicketWritten | None:
        if self.refusal is not None:
            raise self.refusal
        self.written.append(ticket)
        if self.held is not None:
            self.held()
            return None
        return TicketWritten(7, Lsn(60))

    def _take(
        self, ticket: TicketId, state: TicketState, passage: TicketPassage, problem: tuple[str, str, str] | None = None
    ) -> None:
        assert ticket == ONE
        self.told.append((state, passage, None if problem is None else problem[0]))


def marker(position: int, xid: int = 0) -> bytes:
    record = pgoutput.message(PREFIX, b"tk1 7", xid)
    at = 6 if xid else 2
    return record[:at] + position.to_bytes(8, "big") + record[at + 8 :]


def test_a_ticket_is_told_of_at_each_stage_with_what_came_before_it() -> None:
    bench = Bench()
    bench.land(
        pgoutput.begin(5, 1), pgoutput.relation(1, ["a"]), *[pgoutput.insert(1, ["v"])] * 3, pgoutput.commit(5, 9)
    )
    bench.ask()
    bench.land(
        pgoutput.begin(20, 2),
        pgoutput.insert(1, ["v"]),
        pgoutput.commit(20, 30),
        pgoutput.begin(40, 3),
        marker(45),
        pgoutput.commit(50, 60),
        pgoutput.begin(70, 4),
        pgoutput.insert(1, ["v"]),
        pgoutput.commit(70, 80),
    )
    bench.pass_on(80, 45)
    assert bench.states() == [TicketState.UNDER_WAY] * 4 + [TicketState.APPLIED]
    last = bench.told[-1][1]
    assert (last.position, last.written_us, last.until) == (Lsn(45), 7, Lsn(60))
    assert (last.transactions, last.commands) == (2, 4)
    times = [last.counted_since_us, last.captured_us, last.sealed_us, last.computed_us, last.applied_us]
    assert None not in times
    assert times == sorted(cast("list[int]", times))


def test_one_in_a_streamed_transaction_is_captured_too() -> None:
    bench = Bench()
    bench.ask()
    bench.land(pgoutput.stream_start(9), pgoutput.insert(1, ["v"], 9), marker(45, 9), pgoutput.stream_stop())
    state, passage, _ = bench.told[-1]
    assert (state, passage.position, passage.commands) == (TicketState.UNDER_WAY, Lsn(45), 1)


def test_markers_of_tickets_that_nobody_asked_for_are_passed_over() -> None:
    bench = Bench()
    bench.land(pgoutput.begin(40, 3), marker(45), pgoutput.commit(50, 60))
    bench.pass_on(60, 45)
    assert bench.told == []


def test_it_is_written_once_however_often_it_is_asked_for_and_waits_for_a_run() -> None:
    bench = Bench()
    bench.book.ask(ONE, None)
    assert bench.written == []
    bench.new_run().send_all()
    bench.ask()
    bench.run.send_all()
    assert bench.written == [ONE]


def test_one_that_ended_is_told_of_again_and_not_begun_again() -> None:
    bench = Bench()
    bench.ask()
    bench.land(pgoutput.begin(40, 3), marker(45), pgoutput.commit(50, 60))
    bench.pass_on(60, 45)
    before = bench.told[-1]
    bench.ask(until=60)
    assert bench.told[-1] == before
    assert (bench.written, bench.book.open()) == ([ONE], [])


def test_a_new_run_reads_the_marker_again_and_times_it_anew() -> None:
    bench = Bench()
    bench.ask()
    bench.land(pgoutput.begin(40, 3), marker(45), pgoutput.commit(50, 60))
    captured = bench.told[-1][1].captured_us
    bench.new_run().send_all()
    assert bench.demanded == [Lsn(60)]
    bench.land(pgoutput.begin(40, 3), marker(45), pgoutput.commit(50, 60))
    bench.pass_on(60, 45)
    state, last, _ = bench.told[-1]
    assert state is TicketState.APPLIED
    assert cast("int", last.captured_us) > cast("int", captured)
    assert (last.until, bench.written) == (Lsn(60), [ONE])


def test_one_whose_marker_was_applied_before_anybody_told_is_lost() -> None:
    bench = Bench()
    bench.new_run(after=60)
    bench.ask(until=60)
    assert [(state, code) for state, _, code in bench.told] == [(TicketState.LOST, "ticket_missed")]


def test_one_whose_marker_never_comes_is_lost_when_the_target_has_passed_its_place() -> None:
    bench = Bench()
    bench.ask()
    bench.pass_on(59)
    assert bench.states() == [TicketState.UNDER_WAY]
    bench.pass_on(60)
    assert bench.told[-1][::2] == (TicketState.LOST, "ticket_missed")


def test_of_two_markers_the_first_in_the_log_counts() -> None:
    bench = Bench()
    bench.ask()
    bench.land(pgoutput.begin(40, 3), marker(45), pgoutput.commit(46, 47), pgoutput.begin(48, 4), marker(50))
    bench.pass_on(70, 45, 50)
    state, last, _ = bench.told[-1]
    assert (state, last.position) == (TicketState.APPLIED, Lsn(45))


def test_one_that_cannot_be_written_is_lost_with_the_reason() -> None:
    for refusal, code in (
        (EngineFault(FaultKind.SOURCE_PRIVILEGE, "shop", "no"), "source_privilege"),
        (ValueError("a defect"), FaultKind.INTERNAL.value),
    ):
        bench = Bench()
        bench.refusal = refusal
        bench.ask()
        assert [(state, told) for state, _, told in bench.told] == [(TicketState.LOST, code)]


def given_bench() -> Bench:
    """One whose markers only the log reader of a session writes."""
    bench = Bench()
    bench.held = lambda: None
    return bench


def landed_marker(position: int) -> list[bytes]:
    return [pgoutput.begin(position - 1, 3), marker(position), pgoutput.commit(position - 1, position + 1)]


def test_one_that_a_log_reader_has_is_given_to_each_later_one_until_its_marker_is_read() -> None:
    bench = given_bench()
    bench.ask()
    bench.ask()
    assert (bench.written, bench.told) == ([ONE], [])
    bench.run.begin_session(Lsn(10))
    wait_until(lambda: len(bench.written) == 2, what="the second reader has it")
    bench.run.send_all()
    bench.land(*landed_marker(45))
    bench.run.begin_session(Lsn(46))
    bench.run.send_all()
    assert bench.written == [ONE] * 2
    bench.pass_on(46, 45)
    assert bench.states() == [TicketState.UNDER_WAY] * 3 + [TicketState.APPLIED]
    assert bench.told[-1][1].until is None


def test_one_whose_marker_an_earlier_run_had_read_is_timed_by_the_first_that_the_next_run_reads() -> None:
    for again in (45, 70):
        bench = given_bench()
        bench.ask()
        bench.land(*landed_marker(45))
        bench.new_run().send_all()
        assert bench.written == [ONE] * 2
        bench.land(*landed_marker(again))
        bench.land(*landed_marker(90))
        bench.pass_on(91, again, 90)
        state, last, _ = bench.told[-1]
        assert (state, last.position) == (TicketState.APPLIED, Lsn(again))


def test_one_that_is_given_to_a_reader_while_another_replaces_it_is_given_to_that_one_too() -> None:
    bench = given_bench()

    def replaced() -> None:
        bench.held = lambda: None
        bench.book.begin_session()
        bench.run.send(ONE)

    bench.held = replaced
    bench.ask()
    assert bench.written == [ONE] * 2
    bench.ask()
    assert bench.written == [ONE] * 2
