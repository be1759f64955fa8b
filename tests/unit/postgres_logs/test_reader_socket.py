"""What the engine asks the log reader over its socket: marks, and moments of all nodes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TicketId
from engine.model.merged_logs import Away
from engine.model.position import Lsn
from engine.sources.postgres_logs.consistent_cut import CutState, NodeSnapshot
from engine.sources.postgres_logs.merged_numbers import MergedNumbers
from engine.sources.postgres_logs.merged_stream import StreamState
from engine.sources.postgres_logs.node_ends import NodeEnds
from engine.sources.postgres_logs.reader_folder import Beginning, ReaderFolder
from engine.sources.postgres_logs.reader_socket import (
    ReaderSocket,
    request_cut,
    request_mark,
    request_state,
    request_ticket,
)
from engine.sources.postgres_logs.relations import Structure
from engine.sources.postgres_logs.requests import RequestedCuts, RequestedMarks
from tests.fixtures.waiting import wait_until

AWAY = {"n2": Away(6, "source_unreachable", "refused")}


class Reader:
    """A log reader without logs: its thread serves requests until it is stopped."""

    def __init__(self, ends: Sequence[int] = (7, 9), cut: CutState = CutState.COMPLETE) -> None:
        self.asked: list[bool] = []
        self.rounds = NodeEnds([lambda flushed, end=end: self._end(flushed, end) for end in ends])  # type: ignore[misc]
        self.numbers = MergedNumbers(100, clock=lambda: 0)
        self.marks = RequestedMarks(self.numbers, self.rounds, len(ends))
        self.cuts = RequestedCuts(self.rounds)
        self.state = StreamState({"n1": 5}, frozenset({"n2"}), 17, time.monotonic(), AWAY, {"n2": 7})
        self.snapshots: list[Sequence[NodeSnapshot]] = []
        self.cut_position: Lsn | None = None
        self.cut_state: CutState | None = None
        self.begun = 0
        self._ends_as = cut
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def request_mark(self, *, flushed: bool) -> Lsn:
        return self.marks.request(flushed=flushed)

    def request_ticket(self, ticket: TicketId) -> Lsn:
        return self.marks.request(flushed=True, ticket=ticket)

    def begin_cut(self) -> None:
        self.begun += 1
        self.cut_state, self.cut_position = CutState.FROZEN, None

    def take_snapshots(self, snapshots: Sequence[NodeSnapshot]) -> None:
        self.snapshots.append(snapshots)
        self.cut_state = self._ends_as
        self.cut_position = Lsn(4711) if self._ends_as is CutState.COMPLETE else None

    def end_cut(self) -> None:
        self.cut_state = None

    def stop(self) -> None:
        self._stop.set()
        self.rounds.notify()
        self._thread.join()
        self.rounds.close()

    def _end(self, flushed: bool, end: int) -> Lsn:
        self.asked.append(flushed)
        return Lsn(end)

    def _serve(self) -> None:
        while not self._stop.is_set():
            self.marks.step()
            self.cuts.step(self)
            self._stop.wait(0.005)


@contextmanager
def serving(folder: Path, reader: Reader) -> Iterator[ReaderSocket]:
    given = ReaderSocket(folder)
    given.serve(reader)
    try:
        yield given
    finally:
        given.close()
        reader.stop()


def test_a_mark_is_reached_with_the_ends_that_were_taken_after_its_request(tmp_path: Path) -> None:
    with serving(tmp_path, reader := Reader()):
        mark = request_mark(tmp_path, flushed=True)
        assert mark is not None
        assert mark > Lsn(100)
        wait_until(lambda: reader.numbers.is_due([7, 9]), what="the ends are taken")
        assert reader.asked == [True, True]
        assert not reader.numbers.reach([7, 8])
        assert reader.numbers.reach([7, 9])
        assert Lsn(reader.numbers.last) == mark
        later = request_mark(tmp_path, flushed=False)
        assert later is not None
        assert later > mark
        wait_until(lambda: reader.asked[2:] == [False, False], what="the ends are taken without a write")


def test_a_marker_is_due_once_everything_that_was_committed_before_its_request_is_read(tmp_path: Path) -> None:
    with serving(tmp_path, reader := Reader()):
        before = time.time_ns() // 1000
        first, second = (request_ticket(tmp_path, TicketId(each)) for each in ("tk1", "tk2"))
        assert first is not None
        assert second is not None
        assert Lsn(100) < first <= second
        wait_until(lambda: reader.numbers.is_due([7, 9]), what="the ends are taken")
        assert set(reader.asked) == {True}
        assert not reader.numbers.reach([7, 8])
        assert reader.marks.take_markers() == []
        wait_until(
            lambda: reader.numbers.reach([7, 9]) and reader.numbers.last >= second.value, what="both are reached"
        )
        found = reader.marks.take_markers()
        assert [(marker.ticket, marker.position) for marker in found] == [("tk1", first), ("tk2", second)]
        assert all(before <= marker.written_us <= time.time_ns() // 1000 for marker in found)
        assert reader.marks.take_markers() == []


def test_requests_share_a_mark_only_until_its_ends_are_taken() -> None:
    """What is committed after a request may not be missing in the ends that count for it."""
    asked: list[bool] = []
    gate = threading.Event()

    def end(flushed: bool) -> Lsn:
        asked.append(flushed)
        gate.wait(10)
        return Lsn(5)

    rounds = NodeEnds([end])
    try:
        numbers = MergedNumbers(100, clock=lambda: 0)
        marks = RequestedMarks(numbers, rounds, 1)
        first = marks.request(flushed=False)
        assert marks.request(flushed=True) == first
        assert marks.step() is None
        wait_until(lambda: asked == [True], what="the round has begun, with a flush as one wants it")
        second = marks.request(flushed=False)
        assert second > first
        gate.set()
        wait_until(lambda: marks.step() == [5], what="the first round has ended")
        assert numbers.reach([5])
        assert Lsn(numbers.last) == first
        wait_until(lambda: marks.step() == [5], what="the second round has ended")
        assert asked == [True, False]
        assert numbers.reach([5])
        assert Lsn(numbers.last) == second
    finally:
        gate.set()
        rounds.close()


def test_without_a_reader_there_is_no_mark(tmp_path: Path) -> None:
    assert request_mark(tmp_path, flushed=True) is None
    assert request_mark(tmp_path / "missing", flushed=True) is None
    assert request_ticket(tmp_path, TicketId("tk1")) is None
    assert request_state(tmp_path) is None
    assert request_cut(tmp_path, 1.0, list) == (False, None)
    with serving(tmp_path, Reader()):
        assert request_mark(tmp_path, flushed=True) is not None
    assert request_mark(tmp_path, flushed=True) is None


def test_a_reader_that_ends_while_it_is_asked_gives_no_mark(tmp_path: Path) -> None:
    """It gives no more numbers, so that one without it is right."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "reader.sock"))
        listening.listen()

        def end_at_once() -> None:
            connection, _ = listening.accept()
            connection.recv(100)
            connection.close()

        threading.Thread(target=end_at_once, daemon=True).start()
        assert request_mark(tmp_path, flushed=True) is None


