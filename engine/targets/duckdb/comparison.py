"""SQL that compares a table with the source's rows. Large values are compared by length and SHA-256, so that they need not fit into
memory."""

from __future__ import annotations

from dataclasses import dataclass

from engine.model.schema import KeyMode
from engine.model.target import TableRecord
from engine.model.values import Kind, value_type
from engine.targets.duckdb.changes import Place, identical
from engine.targets.duckdb.types import duckdb_type, equal_means_identical
from engine.targets.identifiers import quoted

SOURCE = "temp.__penstock_source"
"""The source's rows, prepared for the comparison."""
TARGET = "temp.__penstock_target"
"""The target's rows, if they are prepared step by step."""
LARGE_BYTES = 16 * 1024
"""Longer values of columns outside the key are compared by their digest."""
_KEY_LENGTH = 200
"""Characters shown of each column of a row without a key."""


@dataclass(frozen=True, slots=True)
class Sides:
    """Both sides of a comparison. `target`: FROM item of the target's rows.

    For each column, `ci` has its value, or NULL if it is large; for text and bytes outside the key, `di` then has its digest.
    """

    record: TableRecord
    target: str
    formed: bool = False
    """The target's rows are already prepared."""

    @property
    def _key(self) -> list[int]:
        return Place(self.record.table, self.target, self.record.schema).key

    @property
    def _digested(self) -> list[int]:
        columns = enumerate(self.record.schema.columns)
        kept = set(self._key) if self.record.schema.mode is KeyMode.KEYED else set()
        return [i for i, c in columns if i not in kept and value_type(c).kind in {Kind.TEXT, Kind.BYTES}]

    def create_sql(self, name: str) -> str:
        """CREATE for an empty table for the rows of one side."""
        columns = [f"c{i} {duckdb_type(value_type(c))}" for i, c in enumerate(self.record.schema.columns)]
        columns += [f"d{i} VARCHAR" for i in self._digested]
        return f"CREATE TEMP TABLE {name.removeprefix('temp.')} ({', '.join(columns)})"

    def form(self, values: list[str]) -> str:
        """The select list of a row, given an expression for each column."""
        digested = set(self._digested)
        listed = []
        for i, value in enumerate(values):
            small = f"CASE WHEN {self._is_large(i, value)} THEN NULL ELSE {value} END" if i in digested else value
            listed.append(f"{small} AS c{i}")
        listed += [
            f"CASE WHEN {self._is_large(i, values[i])} THEN concat({self._size(i, values[i])}, ' ', sha256({values[i]})) END AS d{i}"
            for i in self._digested
        ]
        return ", ".join(listed)

    def target_sql(self) -> str:
        """The target's rows, prepared."""
        if self.formed:
            return f"SELECT * FROM {TARGET}"
        return f"SELECT {self.form([quoted(c.name) for c in self.record.schema.columns])} FROM {self.target}"

    def keyed_sql(self, limit: int) -> str:
        """Rows (kind, positions of the columns that differ as text, then of each key column the text t and the value k), ordered by key."""
        on_key = " AND ".join(f"s.c{i} = t.c{i}" for i in self._key)
        same = [self._same(i) for i in range(len(self.record.schema.columns))]
        keys = [f"COALESCE(s.c{i}, t.c{i})" for i in self._key]
        differing = ", ".join(f"CASE WHEN NOT ({one}) THEN '{i}' END" for i, one in enumerate(same))
        return (
            "SELECT CASE WHEN t.here IS NULL THEN 'missing' WHEN s.here IS NULL THEN 'extra' ELSE 'different' END AS kind,"
            f" CASE WHEN t.here AND s.here THEN concat_ws(',', {differing}) END AS differing, {self._key_shown(keys)}"
            f" FROM (SELECT *, true AS here FROM {SOURCE}) AS s"
            f" FULL JOIN (SELECT *, true AS here FROM ({self.target_sql()})) AS t ON {on_key}"
            f" WHERE t.here IS NULL OR s.here IS NULL OR NOT ({' AND '.join(same)})"
            f" ORDER BY {', '.join(keys)} LIMIT {limit}"
        )

    def duplicates_sql(self, limit: int) -> str:
        """Rows as those of `keyed_sql`, ('extra', NULL, …), for keys that the target has more than once."""
        keys = ", ".join(f"c{i}" for i in self._key)
        shown = self._key_shown([f"c{i}" for i in self._key])
        return (
            f"SELECT 'extra' AS kind, CAST(NULL AS VARCHAR) AS differing, {shown} FROM (SELECT {keys} FROM ({self.target_sql()})"
            f" GROUP BY {keys} HAVING count(*) > 1) ORDER BY {keys} LIMIT {limit}"
        )

    def _same(self, column: int) -> str:
        """SQL condition: the rows `s` and `t` have the same value in this column."""
        same = f"({identical(f's.c{column}', f't.c{column}', value_type(self.record.schema.columns[column]))})"
        digest = f" AND s.d{column} IS NOT DISTINCT FROM t.d{column}" if column in self._digested else ""
        return same + digest

    def _key_shown(self, keys: list[str]) -> str:
        """Of each key column its text, and its value in the form of `rows_at`."""
        shown = []
        for j, (i, key) in enumerate(zip(self._key, keys, strict=True)):
            text = f"CAST({key} AS VARCHAR)"
            is_uuid = value_type(self.record.schema.columns[i]).kind is Kind.UUID
            shown += [f"{text} AS t{j}", f"{text if is_uuid else key} AS k{j}"]
        return ", ".join(shown)

    def bag_sql(self, limit: int) -> str:
        """Rows (number of additional copies on the source, start of every column's text …)."""
        columns, digested = self.record.schema.columns, self._digested
        images = [
            f"c{i}" if equal_means_identical(value_type(c)) else f"CAST(c{i} AS VARCHAR)" for i, c in enumerate(columns)
        ]
        grouped = ", ".join(
            [*(f"{image} AS g{i}" for i, image in enumerate(images)), *(f"d{i} AS h{i}" for i in digested)]
        )
        names = ", ".join([*(f"g{i}" for i in range(len(images))), *(f"h{i}" for i in digested)])
        shown = [
            f"COALESCE(CAST(g{i} AS VARCHAR), h{i})" if i in digested else f"CAST(g{i} AS VARCHAR)"
            for i in range(len(images))
        ]
        texts = ", ".join(f"left({text}, {_KEY_LENGTH})" for text in shown)
        return (
            f"SELECT sum(side), {texts} FROM (SELECT 1 AS side, {grouped} FROM {SOURCE}"
            f" UNION ALL SELECT -1, {grouped} FROM ({self.target_sql()}))"
            f" GROUP BY {names} HAVING sum(side) <> 0 ORDER BY {names} LIMIT {limit}"
        )

    def _size(self, column: int, value: str) -> str:
        is_text = value_type(self.record.schema.columns[column]).kind is Kind.TEXT
        return f"strlen({value})" if is_text else f"octet_length({value})"

    def _is_large(self, column: int, value: str) -> str:
        return f"{self._size(column, value)} > {LARGE_BYTES}"
