"""A user's query: exactly one read, on a batch boundary of its own, bounded in time, rows and bytes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import pq

from engine.apply.postgres.records import PostgresRecords
from engine.apply.query_rows import limited
from engine.model.identity import RelationId, SubscriptionName, TableName
from engine.model.position import Lsn
from engine.model.schema import Column, KeyMode, ReplicaIdentity, SourceType, TableSchema
from engine.model.target import JudgeReads, QueryAnswer, QueryLimits, QueryRefused
from engine.postgres.sessions import PostgresConnection

DecodeText = Callable[[bytes, TableSchema], Any]
"""Lines of COPY's text form as a pyarrow.RecordBatch with columns c0 … cn."""

MAX_SQL_CHARACTERS = 100_000
ANSWER_BYTES = 256 * 1024 * 1024
SEARCH_PATH = "public, pg_catalog"
_READ_ONLY = "25006"
_CANCELLED = "57014"
_TYPES = """
SELECT t.oid, b.typname, b.typtype, e.typname, e.typtype, coalesce(e.typdelim, ',')
FROM pg_type t JOIN pg_type b ON b.oid = CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END
LEFT JOIN pg_type e ON e.oid = b.typelem AND e.typarray = b.oid
WHERE t.oid = ANY (%s)
"""


def run_query(
    connection: PostgresConnection,
    decode: DecodeText,
    sql: str,
    limits: QueryLimits,
    subscription: SubscriptionName,
    snapshot: Callable[[PostgresConnection, SubscriptionName], Lsn],
    judge: JudgeReads,
) -> QueryAnswer:
    """Run `sql` in a transaction of its own, which `snapshot` begins and is rolled back, and say at which position it saw the target.

    Raises:
        QueryRefused: `query_not_a_read`, `query_invalid`, `query_timeout`, `query_too_large`, `query_unavailable`.
    """
    if len(sql) > MAX_SQL_CHARACTERS:
        raise QueryRefused("query_too_large", f"the statement is longer than {MAX_SQL_CHARACTERS} characters")
    if "\0" in sql:
        raise QueryRefused("query_invalid", "the statement holds a NUL character")
    try:
        position = snapshot(connection, subscription)
        connection.execute("SET TRANSACTION READ ONLY")
        connection.execute(f"SET LOCAL search_path = {SEARCH_PATH}")
        connection.execute(f"SET LOCAL statement_timeout = {max(1, int(limits.timeout_s * 1000))}")
        names, schema = _describe(connection, sql)
        judge(PostgresRecords(connection).reads(_touched(connection)))
        lines = _lines(connection, sql, limits.max_rows)
        rows = pa.Table.from_batches([decode(lines, schema)]).rename_columns(names)
        return limited(rows.schema, position, rows.to_batches(), limits)
    except psycopg.Error as error:
        raise _refused(error, limits.timeout_s) from error
    finally:
        with suppress(psycopg.Error):
            connection.execute("ROLLBACK")


def _touched(connection: PostgresConnection) -> list[TableName]:
    """The relations that the transaction has looked at: also those that the prepared statement reads, through views too."""
    sql = (
        "SELECT DISTINCT n.nspname, c.relname FROM pg_locks l JOIN pg_class c ON c.oid = l.relation"
        " JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND c.relkind IN ('r', 'p', 'v')"
    )
    return [TableName(*row) for row in connection.execute(sql).fetchall()]


def _describe(connection: PostgresConnection, sql: str) -> tuple[list[str], TableSchema]:
    """Names and types of the answer's columns. Preparing also refuses more than one statement."""
    conn = connection.pgconn
    for result in (conn.prepare(b"", sql.encode()), conn.describe_prepared(b"")):
        if result.status != pq.ExecStatus.COMMAND_OK:
            raise psycopg.errors.lookup(_state(result))(_message(result))
    if result.nfields == 0:
        raise QueryRefused("query_not_a_read", "the statement returns no columns; exactly one read is allowed")
    names = [(result.fname(i) or b"").decode() for i in range(result.nfields)]
    oids = [result.ftype(i) for i in range(result.nfields)]
    types = {row[0]: row for row in connection.execute(_TYPES, [oids]).fetchall()}
    columns = tuple(Column(f"c{i}", _type(types[oid], result.fmod(i)), i + 1) for i, oid in enumerate(oids))
    schema = TableSchema(TableName("", "query"), RelationId(0), columns, (), KeyMode.APPEND, ReplicaIdentity.NOTHING)
    return names, schema


def _type(row: tuple[Any, ...], modifier: int) -> SourceType:
    oid, name, category, element, element_category, delimiter = row
    if element is None:
        return SourceType(name, modifier, category, oid=oid)
    inner = SourceType(element, modifier, element_category, delimiter=delimiter)
    return SourceType(name, modifier, category, inner, oid)


def _lines(connection: PostgresConnection, sql: str, max_rows: int | None) -> bytes:
    """Lines of the answer, at most one more than `max_rows`. `sql` is one statement, as `_describe` has seen."""
    body = sql.rstrip().rstrip(";")
    kept = bytearray()
    # The line feed ends a comment that the statement may end with.
    with connection.cursor() as cursor, cursor.copy(f"COPY ({body}\n) TO STDOUT".encode()) as copy:
        for rows, line in enumerate(copy, 1):
            kept += line
            if len(kept) > ANSWER_BYTES:
                raise QueryRefused("query_too_large", f"the answer is larger than {ANSWER_BYTES} bytes; ask for less")
            if max_rows is not None and rows > max_rows:
                break
    return bytes(kept)


def _refused(error: psycopg.Error, timeout_s: float) -> QueryRefused:
    state = error.sqlstate
    if state == _READ_ONLY:
        return QueryRefused("query_not_a_read", "the statement would write; only reads are allowed")
    if state == _CANCELLED:
        return QueryRefused("query_timeout", f"the query did not end within {timeout_s:g} s")
    if state is None or state[:2] in {"08", "57"}:
        return QueryRefused("query_unavailable", "the connection to the target was lost; ask again")
    return QueryRefused("query_invalid", error.diag.message_primary or str(error))


def _state(result: pq.abc.PGresult) -> str:
    return (result.error_field(pq.DiagnosticField.SQLSTATE) or b"XX000").decode()


def _message(result: pq.abc.PGresult) -> str:
    return (result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"").decode(errors="replace")
