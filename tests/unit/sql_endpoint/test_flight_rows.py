"""Rows of an answer as the endpoint reads them: from a pipe or in frames, and never taken for complete when they are cut."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from engine.link.answer_frames import AnswerEnd, end_frame, rows_frame
from engine.link.message import Problem
from engine.model.target import QueryLimits
from engine.queries.rows import grown
from engine.sql_endpoint.answers import Answer
from engine.sql_endpoint.deliveries import Delivery
from engine.sql_endpoint.flight.kept import KeptRows, Prepared, PreparedStatements, Running
from engine.sql_endpoint.flight.rows import Rows
from engine.sql_endpoint.launcher import send_frames

BATCHES = [pa.record_batch({"id": [1, 2], "word": ["a", None]}), pa.record_batch({"id": [3], "word": ["b"]})]
END = end_frame(AnswerEnd())


def stays() -> bool:
    return False


def leaves() -> bool:
    return True


def stream(batches: Sequence[Any] = BATCHES) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def answer(frames: bytes, piped: bytes | None) -> Answer:
    """An answer whose sender has sent this and is gone."""
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(frames)
    pipe = None
    if piped is not None:
        pipe, write = os.pipe()
        os.write(write, piped)
        os.close(write)
    return Answer("0/1", None, "target", None, Delivery(ours, pipe))


def read(frames: bytes, piped: bytes | None = None) -> list[dict[str, Any]]:
    rows = Rows(answer(frames, piped), stays)
    try:
        return [row for batch in rows.batches(stays) for row in batch.to_pylist()]
    finally:
        rows.close()


WHOLE = [row for batch in BATCHES for row in batch.to_pylist()]


def test_rows_from_a_pipe_and_in_frames() -> None:
    assert read(END, stream()) == WHOLE
    schema = BATCHES[0].schema
    assert read(rows_frame(schema) + rows_frame(schema, BATCHES[:1]) + rows_frame(schema, BATCHES[1:]) + END) == WHOLE


def test_columns_with_a_dictionary_come_as_tables() -> None:
    batch = pa.record_batch({"mood": pa.array(["sad", None]).dictionary_encode()})
    rows = Rows(answer(END, stream([batch])), stays)
    (table,) = rows.batches(stays)
    rows.close()
    assert isinstance(table, pa.Table)
    assert table.schema == rows.schema == batch.schema


@pytest.mark.parametrize("cut", [0, 5, 100, len(stream([BATCHES[0]])) - 8, len(stream()) - 9, len(stream())])
def test_rows_without_the_engines_last_frame_are_not_complete(cut: int) -> None:
    """A pipe that is cut between two batches looks like a complete one."""
    with pytest.raises(flight.FlightUnavailableError, match="broke the answer off"):
        read(b"", stream()[:cut])


@pytest.mark.parametrize("cut", [5, 100, len(stream([BATCHES[0]])) + 20])
def test_a_cut_batch_is_an_error_whatever_the_last_frame_says(cut: int) -> None:
    with pytest.raises(flight.FlightUnavailableError, match="broke the answer off"):
        read(END, stream()[:cut])


def test_frames_that_break_off_are_not_complete() -> None:
    frames = rows_frame(BATCHES[0].schema, BATCHES)
    for cut in (len(frames), len(frames) - 1, 0):
        with pytest.raises(flight.FlightUnavailableError, match="broke the answer off"):
            read(frames[:cut])
    with pytest.raises(flight.FlightUnavailableError, match="broke the answer off"):
        read(frames + b"x" * 20)


@pytest.mark.parametrize("piped", [stream(), stream()[:-9], b""])
def test_the_engines_problem_is_the_error(piped: bytes) -> None:
    problem = Problem(
        status=504, code="query_timeout", detail="the query did not end within 1 s", remedy="Ask for less."
    )
    with pytest.raises(flight.FlightTimedOutError, match="within 1 s") as error:
        read(end_frame(AnswerEnd(problem=problem)), piped)
    assert b'"query_timeout"' in error.value.extra_info


def test_a_client_that_leaves_ends_the_wait_for_rows() -> None:
    ours, theirs = socket.socketpair()
    read_end, write_end = os.pipe()
    os.write(write_end, stream()[:-60])
    rows = Rows(Answer("0/1", None, "target", None, Delivery(ours, read_end)), stays)
    with pytest.raises(flight.FlightCancelledError):
        list(rows.batches(leaves))
    rows.close()
    assert theirs.recv(1) == b""
    with pytest.raises(BrokenPipeError):
        os.write(write_end, b"x")
    os.close(write_end)
    theirs.close()


@pytest.mark.parametrize(("frames", "cancelled"), [([END], False), ([rows_frame(BATCHES[0].schema)], True)])
def test_the_engine_cancels_only_a_query_that_has_not_ended(frames: list[bytes], cancelled: bool) -> None:
    """A process whose query has ended is kept for the next one."""
    ours, theirs = socket.socketpair()
    limits = QueryLimits(1.0)
    stopped: list[bool] = []
    with theirs, limits.cancellation.stopping_by(lambda: stopped.append(True)):
        send_frames(ours, iter(frames), limits)
    assert bool(stopped) == cancelled


class Later:
    """Calls that are due when `pass_time` is called."""

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []

    def __call__(self, seconds: float, call: Callable[[], None]) -> None:
        assert seconds == 60
        self._calls.append(call)

    def pass_time(self) -> None:
        while self._calls:
            self._calls.pop()()


@pytest.fixture
def running() -> Running:
    made = answer(END, stream())
    return Running(made, Rows(made, stays))


def is_closed(running: Running) -> bool:
    return bool(running.answer.rows.socket.fileno() == -1)


def test_kept_rows_are_taken_once_and_by_their_owner(running: Running) -> None:
    later = Later()
    kept = KeptRows(1, later)
    handle = kept.keep("owner", running)
    assert kept.take("other", handle) is None
    assert kept.take("owner", b"other") is None
    assert kept.take("owner", handle) is running
    assert kept.take("owner", handle) is None
    later.pass_time()
    assert not is_closed(running)
    running.rows.close()


def test_kept_rows_are_dropped_after_a_minute(running: Running) -> None:
    later = Later()
    kept = KeptRows(1, later)
    handle = kept.keep("owner", running)
    later.pass_time()
    assert kept.take("owner", handle) is None
    assert is_closed(running)


def test_one_more_than_the_most_kept_rows_is_refused(running: Running) -> None:
    made = answer(END, stream())
    kept = KeptRows(1, Later())
    handle = kept.keep("owner", Running(made, Rows(made, stays)))
    with pytest.raises(flight.FlightUnavailableError, match="1 statements"):
        kept.keep("owner", running)
    assert is_closed(running)
    found = kept.take("owner", handle)
    assert found is not None
    found.rows.close()


def test_kept_rows_are_taken_once_by_many_threads(running: Running) -> None:
    kept = KeptRows(1, Later())
    handle = kept.keep("owner", running)
    found: list[Running | None] = []
    threads = [threading.Thread(target=lambda: found.append(kept.take("owner", handle))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one for one in found if one is not None] == [running]
    running.rows.close()


def test_prepared_statements_belong_to_their_token() -> None:
    known = PreparedStatements(most=2)
    handles = [known.add("owner", Prepared(f"SELECT {i}", pa.schema([]), 0)) for i in range(2)]
    with pytest.raises(flight.FlightServerError, match="not_found"):
        known.find("other", handles[0])
    known.remove("other", handles[0])
    assert known.find("owner", handles[0]).sql == "SELECT 0"
    known.add("owner", Prepared("SELECT 2", pa.schema([]), 0))
    with pytest.raises(flight.FlightServerError, match="not_found"):
        known.find("owner", handles[1])
    known.remove("owner", handles[0])
    with pytest.raises(flight.FlightServerError, match="not_found"):
        known.find("owner", handles[0])


def test_batches_grow_and_hold_no_more_rows_back_than_were_returned() -> None:
    pulled = 0

    def batches() -> Any:
        nonlocal pulled
        for i in range(100):
            pulled += 10
            yield pa.record_batch({"id": range(i * 10, i * 10 + 10)})

    returned, ids, sizes = 0, [], []
    for batch in grown(batches()):
        assert pulled - returned - batch.num_rows <= max(returned, 10)
        returned += batch.num_rows
        sizes.append(batch.num_rows)
        ids += batch.column(0).to_pylist()
    assert ids == list(range(1000))
    assert sizes == [10, 10, 20, 40, 80, 160, 320, 360]
