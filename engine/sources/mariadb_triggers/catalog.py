"""Tables as triggers record them: their numbers in InnoDB, and marks that change with every change of a table."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from engine.model.identity import TableName
from engine.sources.mariadb.catalog import MariaDbTable, Structure, load_facts
from engine.sources.mariadb.connect import MariaDbConnection, rows
from engine.sources.mariadb_triggers.cascades import ForeignKey, above, ancestors, load_foreign_keys

_ENCODED = "CONCAT(CAST(CONVERT(t.table_schema USING filename) AS BINARY), '/', CAST(CONVERT(t.table_name USING filename) AS BINARY))"
"""A table's name in InnoDB's own catalog."""
_NAMES = f"""
SELECT t.table_schema, t.table_name, {_ENCODED}, CAST(t.create_time AS CHAR) FROM information_schema.tables t
WHERE t.table_type <> 'VIEW' AND
"""
_NUMBERS = "SELECT CAST(name AS BINARY), table_id FROM information_schema.innodb_sys_tables"
_COLUMN_BITS = 12
"""Low bits of a column's number, for its place: MariaDB allows 4,096 columns."""
_FEW = 50
"""Tables up to which only they are looked for in InnoDB's catalog. Not measured."""


@dataclass(slots=True)
class TriggeredTable(MariaDbTable):
    """A table with what its triggers depend on. `relation`: its number in InnoDB, which another one gets whenever its storage is replaced,
    as by TRUNCATE; 0 for tables of other engines."""

    relation: int = 0
    cascades: tuple[ForeignKey, ...] = ()
    """Foreign keys that change its rows without a trigger, and those that so change the rows that it refers to."""

    @property
    def mark(self) -> str:
        """Changes with every ALTER TABLE, with TRUNCATE, if another table gets the name, and with the foreign keys of `cascades`."""
        own = (self.relation, self.created, self.columns, self.expressions, self.indexes)
        facts = repr((*own, self.cascades) if self.cascades else own)
        return hashlib.md5(facts.encode(), usedforsecurity=False).hexdigest()

    @property
    def constrained(self) -> list[str]:
        """Columns for whose sake the server may leave a row as it was in UPDATE IGNORE: those of keys and of foreign keys, which all have
        an index."""
        indexed = {name for index in self.indexes for name in index.columns}
        return [column.name for column in self.columns if column.name in indexed]

    def structure(self) -> Structure:
        """What its rows are recorded with now."""
        mark = self.mark
        base = int(mark[:5], 16) % (1 << 31 - _COLUMN_BITS) << _COLUMN_BITS
        return self.structure_with(self.relation, mark, base, tuple(ancestors(self.cascades)) if self.key else ())


def load_tables(connection: MariaDbConnection, names: Iterable[TableName]) -> dict[TableName, TriggeredTable]:
    """These tables as they are now; missing ones, and views, are left out."""
    wanted = set(names)
    found: dict[TableName, TriggeredTable] = {}
    for schema in sorted({name.schema for name in wanted}):
        here = sorted(name.name for name in wanted if name.schema == schema)
        found |= {n: t for n, t in _load(connection, schema, here).items() if n in wanted}
    return found


def load_schema(connection: MariaDbConnection, schema: str) -> dict[TableName, TriggeredTable]:
    """Every table of a database."""
    return _load(connection, schema, None)


def _load(connection: MariaDbConnection, schema: str, names: Sequence[str] | None) -> dict[TableName, TriggeredTable]:
    condition, values = "t.table_schema = %s", [schema]
    if names is not None:
        condition += f" AND t.table_name IN ({', '.join(['%s'] * len(names))})"
        values += names
    encoded = {TableName(s, n): bytes(e) for s, n, e, _ in rows(connection, _NAMES + condition, *values)}
    numbers = _numbers(connection, list(encoded.values()))
    facts = load_facts(connection, schema, names)
    keys = load_foreign_keys(connection) if facts else []
    return {
        name: _triggered(table, numbers.get(encoded.get(name, b""), 0), above(keys, name) if keys else ())
        for name, table in facts.items()
    }


def _triggered(table: MariaDbTable, relation: int, cascades: tuple[ForeignKey, ...]) -> TriggeredTable:
    facts: dict[str, Any] = {each.name: getattr(table, each.name) for each in fields(table)}
    return TriggeredTable(**facts, relation=relation, cascades=cascades)


def _numbers(connection: MariaDbConnection, encoded: Sequence[bytes]) -> dict[bytes, int]:
    """Numbers of tables in InnoDB by their names there."""
    if not encoded:
        return {}
    if len(encoded) > _FEW:
        return {bytes(name): number for name, number in rows(connection, _NUMBERS)}
    names = ", ".join(["%s"] * len(encoded))
    found = rows(connection, f"{_NUMBERS} WHERE CAST(name AS BINARY) IN ({names})", *map(bytes, encoded))
    return {bytes(name): int(number) for name, number in found}


def marks_now(connection: MariaDbConnection, names: Collection[TableName]) -> Mapping[TableName, tuple[int, str]]:
    """Number and time of the last change of these tables: less than their marks, but quick to read."""
    found = {}
    for name in names:
        statement = _NAMES + "t.table_schema = %s AND t.table_name = %s"
        for schema, table, encoded, created in rows(connection, statement, name.schema, name.name):
            number = _numbers(connection, [encoded]).get(bytes(encoded), 0)
            found[TableName(schema, table)] = (number, created or "")
    return found


def names_of(connection: MariaDbConnection, relations: Collection[int]) -> dict[int, TableName]:
    """The present names of tables by their numbers in InnoDB; missing ones are left out."""
    if not relations:
        return {}
    listed = ", ".join(str(int(number)) for number in relations)
    numbers = {bytes(n): i for n, i in rows(connection, f"{_NUMBERS} WHERE table_id IN ({listed})")}
    statement = (
        f"SELECT t.table_schema, t.table_name, {_ENCODED} FROM information_schema.tables t WHERE t.table_type <> 'VIEW'"
    )
    found = rows(connection, statement) if numbers else []
    return {numbers[bytes(encoded)]: TableName(s, n) for s, n, encoded in found if bytes(encoded) in numbers}


def exists(connection: MariaDbConnection, relation: int) -> bool:
    """Whether a table has this number in InnoDB."""
    return bool(rows(connection, f"{_NUMBERS} WHERE table_id = {int(relation)}"))
