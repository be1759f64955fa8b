"""COPY output of a query, in pieces of whole lines."""

from __future__ import annotations

import select
from collections.abc import Iterator, Mapping

from psycopg import pq

from engine.model.fault import EngineFault, FaultKind
from engine.postgres.sessions import PostgresConnection, describe_state
from engine.sources.postgres.connect import SOURCE, Connector
from engine.sources.postgres.frames import MALFORMED, copy_lines, error_fields
from engine.sources.postgres.transport import Inbox, RawSocket

PIECE_BYTES = 256 * 1024
"""Least bytes of whole lines that are handed on at once: large enough for small fixed costs, small against the memory of a copy. Not
measured."""
_SILENCE_S = 600.0
"""Seconds without a byte after which the source counts as lost: it may search long for the first row, for example among dead ones. Not
measured."""
COPY_KINDS = {
    "22023": FaultKind.COPY_LOST,
    "42704": FaultKind.COPY_LOST,
    "55000": FaultKind.COPY_LOST,
    "42703": FaultKind.TABLE_STRUCTURE_CHANGED,
}


def copy_out(
    connector: Connector,
    connection: PostgresConnection,
    query: str,
    subject: str,
    kinds: Mapping[str, FaultKind] = COPY_KINDS,
) -> Iterator[bytes]:
    """COPY output, read from the socket itself if the session has no TLS: libpq's call per row costs more than reading the rows.

    `kinds`: fault kinds of SQLSTATEs, or of their classes, that are specific to the query."""
    if not connection.pgconn.ssl_in_use:
        yield from _raw_copy(connection, query, subject, kinds)
        return
    pgconn = connection.pgconn
    pgconn.send_query(f"COPY ({query}) TO STDOUT".encode())
    while pgconn.is_busy():
        select.select([pgconn.socket], [], [])
        pgconn.consume_input()
    result = pgconn.get_result()
    if result is not None and result.status == pq.ExecStatus.COPY_OUT:
        yield from _pieces(pgconn)
        result = pgconn.get_result()
    while pgconn.get_result() is not None:
        pass
    if result is None or result.status != pq.ExecStatus.COMMAND_OK:
        raise _refused(connector, result, subject, kinds)


def _raw_copy(
    connection: PostgresConnection, query: str, subject: str, kinds: Mapping[str, FaultKind]
) -> Iterator[bytes]:
    """COPY output read from the socket. If the caller stops early, libpq's protocol state is lost and the session is closed."""
    raw = RawSocket(connection)
    raw.size_buffer()
    pieces: list[bytes] = []
    fault: EngineFault | None = None
    finished = False
    try:
        raw.query(f"COPY ({query}) TO STDOUT")
        for kind, body in _answers(raw, subject):
            if kind == b"d":
                pieces.append(body)
                if sum(map(len, pieces)) >= PIECE_BYTES:
                    yield b"".join(pieces)
                    pieces = []
            elif kind == b"E":
                fields = error_fields(body)
                fault = _fault(fields.get("C"), fields.get("M", ""), subject, kinds)
            elif kind == b"Z":
                finished = True
                break
        if fault is not None:
            raise fault
        if pieces:
            yield b"".join(pieces)
    finally:
        raw.release()
        if not finished:
            connection.close()


def _answers(raw: RawSocket, subject: str) -> Iterator[tuple[bytes, bytes]]:
    """Type and body of each protocol message in order; consecutive CopyData messages are joined without their headers."""
    inbox = Inbox(2 * PIECE_BYTES)
    while raw.wait(_SILENCE_S):
        inbox.fill(raw)
        other = 1
        while other:
            lines, consumed, other = copy_lines(inbox.buffer, inbox.filled)
            inbox.drop(consumed)
            if lines:
                yield b"d", lines
            if other == MALFORMED:
                raise EngineFault(FaultKind.INTERNAL, subject, "the source's answer is not as expected")
            if other:
                yield inbox.take_message()
    raise EngineFault(FaultKind.SOURCE_TIMEOUT, subject, "the source sends nothing any more")


def _pieces(pgconn: pq.abc.PGconn) -> Iterator[bytes]:
    """CopyData messages joined to larger pieces. A message holds one line, so each piece consists of whole lines."""
    lines: list[bytes | memoryview] = []
    size = 0
    receive = pgconn.get_copy_data
    while True:
        count, line = receive(1)
        if count > 0:
            lines.append(line)
            size += count
            if size >= PIECE_BYTES:
                yield b"".join(lines)
                lines, size = [], 0
        elif count == 0:
            select.select([pgconn.socket], [], [])
            pgconn.consume_input()
        else:
            break
    if lines:
        yield b"".join(lines)


def _refused(
    connector: Connector, result: pq.abc.PGresult | None, subject: str, kinds: Mapping[str, FaultKind]
) -> EngineFault:
    if result is None:
        return EngineFault(FaultKind.SOURCE_UNREACHABLE, connector.name, "the connection was lost")
    state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode() or None
    message = (result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"").decode("utf-8", "replace")
    return _fault(state, message, subject, kinds)


def _fault(state: str | None, message: str, subject: str, kinds: Mapping[str, FaultKind]) -> EngineFault:
    code = state or ""
    kind = kinds.get(code) or kinds.get(code[:2]) or SOURCE.fault_kind(state)
    return EngineFault(kind, subject, describe_state(state, message))
