"""A reader of what `csv_recorder` records: applies it to another database in order, one statement for each row, as other tools do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from time import perf_counter
from typing import Any

from psycopg import sql

from bench.csv_recorder import columns_of
from bench.workload import Connection

BATCH_ROWS = 10_000
"""Changes of one target transaction: the usual largest batch of a SymmetricDS channel (`max_batch_size`)."""
_FIELD = re.compile(r'(?:^|,)(?:"((?:[^"\\]|\\.)*)")?', re.DOTALL)
_READ = "SELECT data_id, table_name, event_type, pk_data, row_data FROM csv_data WHERE data_id > %s ORDER BY data_id LIMIT %s"


class CsvReader:
    """Follows the recorded changes of `source` in `target`, whose tables had the same rows when the recorder was installed."""

    def __init__(self, source: Connection, target: Connection) -> None:
        self._source = source
        self._target = target
        self._last = 0
        self._statements = {
            (table, event): _statement(table, event, columns)
            for table, columns in columns_of(source).items()
            for event in "IUD"
        }

    def drain(self) -> tuple[int, float]:
        """Apply everything that is recorded. Returns the number of row changes, and seconds."""
        began, count = perf_counter(), 0
        while batch := self._source.execute(_READ, [self._last, BATCH_ROWS]).fetchall():
            # executemany sends the rows of one statement without waiting for each result.
            with self._target.transaction(), self._target.cursor() as cursor:
                for kind, rows in groupby(batch, key=lambda row: (row[1], row[2])):
                    cursor.executemany(self._statements[kind], [_values(*row[2:]) for row in rows])
            self._last = batch[-1][0]
            count += len(batch)
        return count, perf_counter() - began

    def differing(self) -> list[str]:
        """The tables whose rows are not those of the source. `marks` has rows from before the recorder."""
        return [table for table in columns_of(self._source) if table != "marks" and self._differs(table)]

    def _differs(self, table: str) -> bool:
        query = sql.SQL("SELECT count(*), sum(hashtextextended(t::text, 0)::numeric) FROM {} t").format(
            sql.Identifier(table)
        )
        return self._source.execute(query).fetchone() != self._target.execute(query).fetchone()


def _statement(table: str, event: str, columns: Sequence[tuple[str, bool, bool]]) -> sql.Composed:
    def each(form: str, names: Sequence[str], between: str) -> sql.Composed:
        return sql.SQL(between).join([sql.SQL(form).format(sql.Identifier(name)) for name in names])

    names = [name for name, _, _ in columns]
    where = each("{} = %s", [name for name, _, is_key in columns if is_key] or names, " AND ")
    if event == "I":
        values = sql.SQL(", ").join([sql.Placeholder()] * len(names))
        return sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(sql.Identifier(table), each("{}", names, ", "), values)
    if event == "U":
        return sql.SQL("UPDATE {} SET {} WHERE {}").format(sql.Identifier(table), each("{} = %s", names, ", "), where)
    return sql.SQL("DELETE FROM {} WHERE {}").format(sql.Identifier(table), where)


def _values(event: str, key: str | None, row: str | None) -> list[Any]:
    return [*(_fields(row) if event != "D" else ()), *(_fields(key) if event != "I" else ())]


def _fields(line: str | None) -> Iterator[str | None]:
    for field in _FIELD.finditer(line or ""):
        text = field[1]
        yield re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL) if text and "\\" in text else text
