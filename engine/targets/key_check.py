"""Whether the key of a table tells its rows apart, in SQL that every target understands."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId
from engine.targets.metadata_store import Rows


def check_key(
    execute: Callable[[str], Rows], table: TableId, place: str, key: Sequence[str], quoted: Callable[[str], str]
) -> None:
    """Raise EngineFault(TABLE_KEY_NOT_UNIQUE) where it does not. `place`: the full quoted name. Reads the whole key."""
    if not key:
        return
    listed = ", ".join(map(quoted, key))
    missing = " OR ".join(f"{quoted(name)} IS NULL" for name in key)
    sql = (
        f"SELECT (SELECT count(*) FROM {place} WHERE {missing}),"
        f" (SELECT count(*) FROM (SELECT 1 FROM {place} GROUP BY {listed} HAVING count(*) > 1) AS d)"
    )
    without, shared = execute(sql).fetchall()[0]
    if without or shared:
        words = f"the declared key ({', '.join(key)}) has {shared} values that several rows share"
        raise EngineFault(FaultKind.TABLE_KEY_NOT_UNIQUE, table, f"{words}, and is NULL in {without} rows")
