"""A read pinned to one batch boundary, and the comparison of a table with the source's rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from engine.apply.arrow_rows import in_chunks
from engine.apply.duckdb.changes import Place, belongs, identical, insert_rows
from engine.apply.duckdb.identifiers import qualified, quoted
from engine.apply.duckdb.staging import StagingConnection
from engine.apply.duckdb.types import duckdb_type, equal_means_identical
from engine.model.partitions import PartitionRows
from engine.model.position import Lsn
from engine.model.schema import KeyMode
from engine.model.target import TableRecord
from engine.model.values import value_type

_SOURCE = "__penstock_source"
_BOUNDS = "__penstock_bounds"
_KEY_LENGTH = 200
"""Characters that are shown of each column where a row has no key."""


class DuckDbReader:
    """Implements TargetReader on a connection whose transaction has begun; see the protocol for `compare`."""

    def __init__(self, connection: Any, catalog: str, position: Lsn) -> None:
        self._connection = connection
        self._catalog = catalog
        self.position = position

    def compare(
        self, record: TableRecord, source: Any, limit: int, rows: PartitionRows | None = None
    ) -> tuple[int, int, list[dict[str, Any]]]:
        """As the protocol says. For tables without a key `key` is the start of every column's text, `copies` how many
        equal rows one side has more; a key that the target holds twice is `extra`."""
        connection = self._connection
        columns = ", ".join(f"c{i} {duckdb_type(value_type(c))}" for i, c in enumerate(record.schema.columns))
        connection.execute(f"CREATE TEMP TABLE {_SOURCE} ({columns})")
        try:
            source_rows = self._load(record, source)
            sides = _Sides(record, self._compared(record, rows))
            count = f"SELECT count(*) FROM {sides.target}"
            target_rows = int(connection.execute(count).fetchall()[0][0])
            differences = self._differences(sides, limit)
            if record.schema.mode is KeyMode.KEYED and len(differences) < limit:
                differences += self._found(sides.duplicates_sql(limit - len(differences)))
            return source_rows, target_rows, differences
        finally:
            connection.execute(f"DROP TABLE temp.{_SOURCE}")
            connection.execute(f"DROP TABLE IF EXISTS temp.{_BOUNDS}")

    def _compared(self, record: TableRecord, rows: PartitionRows | None) -> str:
        """What stands behind FROM: the table, or those rows of it."""
        place = Place(record.table, qualified(self._catalog, record.target), record.schema)
        if rows is None:
            return place.qualified
        connection = StagingConnection(self._connection)
        with connection.staged(rows.values) as source:
            connection.execute(f"CREATE TEMP TABLE {_BOUNDS} AS SELECT * FROM {source}")
        return f"(SELECT t.* FROM {place.qualified} AS t, temp.{_BOUNDS} AS b WHERE {belongs(place, rows)})"

    def _differences(self, sides: _Sides, limit: int) -> list[dict[str, Any]]:
        if sides.record.schema.mode is KeyMode.KEYED:
            return self._found(sides.keyed_sql(limit))
        rows = self._connection.execute(sides.bag_sql(limit)).fetchall()
        return [
            {"key": list(row[1:]), "kind": "missing" if row[0] > 0 else "extra", "copies": abs(int(row[0]))}
            for row in rows
        ]

    def _found(self, sql: str) -> list[dict[str, Any]]:
        return [{"key": list(row[1:]), "kind": row[0]} for row in self._connection.execute(sql).fetchall()]

    def _load(self, record: TableRecord, source: Iterable[Any]) -> int:
        schema = record.schema
        place = _Staging(record)
        total = 0
        connection = StagingConnection(self._connection)
        for table in in_chunks(source):
            total += insert_rows(connection, place, table)
        return total if schema.columns else 0


class _Staging(Place):
    """The temporary table of the source's rows, with columns c0 … cn."""

    __slots__ = ()

    def __init__(self, record: TableRecord) -> None:
        super().__init__(record.table, f"temp.{_SOURCE}", record.schema)

    @property
    def columns(self) -> list[str]:
        return [f"c{i}" for i in range(len(self.schema.columns))]


@dataclass(frozen=True, slots=True)
class _Sides:
    """SQL over both sides: the source's rows in the temporary table, the target's in their table."""

    record: TableRecord
    target: str

    @property
    def _key(self) -> list[int]:
        return Place(self.record.table, self.target, self.record.schema).key

    def _target_rows(self) -> str:
        names = ", ".join(f"{quoted(c.name)} AS c{i}" for i, c in enumerate(self.record.schema.columns))
        return f"SELECT {names} FROM {self.target}"

    def keyed_sql(self, limit: int) -> str:
        """Rows (kind, key as text …), ordered by key."""
        on_key = " AND ".join(f"s.c{i} = t.c{i}" for i in self._key)
        same = " AND ".join(
            f"({identical(f's.c{i}', f't.c{i}', value_type(c))})" for i, c in enumerate(self.record.schema.columns)
        )
        keys = [f"COALESCE(s.c{i}, t.c{i})" for i in self._key]
        return (
            "SELECT CASE WHEN t.here IS NULL THEN 'missing' WHEN s.here IS NULL THEN 'extra' ELSE 'different' END,"
            f" {', '.join(f'CAST({key} AS VARCHAR)' for key in keys)}"
            f" FROM (SELECT *, true AS here FROM temp.{_SOURCE}) AS s"
            f" FULL JOIN (SELECT *, true AS here FROM ({self._target_rows()})) AS t ON {on_key}"
            f" WHERE t.here IS NULL OR s.here IS NULL OR NOT ({same})"
            f" ORDER BY {', '.join(keys)} LIMIT {limit}"
        )

    def duplicates_sql(self, limit: int) -> str:
        """Rows ('extra', key as text …) of keys that the target holds more than once."""
        keys = ", ".join(f"c{i}" for i in self._key)
        texts = ", ".join(f"CAST(c{i} AS VARCHAR)" for i in self._key)
        return (
            f"SELECT 'extra', {texts} FROM (SELECT {keys} FROM ({self._target_rows()})"
            f" GROUP BY {keys} HAVING count(*) > 1) ORDER BY {keys} LIMIT {limit}"
        )

    def bag_sql(self, limit: int) -> str:
        """Rows (copies the source has more, start of every column's text …)."""
        images = [
            f"c{i}" if equal_means_identical(value_type(c)) else f"CAST(c{i} AS VARCHAR)"
            for i, c in enumerate(self.record.schema.columns)
        ]
        grouped = ", ".join(f"{image} AS g{i}" for i, image in enumerate(images))
        names = ", ".join(f"g{i}" for i in range(len(images)))
        texts = ", ".join(f"left(CAST(g{i} AS VARCHAR), {_KEY_LENGTH})" for i in range(len(images)))
        return (
            f"SELECT sum(side), {texts} FROM (SELECT 1 AS side, {grouped} FROM temp.{_SOURCE}"
            f" UNION ALL SELECT -1, {grouped} FROM ({self._target_rows()}))"
            f" GROUP BY {names} HAVING sum(side) <> 0 ORDER BY {names} LIMIT {limit}"
        )
