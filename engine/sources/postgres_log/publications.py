"""The two publications of a subscription: one for tables whose updates and deletes can be replicated, one for inserts only.

A table without replica identity is never added to the first: UPDATE and DELETE on the table would fail for all its users.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType

import psycopg
from psycopg import sql

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.source import Earlier
from engine.model.subscription import TableSpec
from engine.postgres.sessions import PostgresConnection
from engine.records.catalog_table import FILTER_VERSION, CatalogTable, filter_problem, key_of
from engine.sources.postgres.catalog import load_tables, one_look, publishes_stored
from engine.sources.postgres.connect import Connector
from engine.sources.postgres_log.filter_trials import FilterTrials
from engine.sources.postgres_log.publication_marks import mark_text, strangers, writers_in

_MOST_BYTES = 59
"""PostgreSQL's limit of names, 63 bytes, without the longest suffix, `_ins`."""
_FULL = "insert, update, delete, truncate"
_INSERTS = "insert, truncate"
_NONE, _STORED = "n", "s"
_GENERATED = {_NONE: "no generated", _STORED: "stored generated"}
_OTHER_IDENTITY = "a table's replica identity was changed at the same time"

_PUBLICATION = """
SELECT p.puballtables, p.pubviaroot,
       concat_ws(', ', CASE WHEN pubinsert THEN 'insert' END, CASE WHEN pubupdate THEN 'update' END,
                 CASE WHEN pubdelete THEN 'delete' END, CASE WHEN pubtruncate THEN 'truncate' END),
       coalesce(to_jsonb(p) ->> 'pubgencols', 'n'), {schemas}, p.xmin::text::bigint,
       CASE WHEN row_number() OVER () = 1 THEN obj_description(p.oid, 'pg_publication') END,
       m.oid, m.nspname, m.relname, m.limited, m.condition, m.writer
FROM pg_publication p LEFT JOIN (
    SELECT r.prpubid, c.oid, n.nspname, c.relname, r.xmin::text::bigint AS writer,
           to_jsonb(r) ->> 'prattrs' IS NOT NULL OR coalesce((to_jsonb(r) ->> 'prexcept')::boolean, false) AS limited,
           {filter} AS condition
    FROM pg_publication_rel r JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
) AS m ON m.prpubid = p.oid
WHERE p.pubname = %s
"""
"""One row per table of the publication, or one row without a table. The comment, which may be long, is in the first row only."""
_SCHEMAS = "(SELECT count(*) FROM pg_publication_namespace WHERE pnpubid = p.oid)"
_FILTER = "pg_get_expr(r.prqual, r.prrelid)"
_NUMBERS = "SELECT pubname::text, oid FROM pg_publication WHERE pubname = ANY (%s)"
_ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
_OWN_WRITER = "SELECT pg_current_xact_id()::xid::text::bigint"


@dataclass(frozen=True, slots=True)
class Member:
    """A table in a publication. `limited`: it has a column list, or is excepted. `filter`: its row filter as the source stores it."""

    limited: bool
    filter: str | None = None


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication as it is on the source.

    `generated`: pg_publication.pubgencols. `writers`: the
    transactions (xmin) that wrote its catalog rows. `mark`: the engine's transactions, from its comment; None without such a comment.
    """

    name: str
    every_table: bool
    via_root: bool
    operations: str
    generated: str
    schemas: int
    members: Mapping[TableName, Member]
    oids: Mapping[TableName, int]
    writers: frozenset[int]
    mark: frozenset[int] | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """A publication as it should be.

    `generated`: None if any setting for generated columns is accepted. `oids`: of every requested table that exists, including those of
    the other publication. `filters`: of tables with a row filter, as the source stores it; None if they are not compared: until `prepare`,
    the publication has the filters that were declared before, and `strangers` finds changes by others.
    """

    name: str
    operations: str
    generated: str | None
    members: frozenset[TableName]
    oids: Mapping[TableName, int]
    filters: Mapping[TableName, str | None] | None = None


def names(slot: str) -> tuple[str, str]:
    """Names of the two publications of a slot. Raises EngineFault(INTERNAL) if the slot's name is too long for the suffixes."""
    if len(slot.encode()) > _MOST_BYTES:
        raise EngineFault(FaultKind.INTERNAL, slot, f"slot names have at most {_MOST_BYTES} bytes")
    return slot, f"{slot}_ins"