def test_a_reader_that_does_not_answer_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.sources.postgres_logs.reader_socket._ANSWER_S", 0.05)
    waiting = ReaderSocket(tmp_path)
    try:
        with pytest.raises(EngineFault) as caught:
            request_mark(tmp_path, flushed=True)
        assert caught.value.kind is FaultKind.SOURCE_TIMEOUT
    finally:
        waiting.close()


def test_a_folder_with_a_long_path_has_a_socket_too(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    with serving(folder, Reader()):
        assert request_mark(folder, flushed=False) is not None
        assert (folder / "reader.sock").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("state", "position"), [(CutState.COMPLETE, Lsn(4711)), (CutState.TORN, None)], ids=["complete", "torn"]
)
def test_a_cut_has_the_position_of_the_snapshots_that_are_taken_once_it_has_begun(
    tmp_path: Path, state: CutState, position: Lsn | None
) -> None:
    with serving(tmp_path, reader := Reader(cut=state)):
        begun: list[int] = []

        def snapshots() -> list[tuple[str, Lsn]]:
            begun.append(reader.begun)
            return [("10:20:11,12", Lsn(7)), ("5:5:", Lsn(9))]

        assert request_cut(tmp_path, 10.0, snapshots) == (True, position)
        assert begun == [1]
        assert reader.snapshots == [[NodeSnapshot(10, 20, (11, 12), 7), NodeSnapshot(5, 5, (), 9)]]
        assert reader.cut_state is None
        assert request_cut(tmp_path, 10.0, snapshots) == (True, position)
        assert begun == [1, 2]


