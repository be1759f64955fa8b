"""The check that a declared key tells the rows of a table of the target apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId
from engine.model.schema import TableSchema


def check_key(
    execute: Callable[[str], Any], table: TableId, schema: TableSchema, place: str, columns: Sequence[str]
) -> None:
    """Raise EngineFault(TABLE_KEY_NOT_UNIQUE) where the key does not tell the table's rows apart. Reads the whole key.

    `execute` runs a statement and returns its cursor; `place` and `columns`, those of the key, are quoted for it.
    """
    if not columns:
        return
    listed = ", ".join(columns)
    missing = " OR ".join(f"{column} IS NULL" for column in columns)
    sql = (
        f"SELECT (SELECT count(*) FROM {place} WHERE {missing}),"
        f" (SELECT count(*) FROM (SELECT 1 FROM {place} GROUP BY {listed} HAVING count(*) > 1) AS d)"
    )
    without, shared = execute(sql).fetchall()[0]
    if without or shared:
        words = ", ".join(schema.key)
        detail = (
            f"the declared key ({words}) has {shared} values that several rows share, and is NULL in {without} rows"
        )
        raise EngineFault(FaultKind.TABLE_KEY_NOT_UNIQUE, table, detail)
