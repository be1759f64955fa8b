"""Stamps of tables below a view: which of them the view reads, and which of its rows a changed row of theirs may have changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from engine.model.identity import RelationId, TableId, TableName
from engine.model.schema import ReplicaIdentity
from engine.model.subscription import TableSpec
from engine.postgres.sessions import PostgresConnection
from engine.records.catalog_table import CatalogColumn, CatalogTable, UniqueIndex, schema_of
from engine.sources.postgres.catalog import load_tables
from engine.sources.postgres.view_marks import ViewMark, mark_of_view
from engine.sources.postgres_queries.compared import KEY_TYPES
from engine.sources.postgres_queries.stamps import TYPES
from engine.sources.query_diff.database import ComparedTable, StampBelow
from engine.sources.query_diff.declaration import StampBelow as Declared

_RELATIONS = """
SELECT n.nspname, c.relname, c.relkind::text,
       EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY (%s::oid[]) AND c.oid <> %s
"""
_LOOSE = """
SELECT a.attname FROM pg_attribute a JOIN pg_collation c ON c.oid = a.attcollation
WHERE a.attrelid = ANY (%s::oid[]) AND NOT c.collisdeterministic
"""
"""Columns of which texts that differ may be equal."""
_KIND = "SELECT relkind::text FROM pg_class WHERE oid = %s"


@dataclass(frozen=True, slots=True)
class Below:
    """What a view reads. `plain`: tables whose rows are all in one file, and of which stamps can be declared; `others`: the others, by
    name, with their pg_class.relkind."""

    plain: frozenset[TableName]
    others: Mapping[TableName, str]

    def without(self, declared: Collection[str]) -> list[str]:
        """The relations with rows of which no stamp is declared."""
        rows = self.plain | {name for name, kind in self.others.items() if kind not in _WITHOUT_ROWS}
        return sorted({str(name) for name in rows} - set(declared))


_KINDS = {
    "f": "a foreign table",
    "m": "a materialized view",
    "p": "partitioned: declare the stamps of its partitions",
    "r": "a table with children",
    "v": "a view: declare the stamps of what it reads",
}
"""By pg_class.relkind, what has no stamps that show all of its changes."""
_WITHOUT_ROWS = frozenset({"p", "v"})
"""Kinds of relations that have no rows of their own."""


def relations_below(connection: PostgresConnection, view: CatalogTable) -> Below:
    """Through views of views, and to the partitions of tables. Without what functions read."""
    return _below(connection, view, mark_of_view(connection, RelationId(view.oid)))


def _below(connection: PostgresConnection, view: CatalogTable, mark: ViewMark) -> Below:
    plain: set[TableName] = set()
    others: dict[TableName, str] = {}
    for schema, name, kind, is_parent in connection.execute(_RELATIONS, [[row[0] for row in mark], view.oid]):
        if kind == "r" and not is_parent:
            plain.add(TableName(schema, name))
        else:
            others[TableName(schema, name)] = kind
    return Below(frozenset(plain), others)


def stamps_below(
    connection: PostgresConnection, view: CatalogTable, declared: Mapping[str, Declared], key: Sequence[str]
) -> tuple[tuple[StampBelow, ...], list[str]]:
    """The stamps of tables below a view with this key, as declared; and why they cannot be used, as texts, if they cannot."""
    kind = connection.execute(_KIND, [view.oid]).fetchone()
    if kind is None or kind[0] != "v":
        what = "a materialized view, whose rows change when it is refreshed" if kind and kind[0] == "m" else "no view"
        return (), [f"it is {what}: no stamps below it show its changes"]
    mark = mark_of_view(connection, RelationId(view.oid))
    below = _below(connection, view, mark)
    names = {name: name.split(".", 1) for name in declared}
    tables = load_tables(connection, [TableName(*parts) for parts in names.values() if len(parts) > 1])
    loose = connection.execute(_LOOSE, [[view.oid, *(table.oid for table in tables.values())]]).fetchall()
    found, problems = [], []
    for name, one in sorted(declared.items()):
        table = tables.get(TableName(*names[name])) if len(names[name]) > 1 else None
        problem = _problem(view, table, name, one, below, {column for (column,) in loose})
        stamp = None
        if problem is None and table is not None:
            stamp = _stamp(table, one, key, repr((mark, name, table.oid, one.model_dump())))
        if stamp is None:
            problems.append(problem or f"{name} cannot be read as declared")
        else:
            found.append(stamp)
    return ((), problems) if problems else (tuple(found), [])


def _problem(
    view: CatalogTable, table: CatalogTable | None, name: str, one: Declared, below: Below, loose: Collection[str]
) -> str | None:
    if table is None or table.name not in below.plain:
        kind = below.others.get(table.name) if table is not None else None
        return f"{name} is {_KINDS.get(kind or '', 'no table that it reads')}"
    columns, shown = _columns(table), _columns(view)
    stamp = columns.get(one.stamp_column)
    if stamp is None or stamp.column.type.name not in TYPES:
        return f"stamp_column {one.stamp_column} of {name} is not a column of type {', '.join(sorted(TYPES))}"
    for left, right in one.columns.items():
        if left not in shown or right not in columns:
            return f"columns of {name}: there is no column {left if left not in shown else right}"
        pair = [(each.type_oid, each.modifier) for each in (shown[left], columns[right])]
        kind = columns[right].column.type.name
        if pair[0] != pair[1] or kind not in KEY_TYPES or {left, right} & set(loose):
            return f"columns of {name}: {left} and {right} are not of one type of which equal values print alike"
    return None


def _stamp(table: CatalogTable, one: Declared, key: Sequence[str], what: str) -> StampBelow | None:
    """`what`: all on which the meaning of a stored stamp depends."""
    names = tuple(one.columns.values())
    read = replace(
        table,
        columns=[c for c in table.columns if c.column.name in {*names, one.stamp_column}],
        identity=ReplicaIdentity.DEFAULT,
        persistence="p",
        indexes=[UniqueIndex(primary=True, replica_identity=False, immediate=True, columns=names, not_null=True)],
        generated=[],
        computed=[],
    )
    spec = TableSpec(TableId("t0"), table.name, table.name)
    schema = schema_of(read, spec)
    if schema is None:
        return None
    on_view = tuple(one.columns)
    places = tuple(key.index(name) for name in on_view) if set(on_view) <= set(key) else None
    name = blake2b(what.encode(), digest_size=16).hexdigest()
    return StampBelow(name, ComparedTable(schema, spec, b"", b""), one.stamp_column, on_view, places)


def _columns(table: CatalogTable) -> dict[str, CatalogColumn]:
    return {c.column.name: c for c in table.columns}