def numbers(connector: Connector, slot: str) -> str | None:
    """Identity (OIDs) of the two publications, which changes if one is dropped and created again. None if one is missing."""
    with connector.session(slot) as connection:
        found = dict(connection.execute(_NUMBERS, [list(names(slot))]).fetchall())
    return " ".join(str(found[name]) for name in names(slot)) if len(found) == len(names(slot)) else None


def prepare(
    connector: Connector,
    tables: Sequence[TableSpec],
    slot: str,
    ours: Collection[int] = (),
    *,
    expected: Collection[int] = (),
    earlier: Earlier = Earlier.OURS,
    trials: FilterTrials | None = None,
) -> dict[TableName, int]:
    """Create both publications or change them to contain `tables`; committed when it returns. Returns the published tables with OIDs.

    `ours`: OIDs under which the tables were published before. A published table of `ours` under a name that is not in `tables` was
    renamed; it stays published, since its changes would be lost otherwise. Replica identities are read again under a lock that prevents
    their change, so that no table without one is published. `expected`: OIDs that must be published already.
    `trials`: receives what the source says of row filters; tables whose filter it refuses are not published.

    Raises:
        EngineFault: PUBLICATION_CHANGED if others changed a publication since the engine's last change, unless `earlier` allows it.
    """
    try:
        with connector.session(slot) as connection:
            trials = trials or FilterTrials()
            trials.judge(connection, tables, load_tables(connection, [t.source for t in tables if t.where]), slot)
            return _Preparation(connection, tables, slot, frozenset(ours), frozenset(expected), earlier, trials).bring()
    except EngineFault as fault:
        if fault.kind is not FaultKind.TABLE_MISSING:
            raise
        raise _moved(slot) from fault


def _moved(slot: str) -> EngineFault:
    return EngineFault(FaultKind.SOURCE_TIMEOUT, slot, "a table was renamed or dropped while it was published")


