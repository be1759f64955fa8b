"""A publication that the subscription names (`capture.publication`), as it is on the source: what it sends of each table. Read only.

A table counts as sent only if the log contains each of its changes under its own name, as if Penstock had published it. A table's
*sending mark* changes with every change of the publication that concerns the table: it names the catalog rows that put the table into
the publication, and their writers (xmin). Rows that were deleted and inserted again have other writers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from psycopg import sql

from engine.model.fault import FaultKind
from engine.model.identity import TableName
from engine.model.source import Finding, Severity
from engine.model.subscription import TableSpec
from engine.postgres.sessions import PostgresConnection
from engine.records.catalog_table import FILTER_VERSION
from engine.sources.postgres import mending
from engine.sources.postgres.catalog import publishes_stored

_PUBLICATION = """
SELECT p.oid::bigint, p.xmin::text::bigint, p.puballtables, p.pubviaroot,
       ARRAY_REMOVE(ARRAY[CASE WHEN pubinsert THEN 'insert' END, CASE WHEN pubupdate THEN 'update' END,
                          CASE WHEN pubdelete THEN 'delete' END, CASE WHEN pubtruncate THEN 'truncate' END], NULL),
       coalesce(to_jsonb(p) ->> 'pubgencols', 'n')
FROM pg_publication p WHERE p.pubname = %s
"""
_TABLES = """
SELECT n.nspname, c.relname, c.oid::bigint, c.relkind = 'p', c.relispartition, c.relfilenode::bigint, c.xmin::text::bigint,
       r.oid::text || ' ' || r.xmin::text, to_jsonb(r) ->> 'prattrs' IS NOT NULL,
       coalesce((to_jsonb(r) ->> 'prexcept')::boolean, false), {filtered}, {schema}, t.xmin::text,
       (SELECT a.attnum || ' ' || a.xmin::text FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum LIMIT 1),
       EXISTS (SELECT FROM pg_attribute a
               WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = 's')
