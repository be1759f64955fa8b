"""Rows of a table in ranges of its key, by one scan for all ranges: DuckDB's tables have no index, and their rows no order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.duckdb.value_text import literal
from engine.model.copies import KeyBound
from engine.model.ranges import ANOTHER_ORDER, NotByRanges, RowForm, TargetDigests
from engine.model.schema import Column
from engine.model.target import TableRecord
from engine.model.values import value_type
from engine.net.copy_text import decode_copy_text
from engine.net.rows_of_texts import decoded_rows
from engine.records.row_digest import RangeSums, ranges_of
from engine.targets.duckdb.comparison import Sides
from engine.targets.duckdb.row_text import line_text, row_text
from engine.targets.duckdb.staging import StagingConnection
from engine.targets.duckdb.types import duckdb_type, staged_as
from engine.targets.identifiers import quoted

_KEPT = "temp.__penstock_kept"
_VECTOR = 2048
"""Rows that DuckDB reads at once at least."""
_ROW_GROUP = 122_880
"""Rows of a row group, which DuckDB reads or skips as a whole."""
_SCATTERED = 4 * _ROW_GROUP
"""Other rows between those of a range from which on the table is not in the order of its key; also the rows of a small table."""
_FEW_RANGES = 512
"""Most ranges that are searched for one after another, some milliseconds each. Not measured."""
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
    """Implements RangedRows. Where a key is among the bounds is decided by DuckDB's own order of the key's values, which is total."""

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

    def digests(self, bounds: Sequence[KeyBound], check: Callable[[], None], form: RowForm) -> TargetDigests:
        keys = self._sort_keys(bounds)
        columns = [(quoted(c.name), value_type(c)) for c in self._record.schema.columns]
        sums = RangeSums(len(bounds) + 1)
        hashed = form is RowForm.LINE
        row, add = (f"md5({line_text(columns)})", sums.add_md5) if hashed else (row_text(columns), sums.add)
        for batch in self._batches(f"{row}, {self._sort_key([quoted(c.name) for c in self._columns])}"):
            check()
            add(batch.column(0), ranges_of(batch.column(1), keys))
        return TargetDigests(sums.rows, sums.low, sums.high)

    def keep(self, bounds: Sequence[KeyBound], wanted: Sequence[bool]) -> None:
        numbers = self._numbers(bounds, wanted)
        name, old = f"{_KEPT}{self._kept + 1}", f"{_KEPT}{self._kept}"
        listed = ", ".join(f"t.{quoted(column.name)}" for column in self._record.schema.columns)
        connection = StagingConnection(self._connection)
        connection.execute(
            f"CREATE TEMP TABLE {name.removeprefix('temp.')} AS SELECT {listed} FROM {self._item} AS t LIMIT 0"
        )
        for numbered in _runs(numbers, self._rows_at_once or 1 << 20):
            with connection.staged(pa.table({"n": numbered})) as staged:
                connection.execute(
                    f"INSERT INTO {name} SELECT {listed} FROM {self._item} AS t SEMI JOIN {staged} AS s ON t.rowid = s.n"
                    f" WHERE t.rowid BETWEEN {numbered[0]} AND {numbered[-1]}"
                )
        connection.execute(f"DROP TABLE IF EXISTS {old}")
        self._item, self._kept = name, self._kept + 1

    def _numbers(self, bounds: Sequence[KeyBound], wanted: Sequence[bool]) -> Any:
        """The rowids of the wanted ranges, as a numpy array of int64.

        Ranges are searched for one after another if there are few of them, in a large table: where it is in the order of its key, DuckDB
        skips other row groups. If the rows of one turn out to be scattered, one scan finds the others.
        """
        keys = self._sort_keys(bounds)
        left = np.array(wanted)
        found: list[Any] = [np.empty(0, np.int64)]
        (rows,) = self._connection.execute(f"SELECT count(*) FROM {self._item}").fetchall()[0]
        if int(left.sum()) <= _FEW_RANGES and rows > _SCATTERED:
            firsts = self._first_values(bounds)
            for number in np.flatnonzero(left):
                only = np.arange(left.size) == number
                found.append(self._numbers_in(keys, only, self._near(firsts, int(number))))
                left &= ~only
                if _middle(found[-1]) > _SCATTERED:
                    break
        if left.any():
            found.append(self._numbers_in(keys, left))
        return np.concatenate(found)

    def _numbers_in(self, keys: Any, chosen: Any, condition: str = "true") -> Any:
        listed = f"rowid, {self._sort_key([quoted(c.name) for c in self._columns])}"
        found = [np.empty(0, np.int64)]
        for batch in self._batches(listed, condition):
            found.append(batch.column(0).to_numpy()[chosen[ranges_of(batch.column(1), keys)]])
        return np.concatenate(found)

    def _near(self, firsts: Sequence[str], number: int) -> str:
        """A condition that the rows of a range meet, and few others: on the first column of the key, of which DuckDB knows the least and
        the greatest value of each row group. `firsts`: its values of the bounds."""
        name = quoted(self._columns[0].name)
        held = [f"{name} >= {firsts[number - 1]}"] if number else []
        if number < len(firsts):
            return " AND ".join([*held, f"{name} <= {firsts[number]}"])
        return f"({' AND '.join(held) or 'true'} OR {name} IS NULL)"  # NULL is after all values.

    def compare(self, source: Any, limit: int) -> tuple[int, int, list[dict[str, Any]]]:
        return self._compare(Sides(self._record, self._item), source, limit)

    def close(self) -> None:
        """Drop the temporary table."""
        self._connection.execute(f"DROP TABLE IF EXISTS {_KEPT}{self._kept}")

    @property
    def _rows_at_once(self) -> int | None:
        """Rows of a step; None if all rows may be read in one."""
        return max(1, _READ_BYTES // self._row_bytes) if self._row_bytes > _WIDE_BYTES else None

    def _batches(self, listed: str, condition: str = "true") -> Iterator[Any]:
        """The select list of all rows, or of those that meet the condition, as pyarrow.RecordBatch; wide rows in steps by their number."""
        query = f"SELECT {listed} FROM {self._item} WHERE {condition}"
        step = self._rows_at_once
        if step is None:
            yield from self._read(query)
            return
        first, last = self._connection.execute(f"SELECT min(rowid), max(rowid) FROM {self._item}").fetchall()[0]
        for begin in range(first or 0, -1 if last is None else int(last) + 1, step):
            yield from self._read(f"{query} AND rowid >= {begin} AND rowid < {begin + step}")

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
        """The sort keys of bounds, as a pyarrow array in their order. Raises NotByRanges if they do not ascend."""
        keys = self._of_bounds(bounds, self._sort_key)
        if not pc.all(pc.less_equal(keys[:-1], keys[1:]), min_count=0).as_py():
            raise NotByRanges(ANOTHER_ORDER)
        return keys

    def _first_values(self, bounds: Sequence[KeyBound]) -> list[str]:
        """SQL constants: the values of the first column."""
        texts = self._of_bounds(bounds, lambda values: f"CAST({values[0]} AS VARCHAR)").to_pylist()
        kind = duckdb_type(value_type(self._columns[0]))
        return [f"CAST({literal(text)} AS {kind})" for text in texts]

    def _of_bounds(self, bounds: Sequence[KeyBound], expression: Callable[[Sequence[str]], str]) -> Any:
        """An expression over the values of each bound, as a pyarrow array in their order."""
        rows = decoded_rows([bound.values for bound in bounds], self._columns, self._record.schema, decode_copy_text)
        types = [value_type(column) for column in self._columns]
        values = [f"CAST({staged_as(f's.c{i}', each)} AS {duckdb_type(each)})" for i, each in enumerate(types)]
        numbered = rows.append_column("n", pa.array(range(len(bounds)), pa.int64()))
        connection = StagingConnection(self._connection)
        with connection.staged(numbered) as staged:
            found = connection.read(f"SELECT {expression(values)} AS k FROM {staged} AS s ORDER BY n")
        return found.column(0).combine_chunks()


def _middle(numbers: Any) -> int:
    """The distance between a quarter and three quarters of the row numbers: updates move rows to the end of a table."""
    return int(np.subtract(*np.quantile(numbers, [0.75, 0.25]))) if numbers.size else 0


def _runs(numbers: Any, rows: int) -> Iterator[Any]:
    """Row numbers, ascending, in pieces of so many that lie near each other: no row group between two of them is read in vain."""
    numbers = np.sort(numbers)
    for run in np.split(numbers, np.flatnonzero(np.diff(numbers) > _ROW_GROUP) + 1):
        for begin in range(0, len(run), rows):
            yield run[begin : begin + rows]