@dataclass(frozen=True, slots=True)
class _Preparation:
    """One call of `prepare`."""

    connection: PostgresConnection
    tables: Sequence[TableSpec]
    slot: str
    ours: frozenset[int]
    expected: frozenset[int]
    earlier: Earlier
    trials: FilterTrials

    def bring(self) -> dict[TableName, int]:
        try:
            try:
                return self._all()
            except (psycopg.errors.LockNotAvailable, psycopg.errors.InsufficientPrivilege):
                self._one_by_one()
                return self._all()
        except psycopg.errors.UndefinedObject as error:  # The table to remove was dropped meanwhile.
            raise _moved(self.slot) from error

    def _all(self) -> dict[TableName, int]:
        """All changes in one transaction. It does not wait for a table's lock while it holds others: that could deadlock with users of
        the tables, and the server might abort their transaction."""
        published: dict[TableName, int] = {}
        with _alone(self.connection, self.slot):
            found = self._found()
            changed = False
            for wanted, current in found:
                if current is not None and _is_ours(current) and not _compare(wanted, current):
                    published.update(current.oids)
                    continue
                changed = True
                steps = _steps(self.connection, wanted, current)
                touched = sorted({table for _, table in steps})
                if touched:
                    listed = sql.SQL(", ").join(
                        sql.SQL("ONLY {}").format(sql.Identifier(t.schema, t.name)) for t in touched
                    )
                    self.connection.execute(
                        sql.SQL("LOCK TABLE {} IN SHARE UPDATE EXCLUSIVE MODE NOWAIT").format(listed)
                    )
                for word in ("DROP", "ADD"):
                    self._change(wanted.name, word, [table for each, table in steps if each == word])
            if not changed:
                return published
            published = {}
            for (wanted, now), (_, before) in zip(self._pairs(), found, strict=True):
                if now is None or set(now.members) != wanted.members:
                    raise EngineFault(FaultKind.SOURCE_TIMEOUT, wanted.name, _OTHER_IDENTITY)
                _mark(self.connection, now, _accepted(before, self.earlier))
                published.update(now.oids)
        return published

    def _one_by_one(self) -> None:
        """Each table in its own transaction, which may wait for the table's lock because it holds no other lock."""
        with _alone(self.connection, self.slot):
            found = self._found()
        for place, (wanted, current) in enumerate(found):
            with _marked(self.connection, self.slot, wanted.name, self.earlier):
                steps = _steps(self.connection, wanted, current)
            for word, table in steps:
                with _marked(self.connection, self.slot, wanted.name, self.earlier):
                    self._change(wanted.name, word, [table])
                    same = [spec for spec in self.tables if spec.source == table]
                    if word == "ADD" and table not in _wanted(self.connection, same, self.slot)[place].members:
                        raise EngineFault(FaultKind.SOURCE_TIMEOUT, wanted.name, _OTHER_IDENTITY)

    def _change(self, publication: str, word: str, tables: Sequence[TableName]) -> None:
        conditions = {table.source: table.where for table in self.tables if table.where is not None}
        _change(self.connection, publication, word, tables, conditions if word == "ADD" else {})

    def _pairs(self) -> list[tuple[Wanted, Publication | None]]:
        asked = {table.source for table in self.tables}
        pairs = []
        fit = [table for table in self.tables if not self.trials.is_refused(table)]
        forms = {table.source: self.trials.stored_form(table) for table in fit if table.where is not None}
        for found in _wanted(self.connection, fit, self.slot):
            wanted = replace(found, filters=forms)
            current = _read(self.connection, wanted.name)
            pairs.append((_with_renamed(wanted, current, asked, self.ours), current))
        return pairs

    def _found(self) -> list[tuple[Wanted, Publication | None]]:
        """Wanted and existing publications. Raises EngineFault(PUBLICATION_CHANGED) if others changed an existing one."""
        pairs = self._pairs()
        if self.earlier is Earlier.ANY:
            return pairs
        for wanted, current in pairs:
            _refuse(wanted.name, current, self.earlier)
        there = {oid for _, current in pairs if current is not None for oid in current.oids.values()}
        lost = {t for wanted, _ in pairs for t in wanted.members if wanted.oids.get(t, 0) in self.expected - there}
        if lost:
            raise _changed(self.slot, [f"table {t} is missing in publication {self.slot}" for t in sorted(lost)])
        return pairs


def withdraw(connector: Connector, tables: Sequence[TableSpec], slot: str) -> frozenset[TableName]:
    """Remove the tables that have no replica identity any more, and return them. Raises as `prepare`."""
    with connector.session(slot) as connection:
        main, _ = _wanted(connection, tables, slot)
        current = _read(connection, main.name)
        members = set(current.members) if current is not None else set()
        left = frozenset(t.source for t in tables if t.source in members - main.members)
        for table in left:
            with _marked(connection, slot, main.name, Earlier.OURS):
                _change(connection, main.name, "DROP", [table])
        return left


@contextmanager
def _alone(connection: PostgresConnection, slot: str) -> Iterator[None]:
    """A transaction with an advisory lock, so that no other engine changes publications of this slot at the same time."""
    with connection.transaction():
        connection.execute(_ONE_AT_A_TIME, [f"penstock {slot}"])
        yield