FROM unnest(%s::text[], %s::text[]) AS w(s, t)
JOIN pg_namespace n ON n.nspname = w.s JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.t AND c.relkind IN ('r', 'p')
LEFT JOIN pg_publication_rel r ON r.prpubid = %s::oid AND r.prrelid = c.oid
LEFT JOIN pg_type t ON t.oid = c.reltype
"""
_SCHEMA = """(SELECT s.oid::text || ' ' || s.xmin::text FROM pg_publication_namespace s
        WHERE s.pnpubid = %s::oid AND s.pnnspid = n.oid)"""
_FILTERED = "r.prqual IS NOT NULL"
_OPERATIONS = ("insert", "update", "delete", "truncate")
_INSERTS = frozenset({"insert", "truncate"})
_STORED = "s"


@dataclass(frozen=True, slots=True)
class GivenPublication:
    """The publication itself. `writer`: the transaction (xmin) that wrote its catalog row. `generated`: pg_publication.pubgencols."""

    name: str
    oid: int
    writer: int
    every_table: bool
    via_root: bool
    operations: frozenset[str]
    generated: str

    @property
    def identity(self) -> str:
        """Changes if the publication is dropped and created again, or altered, even if the alteration is reverted."""
        return f"{self.oid} {self.writer} {self.name}"


@dataclass(frozen=True, slots=True)
class GivenTable:
    """A table as the publication sends it.

    `entry`, `schema_entry`: catalog row by which it is a member itself, or by its schema, with the row's writer; None without one.
    `limited`: it has a column list. `filtered`: it has a row filter. `excepted`: it is left out of all tables. `row_type`: writer of its
    row type, which a change of its schema writes. `first_column`: number and writer of its first column, which ATTACH and DETACH PARTITION
    write. `filenode`, `writer`: its storage, and who wrote its row in pg_class.
    """

    name: TableName
    oid: int
    partitioned: bool
    is_partition: bool
    filenode: int
    writer: int
    entry: str | None
    limited: bool
    excepted: bool
    filtered: bool
    schema_entry: str | None
    row_type: str | None
    first_column: str | None
    stored_columns: bool


@dataclass(frozen=True, slots=True)
class Unsent:
    """Why a table is not sent as it must be. `sql`: statements that correct it, for the owner of publication and table."""

    what: str
    remedy: str
    sql: mending.Statements = ()


@dataclass(frozen=True, slots=True)
class SendingMark:
    """What sends a table. `storage`: its relfilenode if the publication does not keep the table logged, else 0."""

    entries: str
    storage: int = 0


def read_publication(connection: PostgresConnection, name: str) -> GivenPublication | None:
    """The publication of this name; None if there is none."""
    row = connection.execute(_PUBLICATION, [name]).fetchone()
    if row is None:
        return None
    oid, writer, every_table, via_root, operations, generated = row
    return GivenPublication(name, oid, writer, every_table, via_root, frozenset(operations), generated)


def read_tables(
    connection: PostgresConnection, publication: GivenPublication, names: Collection[TableName]
) -> dict[TableName, GivenTable]:
    """Those of these tables that exist, members or not."""
    modern = connection.info.server_version >= FILTER_VERSION  # Schemas and row filters came with the same version.
    query = sql.SQL(_TABLES).format(
        filtered=sql.SQL(_FILTERED if modern else "false"), schema=sql.SQL(_SCHEMA if modern else "NULL::text")
    )
    wanted = [[name.schema for name in names], [name.name for name in names], publication.oid]
    rows = connection.execute(query, [publication.oid, *wanted] if modern else wanted).fetchall()
    found = [GivenTable(TableName(schema, name), *rest) for schema, name, *rest in rows]
    return {table.name: table for table in found}


def missing(name: str, tables: Sequence[TableSpec] = ()) -> Finding:
    """The finding that there is no publication of this name."""
    what = f"publication {name}, which capture.publication names, does not exist"
    remedy = "Let the owner of the tables create it, or correct the name; then set desired_state to running."
    sources = [table.source for table in tables]
    return Finding(
        Severity.ERROR, FaultKind.SENT_TABLES_MISSING.value, what, remedy, mending.publish_in_full(name, sources)
    )


def unsent(
    publication: GivenPublication, table: GivenTable, spec: TableSpec, *, stores_generated: bool = False
) -> Unsent | None:
    """Why the log does not contain each change of the table as declared; None if it does.

    `stores_generated`: the server's publications can have stored generated columns.
    """
    for judge in (_membership, _partitions, _operations, _rows):
        found = judge(publication, table, spec)
        if found is not None:
            return found
    if stores_generated and table.stored_columns and publication.generated != _STORED:
        what = f"publication {publication.name} leaves out the stored generated columns of {table.name}"
        return Unsent(
            what,
            _altered("publish them"),
            mending.alter_publication(publication.name, "publish_generated_columns", "stored"),
        )
    return None


def look_for_unsent(
    connection: PostgresConnection,
    publication: GivenPublication,
    tables: Mapping[TableName, GivenTable],
    specs: Sequence[TableSpec],
) -> dict[TableName, Unsent]:
    """The tables that are not sent as they must be, of those that exist."""
    stores = publishes_stored(connection.info.server_version)
    found = {
        spec.source: unsent(publication, tables[spec.source], spec, stores_generated=stores)
        for spec in specs
        if spec.source in tables
    }
    return {name: why for name, why in found.items() if why is not None}


def mark_of_sending(publication: GivenPublication, table: GivenTable) -> SendingMark:
    """The table's sending mark, without what the publication's identity shows."""
    parts = [table.entry or "-", table.schema_entry or "-"]
    if table.schema_entry is not None:
        parts.append(f"type {table.row_type}")
    if publication.via_root:
        # While the table is a partition of a published root, its changes are sent under the root's name.
        parts.append(f"column {table.first_column}")
    # PostgreSQL refuses SET UNLOGGED only for tables that are members themselves.
    loose = table.entry is None and not table.partitioned
    return SendingMark("; ".join(parts), table.filenode if loose else 0)


def _altered(what: str) -> str:
    return f"Let the owner of the publication have it {what}. Every subscription that reads the publication must be reloaded then."


def _membership(publication: GivenPublication, table: GivenTable, spec: TableSpec) -> Unsent | None:
    del spec
    name = publication.name
    if table.is_partition:
        what = f"{table.name} is a partition, which a publication that others keep may send under another name"
        return Unsent(what, "Replicate its root, through a publication with publish_via_partition_root.")
    if table.excepted:
        return Unsent(f"publication {name} excepts {table.name}", "Let the owner of the publication include it.")
    if table.entry is not None or table.schema_entry is not None or publication.every_table:
        return None
    remedy = "Let the owner of publication and table add it; it is copied then."
    return Unsent(f"{table.name} is not in publication {name}", remedy, mending.add_to_publication(name, table.name))


def _partitions(publication: GivenPublication, table: GivenTable, spec: TableSpec) -> Unsent | None:
    del spec
    if not table.partitioned or publication.via_root:
        return None
    what = f"publication {publication.name} sends changes of {table.name} under the names of its partitions"
    statements = mending.alter_publication(publication.name, "publish_via_partition_root", "true")
    return Unsent(what, _altered("publish through the root"), statements)


def _operations(publication: GivenPublication, table: GivenTable, spec: TableSpec) -> Unsent | None:
    # An update may change a key, which is a delete and an insert.
    wanted = _INSERTS if spec.insert_only else spec.operations | {"update"}
    lacking = [operation for operation in _OPERATIONS if operation in wanted - publication.operations]
    if lacking:
        what = f"publication {publication.name}, for {table.name}: it does not publish {', '.join(lacking)}"
        listed = [operation for operation in _OPERATIONS if operation in wanted | publication.operations]
        statements = mending.alter_publication(publication.name, "publish", f"'{', '.join(listed)}'")
        return Unsent(what, _altered("publish them"), statements)
    if spec.insert_only and publication.operations - _INSERTS:
        what = (
            f"publication {publication.name} publishes updates or deletes, which insert_only of {table.name} excludes"
        )
        return Unsent(what, "Leave insert_only out, or name a publication that publishes insert and truncate only.")
    return None


def _rows(publication: GivenPublication, table: GivenTable, spec: TableSpec) -> Unsent | None:
    name, whole = publication.name, publication.every_table or table.schema_entry is not None
    if table.limited and not whole:
        what = f"publication {name} has a column list for {table.name}"
        remedy = "Let the owner of the publication add the table without one; exclude_columns leaves out columns."
        return Unsent(what, remedy, mending.add_again(name, table.name))
    if table.filtered and not whole:
        what = f"publication {name} has a row filter for {table.name}"
        remedy = "Let the owner of the publication add the table without one."
        return Unsent(what, remedy, mending.add_again(name, table.name))
    if spec.where is not None:
        # ADD and DROP of the table's schema suspend a filter, and leave no trace in the catalog.
        what = f"where of {table.name} needs a row filter, which others can suspend unseen in publication {name}"
        return Unsent(what, "Leave where out, or capture.publication.")
    return None
