"""A read transaction pinned to one batch boundary, with the comparison of a table with the source's rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import psycopg

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import SubscriptionName, TableName
from engine.model.partitions import PartitionRows
from engine.model.position import Lsn
from engine.model.schema import Column, KeyMode
from engine.model.target import QueryAnswer, QueryLimits, TableRecord, TargetProgress
from engine.net import decode_copy_text
from engine.postgres.sessions import PostgresConnection
from engine.targets.arrow_rows import in_chunks
from engine.targets.differing_columns import named
from engine.targets.identifiers import qualified, quoted
from engine.targets.postgres.changes import Place, belongs, bounds_of, image
from engine.targets.postgres.metadata import PostgresMetadata
from engine.targets.postgres.owner_tables.inspect import place_of
from engine.targets.postgres.range_rows import PostgresRanges
from engine.targets.postgres.staging import copy_rows, in_table
from engine.targets.quarantined_rows import texts_in_form
from engine.targets.soft_delete import live, mark_column

ReadTable = Callable[[str, tuple[str, Lsn], Callable[[], bool], QueryLimits], AbstractContextManager[QueryAnswer]]
"""Runs `engine.targets.postgres.query.read_table` on the target."""
_SOURCE = "pg_temp.__penstock_source"
_BOUNDS = "__penstock_bounds"
_KEY_LENGTH = 200
"""Characters shown of each column of a row without a key."""


class PostgresReader:
    """Implements TargetReader on a connection with an open transaction; see the protocol for `compare`."""

    def __init__(
        self,
        connection: PostgresConnection,
        position: Lsn,
        generations_now: Callable[[], dict[TableName, int]],
        read_table: ReadTable,
    ) -> None:
        """`generations_now` reads with a separate snapshot."""
        self._connection = connection
        self._generations_now = generations_now
        self._read_table = read_table
        self.position = position

    def progress(self, subscription: SubscriptionName) -> TargetProgress | None:
        return PostgresMetadata(self._connection).progress(subscription)

    def rows(self, record: TableRecord, limits: QueryLimits) -> AbstractContextManager[QueryAnswer]:
        """See the protocol. Read by another session under this one's snapshot, so that no table stays locked."""
        seen = PostgresMetadata(self._connection).generations().get(record.target)
        snapshot = str(self._execute("SELECT pg_export_snapshot()").fetchall()[0][0])
        columns = ", ".join([*(quoted(column.name) for column in record.schema.columns), *mark_column(record.schema)])
        statement = f"SELECT {columns} FROM {qualified(record.target)}"
        unchanged = lambda: self._generations_now().get(record.target) == seen  # noqa: E731
        return self._read_table(statement, (snapshot, self.position), unchanged, limits)

    def compare(
        self, record: TableRecord, source: Any, limit: int, rows: PartitionRows | None = None
    ) -> tuple[int, int, list[dict[str, Any]]]:
        """See the protocol. For a table without a key, `key` has the start of every column's text and `copies` the number of additional
        equal rows on one side; a duplicate key of the target is `extra`.

        Raises EngineFault(TARGET_UNAVAILABLE) if the table was replaced since this reader began: it has no rows in its snapshot.
        """
        place = self._place(record)
        try:
            return self._compare(place, self._compared(place, rows), source, limit)
        finally:
            if self._connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS:
                self._execute(f"DROP TABLE IF EXISTS pg_temp.{_BOUNDS}")

    @contextmanager
    def ranges(
        self, record: TableRecord, columns: Sequence[Column], row_bytes: int, *, part: bool = False
    ) -> Iterator[PostgresRanges]:
        """See the protocol. Raises as `compare` if the table was replaced."""
        del row_bytes
        place = self._place(record)
        found = PostgresRanges(self._connection, place, columns, partial(self._compare, place), part=part)
        try:
            yield found
        finally:
            if self._connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS:
                found.close()

    def _compare(self, place: Place, item: str, source: Any, limit: int) -> tuple[int, int, list[dict[str, Any]]]:
        """`item`: FROM item of the target's rows."""
        columns = ", ".join(f"{c.name} {c.type}" for c in place.columns)
        self._execute(f"CREATE TEMPORARY TABLE {_SOURCE} ({columns})")
        try:
            source_rows = self._load(place, source)
            sides = _Sides(place, item)
            target_rows = int(self._execute(f"SELECT count(*) FROM {sides.target}").fetchall()[0][0])
            return source_rows, target_rows, self._differences(sides, limit)
        finally:
            if self._connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS:
                self._execute(f"DROP TABLE {_SOURCE}")

    def _place(self, record: TableRecord) -> Place:
        """The table, locked against being replaced."""
        metadata = PostgresMetadata(self._connection)
        place = place_of(self._connection, metadata, record.table, record.target, record.schema)
        self._hold(record, place)
        return place

    def _compared(self, place: Place, rows: PartitionRows | None) -> str:
        """FROM item: the table, or these rows of it."""
        here = live(place.schema, "t")
        if rows is None:
            return f"(SELECT t.* FROM {place.qualified} AS t WHERE true{here}) AS w" if here else place.qualified
        in_table(self._connection, _BOUNDS, rows.values, bounds_of(place, rows), ())
        condition = f"({belongs(place, rows, 'b')}){here}"
        return f"(SELECT t.* FROM {place.qualified} AS t, pg_temp.{_BOUNDS} AS b WHERE {condition}) AS w"

    def _hold(self, record: TableRecord, place: Place) -> None:
        self._execute(f"LOCK TABLE {place.qualified} IN ACCESS SHARE MODE")
        seen = PostgresMetadata(self._connection).generations()
        if seen.get(record.target) != self._generations_now().get(record.target):
            detail = "the table was replaced during the comparison; verify again"
            raise EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, place.table, detail)

    def _differences(self, sides: _Sides, limit: int) -> list[dict[str, Any]]:
        if sides.place.schema.mode is not KeyMode.KEYED:
            rows = self._execute(sides.bag_sql(limit)).fetchall()
            return [
                {"key": list(row[1:]), "kind": "missing" if row[0] > 0 else "extra", "copies": abs(int(row[0]))}
                for row in rows
            ]
        found = self._found(sides, sides.keyed_sql(limit))
        if len(found) < limit:
            found += self._found(sides, sides.duplicates_sql(limit - len(found)))
        return found

    def _found(self, sides: _Sides, sql: str) -> list[dict[str, Any]]:
        schema = sides.place.schema
        rows = self._execute(sql).fetchall()
        exact = texts_in_form(replace(schema, columns=schema.key_columns), [row[2:] for row in rows], decode_copy_text)
        return [
            {"key": list(row[2:]), "kind": row[0], "columns": named(schema, row[1]), "exact": texts}
            for row, texts in zip(rows, exact, strict=True)
        ]

    def _load(self, place: Place, source: Iterable[Any]) -> int:
        names = [c.name for c in place.columns]
        return sum(copy_rows(self._connection, _SOURCE, names, rows, place.columns) for rows in in_chunks(source))

    def _execute(self, sql: str) -> psycopg.Cursor[tuple[Any, ...]]:
        return self._connection.execute(sql.encode())


