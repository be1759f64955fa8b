"""Rows of a table in ranges of its key, found by the index of the key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from psycopg import sql

from engine.model.copies import KeyBound, ranged_type
from engine.model.ranges import ANOTHER_ORDER, NotByRanges, RowForm, TargetDigests, is_float
from engine.model.schema import Column
from engine.model.values import Kind
from engine.postgres.sessions import PostgresConnection
from engine.targets.postgres.changes import Place
from engine.targets.soft_delete import live

_OLDEST = 140_000
"""bit_xor was added in PostgreSQL 14."""
_RANGES_AT_ONCE = 256
"""Ranges of one statement: some ten milliseconds to plan, and few round trips. Not measured."""
_UNESCAPED = frozenset({"int2", "int4", "int8", "numeric", "date", "timestamp", "timestamptz", "uuid", "inet"})
"""Types whose texts have no character that COPY escapes."""
_ESCAPES = (r"E'\\', E'\\\\'", r"E'\t', E'\\t'", r"E'\n', E'\\n'", r"E'\r', E'\\r'")
_BOUNDS = "__penstock_bounds"
_BOUNDS_AT_ONCE = 1000
"""Bounds of one statement. Not measured."""
_INDEX = """
SELECT count(*) FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS x ON x.oid = i.indexrelid
JOIN pg_catalog.pg_am AS a ON a.oid = x.relam AND a.amname = 'btree'
WHERE i.indrelid = %s::pg_catalog.regclass AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL AND (
    SELECT array_agg(c.attname::pg_catalog.text ORDER BY k.at) FILTER (WHERE c.attnotnull)
    FROM unnest(i.indkey::pg_catalog.int2[]) WITH ORDINALITY AS k (number, at)
    JOIN pg_catalog.pg_attribute AS c ON c.attrelid = i.indrelid AND c.attnum = k.number WHERE k.at <= %s) = %s
"""

Compare = Callable[[str, Any, int], tuple[int, int, list[dict[str, Any]]]]
"""Compares the rows of a FROM item with the source's rows: as TargetReader.compare."""


