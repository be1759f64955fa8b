"""What a stream makes of the bytes of its session, where the way they come in matters."""

from __future__ import annotations

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.position import Lsn
from engine.sources.postgres_log import stream as stream_module
from engine.sources.postgres_log.stream import PostgresLogStream
from tests.unit.postgres_log.replication_wire import framed, keepalive

START = 1000
AGREED = framed(b"W", b"\0\0\0")
BROKEN = framed(b"E", b"VERROR\0CXX000\0Mpg_attribute catalog is missing 1 attribute(s)\0\0")


class Session:
    """A transport that hands out each of `sent` at one look, and then nothing any more."""

    def __init__(self, *sent: bytes) -> None:
        self._left = list(sent)
        self.heard: list[bytes] = []

    def start(self, command: str) -> None:
        raise AssertionError(command)

    def fileno(self) -> int:
        raise AssertionError("no descriptor")

    def wait(self, timeout_s: float, wake: int | None = None) -> bool:
        return bool(self._left)

    def receive(self, into: memoryview) -> int:
        piece = self._left.pop(0) if self._left else b""
        into[: len(piece)] = piece
        return len(piece)

    def send(self, body: bytes) -> None:
        self.heard.append(body)

    def close(self) -> None:
        pass


def begun(*sent: bytes) -> tuple[PostgresLogStream, Session]:
    session = Session(*sent)
    found = PostgresLogStream(session, "slot", Lsn(START), None)
    found.await_start()
    return found, session


@pytest.mark.parametrize("sent", [(AGREED + BROKEN,), (AGREED, BROKEN)], ids=["at_once", "apart"])
def test_an_error_right_behind_the_agreement_ends_the_stream(sent: tuple[bytes, ...]) -> None:
    found, _ = begun(*sent)
    with pytest.raises(EngineFault) as refused:
        found.read(0.0)
    assert refused.value.kind is FaultKind.LOG_NOT_DECODED
    assert "XX000" in refused.value.detail


def test_a_source_that_says_nothing_is_asked_and_given_up_where_it_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_module, "_SILENCE_S", 0.0)
    found, session = begun(AGREED)
    assert found.read(0.0) is None
    assert session.heard[-1][-1:] == b"\x01"
    session._left.append(keepalive(START + 5))
    chunk = found.read(0.0)
    assert chunk is not None
    assert chunk.wal_end == Lsn(START + 5)
    assert found.read(0.0) is None
    with pytest.raises(EngineFault, match="nothing came from the source"):
        found.read(0.0)
