"""Streams through pipes are complete although the kernel cuts writes short."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pyarrow as pa
import pytest

from engine.platform.pipe_file import PipeFile, PipeSink
from tests.fixtures.waiting import wait_until

ROWS = 400_000
ROUNDS = 40
"""So many writes are interrupted; each needs a full pipe."""


@pytest.fixture
def interrupts() -> Iterator[None]:
    """A signal that interrupts system calls, and does nothing else."""

    def nothing(_number: int, _frame: FrameType | None) -> None:
        pass

    before = signal.signal(signal.SIGUSR1, nothing)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("interrupts")
def test_interrupted_writes_lose_nothing() -> None:
    table = pa.table({"number": pa.array(range(ROWS)), "text": pa.array([f"text {n}" for n in range(ROWS)])})
    ours, theirs = os.pipe()

    def send() -> None:
        with PipeSink(theirs) as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=20_480)

    thread = threading.Thread(target=send)
    thread.start()
    received = bytearray()
    for _ in range(ROUNDS):
        wait_until(lambda: _is_full(theirs))
        assert thread.ident is not None
        signal.pthread_kill(thread.ident, signal.SIGUSR1)
        received += os.read(ours, 1 << 16)
    while piece := os.read(ours, 1 << 16):
        received += piece
    thread.join()
    os.close(ours)
    assert pa.ipc.open_stream(bytes(received)).read_all().equals(table)


def _is_full(pipe: int) -> bool:
    """So that its writer waits."""
    poll = select.poll()
    poll.register(pipe, select.POLLOUT)
    return not poll.poll(0)


def test_a_reader_gets_what_was_written() -> None:
    ours, theirs = os.pipe()
    with PipeSink(theirs) as sink:
        assert sink.write(b"abc") == 3
        assert sink.write(memoryview(b"defg")) == 4
    reader = PipeFile(ours)
    assert [bytes(reader.read(5)), bytes(reader.read(5)), bytes(reader.read(5))] == [b"abcde", b"fg", b""]
    os.close(ours)


def test_a_sink_that_is_not_read_says_so() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    with PipeSink(theirs) as sink, pytest.raises(BrokenPipeError):
        sink.write(b"x")