@contextmanager
def _marked(connection: PostgresConnection, slot: str, name: str, earlier: Earlier) -> Iterator[None]:
    """As `_alone`, for changes of one publication. Its comment then records the transaction as the engine's. Raises as `prepare`."""
    with _alone(connection, slot):
        before = _read(connection, name)
        if earlier is not Earlier.ANY:
            _refuse(name, before, earlier)
        yield
        now = _read(connection, name)
        if now is not None:
            _mark(connection, now, _accepted(before, earlier))


def _refuse(name: str, current: Publication | None, earlier: Earlier) -> None:
    if current is None:
        raise _changed(name, [f"publication {name} does not exist any more"])
    if current.every_table or current.schemas:
        raise _changed(name, [_extended(name)])
    if current.mark is None and earlier is Earlier.UNMARKED:
        return
    found = strangers(name, current.writers, current.mark)
    if found:
        raise _changed(name, found)


def _extended(name: str) -> str:
    return f"publication {name} was extended to whole schemas"


def _changed(subject: str, what: Sequence[str]) -> EngineFault:
    return EngineFault(FaultKind.PUBLICATION_CHANGED, subject, "; ".join(what))


def _is_ours(current: Publication) -> bool:
    return not strangers(current.name, current.writers, current.mark)


def _accepted(before: Publication | None, earlier: Earlier) -> frozenset[int]:
    """Earlier transactions whose catalog rows of the publication count as the engine's."""
    if before is None:
        return frozenset()
    return before.writers if before.mark is None or earlier is Earlier.ANY else before.mark


def _mark(connection: PostgresConnection, now: Publication, accepted: frozenset[int]) -> None:
    """Write the publication's comment: the engine's transactions that wrote its catalog rows, including the current one."""
    own = connection.execute(_OWN_WRITER).fetchall()[0][0]
    found = strangers(now.name, now.writers, accepted | {own})
    if found:
        raise _changed(now.name, found)
    text = sql.Literal(mark_text(now.writers))
    connection.execute(sql.SQL("COMMENT ON PUBLICATION {} IS {}").format(sql.Identifier(now.name), text))


def faults(
    connector: Connector,
    tables: Sequence[TableSpec],
    slot: str,
    gone: frozenset[TableName] = frozenset(),
    published: Mapping[TableName, int] | None = None,
) -> tuple[str, ...]:
    """Deviations of the publications, as text. `gone`: tables that were dropped or created again, which `PartitionWatch` reports.

    `published`: the tables that `prepare` published. A table created since is not missing, and a renamed one is not foreign. Tables
    and publications are read in one snapshot: a table renamed between two reads would appear to be missing.
    """
    with connector.session(slot) as connection, one_look(connection):
        found: list[str] = []
        for wanted, current in _expected(connection, [t for t in tables if t.source not in gone], slot):
            found += _compare(wanted, current) if published is None else _compare_with(published, wanted, current)
            if current is not None and (changed := strangers(current.name, current.writers, current.mark)):
                declared = {table.source for table in tables if table.where is not None}
                filtered = [
                    t for t, member in current.members.items() if member.filter is not None and t not in declared
                ]
                found += [*changed, *(f"table {t} has a filter in {current.name}" for t in filtered)]
        return tuple(found)


def unpublished(
    connector: Connector, tables: Sequence[TableSpec], slot: str, relations: Mapping[TableName, int]
) -> tuple[str, ...]:
    """Which of these tables are not published, or only in part, as text. Other tables in the publications are ignored, and so are tables
    whose OID differs from `relations`.
    """
    with connector.session(slot) as connection, one_look(connection):
        found: list[str] = []
        for found_now in _wanted(connection, tables, slot):
            oids = found_now.oids
            same = frozenset(t for t in found_now.members if oids[t] == relations.get(t, oids[t]))
            # The published columns need no check: relation records list them.
            wanted = replace(found_now, members=same, generated=None)
            current = _read(connection, wanted.name)
            if current is not None:
                members = {t: member for t, member in current.members.items() if t in wanted.members}
                current = replace(current, members=members)
            if wanted.members:
                found += _compare(wanted, current)
        return tuple(found)


