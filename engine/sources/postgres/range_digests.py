"""Digests of key ranges, computed by the server: for each range, a row of some 50 bytes is sent instead of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import psycopg
from psycopg import pq, sql

from engine.model.copies import KeyBound
from engine.model.ranges import KeyInterval, NotByRanges, RangeDigest, RowForm
from engine.model.schema import Column, KeyMode, TableSchema
from engine.model.source import TableSplit
from engine.sources.postgres.connect import SOURCE, Connector
from engine.sources.postgres.copy_out import COPY_KINDS
from engine.sources.postgres.key_walk import IDENTITIES, interval_sql, ordered_columns
from engine.sources.postgres.splits import begin_read, columns_read

_OLDEST = 140_000
"""bit_xor was added in PostgreSQL 14."""
_TOO_LARGE = frozenset({"53200", "54000", "XX000"})
"""out_of_memory, program_limit_exceeded, and the server's refusal to allocate: the text of a row has to be below 1 GiB."""


def digests_of(connector: Connector, schema: TableSchema) -> PostgresRanges:
    """Raises NotByRanges if the table's rows cannot be cut into ranges, or would not be hashed as the engine hashes them."""
    if any(column.mask is not None for column in schema.columns):
        raise NotByRanges("masked columns")
    if schema.mode is not KeyMode.KEYED or schema.identity not in IDENTITIES:
        raise NotByRanges("no key")
    subject = str(schema.name)
    with connector.session(subject) as connection:
        try:
            if connection.info.server_version < _OLDEST:
                raise NotByRanges("a source older than PostgreSQL 14")
            if connection.info.parameter_status("server_encoding") != "UTF8":
                raise NotByRanges("a source whose encoding is not UTF8")
            columns = ordered_columns(connection, schema)
        except psycopg.Error as error:
            raise SOURCE.fault(error, subject, COPY_KINDS) from error
    if len(columns) < len(schema.key) or any(column.nullable for column in columns):
        raise NotByRanges("a key that does not sort by bytes or numbers, or has no index")
    return PostgresRanges(connector, schema, tuple(columns))


@dataclass(frozen=True, slots=True)
class PostgresRanges:
    """Implements RangeSource. Each call is a transaction of its own, so that no table stays locked."""

    connector: Connector
    schema: TableSchema
    columns: tuple[Column, ...]
    form: RowForm = RowForm.ROW

    def digests(self, intervals: Sequence[KeyInterval], rows: int, snapshot: str) -> list[RangeDigest]:
        subject = f"relation {self.schema.relation}"
        query = sql.SQL(" UNION ALL ").join(
            self._digests_sql(number, keys, rows) for number, keys in enumerate(intervals)
        )
        with self.connector.session(subject) as connection:
            try:
                begin_read(connection, self.split(KeyInterval(), 0), snapshot, subject)
                found = connection.execute(query + sql.SQL(" ORDER BY 1, 2")).fetchall()
                connection.execute("COMMIT")
            except psycopg.Error as error:
                if error.sqlstate in _TOO_LARGE:
                    raise NotByRanges("rows that are too large for the source to hash") from error
                raise SOURCE.fault(error, subject, COPY_KINDS) from error
            finally:
                if connection.pgconn.transaction_status != pq.TransactionStatus.IDLE:
                    connection.close()
        return [each for number, keys in enumerate(intervals) for each in _covering(keys, number, found)]

    def split(self, keys: KeyInterval, rows: int) -> TableSplit:
        schema = self.schema
        query = interval_sql(schema, self.columns, keys).as_string(None)
        names = columns_read(schema)
        return TableSplit(schema.relation, query, 0, rows, schema.relation, schema.name, names)

    def _digests_sql(self, number: int, keys: KeyInterval, rows: int) -> sql.Composed:
        """Rows (number, range, rows, digests, bytes, key of its last row as text …; NULL if the range has fewer rows)."""
        names = [sql.Identifier(column.on_source) for column in self.columns]
        held = [sql.Identifier(f"k{i}") for i in range(len(names))]
        row = sql.SQL(", ").join(sql.Identifier(column.on_source) for column in self.schema.columns)
        listed = sql.SQL(", ").join(
            [
                sql.SQL("row_number() OVER (ORDER BY {}) AS n").format(sql.SQL(", ").join(names)),
                *(sql.SQL("{} AS {}").format(name, key) for name, key in zip(names, held, strict=True)),
                sql.SQL('(ROW({}))::text COLLATE "C" AS t').format(row),
            ]
        )
        inner = interval_sql(self.schema, self.columns, keys, listed)
        last = sql.SQL(", ").join(
            sql.SQL("(array_agg({}::text) FILTER (WHERE n % {} = 0))[1]").format(key, rows) for key in held
        )
        # OFFSET 0: otherwise the planner would merge the queries, and the text would be made once for each hash.
        return sql.SQL(
            "(SELECT {number}, (n - 1) / {rows} AS part, count(*), bit_xor(hashtextextended(t, 0)),"
            " bit_xor(hashtextextended(t, 1)), sum(octet_length(t)), {last} FROM ({inner} OFFSET 0) AS r GROUP BY part)"
        ).format(number=number, rows=rows, last=last, inner=inner)


def _covering(keys: KeyInterval, number: int, found: Sequence[tuple[Any, ...]]) -> list[RangeDigest]:
    """The ranges of one interval, which its query found; the last one ends where the interval does."""
    ranges: list[RangeDigest] = []
    after = keys.after
    for _, _, rows, low, high, size, *last in (row for row in found if row[0] == number):
        upto = None if last[0] is None else KeyBound(tuple(last))
        ranges.append(RangeDigest(KeyInterval(after, upto), int(rows), int(low), int(high), int(size)))
        after = upto
    if not ranges:
        return [RangeDigest(keys, 0, 0, 0, 0)]
    ranges[-1] = replace(ranges[-1], keys=KeyInterval(ranges[-1].keys.after, keys.upto))
    return ranges
