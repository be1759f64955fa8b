"""Rows of a table in ranges of its key, by one scan for all ranges: DuckDB's tables have no index, and their rows no order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from engine.model.copies import KeyBound
from engine.model.ranges import NotByRanges, TargetDigests
from engine.model.schema import Column
from engine.model.target import TableRecord
from engine.model.values import value_type
from engine.net.copy_text import decode_copy_text
from engine.net.rows_of_texts import decoded_rows
from engine.records.row_digest import RangeSums, ranges_of
from engine.targets.duckdb.comparison import Sides
from engine.targets.duckdb.row_text import row_text
from engine.targets.duckdb.staging import StagingConnection
from engine.targets.duckdb.types import duckdb_type, staged_as
from engine.targets.identifiers import quoted

_KEPT = "temp.__penstock_kept"
_VECTOR = 2048
"""Rows that DuckDB reads at once at least."""
_BATCH_BYTES = 8 * 1024 * 1024
"""Bytes of a batch of rows, estimated: a batch that stays near the processor's caches, and is worth a call. Not measured."""
_WIDE_BYTES = 16 * 1024
"""Bytes of a row above which rows are read in steps: DuckDB reads 2,048 rows at once, and copies texts some four times until they are
hashed."""
_READ_BYTES = 32 * 1024 * 1024
"""Bytes of such a step. Each one reads its 2,048 rows again: with steps of 8 MB, rows of 200 kB took five times as long as a comparison by
rows, with these 1.3 times as long; with twice as much it is 1.0, for 0.5 GB more memory."""

Compare = Callable[[Sides, Any, int], tuple[int, int, list[dict[str, Any]]]]
"""Compares the target's rows of these sides with the source's rows: as TargetReader.compare."""


class DuckDbRanges:
    """Implements RangedRows. Where a key is among the bounds is decided by DuckDB's own order of the key's values, which is total: a value
    that the source sorts in another way makes ranges differ, and is in no case in none of them."""

    def __init__(
        self,
        connection: Any,
        record: TableRecord,
        columns: Sequence[Column],
        item: str,
        row_bytes: int,
        compare: Compare,
    ) -> None:
        """`item`: FROM item of the rows, with their rowid."""
        if any(column.map_as is not None for column in columns):
            raise NotByRanges("a key that the target stores as text")
        self._connection = connection
        self._record = record
        self._columns = columns
        self._item = item
        self._row_bytes = max(1, row_bytes)
        self._compare = compare
        self._kept = 0

    def digests(self, bounds: Sequence[KeyBound], check: Callable[[], None]) -> TargetDigests:
        keys = self._sort_keys(bounds)
        columns = [(quoted(c.name), value_type(c)) for c in self._record.schema.columns]
        listed = f"{row_text(columns)}, {self._sort_key([quoted(c.name) for c in self._columns])}"
        sums = RangeSums(len(bounds) + 1)
        for batch in self._batches(listed):
            check()
            sums.add(batch.column(0), ranges_of(batch.column(1), keys))
        return TargetDigests(sums.rows, sums.low, sums.high)

    def keep(self, bounds: Sequence[KeyBound], wanted: Sequence[bool]) -> None:
        keys = self._sort_keys(bounds)
        chosen = pa.array(wanted)
        numbers: list[Any] = [pa.array([], pa.int64())]
        for batch in self._batches(f"rowid, {self._sort_key([quoted(c.name) for c in self._columns])}"):
            numbers.append(batch.column(0).filter(chosen.take(pa.array(ranges_of(batch.column(1), keys)))))
        name, old = f"{_KEPT}{self._kept + 1}", f"{_KEPT}{self._kept}"
        listed = ", ".join(f"t.{quoted(column.name)}" for column in self._record.schema.columns)
        connection = StagingConnection(self._connection)
        connection.execute(
            f"CREATE TEMP TABLE {name.removeprefix('temp.')} AS SELECT {listed} FROM {self._item} AS t LIMIT 0"
        )
        for numbered in _slices(pa.chunked_array(numbers), self._rows_at_once or 1 << 20):
            with connection.staged(pa.table({"n": numbered})) as staged:
                connection.execute(
                    f"INSERT INTO {name} SELECT {listed} FROM {self._item} AS t SEMI JOIN {staged} AS s ON t.rowid = s.n"
                )
        connection.execute(f"DROP TABLE IF EXISTS {old}")
        self._item, self._kept = name, self._kept + 1

    def compare(self, source: Any, limit: int) -> tuple[int, int, list[dict[str, Any]]]:
        return self._compare(Sides(self._record, self._item), source, limit)

    def close(self) -> None:
        """Drop the temporary table."""
        self._connection.execute(f"DROP TABLE IF EXISTS {_KEPT}{self._kept}")

    @property
    def _rows_at_once(self) -> int | None:
        """Rows of a step; None if all rows may be read in one."""
        return max(1, _READ_BYTES // self._row_bytes) if self._row_bytes > _WIDE_BYTES else None

    def _batches(self, listed: str) -> Iterator[Any]:
        """The select list of all rows, as pyarrow.RecordBatch; wide rows in steps by their number."""
        query = f"SELECT {listed} FROM {self._item}"
        step = self._rows_at_once
        if step is None:
            yield from self._read(query)
            return
        first, last = self._connection.execute(f"SELECT min(rowid), max(rowid) FROM {self._item}").fetchall()[0]
        for begin in range(first or 0, -1 if last is None else int(last) + 1, step):
            yield from self._read(f"{query} WHERE rowid >= {begin} AND rowid < {begin + step}")

    def _read(self, query: str) -> Iterator[Any]:
        rows = max(_VECTOR, _BATCH_BYTES // self._row_bytes // _VECTOR * _VECTOR)
        reader = self._connection.sql(query).to_arrow_reader(min(rows, 64 * _VECTOR))
        try:
            yield from reader
        finally:
            reader.close()

    def _sort_key(self, expressions: Sequence[str]) -> str:
        """Expression for bytes, or a number, that sort as the key does."""
        return f"create_sort_key({', '.join(f'''{each}, 'ASC NULLS LAST' ''' for each in expressions)})"

    def _sort_keys(self, bounds: Sequence[KeyBound]) -> Any:
        """The sort keys of bounds, as a pyarrow array in their order."""
        rows = decoded_rows([bound.values for bound in bounds], self._columns, self._record.schema, decode_copy_text)
        types = [value_type(column) for column in self._columns]
        values = [f"CAST({staged_as(f's.c{i}', each)} AS {duckdb_type(each)})" for i, each in enumerate(types)]
        numbered = rows.append_column("n", pa.array(range(len(bounds)), pa.int64()))
        connection = StagingConnection(self._connection)
        with connection.staged(numbered) as staged:
            found = connection.read(f"SELECT {self._sort_key(values)} AS k FROM {staged} AS s ORDER BY n")
        return found.column(0).combine_chunks()


def _slices(values: Any, rows: int) -> Iterator[Any]:
    for begin in range(0, len(values), rows):
        yield values.slice(begin, rows)
