"""Tables in MariaDB's catalog, and what of them is replicated. Reading it needs no right but SELECT on the tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from engine.model.identity import RelationId, TableName
from engine.model.schema import Column, ReplicaIdentity, SourceType
from engine.records.catalog_table import CatalogColumn, CatalogTable, UniqueIndex
from engine.records.relation import Announced, AnnouncedColumn, relation_record
from engine.sources.mariadb.connect import MariaDbConnection, rows
from engine.sources.mariadb.types import OIDS, ColumnFacts, Printed, printed

SYSTEM_SCHEMAS = frozenset({"mysql", "information_schema", "performance_schema", "sys"})
SHADOW_SCHEMA = "penstock"
"""Database of the shadow log of captures by triggers."""
_TABLES = """
SELECT table_schema, table_name, engine, table_type, IFNULL(create_options, ''), CAST(create_time AS CHAR), IFNULL(table_rows, 0),
    IFNULL(data_length, 0)
FROM information_schema.tables WHERE table_type <> 'VIEW' AND
"""
_COLUMNS = """
SELECT table_schema, table_name, column_name, data_type, column_type, numeric_precision, numeric_scale, datetime_precision,
    is_nullable = 'YES', IFNULL(collation_name, ''), IFNULL(generation_expression, '')
FROM information_schema.columns WHERE {} ORDER BY table_schema, table_name, ordinal_position
"""
_INDEXES = """
SELECT table_schema, table_name, index_name, NOT non_unique, column_name, nullable = 'YES', sub_part IS NULL
FROM information_schema.statistics WHERE {} ORDER BY table_schema, table_name, index_name, seq_in_index
"""


@dataclass(frozen=True, slots=True)
class Index:
    """An index. `whole`: no column of it is indexed by its beginning only."""

    name: str
    unique: bool
    columns: tuple[str, ...]
    nullable: bool
    whole: bool


@dataclass(slots=True)
class MariaDbTable:
    """A table. `created`: when its definition was last changed, in whole seconds."""

    name: TableName
    engine: str
    kind: str
    partitioned: bool
    created: str
    rows: int
    bytes: int
    columns: list[ColumnFacts] = field(default_factory=list)
    expressions: list[str] = field(default_factory=list)
    """Expressions of generated columns, empty for others."""
    indexes: list[Index] = field(default_factory=list)

    @property
    def printed(self) -> list[tuple[ColumnFacts, Printed]]:
        """The columns whose values can be replicated."""
        return [(column, how) for column in self.columns if (how := printed(column)) is not None]

    @property
    def unprinted(self) -> list[ColumnFacts]:
        return [column for column in self.columns if printed(column) is None]

    @property
    def identity(self) -> Index | None:
        """The primary key, else the first unique index without NULL."""
        usable = [i for i in self.indexes if i.unique and i.whole and not i.nullable]
        usable = [i for i in usable if set(i.columns) <= {column.name for column, _ in self.printed}]
        return min(usable, key=lambda i: (i.name != "PRIMARY", i.name), default=None)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row; empty if there are none."""
        return () if self.identity is None else self.identity.columns

    def structure_with(self, relation: int, mark: str, base: int, parents: tuple[TableName, ...] = ()) -> Structure:
        """What its rows are recorded or read with now. `base`: is added to places from 1 on, as numbers of the columns."""
        identity = self.identity
        columns = tuple(
            (facts.name, how.name, how.modifier, base + place, facts.nullable)
            for place, (facts, how) in enumerate(self.printed, 1)
        )
        primary = identity is not None and identity.name == "PRIMARY"
        return Structure(self.name, relation, mark, columns, self.key, primary, parents)


