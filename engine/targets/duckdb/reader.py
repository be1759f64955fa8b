"""A read transaction pinned to one batch boundary, with the comparison of a table with the source's rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any

import duckdb
import pyarrow as pa

from engine.model.identity import SubscriptionName
from engine.model.partitions import PartitionRows
from engine.model.position import Lsn
from engine.model.ranges import NotByRanges
from engine.model.schema import Column, KeyMode
from engine.model.target import QueryAnswer, QueryLimits, QueryRefused, TableRecord, TargetProgress
from engine.queries.rows import target_field
from engine.targets.arrow_rows import in_chunks, require_form
from engine.targets.differing_columns import named
from engine.targets.duckdb.changes import Place, belongs
from engine.targets.duckdb.comparison import SOURCE, TARGET, Sides
from engine.targets.duckdb.errors import is_out_of_memory
from engine.targets.duckdb.identifiers import folded, qualified
from engine.targets.duckdb.metadata import DuckDbMetadata
from engine.targets.duckdb.range_rows import DuckDbRanges
from engine.targets.duckdb.staging import StagingConnection
from engine.targets.duckdb.types import staged_as
from engine.targets.identifiers import quoted
from engine.targets.quarantined_rows import texts_of
from engine.targets.soft_delete import live, mark_column

_BOUNDS = "temp.__penstock_bounds"
_WIDE_BYTES = 32 * 1024
"""DuckDB reads 2,048 rows at once; if they are larger than this on average, they exceed 64 MB, and fewer are requested."""
_READ_BYTES = 64 * 1024 * 1024
"""Most bytes of rows that DuckDB shall read at once: 2,048 rows of _WIDE_BYTES."""
_ROWS_AT_ONCE = 2048
"""Rows of a batch of `rows`: DuckDB's vector size, the fewest that it reads at once, because rows may be large."""