class PostgresRanges:
    """Implements RangedRows; the ranges are conditions on the columns of the key, which cannot be NULL."""

    def __init__(
        self, connection: PostgresConnection, place: Place, columns: Sequence[Column], compare: Compare, *, part: bool
    ) -> None:
        """`part`: see TargetReader.ranges. Raises NotByRanges if the target's key has no index, or its server does not hash as the source
        does."""
        names = [column.name for column in columns]
        if connection.info.server_version < _OLDEST or connection.info.parameter_status("server_encoding") != "UTF8":
            raise NotByRanges("a target that is older than PostgreSQL 14, or whose encoding is not UTF8")
        types = [ranged_type(column) for column in columns]
        self._texts = any(held is not None and held.kind is Kind.TEXT for held in types)
        if None in types or (part and self._texts):
            raise NotByRanges("a key of text, which the target may sort in another way")
        if not connection.execute(_INDEX, [place.qualified, len(names), names]).fetchall()[0][0]:
            raise NotByRanges("a target whose table has no index over its key, or a key that may be NULL")
        # Statements of many ranges would seem worth JIT compilation.
        connection.execute("SET LOCAL jit = off")
        self._connection = connection
        self._place = place
        self._columns = [sql.Identifier(name) for name in names]
        self._names = sql.SQL(", ").join(self._columns)
        self._item = place.qualified
        self._live = live(place.schema, "t")
        self._compare = compare
        self._kept = 0
        """How often the rows were restricted."""

    def digests(self, bounds: Sequence[KeyBound], check: Callable[[], None], form: RowForm) -> TargetDigests:
        if form is RowForm.LINE and self._place.types:
            raise NotByRanges("columns whose types are the owner's, who made the table")
        self._check_order(bounds)
        found = np.zeros((3, len(bounds) + 1), np.int64)
        hashed = self._row_hashes if form is RowForm.ROW else self._line_hashes
        queries = [self._digest_sql(i, hashed, *keys) for i, keys in enumerate(pairwise([None, *bounds, None]))]
        for begin in range(0, len(queries), _RANGES_AT_ONCE):
            check()
            query = sql.SQL(" UNION ALL ").join(queries[begin : begin + _RANGES_AT_ONCE])
            for number, *sums in self._connection.execute(query).fetchall():
                found[:, number] = [value or 0 for value in sums]
        return TargetDigests(*found)

    def keep(self, bounds: Sequence[KeyBound], wanted: Sequence[bool]) -> None:
        ranges = [keys for keys, keep in zip(pairwise([None, *bounds, None]), wanted, strict=True) if keep]
        columns = sql.SQL(", ").join(map(sql.SQL, self._place.quoted))
        name, old = f"__penstock_kept{self._kept + 1}", f"__penstock_kept{self._kept}"
        table = sql.SQL("pg_temp.{}").format(sql.Identifier(name))
        form = sql.SQL("CREATE TEMPORARY TABLE {} AS SELECT {} FROM {} AS t LIMIT 0")
        self._connection.execute(form.format(sql.Identifier(name), columns, sql.SQL(self._item)))
        for begin in range(0, len(ranges), _RANGES_AT_ONCE):
            parts = [
                sql.SQL("SELECT {} ").format(columns) + self._rows_sql(*keys)
                for keys in ranges[begin : begin + _RANGES_AT_ONCE]
            ]
            self._connection.execute(sql.SQL("INSERT INTO {} ").format(table) + sql.SQL(" UNION ALL ").join(parts))
        self._connection.execute(sql.SQL("CREATE INDEX ON {} ({})").format(table, self._names))
        self._connection.execute(sql.SQL("ANALYZE {}").format(table))
        if self._kept:
            self._connection.execute(f"DROP TABLE pg_temp.{old}".encode())
        self._item, self._live, self._kept = f"pg_temp.{name}", "", self._kept + 1

    def _check_order(self, bounds: Sequence[KeyBound]) -> None:
        """Raises NotByRanges if the bounds do not ascend by the collations of the columns."""
        if not self._texts or not bounds:
            return
        table = sql.SQL("pg_temp.{}").format(sql.Identifier(_BOUNDS))
        held = [sql.Identifier(f"k{i}") for i in range(len(self._columns))]
        named = map(sql.SQL("{} AS {}").format, self._columns, held)
        form = sql.SQL("CREATE TEMPORARY TABLE {} AS SELECT 0 AS n, {} FROM {} AS t LIMIT 0")
        self._connection.execute(form.format(sql.Identifier(_BOUNDS), sql.SQL(", ").join(named), sql.SQL(self._item)))
        for begin in range(0, len(bounds), _BOUNDS_AT_ONCE):
            lines = (
                sql.SQL("({}, {})").format(number, sql.SQL(", ").join(map(sql.Literal, bound.values)))
                for number, bound in enumerate(bounds[begin : begin + _BOUNDS_AT_ONCE], begin)
            )
            insert = sql.SQL("INSERT INTO {} VALUES {}").format(table, sql.SQL(", ").join(lines))
            self._connection.execute(insert)
        following = sql.SQL(", ").join(map(sql.SQL("lead({}) OVER w").format, held))
        query = sql.SQL(
            "SELECT count(*) FROM (SELECT ({}) > ({}) AS down FROM {} WINDOW w AS (ORDER BY n)) AS b WHERE down"
        )
        down = self._connection.execute(query.format(sql.SQL(", ").join(held), following, table)).fetchall()[0][0]
        self._connection.execute(sql.SQL("DROP TABLE {}").format(table))
        if down:
            raise NotByRanges(ANOTHER_ORDER)

    def compare(self, source: Any, limit: int) -> tuple[int, int, list[dict[str, Any]]]:
        return self._compare(f"(SELECT t.* FROM {self._item} AS t WHERE true{self._live}) AS w", source, limit)

    def close(self) -> None:
        """Drop the temporary table."""
        if self._kept:
            self._connection.execute(f"DROP TABLE {self._item}".encode())

    def _digest_sql(
        self, number: int, hashed: tuple[str, str, str], after: KeyBound | None, upto: KeyBound | None
    ) -> sql.Composed:
        """`hashed`: what is computed of each row as r, and of that, two hashes."""
        row, low, high = map(sql.SQL, hashed)
        return sql.SQL("SELECT {}, count(*), bit_xor({}), bit_xor({}) FROM (SELECT {} AS r {} OFFSET 0) AS d").format(
            number, low, high, row, self._rows_sql(after, upto)
        )

    @property
    def _row_hashes(self) -> tuple[str, str, str]:
        """Those of RowForm.ROW."""
        row = ", ".join(f"t.{name}" for name in self._place.quoted)
        return f'(ROW({row}))::text COLLATE "C"', "hashtextextended(r, 0)", "hashtextextended(r, 1)"

    @property
    def _line_hashes(self) -> tuple[str, str, str]:
        """Those of RowForm.LINE."""
        columns = zip(self._place.quoted, self._place.schema.columns, strict=True)
        fields = ", ".join(_line_field(f"t.{name}", column) for name, column in columns)
        low, high = (f"('x' || {half}(r, 16))::bit(64)::bigint" for half in ("left", "right"))
        return f"md5(concat_ws(E'\\t', {fields}))", low, high

    def _rows_sql(self, after: KeyBound | None, upto: KeyBound | None) -> sql.Composed:
        """FROM and WHERE of the rows of a range."""
        query = sql.SQL("FROM {} AS t WHERE true{}").format(sql.SQL(self._item), sql.SQL(self._live))
        for operator, bound in ((">", after), ("<=", upto)):
            if bound is not None:
                values = sql.SQL(", ").join(map(sql.Literal, bound.values))
                query += sql.SQL(" AND ({}) {} ({})").format(self._names, sql.SQL(operator), values)
        return query


def _line_field(value: str, column: Column) -> str:
    """SQL of a value's field in a line of RowForm.LINE."""
    if is_float(column):
        text = f"'f' || upper(encode(float8send({value}::float8), 'hex'))"
    else:
        text = f'concat({value}) COLLATE "C"'  # As it is printed; a cast prints the networks of addresses too.
        plain = column.type.name in _UNESCAPED and column.map_as != "text"
        for escape in () if plain else _ESCAPES:
            text = f"replace({text}, {escape})"
    return rf"CASE WHEN {value} IS NULL THEN E'\\N' ELSE {text} END"
