"""`SentTables` through a publication that the subscription names: others create and alter it, Penstock reads it and compares.

What a change of the publication concerns decides its consequence. The publication's own row: changes of any table may be missing, so
the subscription fails. A table's membership: this table is copied again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableName
from engine.model.source import Earlier, PartitionRewrite
from engine.model.subscription import TableSpec
from engine.postgres.sessions import PostgresConnection
from engine.sources.postgres.catalog import one_look
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.partition_watch import PartitionWatch, TablesLook
from engine.sources.postgres_log.given_publication import (
    GivenPublication,
    GivenTable,
    SendingMark,
    Unsent,
    look_for_unsent,
    mark_of_sending,
    missing,
    read_publication,
    read_tables,
)
from engine.sources.postgres_log.position import current

_UNRECORDED = "what the publication sent of the table before the last start was not recorded"
_OTHERWISE = "its membership in the publication was changed, and changes of it may be missing"
_REWRITTEN = (
    "the table was rewritten; it may have been unlogged meanwhile, as the publication includes it by its schema only"
)


class GivenTables:
    """`SentTables`. Any thread may use it."""

    traced = False

    def __init__(self, connector: Connector, name: str, watch: PartitionWatch) -> None:
        self._connector = connector
        self._name = name
        self._watch = watch
        self._lock = threading.Lock()
        self._identity: str | None = None
        """The publication's identity when it was first seen, or at the last preparation that accepts any."""
        self._marks: dict[int, SendingMark] = {}
        """Sending marks by OID, as of the last check; of tables that were not sent then there are none."""
        self._unproven: set[int] = set()
        """OIDs of tables that an earlier run replicated and whose sending mark is not known yet."""

    def prepare(
        self,
        tables: Sequence[TableSpec],
        reader: str,
        known: Collection[RelationId] = (),
        earlier: Earlier = Earlier.ANY,
    ) -> frozenset[RelationId]:
        with self._connector.session(reader) as connection, one_look(connection):
            publication = read_publication(connection, self._name)
            with self._lock:
                self._accept(publication, earlier, reader)
                if earlier is Earlier.ANY:
                    self._marks.clear()
                    self._unproven.clear()
                self._unproven.update(set(known) - self._marks.keys())
            found, why = self._read(connection, publication, tables)
        self._watch.check_tables(self._connector, self._watch.unseen(tables))
        self._watch.watch_again(tables, {name: table.oid for name, table in found.items() if name not in why})
        return frozenset(RelationId(table.oid) for name, table in found.items() if name not in why)

    def recorded(self, reader: str) -> str | None:
        with self._lock:
            seen = self._identity
        if seen is not None:
            return seen
        with self._connector.session(reader) as connection:
            publication = read_publication(connection, self._name)
        with self._lock:
            self._identity = self._identity or (None if publication is None else publication.identity)
            return self._identity

    def withdraw(self, tables: Sequence[TableSpec], reader: str) -> None:
        """Nothing: the publication is its owner's."""

    def unpublished(
        self, tables: Sequence[TableSpec], reader: str, relations: Mapping[TableName, RelationId] | None = None
    ) -> tuple[str, ...]:
        with self._connector.session(reader) as connection, one_look(connection):
            publication = read_publication(connection, self._name)
            if publication is None:
                return (missing(self._name).what,)
            found, why = self._read(connection, publication, tables)
        asked = relations or {}
        return tuple(each.what for name, each in why.items() if asked.get(name, found[name].oid) == found[name].oid)

    def unsent(self, connection: PostgresConnection, tables: Sequence[TableSpec]) -> frozenset[TableName]:
        """The tables that the publication does not send as it must, in the connection's snapshot; all of them without the publication."""
        publication = read_publication(connection, self._name)
        if publication is None:
            return frozenset(table.source for table in tables)
        return frozenset(self._read(connection, publication, tables)[1])

    def examine(self, tables: Sequence[TableSpec], reader: str) -> tuple[TablesLook, tuple[str, ...]]:
        """As `PostgresPublications.examine`. Each change of what is sent of a table is reported once."""
        changed = self._watch.examine(self._connector, tables)
        with self._connector.session(reader) as connection, one_look(connection):
            publication = read_publication(connection, self._name)
            with self._lock:
                fault = self._deviation(publication)
            if publication is None or fault is not None:
                return changed, () if fault is None else (fault,)
            found, why = self._read(connection, publication, tables)
        seen_by = current(self._connector)
        faults, rewrites, marks = dict(changed.faults), dict(changed.rewrites), dict(changed.marks)
        with self._lock:
            otherwise = self._compare(publication, found, why)
        for name, (_, detail, rewritten) in otherwise.items():
            if rewritten and name not in faults:
                table = found[name]
                rewrites[name] = PartitionRewrite(RelationId(table.oid), frozenset({table.writer}), seen_by)
            elif not rewritten:
                rewrites.pop(name, None)
            faults.setdefault(name, detail)
        for name, table in found.items():
            if name not in why and name not in changed.replaced:
                marks[name] = with_sending(marks.get(name), table.oid, mark_of_sending(publication, table))
        kinds = {name: kind for name, (kind, _, _) in otherwise.items() if name not in changed.faults}
        return replace(changed, faults=faults, rewrites=rewrites, marks=marks, sent_otherwise=kinds), ()

    def marked(self, tables: Sequence[TableSpec], marks: Mapping[TableName, str]) -> dict[TableName, str]:
        """These fingerprints of partitions with the sending marks of all tables that are sent."""
        with self._connector.session() as connection, one_look(connection):
            publication = read_publication(connection, self._name)
            if publication is None:
                return dict(marks)
            found, why = self._read(connection, publication, tables)
        sent = {name: table for name, table in found.items() if name not in why}
        return {**marks} | {
            name: with_sending(marks.get(name), table.oid, mark_of_sending(publication, table))
            for name, table in sent.items()
        }

    def remember(self, marks: Mapping[TableName, str]) -> None:
        """Set the sending marks with which the next check compares."""
        with self._lock:
            for mark in marks.values():
                oid, sending = _sending(mark)
                if sending is not None:
                    self._marks[oid] = sending
                    self._unproven.discard(oid)

    def _read(
        self, connection: PostgresConnection, publication: GivenPublication | None, specs: Sequence[TableSpec]
    ) -> tuple[dict[TableName, GivenTable], dict[TableName, Unsent]]:
        if publication is None:
            return {}, {}
        found = read_tables(connection, publication, {spec.source for spec in specs})
        return found, look_for_unsent(connection, publication, found, specs)

    def _accept(self, publication: GivenPublication | None, earlier: Earlier, reader: str) -> None:
        if earlier is Earlier.ANY:
            if publication is None:
                raise EngineFault(FaultKind.SENT_TABLES_MISSING, reader, missing(self._name).what)
            self._identity = publication.identity
            return
        fault = self._deviation(publication)
        if fault is not None:
            raise EngineFault(FaultKind.PUBLICATION_CHANGED, reader, fault)

    def _deviation(self, publication: GivenPublication | None) -> str | None:
        if publication is None:
            return f"publication {self._name} does not exist any more"
        self._identity = self._identity or publication.identity
        if publication.identity == self._identity:
            return None
        return f"publication {self._name} was altered, or dropped and created again"

    def _compare(
        self, publication: GivenPublication, found: Mapping[TableName, GivenTable], why: Mapping[TableName, Unsent]
    ) -> dict[TableName, tuple[FaultKind, str, bool]]:
        """Tables of which something else is sent than at the previous check, with a description; True: they may only be rewritten."""
        changed: dict[TableName, tuple[FaultKind, str, bool]] = {}
        for name, table in found.items():
            before, unproven = self._marks.pop(table.oid, None), table.oid in self._unproven
            self._unproven.discard(table.oid)
            if name in why:
                if before is not None or unproven:
                    changed[name] = FaultKind.TABLE_NOT_SENT, f"{why[name].what}. {why[name].remedy}", False
                continue
            now = self._marks[table.oid] = mark_of_sending(publication, table)
            if unproven:
                changed[name] = FaultKind.TABLE_SENT_OTHERWISE, _UNRECORDED, False
            elif before is not None and before.entries != now.entries:
                changed[name] = FaultKind.TABLE_SENT_OTHERWISE, _OTHERWISE, False
            elif before is not None and before.storage != now.storage:
                changed[name] = FaultKind.TABLE_SENT_OTHERWISE, _REWRITTEN, True
        return changed


def with_sending(mark: str | None, oid: int, sending: SendingMark) -> str:
    """A table's fingerprint with its sending mark."""
    parts = json.loads(mark)[:2] if mark is not None else [oid, []]
    return json.dumps([*parts, [sending.entries, sending.storage]], ensure_ascii=False, separators=(",", ":"))


def _sending(mark: str) -> tuple[int, SendingMark | None]:
    oid, _, *rest = json.loads(mark)
    return oid, SendingMark(*rest[0]) if rest else None