def _compare_with(published: Mapping[TableName, int], wanted: Wanted, current: Publication | None) -> list[str]:
    """Compare by OID: only tables that `prepare` published must be there, and only others are foreign.

    A table that belongs in the publication is not foreign either: a `prepare` that was interrupted may have added it.
    """
    known = frozenset(t for t in wanted.members if t in published and wanted.oids.get(t, published[t]) == published[t])
    if current is not None:
        ours = frozenset(published.values())
        others = wanted.members - known
        members = {
            t: member
            for t, member in current.members.items()
            if t in known or (t not in others and current.oids[t] not in ours)
        }
        current = replace(current, members=members)
    return _compare(replace(wanted, members=known), current)


def _with_renamed(
    wanted: Wanted, current: Publication | None, asked: Collection[TableName], ours: Collection[int]
) -> Wanted:
    if current is None:
        return wanted
    renamed = {name for name, oid in current.oids.items() if oid in ours and name not in asked}
    conditions = {name: current.members[name].filter for name in renamed if current.members[name].filter is not None}
    return replace(wanted, members=wanted.members | renamed, filters={**(wanted.filters or {}), **conditions})


def drop(connector: Connector, slot: str, kept: str | None = None) -> list[str]:
    """Drop both publications, without one of the name `kept`; returns what could not be dropped, as text."""
    left: list[str] = []
    for name in names(slot):
        if name == kept:
            continue
        try:
            with connector.session(name) as connection:
                connection.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(name)))
        except EngineFault as fault:
            if fault.kind is FaultKind.SOURCE_UNREACHABLE:
                raise
            left.append(f"publication {name}: {fault.detail}")
    return left


def _wanted(connection: PostgresConnection, tables: Sequence[TableSpec], slot: str) -> tuple[Wanted, Wanted]:
    """The two publications with the tables that exist and can be published."""
    catalog = load_tables(connection, [t.source for t in tables])
    usable = [
        (spec, catalog[spec.source]) for spec in tables if spec.source in catalog and _publishable(catalog[spec.source])
    ]
    full = frozenset(
        table.name
        for spec, table in usable
        if not spec.insert_only and key_of(table, spec).problem is None and filter_problem(table, spec) is None
    )
    inserts = frozenset(
        table.name for spec, table in usable if spec.insert_only and filter_problem(table, spec) is None
    )
    main, extra = names(slot)
    oids = {name: table.oid for name, table in catalog.items()}
    generated = _STORED if publishes_stored(connection.info.server_version) else _NONE
    return (
        Wanted(main, _FULL, generated, full, oids),
        Wanted(extra, _INSERTS, generated, inserts - full, oids),
    )


def _expected(
    connection: PostgresConnection, tables: Sequence[TableSpec], slot: str
) -> list[tuple[Wanted, Publication | None]]:
    """As `_wanted`, with the existing publications. A published table that lost its replica identity does not count as a deviation."""
    main, extra = _wanted(connection, tables, slot)
    current = _read(connection, main.name)
    followed = {t.source for t in tables if not t.insert_only}
    kept = followed & set(current.members) if current is not None else frozenset()
    return [(replace(main, members=main.members | kept), current), (extra, _read(connection, extra.name))]


def _publishable(table: CatalogTable) -> bool:
    return table.kind in {"r", "p"} and table.persistence == "p"


def _read(connection: PostgresConnection, name: str) -> Publication | None:
    # Schemas and row filters came with the same version.
    schemas, condition = (
        (_SCHEMAS, _FILTER) if connection.info.server_version >= FILTER_VERSION else ("0", "NULL::text")
    )
    query = sql.SQL(_PUBLICATION).format(schemas=sql.SQL(schemas), filter=sql.SQL(condition))
    rows = connection.execute(query, [name]).fetchall()
    if not rows:
        return None
    tables = [row[-6:] for row in rows if row[-6]]
    members = {
        TableName(schema, table): Member(bool(limited), condition) for _, schema, table, limited, condition, _ in tables
    }
    oids = {TableName(schema, table): number for number, schema, table, *_ in tables}
    every_table, via_root, operations, generated, extended, writer, _ = rows[0][:7]
    writers = frozenset({writer, *(row[-1] for row in tables)})
    options = (every_table, via_root, operations, generated, extended)
    comment = next((row[6] for row in rows if row[6] is not None), None)
    return Publication(name, *options, members, oids, writers, writers_in(comment))