@dataclass(frozen=True, slots=True)
class Structure:
    """What rows of a table were recorded with, or are read with. `columns`: name, canonical type, modifier, number and whether it may be
    NULL; the numbers of two different structures of one table have nothing in common. `key`: the columns that identify a row. `parents`:
    the tables whose triggers record its rows in cascades."""

    name: TableName
    relation: int
    mark: str
    columns: tuple[tuple[str, str, int, int, bool], ...]
    key: tuple[str, ...]
    primary: bool
    parents: tuple[TableName, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column[0] for column in self.columns)

    @property
    def replica_identity(self) -> ReplicaIdentity:
        if not self.key:
            return ReplicaIdentity.NOTHING
        return ReplicaIdentity.DEFAULT if self.primary else ReplicaIdentity.INDEX

    def to_text(self) -> str:
        """As text that `from_text` reads."""
        name = [self.name.schema, self.name.name]
        parents = [[[parent.schema, parent.name] for parent in self.parents]] if self.parents else []
        facts = [name, self.relation, self.mark, self.columns, self.key, self.primary, *parents]
        return json.dumps(facts, ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str) -> Self:
        (schema, name), relation, mark, columns, key, primary, *parents = json.loads(text)
        above = tuple(TableName(*parent) for parent in parents[0]) if parents else ()
        return cls(TableName(schema, name), relation, mark, tuple(map(tuple, columns)), tuple(key), primary, above)

    def table(self) -> CatalogTable:
        """As the functions take it that choose keys and columns."""
        identity = self.replica_identity
        columns = [
            CatalogColumn(
                Column(name, SourceType(kind, modifier, oid=OIDS[kind]), number, nullable),
                OIDS[kind],
                modifier,
                False,
                False,
            )
            for name, kind, modifier, number, nullable in self.columns
        ]
        index = UniqueIndex(self.primary, not self.primary, True, self.key, True)
        indexes = [index] if self.key else []
        return CatalogTable(self.relation, self.name, "r", "p", identity, self.relation, 0, columns, indexes=indexes)

    def record(self) -> bytes:
        """The relation record of its rows."""
        columns = (AnnouncedColumn(n, n in self.key, OIDS[kind], modifier) for n, kind, modifier, _, _ in self.columns)
        return relation_record(Announced(RelationId(self.relation), self.name, self.replica_identity, tuple(columns)))

    def unreadable_record(self) -> bytes:
        """A relation record that matches no structure, so that the table is copied again."""
        column = AnnouncedColumn(self.names[0], False, 0, -1)
        return relation_record(Announced(RelationId(self.relation), self.name, self.replica_identity, (column,)))


def load_facts(
    connection: MariaDbConnection, schema: str, names: Sequence[str] | None = None
) -> dict[TableName, MariaDbTable]:
    """These tables of a database, or every one, as they are now; missing ones, and views, are left out."""
    condition, values = "table_schema = %s", [schema]
    if names is not None:
        condition += f" AND table_name IN ({', '.join(['%s'] * len(names))})"
        values += names
    tables: dict[TableName, MariaDbTable] = {}
    for s, n, engine, kind, options, created, count, size in rows(connection, _TABLES + condition, *values):
        plain = (engine or "", kind, "partitioned" in options, created or "", int(count), int(size))
        tables[TableName(s, n)] = MariaDbTable(TableName(s, n), *plain)
    for s, n, column, data, full, *numbers_of, nullable, collation, expression in rows(
        connection, _COLUMNS.format(condition), *values
    ):
        if (table := tables.get(TableName(s, n))) is not None:
            precision, scale, fraction = numbers_of
            table.columns.append(ColumnFacts(column, data, full, precision, scale, fraction, bool(nullable), collation))
            table.expressions.append(expression)
    for name, indexes in _indexes(rows(connection, _INDEXES.format(condition), *values)).items():
        if name in tables:
            tables[name].indexes = indexes
    return tables


def load_named(connection: MariaDbConnection, names: Iterable[TableName]) -> dict[TableName, MariaDbTable]:
    """As `load_facts`, by the full names."""
    wanted = set(names)
    found: dict[TableName, MariaDbTable] = {}
    for schema in sorted({name.schema for name in wanted}):
        here = sorted(name.name for name in wanted if name.schema == schema)
        found |= {n: t for n, t in load_facts(connection, schema, here).items() if n in wanted}
    return found


def _indexes(listed: Iterable[Sequence[Any]]) -> dict[TableName, list[Index]]:
    found: dict[TableName, dict[str, list[tuple[bool, str, bool, bool]]]] = {}
    for schema, name, index, unique, column, nullable, whole in listed:
        parts = found.setdefault(TableName(schema, name), {}).setdefault(index, [])
        parts.append((bool(unique), column, bool(nullable), bool(whole)))
    return {
        name: [
            Index(
                index,
                parts[0][0],
                tuple(column for _, column, _, _ in parts),
                any(nullable for _, _, nullable, _ in parts),
                all(whole for *_, whole in parts),
            )
            for index, parts in indexes.items()
        ]
        for name, indexes in found.items()
    }
