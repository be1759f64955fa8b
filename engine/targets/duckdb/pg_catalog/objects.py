"""The objects of a copy as PostgreSQL would number them: schemas, relations, row types, primary keys and their indexes. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from engine.postgres.wire_types import pg_type_of
from engine.targets.duckdb.pg_catalog.definitions import (
    INFORMATION_SCHEMA,
    PG_CATALOG,
    BuiltinType,
    builtin_types,
    relations,
    type_oids,
)
from engine.targets.duckdb.pg_catalog.description import Description, RelationDescription
from engine.targets.duckdb.pg_catalog.oids import stable_oids
from engine.targets.duckdb.pg_catalog.settings import search_path

OWNER = 10
"""OID of the one role (BOOTSTRAP_SUPERUSERID)."""
PUBLIC = "public"
_SYSTEM_SCHEMAS = {PG_CATALOG: 11, "pg_toast": 99, PUBLIC: 2200, INFORMATION_SCHEMA: 13207}


@dataclass(frozen=True, slots=True)
class Attribute:
    """A column of any relation."""

    name: str
    number: int
    type: BuiltinType
    modifier: int
    required: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A table, view or index. `kind`: pg_class.relkind."""

    oid: int
    schema: str
    name: str
    kind: str
    attributes: tuple[Attribute, ...]
    row_type: int = 0
    described: RelationDescription | None = None
    """None for relations of the catalog, and for indexes."""


@dataclass(frozen=True, slots=True)
class Key:
    """A primary key with its index, which has the same name. `numbers`: attribute numbers in key order."""

    constraint: int
    table: Relation
    index: Relation
    numbers: tuple[int, ...]


class Objects:
    """All objects of a description."""

    def __init__(self, described: Description) -> None:
        self.described = described
        self._types = {one.oid: one for one in builtin_types()}
        self.oids = stable_oids(self._names())

    def _names(self) -> Iterator[tuple[str, ...]]:
        yield "database", self.described.database
        for one in self.described.relations:
            yield "schema", one.schema
            yield "relation", one.schema, one.name
            for kind in ("type", "array", "rule"):
                yield kind, one.schema, one.name
            if one.key:
                yield "index", one.schema, one.name
                yield "constraint", one.schema, one.name

    @cached_property
    def schemas(self) -> dict[str, int]:
        """OIDs by name."""
        own = {one.schema for one in self.described.relations} - _SYSTEM_SCHEMAS.keys()
        return {**_SYSTEM_SCHEMAS, **{name: self.oids["schema", name] for name in sorted(own)}}

    @cached_property
    def own(self) -> tuple[Relation, ...]:
        """The described tables and views, by schema and name."""
        ordered = sorted(self.described.relations, key=lambda one: (one.schema, one.name))
        return tuple(self._own(one) for one in ordered)

    def _own(self, one: RelationDescription) -> Relation:
        attributes = []
        for number, column in enumerate(one.columns, start=1):
            oid, modifier = pg_type_of(column.type)
            required = not column.nullable or column.name in one.key
            attributes.append(Attribute(column.name, number, self._types[oid], modifier, required and not one.view))
        name = (one.schema, one.name)
        kind = "v" if one.view else "r"
        oid = self.oids["relation", *name]
        return Relation(oid, one.schema, one.name, kind, tuple(attributes), self.oids["type", *name], one)

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """Primary keys of the described tables."""
        taken = {(one.schema, one.name) for one in self.own}
        return tuple(self._key(one, taken) for one in self.own if one.described and one.described.key)

    def _key(self, table: Relation, taken: set[tuple[str, str]]) -> Key:
        described = table.described
        assert described is not None  # noqa: S101 - of `own`
        by_name = {one.name: one for one in table.attributes}
        columns = [by_name[name] for name in described.key]
        attributes = tuple(Attribute(one.name, i, one.type, one.modifier, False) for i, one in enumerate(columns, 1))
        name = f"{table.name}_pkey"
        number = 0
        while (table.schema, name) in taken:
            number += 1
            name = f"{table.name}_pkey{number}"
        taken.add((table.schema, name))
        index = Relation(self.oids["index", table.schema, table.name], table.schema, name, "i", attributes)
        constraint = self.oids["constraint", table.schema, table.name]
        return Key(constraint, table, index, tuple(one.number for one in columns))

    @cached_property
    def catalog(self) -> tuple[Relation, ...]:
        """The relations of pg_catalog and information_schema."""
        types = type_oids()
        found = []
        for one in relations().values():
            attributes = tuple(
                Attribute(column.name, number, self._types[types[column.type]], -1, column.required)
                for number, column in enumerate(one.columns, start=1)
            )
            found.append(Relation(one.oid, one.schema, one.name, one.kind, attributes))
        return tuple(found)

    @cached_property
    def everything(self) -> tuple[Relation, ...]:
        return (*self.catalog, *self.own, *(key.index for key in self.keys))

    @cached_property
    def path(self) -> list[str]:
        """Schemas of unqualified names, pg_catalog first unless it is named later."""
        path = search_path(self.described)
        return path if PG_CATALOG in path else [PG_CATALOG, *path]

    @cached_property
    def visible(self) -> set[int]:
        """OIDs of the relations that are found without a schema."""
        first: dict[str, int] = {}
        for schema in self.path:
            for one in self.everything:
                if one.schema == schema:
                    first.setdefault(one.name, one.oid)
        return set(first.values())
