"""Rows by stamps: a column of a time type that every insert and update sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import psycopg
from psycopg import pq, sql

from engine.sources.postgres import splits
from engine.sources.postgres.connect import SOURCE, Connector
from engine.sources.postgres.copy_out import COPY_KINDS
from engine.sources.postgres.splits import ReadRules
from engine.sources.postgres_queries.hashing import conditions_since, split_of
from engine.sources.query_diff.database import ComparedTable
from engine.sources.query_diff.stamps import UNKNOWN_S, Since, Stamp

_ZONED = "timestamptz"
TYPES = frozenset({"timestamp", _ZONED, "date"})
"""Names of the types that a stamp may have."""
_PRESENT = {True: "clock_timestamp()", False: "(clock_timestamp() AT TIME ZONE 'UTC') + interval '14 hours'"}
"""SQL of the present, or of a time that has begun nowhere: a stamp without a time zone may be of any. By whether it has one."""
_OPEN = f"""
SELECT greatest(
           coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0),
           (SELECT max(extract(epoch FROM clock_timestamp() - prepared)) + {UNKNOWN_S} FROM pg_prepared_xacts
            WHERE database = current_database())
       )::float8,
       coalesce(bool_or(backend_type IS NULL OR (state IS NULL AND backend_type = 'client backend')), false)
           OR pg_is_in_recovery()
           OR EXISTS (SELECT FROM pg_subscription AS s JOIN pg_database AS d ON d.oid = s.subdbid
                      WHERE s.subenabled AND d.datname = current_database())
FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


def rows_since(
    connector: Connector, table: ComparedTable, snapshot: str, since: Since, rules: ReadRules
) -> Iterator[bytes]:
    """See ComparedDatabase.rows_since."""
    query = splits.select_rows(table.schema, table.schema.name, conditions_since(table.schema, since))
    return splits.read_split(connector, split_of(table, query), snapshot, rules)


def left_since(
    connector: Connector, table: ComparedTable, snapshot: str, since: Stamp, rules: ReadRules
) -> Iterator[bytes]:
    """See ComparedDatabase.left_since."""
    schema = table.schema
    condition = sql.SQL(schema.row_filter.text if schema.row_filter is not None else "true")
    conditions = [*conditions_since(schema, since), sql.SQL("({}) IS NOT TRUE").format(condition)]
    keys = sql.SQL(", ").join(sql.Identifier(column.on_source) for column in schema.key_columns)
    query = splits.select_rows(replace(schema, row_filter=None), schema.name, conditions, keys)
    return splits.read_split(connector, split_of(table, query), snapshot, rules)


def newest(
    connector: Connector, table: ComparedTable, snapshot: str, column: str, overlap_s: float, rules: ReadRules
) -> str | None:
    """See ComparedDatabase.newest_stamp. Stamps of the future, as `infinity` is, are no times of changes, and are left out: later changes
    have smaller ones. Rows outside the row filter count: their changes are read too."""
    subject = f"relation {table.schema.relation}"
    name = sql.Identifier(column)
    overlap = sql.SQL("make_interval(secs => {})").format(sql.Literal(overlap_s))
    value = sql.SQL("max({}) - {}").format(name, overlap)
    every = replace(table.schema, row_filter=None)
    zoned = any(each.on_source == column and each.type.name == _ZONED for each in every.whole.columns)
    past = sql.SQL("isfinite({0}) AND {0} <= {1}").format(name, sql.SQL(_PRESENT[zoned]))
    query = splits.select_rows(every, every.name, [past], value)
    with connector.session(subject) as connection:
        try:
            splits.begin_read(connection, split_of(table, sql.SQL("")), snapshot, subject, rules)
            found = connection.execute(sql.SQL("SELECT ({})::text").format(query)).fetchall()[0][0]
            connection.execute("COMMIT")
        except psycopg.Error as error:
            raise SOURCE.fault(error, subject, COPY_KINDS) from error
        finally:
            if connection.pgconn.transaction_status != pq.TransactionStatus.IDLE:
                connection.close()
    return None if found is None else str(found)


def open_for_s(connector: Connector) -> float:
    """See ComparedDatabase.open_for_s. Transactions count that have not written yet: their `now()` is the time of their beginning. It is
    not known of those of other users without pg_read_all_stats, nor on a standby or in a database that subscribes to another one, where
    transactions happen elsewhere; a prepared one may have been open for UNKNOWN_S before that."""
    with connector.session() as connection:
        seconds, unknown = connection.execute(_OPEN).fetchall()[0]
    return max(float(seconds), UNKNOWN_S) if unknown else float(seconds)