@dataclass(frozen=True, slots=True)
class _Sides:
    """SQL over both sides: the source's rows in the temporary table, the target's in their table."""

    place: Place
    target: str
    """FROM item of the target's rows."""

    @property
    def _staged(self) -> list[str]:
        return [c.name for c in self.place.columns]

    def _target_rows(self) -> str:
        names = ", ".join(f"{name} AS c{i}" for i, name in enumerate(self.place.quoted))
        return f"SELECT {names} FROM {self.target}"

    def keyed_sql(self, limit: int) -> str:
        """Rows (kind, positions of the columns that differ as text, key as text …), ordered by key."""
        on_key = " AND ".join(f"s.c{i} = t.c{i}" for i in self.place.key)
        keys = [f"COALESCE(s.c{i}, t.c{i})" for i in self.place.key]
        differing = ", ".join(
            f"CASE WHEN {image('s', [name])} <> {image('t', [name])} THEN '{i}' END"
            for i, name in enumerate(self._staged)
        )
        return (
            "SELECT CASE WHEN t.here IS NULL THEN 'missing' WHEN s.here IS NULL THEN 'extra' ELSE 'different' END,"
            f" CASE WHEN t.here AND s.here THEN pg_catalog.array_to_string(ARRAY[{differing}], ',') END,"
            f" {', '.join(f'{key}::pg_catalog.text' for key in keys)}"
            f" FROM (SELECT *, true AS here FROM {_SOURCE}) AS s"
            f" FULL JOIN (SELECT *, true AS here FROM ({self._target_rows()}) AS r) AS t ON {on_key}"
            " WHERE t.here IS NULL OR s.here IS NULL"
            f" OR {image('s', self._staged)} <> {image('t', self._staged)}"
            f" ORDER BY {', '.join(keys)} LIMIT {limit}"
        )

    def duplicates_sql(self, limit: int) -> str:
        """Rows as those of `keyed_sql`, ('extra', NULL, …), for keys that the target has more than once."""
        keys = ", ".join(f"c{i}" for i in self.place.key)
        texts = ", ".join(f"c{i}::pg_catalog.text" for i in self.place.key)
        return (
            f"SELECT 'extra', NULL, {texts} FROM (SELECT {keys} FROM ({self._target_rows()}) AS r"
            f" GROUP BY {keys} HAVING count(*) > 1) AS d ORDER BY {keys} LIMIT {limit}"
        )

    def bag_sql(self, limit: int) -> str:
        """Rows (number of additional copies on the source, start of every column's text …)."""
        shown = ", ".join(f"left(c{i}::pg_catalog.text, {_KEY_LENGTH}) AS g{i}" for i in range(len(self._staged)))
        firsts = ", ".join(f"min(g{i})" for i in range(len(self._staged)))
        whole = image("r", self._staged)
        return (
            f"SELECT sum(side), {firsts} FROM ("
            f"SELECT 1 AS side, {whole} AS image, {shown} FROM {_SOURCE} AS r"
            f" UNION ALL SELECT -1, {whole}, {shown} FROM ({self._target_rows()}) AS r) AS b"
            f" GROUP BY image HAVING sum(side) <> 0 ORDER BY {firsts} LIMIT {limit}"
        )