class DuckDbReader:
    """Implements TargetReader on a connection with an open transaction; see the protocol for `compare`."""

    def __init__(self, connection: Any, catalog: str, position: Lsn) -> None:
        self._connection = connection
        self._catalog = catalog
        self.position = position

    def progress(self, subscription: SubscriptionName) -> TargetProgress | None:
        return DuckDbMetadata(self._connection, self._catalog).progress(subscription)

    @contextmanager
    def rows(self, record: TableRecord, limits: QueryLimits) -> Iterator[QueryAnswer]:
        columns = ", ".join([*(quoted(column.name) for column in record.schema.columns), *mark_column(record.schema)])
        relation = self._connection.sql(f"SELECT {columns} FROM {qualified(self._catalog, record.target)}")
        reader = relation.to_arrow_reader(_ROWS_AT_ONCE)
        named = zip(reader.schema, relation.columns, relation.types, strict=True)
        shown = pa.schema([target_field(field, name, str(kind)) for field, name, kind in named])
        with limits.cancellation.stopping_by(self._connection.interrupt):
            yield QueryAnswer(shown, self.position, _read(reader, shown, limits))

    def compare(
        self, record: TableRecord, source: Any, limit: int, rows: PartitionRows | None = None
    ) -> tuple[int, int, list[dict[str, Any]]]:
        """See the protocol. For a table without a key, `key` has the start of every column's text and `copies` the number of
        additional equal rows on one side; a duplicate key of the target is `extra`."""
        try:
            numbered = rows is None and not _hides_rowid(record)
            return self._compare(Sides(record, self._compared(record, rows)), source, limit, numbered=numbered)
        finally:
            with suppress(duckdb.Error):  # The transaction failed, which removed the temporary tables.
                self._connection.execute(f"DROP TABLE IF EXISTS {_BOUNDS}")

    @contextmanager
    def ranges(
        self, record: TableRecord, columns: Sequence[Column], row_bytes: int, *, part: bool = False
    ) -> Iterator[DuckDbRanges]:
        del part  # Keys sort by bytes and numbers here, as those do that a source chooses parts by.
        if _hides_rowid(record):
            raise NotByRanges("a column that is named rowid")
        item = self._compared(record, None)
        found = DuckDbRanges(self._connection, record, columns, item, row_bytes, self._compare)
        try:
            yield found
        finally:
            with suppress(duckdb.Error):
                found.close()

    def _compare(
        self, sides: Sides, source: Any, limit: int, *, numbered: bool = True
    ) -> tuple[int, int, list[dict[str, Any]]]:
        """`numbered`: the target's rows have their rowid."""
        record = sides.record
        try:
            source_rows, source_bytes = self._load(sides, source)
            count = f"SELECT count(*) FROM {sides.target}"
            target_rows = int(self._connection.execute(count).fetchall()[0][0])
            if numbered and source_bytes > source_rows * _WIDE_BYTES:
                sides = self._formed(sides, max(1, _READ_BYTES * source_rows // source_bytes))
            differences = self._differences(sides, limit)
            if record.schema.mode is KeyMode.KEYED and len(differences) < limit:
                differences += self._found(sides, sides.duplicates_sql(limit - len(differences)))
            return source_rows if record.schema.columns else 0, target_rows, differences
        finally:
            with suppress(duckdb.Error):
                for name in (SOURCE, TARGET):
                    self._connection.execute(f"DROP TABLE IF EXISTS {name}")

    def _compared(self, record: TableRecord, rows: PartitionRows | None) -> str:
        """FROM item: the table, or these rows of it."""
        place = Place(record.table, qualified(self._catalog, record.target), record.schema)
        if rows is None:
            if not record.schema.soft_delete:
                return place.qualified
            number = "" if _hides_rowid(record) else "t.rowid, "
            return f"(SELECT {number}t.* FROM {place.qualified} AS t WHERE true{live(record.schema, 't')})"
        connection = StagingConnection(self._connection)
        with connection.staged(rows.values) as source:
            connection.execute(f"CREATE TEMP TABLE {_BOUNDS.removeprefix('temp.')} AS SELECT * FROM {source}")
        condition = f"({belongs(place, rows)}){live(record.schema, 't')}"
        return f"(SELECT t.* FROM {place.qualified} AS t, {_BOUNDS} AS b WHERE {condition})"

    def _differences(self, sides: Sides, limit: int) -> list[dict[str, Any]]:
        if sides.record.schema.mode is KeyMode.KEYED:
            return self._found(sides, sides.keyed_sql(limit))
        rows = self._connection.execute(sides.bag_sql(limit)).fetchall()
        return [
            {"key": list(row[1:]), "kind": "missing" if row[0] > 0 else "extra", "copies": abs(int(row[0]))}
            for row in rows
        ]

    def _found(self, sides: Sides, sql: str) -> list[dict[str, Any]]:
        rows = StagingConnection(self._connection).read(sql)
        columns = sides.record.schema.key_columns
        shown = [rows.column(f"t{j}").to_pylist() for j in range(len(columns))]
        exact = texts_of(rows, [f"k{j}" for j in range(len(columns))], columns)
        kinds, places = rows.column("kind").to_pylist(), rows.column("differing").to_pylist()
        return [
            {"key": list(key), "kind": kind, "columns": named(sides.record.schema, at), "exact": texts}
            for kind, at, key, texts in zip(kinds, places, zip(*shown, strict=True), exact, strict=True)
        ]

    def _load(self, sides: Sides, source: Iterable[Any]) -> tuple[int, int]:
        """Load the source's rows, prepared for the comparison; returns their number and bytes."""
        record = sides.record
        place = Place(record.table, SOURCE, record.schema)
        names = [f"c{i}" for i in range(len(place.columns))]
        form = sides.form([staged_as(f"s.{name}", value) for name, value in zip(names, place.values, strict=True)])
        rows = size = 0
        self._connection.execute(sides.create_sql(SOURCE))
        connection = StagingConnection(self._connection)
        for table in in_chunks(source):
            require_form(record.table, table, names, place.values)
            with connection.staged(table) as staged:
                connection.execute(f"INSERT INTO {SOURCE} SELECT {form} FROM {staged} AS s")
            rows, size = rows + table.num_rows, size + table.nbytes
        return rows, size

    def _formed(self, sides: Sides, at_once: int) -> Sides:
        """Prepare the target's rows, in steps of this many."""
        low, high = self._connection.execute(f"SELECT min(rowid), max(rowid) FROM {sides.target}").fetchall()[0]
        self._connection.execute(sides.create_sql(TARGET))
        for first in range(low or 0, -1 if high is None else int(high) + 1, at_once):
            window = f"rowid >= {first} AND rowid < {first + at_once}"
            self._connection.execute(f"INSERT INTO {TARGET} {sides.target_sql()} WHERE {window}")
        return Sides(sides.record, TARGET, formed=True)


def _hides_rowid(record: TableRecord) -> bool:
    """Whether a column has the name of DuckDB's row number."""
    return any(folded(column.name) == "rowid" for column in record.schema.columns)


def _read(reader: Any, shown: Any, limits: QueryLimits) -> Iterator[Any]:
    """The rows, until a limit is reached."""
    deadline = monotonic() + limits.timeout_s
    try:
        for batch in reader:
            if limits.cancellation.cancelled:
                raise QueryRefused("query_cancelled", "the query was cancelled")
            if monotonic() > deadline:
                raise QueryRefused("query_timeout", f"the query did not end within {limits.timeout_s:g} s")
            yield pa.RecordBatch.from_arrays(batch.columns, schema=shown)
    except (duckdb.Error, OSError, pa.ArrowException) as error:
        if limits.cancellation.cancelled:
            raise QueryRefused("query_cancelled", "the query was cancelled") from error
        if is_out_of_memory(error):
            raise QueryRefused("query_too_large", "the rows need more memory than the target's memory_limit") from error
        raise QueryRefused("query_unavailable", "the target's file failed, or is being closed; ask again") from error
