"""The structure in which a table's recorded rows are read, and the changes of it that a session meets.

The catalog is read after the window was closed, so it may be later than the rows. A writer holds the table's lock until its transaction
ends, and a change of the table waits for that. So if the catalog had this structure already when the window began, all its rows have it.
Otherwise the names in each row say which one it has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.model.identity import RelationId, TableName
from engine.model.schema import ReplicaIdentity
from engine.postgres.sessions import PostgresConnection
from engine.records.catalog_table import CatalogTable
from engine.records.relation import Announced, AnnouncedColumn, relation_record
from engine.sources.postgres.catalog import load_numbered, load_tables
from engine.sources.postgres_triggers.json_rows import JsonForm
from engine.sources.postgres_triggers.objects import is_exact

_MARKS = """
SELECT c.oid::bigint, concat_ws(' ', c.xmin, c.relname, c.relreplident,
       (SELECT string_agg(concat_ws(':', a.attnum, a.xmin, t.xmin, m.told), ' ' ORDER BY a.attnum)
        FROM pg_attribute a LEFT JOIN pg_type t ON t.oid = a.atttypid
        LEFT JOIN LATERAL (SELECT string_agg(concat(b.attnum, b.xmin), ',' ORDER BY b.attnum) AS told
                           FROM pg_attribute b WHERE b.attrelid = t.typrelid AND t.typtype = 'c') AS m ON true
        WHERE a.attrelid = c.oid AND a.attnum > 0),
       (SELECT string_agg(concat_ws(':', i.indexrelid, i.xmin), ' ' ORDER BY i.indexrelid) FROM pg_index i WHERE i.indrelid = c.oid),
       (SELECT string_agg(concat_ws(':', g.oid, g.xmin, p.oid, p.xmin), ' ' ORDER BY g.oid)
        FROM pg_trigger g JOIN pg_proc p ON p.oid = g.tgfoid WHERE g.tgrelid = c.oid AND NOT g.tgisinternal)),
       ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum),
       pg_current_snapshot()::text
FROM pg_class c WHERE c.oid = ANY(%s::oid[])
"""
_ADDED_AFTER_DROPS = """
SELECT r.attrelid::bigint, array_agg(r.attname::text) FILTER (WHERE NOT r.attisdropped)
FROM (SELECT a.*, e.xmax - ((e.xmax - a.xmin::text::bigint) & 4294967295) >= pg_snapshot_xmin(%s::text::pg_snapshot)::text::bigint AS recent
      FROM pg_attribute a CROSS JOIN (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS xmax) AS e
      WHERE a.attrelid = ANY(%s::oid[]) AND a.attnum > 0) AS r
WHERE r.recent GROUP BY r.attrelid HAVING bool_or(r.attisdropped)
"""
"""Columns written to the catalog after a snapshot, of tables that lost a column after it. A catalog row has the low 32 bits of its writer's
transaction id; they are taken for those of the last such transaction."""
_UNREADABLE = 0
"""OID of no type: a column announced with it matches none, so the table is copied again."""


@dataclass(frozen=True, slots=True)
class Structure:
    """A table in the catalog. `mark`: changes with every change of its catalog rows. `names`: of all its columns, in order. `since`: the
    snapshot of the first look that found it like this, as text. `json`: how its rows are printed as JSON, None if JSON does not hold them
    exactly. `earlier`: structures that rows not read yet may have."""

    table: CatalogTable
    mark: str
    names: tuple[str, ...]
    since: str
    json: JsonForm | None
    earlier: tuple[Structure, ...] = ()
    doubtful: frozenset[str] = frozenset()
    """Columns that may have been added in place of dropped ones of the same names, of which rows not read yet may have values."""

    def is_settled(self, before: str) -> bool:
        """Whether all rows have it that were committed after this snapshot."""
        return _is_not_later(self.since, before)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns whose values are sent."""
        return self.table.column_names

    @property
    def is_exact(self) -> bool:
        """Whether its rows must have been recorded as text."""
        return is_exact(self.table)

    @property
    def is_whole(self) -> bool:
        """Whether old rows are sent as a whole."""
        return self.table.identity is ReplicaIdentity.FULL

    def keys(self, columns: Collection[str]) -> list[int]:
        """Places of the columns that identify a row, among these."""
        identity = set(self.table.identity_columns)
        return [place for place, name in enumerate(columns) if name in identity]

    def record(self, columns: Collection[str]) -> bytes:
        """The relation record of rows with these columns only."""
        identity = set(self.table.identity_columns)
        return self._announced(
            AnnouncedColumn(c.column.name, c.column.name in identity, c.type_oid, c.modifier)
            for c in self.table.columns
            if c.column.name in columns
        )

    def unreadable_record(self, name: str) -> bytes:
        """A relation record that matches no structure, with the name of the column that cannot be read."""
        return self._announced([AnnouncedColumn(name, False, _UNREADABLE, -1)])

    def _announced(self, columns: Iterable[AnnouncedColumn]) -> bytes:
        table = self.table
        return relation_record(Announced(RelationId(table.oid), table.name, table.identity, tuple(columns)))


