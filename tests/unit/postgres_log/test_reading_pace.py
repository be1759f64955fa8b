"""How often the log is read: at once after a pause, and less often while changes follow each other."""

from __future__ import annotations

import struct

import pytest

from engine.model.position import Lsn
from engine.sources.postgres_log import stream as module
from engine.sources.postgres_log.stream import PostgresLogStream


class _Clock:
    """Time that passes only in naps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.naps: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.naps.append(round(seconds, 4))
        self.now += seconds


class _Source:
    """A transport that has one small message for each read, but for those where it is asked in vain."""

    def __init__(self) -> None:
        self.position = 0
        self.in_vain = 0

    def start(self, command: str) -> None: ...

    def fileno(self) -> int:
        raise AssertionError("no descriptor")

    def wait(self, timeout_s: float, wake: int | None = None) -> bool:
        return timeout_s > 0 and wake is None

    def receive(self, into: memoryview) -> int:
        if self.in_vain:
            self.in_vain -= 1
            return 0
        self.position += 1
        body = b"k" + struct.pack(">QQB", self.position, 0, 0)
        message = b"d" + struct.pack(">I", len(body) + 4) + body
        into[: len(message)] = message
        return len(message)

    def send(self, body: bytes) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def _naps(stream: PostgresLogStream, clock: _Clock, reads: int) -> list[float]:
    clock.naps.clear()
    for _ in range(reads):
        assert stream.read(5.0) is not None
    return clock.naps


def test_changes_without_a_pause_are_read_less_often_and_the_first_behind_a_pause_at_once(clock: _Clock) -> None:
    source = _Source()
    stream = PostgresLogStream(source, "slot", Lsn(0), None)
    steady = module._STEADY_READS
    assert _naps(stream, clock, steady + 3) == [0.005] * steady + [0.015] * 2
    source.in_vain = 1
    assert _naps(stream, clock, 1) == [0.015]
    assert _naps(stream, clock, 3) == [0.001, 0.005, 0.005]
    assert _naps(stream, clock, steady) == [0.005] * (steady - 2) + [0.015] * 2