def test_a_cut_whose_snapshots_cannot_be_taken_holds_nothing_back(tmp_path: Path) -> None:
    with serving(tmp_path, reader := Reader()):

        def fails() -> list[tuple[str, Lsn]]:
            raise EngineFault(FaultKind.SOURCE_UNREACHABLE, "n1", "gone")

        with pytest.raises(EngineFault):
            request_cut(tmp_path, 10.0, fails)
        wait_until(lambda: reader.begun == 1 and reader.cut_state is None, what="the cut has ended")
        assert request_cut(tmp_path, 10.0, lambda: [("5:5:", Lsn(9))]) == (True, Lsn(4711))


def test_the_state_of_the_stream_is_answered(tmp_path: Path) -> None:
    with serving(tmp_path, Reader()):
        assert request_state(tmp_path) == StreamState({"n1": 5}, frozenset({"n2"}), 17, 0.0, AWAY, {"n2": 7})


@pytest.mark.parametrize(("unread_s", "counts"), [(1.0, True), (60.0, False)])
def test_a_node_is_not_silent_while_nothing_is_read(unread_s: float, *, counts: bool) -> None:
    at_s, since_us = time.monotonic() - unread_s, time.time_ns() // 1000 - 70_000_000
    state = StreamState({"n1": 5, "n2": 5}, frozenset({"n2"}), 17, at_s, {}, {"n2": since_us})
    silent_s = time.time_ns() / 1e9 - state.silent_now()["n2"] / 1e6
    assert silent_s == pytest.approx(70.0 if counts else 10.0, abs=1.0)
    following = state.next({"n1": 6, "n2": 5}, frozenset({"n2"}), 17, {})
    assert following.silent_since_us["n2"] == pytest.approx(since_us + (0 if counts else 60_000_000), abs=1_000_000)


def test_a_folder_keeps_what_was_written(tmp_path: Path) -> None:
    folder = ReaderFolder(tmp_path / "reader")
    assert (folder.beginning, folder.ceiling, folder.structures, folder.sent) == (None, 0, {}, {})
    beginning = Beginning(Lsn(9), {"n2": Lsn(5), "n1": Lsn(7)})
    folder.set_beginning(beginning)
    folder.raise_ceiling(1 << 62)
    folder.set_structures({4: Structure(b"R\x00", {1, 0})})
    found = folder.beginning
    assert found == beginning
    assert found is not None
    assert list(found.nodes) == ["n2", "n1"]
    assert folder.structures == {4: Structure(b"R\x00", {0, 1})}
    assert folder.number_without_reader() > Lsn(1 << 62)
    (folder.path / "beginning.json").write_text("{")
    assert folder.beginning is None
    folder.remove()
    assert not folder.path.exists()


@pytest.mark.parametrize("clock_moves", [-1000, 0, 1000])
def test_a_number_that_is_taken_without_a_reader_is_not_reached_before_the_next_one_has_read_its_logs(
    tmp_path: Path, clock_moves: int
) -> None:
    folder = ReaderFolder(tmp_path)
    earlier = MergedNumbers(0, clock=lambda: 50, ceiling=folder.ceiling, reserve=folder.raise_ceiling)
    given = earlier.mark([1])
    without = folder.number_without_reader()
    assert without.value > given
    later = MergedNumbers(
        earlier.last, clock=lambda: without.value + clock_moves, ceiling=folder.ceiling, reserve=folder.raise_ceiling
    )
    first = later.mark([5])
    assert later.take(1000) + 999 < min(without.value, first)
    assert not later.reach([4])
    assert later.last < without.value
    assert later.reach([5])
    assert (later.last >= without.value) is (clock_moves >= 0)
