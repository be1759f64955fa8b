"""The process that runs readers' statements on PostgreSQL: one at a time, each in a separate session, on a target as the reader's role.

Rows are forwarded line by line, so neither this process nor the engine holds an answer. Its memory is limited, which a very large row
exceeds here, and the engine kills it at the statement's time limit. It ends with the engine.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psycopg
from psycopg import pq
from psycopg.abc import Buffer
from psycopg.adapt import Loader

from engine.model.target import BATCH_BYTES, MOST_ROW_BYTES, QueryRefused
from engine.platform.pipe_file import PipeSink
from engine.postgres.query_guard import refusal
from engine.postgres.sessions import PostgresConnection
from engine.queries.channel import MAX_SQL_CHARACTERS, EngineChannel, match_parameters, serve

PIECE = struct.Struct(">I")
"""Before each piece of lines on the pipe: its length."""
Rows = Generator[bytes | bytearray | memoryview]
"""Lines of COPY's text form, one for each row."""
DENIED = "query_denied"
"""The reader's role may not do it. To users this is `query_invalid`."""
_CODES = {
    "25006": ("query_not_a_read", "the statement would write; only reads are allowed"),
    "57014": ("query_timeout", "the query did not end in time"),
    "55P03": ("query_unavailable", "a table of the statement is being replaced; retry"),
}
_TYPES = """
SELECT t.oid, b.typname, b.typtype, e.typname, e.typtype, coalesce(e.typdelim, ',')
FROM pg_type t JOIN pg_type b ON b.oid = CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END
LEFT JOIN pg_type e ON e.oid = b.typelem AND e.typarray = b.oid
WHERE t.oid = ANY (%s)
"""
_TYPE_NAMES = """
SELECT format_type(c.oid, c.modifier) FROM unnest(%s::oid[], %s::int[]) WITH ORDINALITY c (oid, modifier, place) ORDER BY c.place
"""
_TOUCHED = """
SELECT DISTINCT n.nspname, c.relname FROM pg_locks l LEFT JOIN pg_class c ON c.oid = l.relation
LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND (c.oid IS NULL OR c.relkind IN ('r', 'p', 'v'))
"""
"""The relations that the transaction has accessed, including those that its prepared statement reads through views. A row of NULLs is for
those that its snapshot does not have, because they were created later."""

_ESCAPES = {b"\\": b"\\\\", b"\t": b"\\t", b"\n": b"\\n", b"\r": b"\\r"}
"""What COPY writes for bytes that its text form uses itself."""
_ESCAPED = re.compile(rb"[\\\t\n\r]")


def main(control: Connection, memory: int) -> None:
    """Run statements until the engine is gone, or kills this process. `memory`: bytes beyond what it has at its start."""
    serve(control, memory, lambda: nullcontext(_ended))


