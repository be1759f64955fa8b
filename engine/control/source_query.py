"""Runs a reader's statement on the source of a subscription instead of its target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic

from engine.connectors import TARGETS, open_source, source_kind
from engine.control.source_statement import Rows, SourceStatement, Translation
from engine.control.supervisor import SubscriptionSupervisor
from engine.kinds import SourceKind, SourceQueries, SqlDialect
from engine.model.position import Lsn
from engine.model.source import Source
from engine.model.subscription import TableSpec
from engine.model.target import JudgeReads, QueryAnswer, QueryLimits, QueryRefused, TableRead, any_reads

UNSUPPORTED = "source_query_unsupported"
"""Refusal code: statements cannot run on this kind of source."""
_TO_THE_TARGET = "Send the query to the target alone: without 'source' in on_timeout and on_unavailable."


@contextmanager
def query_source(
    pipeline: SubscriptionSupervisor,
    sql: str,
    limits: QueryLimits,
    judge: JudgeReads = any_reads,
    parameters: Sequence[str | None] = (),
) -> Iterator[QueryAnswer]:
    """Execute exactly one read-only statement, written for the target, on the source. Does not need a run, nor an open target.

    It reads tables of the subscription only, in one transaction. The rows contain every commit that was acknowledged before the call, and
    the answer's position is at or after all of these; later commits may be contained too. `judge` is called before it is executed, with
    the tables that the statement reads.

    Raises:
        QueryRefused: also while rows are read. In addition to the codes of a target: source_query_unsupported, query_not_translatable,
            query_not_of_source.
        EngineFault: the source cannot be reached.
    """
    deadline = monotonic() + limits.timeout_s
    kind = source_kind(pipeline.spec.source)
    queries, dialect = _able(kind)
    statement, position = _prepared(pipeline, sql, queries, dialect)
    name = pipeline.spec.name
    judge([TableRead(name, spec.table, spec.target, complete=True) for spec in statement.tables])
    left = replace(limits, timeout_s=deadline - monotonic())
    if left.timeout_s <= 0:
        raise QueryRefused("query_timeout", f"the query did not end within {limits.timeout_s:g} s")
    with queries.run(
        pipeline.spec.source, (statement.sql, parameters), statement.relations, position, left, pipeline.query_memory
    ) as answer:
        yield answer


def _able(kind: SourceKind) -> tuple[SourceQueries, SqlDialect]:
    if kind.queries is None or kind.connection.dialect is None:
        detail = f"a source of kind {kind.connection.name} that is captured by {kind.name} runs no SQL statements"
        raise QueryRefused(UNSUPPORTED, detail, _TO_THE_TARGET)
    return kind.queries, kind.connection.dialect


def _prepared(
    pipeline: SubscriptionSupervisor, sql: str, queries: SourceQueries, dialect: SqlDialect
) -> tuple[SourceStatement, Lsn]:
    """The translated statement, and a position of the source that was read before the statement can begin."""
    target = TARGETS[pipeline.spec.target.kind].connection.dialect
    if target is None:
        detail = f"a target of kind {pipeline.spec.target.kind} has no SQL to translate"
        raise QueryRefused(UNSUPPORTED, detail, _TO_THE_TARGET)
    entries = {entry.table: entry for entry in pipeline.book.all()}
    # The registry has the names of tables that were renamed on the source.
    specs = [entries[spec.table].spec if spec.table in entries else spec for spec in pipeline.spec.tables]
    translation = Translation(target, dialect, specs)
    translation.tables(sql)
    source = open_source(pipeline.spec.source)
    try:

        def rows_of(spec: TableSpec) -> Rows:
            entry = entries.get(spec.table)
            kept = None if entry is None or entry.kept is None else {one.attnum for one in entry.kept.whole.columns}
            return _rows(source, spec, kept, queries, source_types=target.name == dialect.name)

        return translation.translate(sql, rows_of), source.log.now()
    finally:
        source.close()


def _rows(
    source: Source, spec: TableSpec, kept: set[int] | None, queries: SourceQueries, *, source_types: bool
) -> Rows:
    """The table's rows on the source. `kept`: the numbers of the columns that the target has; None: all."""
    schema = source.describe([spec]).get(spec.source)
    if schema is None:
        detail = f"table {spec.source} does not exist on the source, or cannot be read there as it is declared"
        raise QueryRefused("query_invalid", detail, _TO_THE_TARGET)
    columns = tuple(column for column in schema.whole.columns if kept is None or column.attnum in kept)
    if any(column.mask is not None for column in columns):
        detail = f"table {spec.source} has masked columns, whose values do not leave the source in clear"
        raise QueryRefused("query_not_of_source", detail, _TO_THE_TARGET)
    if schema.soft_delete:
        detail = f"table {spec.source} keeps deleted rows on the target, which the source does not have"
        raise QueryRefused("query_not_of_source", detail, _TO_THE_TARGET)
    if schema.skipped:
        detail = f"not all operations of table {spec.source} are followed, so that its rows on the target are others"
        raise QueryRefused("query_not_of_source", detail, _TO_THE_TARGET)
    held = replace(schema, columns=columns, computed=())
    return Rows(queries.rows_of(held, source_types), tuple(column.name for column in columns))