def _compare(wanted: Wanted, current: Publication | None) -> list[str]:
    if current is None:
        return [f"publication {wanted.name} does not exist any more"]
    found: list[str] = []
    if current.every_table or current.schemas:
        found.append(_extended(wanted.name))
    if not current.via_root:
        found.append(f"publication {wanted.name} no longer publishes partitions through their root")
    if current.operations != wanted.operations:
        found.append(f"publication {wanted.name} publishes '{current.operations}' instead of '{wanted.operations}'")
    if wanted.generated is not None and current.generated != wanted.generated:
        found.append(f"publication {wanted.name} publishes {_GENERATED[current.generated]} columns")
    found += [
        f"table {t} is missing in publication {wanted.name}" for t in sorted(wanted.members - current.members.keys())
    ]
    found += [
        f"table {t} does not belong in publication {wanted.name}"
        for t in sorted(current.members.keys() - wanted.members)
    ]
    found += [
        f"table {t} has another filter or column list in {wanted.name}" for t in sorted(_otherwise(wanted, current))
    ]
    return found


def _otherwise(wanted: Wanted, current: Publication) -> set[TableName]:
    """Tables of the publication with a column list, or with another row filter than they should have."""
    filters = wanted.filters
    return {
        table
        for table, member in current.members.items()
        if member.limited or (filters is not None and filters.get(table) != member.filter)
    }


def _steps(connection: PostgresConnection, wanted: Wanted, current: Publication | None) -> list[tuple[str, TableName]]:
    """Create the publication or set its options. Returns the tables to DROP from it and then those to ADD; empty if none."""
    name = sql.Identifier(wanted.name)
    options = sql.SQL("(publish = {}, publish_via_partition_root = true{})").format(
        sql.Literal(wanted.operations),
        sql.SQL(", publish_generated_columns = stored" if wanted.generated == _STORED else ""),
    )
    if current is not None and not _compare(wanted, current):
        return []
    if current is not None and (current.every_table or current.schemas):
        connection.execute(sql.SQL("DROP PUBLICATION {}").format(name))
        current = None
    if current is None:
        connection.execute(sql.SQL("CREATE PUBLICATION {} WITH {}").format(name, options))
    elif (current.via_root, current.operations, current.generated) != (True, wanted.operations, wanted.generated):
        connection.execute(sql.SQL("ALTER PUBLICATION {} SET {}").format(name, options))
    members = current.members if current is not None else {}
    limited = _otherwise(wanted, current) if current is not None else set()
    dropped = sorted((members.keys() - wanted.members) | limited)
    added = sorted((wanted.members - members.keys()) | (limited & wanted.members))
    return [*(("DROP", table) for table in dropped), *(("ADD", table) for table in added)]


def _change(
    connection: PostgresConnection,
    publication: str,
    word: str,
    tables: Sequence[TableName],
    conditions: Mapping[TableName, str] = MappingProxyType({}),
) -> None:
    if tables:
        name = sql.Identifier(publication)
        listed = sql.SQL(", ").join(_listed(table, conditions.get(table)) for table in tables)
        connection.execute(sql.SQL("ALTER PUBLICATION {} " + word + " TABLE {}").format(name, listed))


def _listed(table: TableName, condition: str | None) -> sql.Composed:
    listed = sql.SQL("ONLY {}").format(sql.Identifier(table.schema, table.name))
    return listed if condition is None else listed + sql.SQL(" WHERE ({})").format(sql.SQL(condition))