def _ended(engine: EngineChannel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a statement; returns how it ended."""
    refused: list[str] | None = None
    try:
        _run(engine, request)
    except QueryRefused as error:
        refused = [error.code, error.detail]
    except psycopg.Error as error:
        refused = _refused(error)
    except MemoryError:
        refused = ["query_too_large", "the query needs more memory than a query may use"]
    except BrokenPipeError:
        refused = ["query_unavailable", "the rows are not being fetched any more"]
    return {"kind": "end", "refused": refused}


def _run(engine: EngineChannel, request: Mapping[str, Any]) -> None:
    sql, parameters = request["sql"], request["parameters"]
    if len(sql) > MAX_SQL_CHARACTERS:
        raise QueryRefused("query_too_large", f"the statement is longer than {MAX_SQL_CHARACTERS} characters")
    if any("\0" in text for text in (sql, *filter(None, parameters))):
        raise QueryRefused("query_invalid", "the statement or a parameter holds a NUL character")
    with _session(request["conninfo"]) as connection:
        reason = refusal(connection, sql)
        if reason is not None:
            raise QueryRefused("query_not_a_read", reason)
        connection.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if request["snapshot"] is not None:
            connection.execute(f"SET TRANSACTION SNAPSHOT '{request['snapshot']}'".encode())
        columns = _described(connection, sql, len(parameters))
        touched = connection.execute(_TOUCHED).fetchall()
        seen = [name for name in touched if name[1] is not None]
        if not engine.asked({"kind": "named", **columns, "relations": seen, "newer": len(seen) < len(touched)})["go"]:
            return
        oids = [row[0] for row in columns["types"]]
        rows = _printed_rows(connection, sql, parameters, oids) if parameters else _copied_rows(connection, sql)
        _answer(engine, _lines(rows, request["max_rows"]))


def _session(conninfo: str) -> PostgresConnection:
    try:
        return psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)
    except psycopg.OperationalError as error:
        lines = str(error).strip().splitlines()
        raise QueryRefused("query_role_unusable", lines[0] if lines else "no connection") from None


def _described(connection: PostgresConnection, sql: str, parameters: int) -> dict[str, Any]:
    """Names and types of the answer's columns. Preparing also refuses more than one statement, and what COPY does not accept."""
    conn = connection.pgconn
    _succeeded(conn.prepare(b"", sql.encode()))
    result = _succeeded(conn.describe_prepared(b""))
    if result.nfields == 0:
        raise QueryRefused("query_not_a_read", "the statement returns no columns; exactly one read is allowed")
    names = [(result.fname(i) or b"").decode() for i in range(result.nfields)]
    oids = [result.ftype(i) for i in range(result.nfields)]
    match_parameters(result.nparams, parameters)
    _succeeded(conn.prepare(b"", _copy(sql)))
    modifiers = [result.fmod(i) for i in range(result.nfields)]
    types = {row[0]: row for row in connection.execute(_TYPES, [oids]).fetchall()}
    type_names = [row[0] for row in connection.execute(_TYPE_NAMES, [oids, modifiers]).fetchall()]
    described = [[*types[oid], modifier] for oid, modifier in zip(oids, modifiers, strict=True)]
    return {"names": names, "types": described, "type_names": type_names}


def _succeeded(result: pq.abc.PGresult) -> pq.abc.PGresult:
    if result.status != pq.ExecStatus.COMMAND_OK:
        raise psycopg.errors.lookup(_field(result, pq.DiagnosticField.SQLSTATE) or "XX000")(
            _field(result, pq.DiagnosticField.MESSAGE_PRIMARY)
        )
    return result


def _copy(sql: str) -> bytes:
    """The statement as COPY's. The line feed ends a comment at its end."""
    body = sql.rstrip().rstrip(";")
    return f"COPY ({body}\n) TO STDOUT".encode()


def _copied_rows(connection: PostgresConnection, sql: str) -> Rows:
    """The rows of a statement without parameters, as COPY's lines. `sql` is a single statement, as verified by `_described`."""
    with connection.cursor() as cursor, cursor.copy(_copy(sql)) as copy:
        yield from copy


def _printed_rows(
    connection: PostgresConnection, sql: str, parameters: Sequence[str | None], oids: Sequence[int]
) -> Rows:
    """The rows of a statement with parameters, as COPY would print them. `oids`: types of the columns."""
    with psycopg.RawCursor(connection) as cursor:
        for oid in {*oids}:
            cursor.adapters.register_loader(oid, _PrintedLoader)
        # The driver sends strings without a type, so that PostgreSQL infers it as for an untyped literal.
        for row in cursor.stream(sql.encode(), parameters):
            yield b"\t".join(b"\\N" if value is None else value for value in row) + b"\n"


class _PrintedLoader(Loader):
    """Reads a printed value as a field of COPY's text form."""

    def load(self, data: Buffer) -> bytes:
        return _ESCAPED.sub(lambda found: _ESCAPES[found[0]], bytes(data))


def _lines(lines: Rows, max_rows: int | None) -> Iterator[bytes]:
    """Lines of the answer, at most one more than `max_rows`, in pieces."""
    if max_rows == 0:  # only the columns are requested
        yield b""
        return
    kept, rows = bytearray(), 0
    with closing(lines):
        for line in lines:
            if len(line) > MOST_ROW_BYTES:
                raise QueryRefused("query_too_large", f"a row of the answer is larger than {MOST_ROW_BYTES} bytes")
            kept += line
            rows += 1
            if len(kept) >= BATCH_BYTES:
                yield bytes(kept)
                kept.clear()
            if max_rows is not None and rows > max_rows:
                break
        yield bytes(kept)


def _answer(engine: EngineChannel, pieces: Iterator[bytes]) -> None:
    """Send the rows. Nothing is sent before the first rows are available, so that most errors replace the answer."""
    piece = next(pieces)
    ours, theirs = os.pipe()
    engine.send({"kind": "answer"}, ours)
    with PipeSink(theirs) as sink:
        while True:
            sink.write(PIECE.pack(len(piece)) + piece)
            try:
                piece = next(pieces)
            except StopIteration:
                return


def _refused(error: psycopg.Error) -> list[str]:
    state = error.sqlstate
    if state in _CODES:
        return list(_CODES[state])
    if state == "42501":
        return [DENIED, error.diag.message_primary or str(error)]
    if state == "53200":
        return ["query_too_large", "the query needs more memory than a query may use"]
    if state is None:
        # The driver also closes a connection if it has no memory for a row, which only its message says.
        detail = "the connection to the database was lost, or a row is too large for a query"
        return ["query_too_large" if _short_of_memory() else "query_unavailable", detail]
    if state[:2] in {"08", "57"}:
        return ["query_unavailable", "the connection to the database was lost; retry"]
    return ["query_invalid", error.diag.message_primary or str(error)]


def _short_of_memory() -> bool:
    """Whether this process has used much more memory than now: the driver's buffer for a row grows by doubling."""
    lines = Path("/proc/self/status").read_text().splitlines()
    peak, now = (int(line.split()[1]) * 1024 for line in lines if line.startswith(("VmPeak:", "VmSize:")))
    return peak - now > MOST_ROW_BYTES


def _field(result: pq.abc.PGresult, field: pq.DiagnosticField) -> str:
    return (result.error_field(field) or b"").decode(errors="replace")
