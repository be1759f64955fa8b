"""Runs a reader's statement on the source: in a query process, in one read-only transaction, over tables of the subscription only.

The session is the subscription's own, which may do more than read these tables. So the statement is one that was printed from a checked
syntax tree, and the relations that its preparation has accessed are checked once more before it runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from engine.model.identity import TableName
from engine.model.position import Lsn
from engine.model.schema import Column, TableSchema
from engine.model.subscription import ConnectionSpec
from engine.model.target import BoundStatement, QueryAnswer, QueryLimits, QueryRefused
from engine.model.values import Kind, value_type
from engine.net.copy_text import decode_copy_text
from engine.postgres.query_answers import PostgresStatement
from engine.postgres.query_process import main as query_process
from engine.postgres.sessions import Sessions
from engine.queries.pool import QueryPool
from engine.sources.postgres.connect import SOURCE

_SETTINGS = {
    "row_security": "off",
    "default_transaction_read_only": "on",
    "standard_conforming_strings": "on",
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
    # The session ends soon after its process was killed, even while it computes.
    "client_connection_check_interval": "1000",
}
_OF_THE_CHECK = frozenset(TableName("pg_catalog", name) for name in ("pg_class", "pg_locks", "pg_namespace", "pg_type"))
"""Relations that the query process itself reads in the transaction."""


@contextmanager
def run_query(
    spec: ConnectionSpec,
    statement: BoundStatement,
    relations: Collection[TableName],
    position: Lsn,
    limits: QueryLimits,
    memory: int,
) -> Iterator[QueryAnswer]:
    """Run the statement, which may read only `relations`; the answer has `position`, which was read before. `memory`: bytes of the process.

    Raises:
        QueryRefused: `query_not_a_read`, `query_invalid`, `query_timeout`, `query_too_large`, `query_unavailable`.
    """
    settings = {**_SETTINGS, "idle_in_transaction_session_timeout": str(int(limits.timeout_s * 1000) + 60_000)}
    conninfo = Sessions(spec, SOURCE, settings).conninfo(
        "penstock query", replication=False, statement_timeout_ms=max(1, int(limits.timeout_s * 1000))
    )
    pool = QueryPool(lambda _: (query_process, (memory,)))
    try:
        with pool.process(limits) as process:
            running = _OnSource(process, limits, decode_copy_text)
            named = running.prepare(statement, conninfo)
            strange = {TableName(*name) for name in named["relations"]} - set(relations) - _OF_THE_CHECK
            if strange:
                raise QueryRefused("query_not_a_read", f"the statement reads {', '.join(map(str, sorted(strange)))}")
            yield from running.rows(named, position)
    finally:
        pool.close()


class _OnSource(PostgresStatement):
    """Names the source where the process speaks of a role or a privilege."""

    def refusal(self, code: str, detail: str) -> QueryRefused:
        if code == "query_role_unusable":
            return QueryRefused("query_unavailable", f"the source cannot be reached: {detail}", _REACH)
        if code == "query_denied":
            return QueryRefused(
                "query_invalid", detail, "GRANT SELECT on the table to the user of the source's connection."
            )
        return QueryRefused(code, detail)


_REACH = "See that the source is up and its connection's settings are right, then ask again."


def rows_of(schema: TableSchema, source_types: bool) -> str:
    """A SELECT of the table's rows with the columns of the target. `source_types`: the target has the source's types.

    Otherwise text compares by code points, as in files, and what the target holds as text is text.
    """
    columns = ", ".join(_held(column, source_types=source_types) for column in schema.whole.columns)
    condition = "" if schema.row_filter is None else f" WHERE ({schema.row_filter.text})"
    return f"SELECT {columns} FROM {_quoted(schema.name.schema)}.{_quoted(schema.name.name)}{condition}"


def _held(column: Column, *, source_types: bool) -> str:
    name, shown = _quoted(column.on_source), _quoted(column.name)
    if source_types:
        return f"{name}{'::text' if column.map_as == 'text' else ''} AS {shown}"
    if value_type(column).kind is not Kind.TEXT:
        return f"{name} AS {shown}"
    # A cast to text would remove the spaces at the end of a character(n).
    text = f"CASE WHEN {name} IS NOT NULL THEN concat({name}) END" if column.type.name == "bpchar" else f"{name}::text"
    return f'({text}) COLLATE "C" AS {shown}'


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