_NUMBERS = """
SELECT array_agg(c.oid::bigint ORDER BY c.oid) FROM unnest(%s::text[], %s::text[]) AS w(s, t)
JOIN pg_namespace n ON n.nspname = w.s JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.t
"""


def as_recorded(table: CatalogTable) -> CatalogTable:
    """The table as its triggers record it: whole old rows, so that one without a usable replica identity is like one whose identity is
    FULL."""
    by_null = table.identity is ReplicaIdentity.INDEX and any(
        i.replica_identity and not i.not_null for i in table.indexes
    )
    identity = table.identity if table.identity_columns and not by_null else ReplicaIdentity.FULL
    return replace(table, identity=identity, has_filters=True, whole_rows=True)


def load_recorded(connection: PostgresConnection, names: Iterable[TableName]) -> dict[TableName, CatalogTable]:
    """As `load_tables`, with the tables as they are recorded."""
    return {name: as_recorded(table) for name, table in load_tables(connection, names).items()}


def load_recorded_by_number(connection: PostgresConnection, oids: Iterable[int]) -> dict[int, CatalogTable]:
    """As `load_numbered`, with the tables as they are recorded."""
    return {oid: as_recorded(table) for oid, table in load_numbered(connection, oids).items()}


def marks_of(connection: PostgresConnection, names: Collection[TableName]) -> str:
    """The marks of these tables as one text; it changes with every change of their catalog rows, also of their triggers."""
    oids = connection.execute(_NUMBERS, [[n.schema for n in names], [n.name for n in names]]).fetchall()[0][0]
    rows = connection.execute(_MARKS, [oids or []]).fetchall()
    return "; ".join(sorted(f"{oid} {mark}" for oid, mark, *_ in rows))


class Structures:
    """The structures that one session knows. For one thread."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection
        self._known: dict[int, Structure] = {}

    def look(self, relations: Collection[int], before: str) -> Mapping[int, Structure]:
        """The current structures of these tables, for rows that were committed after the snapshot `before`; dropped ones are left out."""
        rows = self._connection.execute(_MARKS, [list(relations)]).fetchall()
        changed = [oid for oid, mark, *_ in rows if oid not in self._known or self._known[oid].mark != mark]
        tables = load_recorded_by_number(self._connection, changed) if changed else {}
        doubtful = self._doubtful([oid for oid in changed if oid not in self._known], before)
        for oid, mark, names, snapshot in rows:
            known = self._known.get(oid)
            if oid in tables:
                earlier = () if known is None else (*known.earlier, replace(known, earlier=()))
                doubts = doubtful.get(oid, frozenset()) if known is None else known.doubtful
                self._known[oid] = Structure(
                    tables[oid], mark, tuple(names), snapshot, _json_form(tables[oid], names), earlier, doubts
                )
            elif known is not None and (known.earlier or known.doubtful) and known.is_settled(before):
                self._known[oid] = replace(known, earlier=(), doubtful=frozenset())
        return {oid: self._known[oid] for oid, *_ in rows if oid in self._known}

    def _doubtful(self, relations: Collection[int], before: str) -> dict[int, frozenset[str]]:
        """`Structure.doubtful` of tables whose earlier structures this session does not know."""
        if not relations:
            return {}
        rows = self._connection.execute(_ADDED_AFTER_DROPS, [before, list(relations)]).fetchall()
        return {int(oid): frozenset(names or ()) for oid, names in rows}


def _json_form(table: CatalogTable, names: Sequence[str]) -> JsonForm | None:
    types = {column.column.name: column.column.type.name for column in table.columns}
    return None if is_exact(table) else JsonForm.of(names, table.column_names, types)


def _is_not_later(one: str, other: str) -> bool:
    """Whether the first snapshot includes nothing that the second does not. Snapshots of one database are nested."""
    (_, end, open_), (_, other_end, other_open) = (text.split(":") for text in (one, other))
    if end != other_end:
        return int(end) < int(other_end)
    return set(filter(None, other_open.split(","))) <= set(filter(None, open_.split(",")))


def unreadable(names: Sequence[str], now: Structure, *, ordered: bool) -> str | None:
    """The column whose values in rows with these names cannot be read with the current structure; None if all can.

    A column that was dropped since is left out, since the copy loses it too. The rows do not show that one was renamed, or got another
    type; that names were exchanged shows in their order, if that is the table's (`ordered`).
    """
    present = set(now.names)
    kept = [name for name in names if name in present]
    if ordered and kept != [name for name in now.names if name in names]:
        return kept[0]
    numbers = {c.column.name: c.column.attnum for c in now.table.columns}
    attributes = {c.column.attnum: c for c in now.table.columns}
    earlier = {c.column.name: c for one in now.earlier for c in one.table.columns}
    for name in names:
        if name in now.doubtful:
            return name
        if name not in present and (name not in earlier or earlier[name].column.attnum in attributes):
            return name
    for one in now.earlier:
        for column in one.table.columns:
            later = attributes.get(column.column.attnum)
            if later is not None and (later.type_oid, later.modifier) != (column.type_oid, column.modifier):
                return column.column.name
            if numbers.get(column.column.name, column.column.attnum) != column.column.attnum:
                return column.column.name  # Another column has its name now.
    return None
