"""The logs of several nodes as one: positions, the merged stream, and the schemas that it announces."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from engine.model.ddl import Capture
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.last_commit import LastCommit
from engine.model.merged_logs import MergedLogs, NodeLog
from engine.model.position import Lsn
from engine.model.schema import TableSchema
from engine.model.source import CatalogAt, Resolve, SourceIdentity
from engine.model.subscription import ConnectionSpec, OriginFilter, TableSpec
from engine.records.catalog_table import CatalogTable, schema_of
from engine.records.relation import parse_relation
from engine.sort.merge_records import Order
from engine.sources.postgres.relation import complete
from engine.sources.postgres.types import TypeRow, load_types
from engine.sources.postgres_log import position
from engine.sources.postgres_log.publications import names as publications_of
from engine.sources.postgres_log.stream import PostgresLogStream, open_stream
from engine.sources.postgres_logs.last_answers import AbsentNodes, LastAnswers
from engine.sources.postgres_logs.merged_numbers import MergedNumbers
from engine.sources.postgres_logs.merged_stream import Keeping, MergedStream, MergeRules, NodeStreams
from engine.sources.postgres_logs.node_ends import NodeEnds
from engine.sources.postgres_logs.node_log import Naming
from engine.sources.postgres_logs.node_session import NodeSession, Resume
from engine.sources.postgres_logs.node_tables import NodeTable, NodeTables
from engine.sources.postgres_logs.node_types import NodeTypes, is_of_user
from engine.sources.postgres_logs.nodes import Node, Nodes
from engine.sources.postgres_logs.own_table import OwnTable
from engine.sources.postgres_logs.reader_folder import ReaderFolder, required
from engine.sources.postgres_logs.reader_socket import ReaderSocket, request_mark
from engine.sources.postgres_logs.relations import reason_of

_WHOLE_GID = "(?P<gtid>.+)"
_IN_USE_S = 5.0
"""Seconds after which our own session of a slot that was lost is ended, if the node has not noticed: as `session_start.READER_GRACE_MS`."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How a subscription merges the logs: settings of its capture."""

    order: Order = Order.CAUSAL
    gid_pattern: str | None = None
    own_prefix: str | None = None
    own_rows: tuple[TableName, str] | None = None
    """Table and column, see Naming."""

    @classmethod
    def of(cls, spec: ConnectionSpec) -> Rules:
        settings = spec.capture.settings if spec.capture is not None else {}
        pattern, prefix = settings.get("gid_pattern"), settings.get("own_prefix")
        schema, _, table = str(settings.get("own_table", "")).partition(".")
        return cls(
            Order(str(settings.get("order", Order.CAUSAL.value))),
            None if pattern is None else str(pattern),
            None if prefix is None else str(prefix),
            (TableName(schema, table), str(settings.get("own_column", "gtid"))) if table else None,
        )

    def naming(self, nodes: tuple[str, ...]) -> Naming:
        return Naming(re.compile(self.gid_pattern or _WHOLE_GID), self.own_prefix, nodes, self.own_rows)


class PartitionedLog:
    """`LogSource` over the nodes' logs. Positions are given by the log reader, which is asked through the subscription's folder."""

    def __init__(
        self,
        nodes: Nodes,
        tables: NodeTables,
        rules: Rules,
        folder: ReaderFolder | None,
        absent: AbsentNodes,
        own: OwnTable,
    ) -> None:
        self._nodes = nodes
        self._tables = tables
        self._rules = rules
        self._own = own
        self._folder = folder
        self._absent = absent
        self._marks = LastAnswers[str](nodes, absent)
        self._types: dict[TableName, dict[int, TypeRow]] = {}
        """What was read last of the types of each table."""

    def now(self) -> Lsn:
        return self._mark(flushed=True)

    def current(self) -> Lsn:
        return self._mark(flushed=False)

    def catalog_at(self, tables: Sequence[TableSpec], reader: str, *, now: bool) -> CatalogAt:
        at = self._mark(flushed=now)

        def mark_of(node: Node) -> str:
            return node.source.log.catalog_at(tables, node.slot(reader), now=False).mark

        # What is not known of a node that cannot be asked may be in its catalog before "now".
        marks = self._nodes.each(mark_of) if now else self._marks.ask(mark_of)
        return CatalogAt(at, json.dumps(marks))

    def open_stream(
        self,
        reader: str,
        start: Lsn,
        application: str,
        wake: int | None = None,
        origin: OriginFilter = OriginFilter.ANY,
        last: LastCommit | None = None,
    ) -> MergedStream:
        if origin is not OriginFilter.ANY:
            detail = "several nodes are read whatever the origin of their changes"
            raise EngineFault(FaultKind.ORIGIN_UNSUPPORTED, reader, detail)
        folder = required(self._folder)
        self._own.check(reader)
        kept = self._kept(folder, reader, start, last)
        folder.make()
        opened = ExitStack()
        try:
            # Before the first number is given: while nothing listens, the engine takes numbers by itself.
            socket = ReaderSocket(folder.path)
            opened.callback(socket.close)
            ends = [partial(_end_of, node) for node in self._nodes]
            rounds = NodeEnds(ends), NodeEnds(ends)
            for each in rounds:
                opened.callback(each.close)
            sessions = _Sessions(reader, application, rounds[0].notify)
            identities = self._nodes.each(lambda node: node.source.identify())
            streams = tuple(self._nodes.each(lambda node: sessions.open(node, identities[node.number], kept, opened)))
            pairs = zip(self._nodes.names, identities, strict=True)
            folder.set_timelines({name: identity.timeline for name, identity in pairs})
            nodes = NodeStreams(self._nodes.names, streams, *rounds, opened)
            numbers = MergedNumbers(start.value, ceiling=folder.ceiling, reserve=folder.raise_ceiling)
            rules = MergeRules(self._rules.order, self._rules.naming(self._nodes.names), _keeping(folder))
            # So that they are known of a node that is away when they are announced.
            self._tables.read(list(folder.sent))
            stream = MergedStream(nodes, rules, NodeTypes(self._nodes, self._tables, folder), numbers, kept, wake)
            socket.serve(stream)
        except BaseException:
            opened.close()
            raise
        return stream

    def resolve(
        self, payload: bytes, spec: TableSpec, known: TableSchema | None, capture: Capture | None = None
    ) -> TableSchema:
        return self.resolver([payload])(payload, spec, known, capture)

    def resolver(self, payloads: Collection[bytes]) -> Resolve:
        announced = {payload: parse_relation(payload) for payload in payloads}
        found = self._tables.read({one.name for one in announced.values()})
        types: dict[TableName, dict[int, TypeRow]] = {}
        for one in announced.values():
            if one.name in found:
                numbers = {column.type_oid for column in one.columns}
                types.setdefault(one.name, {}).update(self._types_of(found[one.name], one.name, numbers))

        def resolve(
            payload: bytes, spec: TableSpec, known: TableSchema | None, capture: Capture | None = None, /
        ) -> TableSchema:
            del capture
            one = announced[payload]
            if (why := reason_of(one)) is not None:
                raise EngineFault(why.kind, str(one.name), why.reason)
            now = found.get(one.name)
            if now is not None and now.problem is not None:
                raise EngineFault(FaultKind.TABLE_NODES_DIFFER, str(one.name), now.problem)
            schema = complete(one, spec, known, None if now is None else now.whole, types.get(one.name, {}))
            if known is not None and now is not None and _is_older(schema, known, now.whole, spec):
                detail = "a node has rows of an earlier structure after those of another node with the present one"
                raise EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, str(one.name), detail)
            return schema

        return resolve

    def _types_of(self, table: NodeTable, name: TableName, numbers: Collection[int]) -> dict[int, TypeRow]:
        """These types on the first node that has the table. If it is absent, as they were, or those that all servers have."""
        known = self._types.setdefault(name, {})
        for number in sorted(table.parts):
            node = self._nodes.all[number]
            try:
                with node.connector.session(str(name)) as connection:
                    known.update(load_types(connection, set(numbers)))
                break
            except EngineFault as fault:
                if not self._absent.take(node, fault):
                    raise
                if set(numbers) <= known.keys():
                    break
                if any(is_of_user(each) for each in numbers):
                    raise
        return {number: known[number] for number in numbers if number in known}

    def relation_name(self, payload: bytes) -> TableName:
        return parse_relation(payload).name

    def _mark(self, *, flushed: bool) -> Lsn:
        folder = required(self._folder)
        return request_mark(folder.path, flushed=flushed) or folder.number_without_reader()

    def _kept(self, folder: ReaderFolder, reader: str, start: Lsn, last: LastCommit | None) -> MergedLogs:
        """The state of the nodes' logs at `start`."""
        if last is not None and last.logs is not None:
            if len(last.logs.nodes) != len(self._nodes):
                detail = f"{len(last.logs.nodes)} nodes were read, and the source has {len(self._nodes)}"
                raise EngineFault(FaultKind.LOG_GAP, reader, detail)
            return last.logs
        beginning = folder.beginning
        if beginning is None or beginning.position != start or tuple(beginning.nodes) != self._nodes.names:
            detail = "up to where the nodes' logs were read is neither in the target nor in the subscription's folder"
            raise EngineFault(FaultKind.LOG_GAP, reader, detail)
        return MergedLogs(tuple(NodeLog.unknown(position) for position in beginning.nodes.values()))


@dataclass(frozen=True, slots=True)
class _Sessions:
    """Opens the nodes' sessions, also those of nodes that were away. `wake`: see NodeSession."""

    reader: str
    application: str
    wake: Callable[[], None]

    def open(self, node: Node, identity: SourceIdentity, kept: MergedLogs, opened: ExitStack) -> NodeSession:
        log = kept.nodes[node.number]
        last = LastCommit(log.after, log.end, log.time_us)
        begin = Resume(log.read, last, kept.kept[node.number] if kept.kept else log.read)
        session = NodeSession(self._stream(node, begin), begin, partial(self._again, node, identity), self.wake)
        opened.callback(session.close)
        return session

    def _stream(self, node: Node, begin: Resume) -> PostgresLogStream:
        slot = node.slot(self.reader)
        return open_stream(
            node.connector,
            slot,
            begin.read,
            self.application,
            publications_of(slot),
            last=begin.last,
            two_phase=True,
            kept=begin.kept,
        )

    def _again(self, node: Node, identity: SourceIdentity, begin: Resume, away_s: float) -> PostgresLogStream:
        """The session of a node that was away. Raises EngineFault as open_stream; LOG_GAP also if it is another server, on another
        timeline, or its log ends before what was read."""
        why = _why_other(identity, node.source.identify())
        end = position.current(node.connector) if why is None else begin.read
        if end < begin.read:
            why = f"its log ends at {end}, before {begin.read}, up to where it was read: it was set back"
        if why is not None:
            raise EngineFault(FaultKind.LOG_GAP, node.slot(self.reader), f"node {node.name}: {why}")
        try:
            return self._stream(node, begin)
        except EngineFault as fault:
            if fault.kind is FaultKind.SLOT_IN_USE and away_s > _IN_USE_S:
                node.source.reader.end_other(node.slot(self.reader), self.application)
            if fault.kind is FaultKind.LOG_GAP:
                raise EngineFault(fault.kind, fault.subject, f"node {node.name}: {fault.detail}") from fault
            raise


def _why_other(before: SourceIdentity, now: SourceIdentity) -> str | None:
    """Why a node is not the one that was read."""
    if now.system_id != before.system_id:
        return "this is another server than the one that was read (system identifier differs)"
    if now.timeline != before.timeline:
        return f"it is on timeline {now.timeline}, and timeline {before.timeline} was read: failover or restore"
    return None


def _keeping(folder: ReaderFolder) -> Keeping:
    return Keeping(folder.path, structures=lambda: folder.structures, keep_structures=folder.set_structures)


def _is_older(announced: TableSchema, known: TableSchema, now: CatalogTable, spec: TableSpec) -> bool:
    """Whether an announced structure is an earlier one than the known one, which the catalogs have now. Nodes announce their own, so
    that those of a node that was changed later come after the new one of another."""
    current = schema_of(now, spec)
    return current is not None and _shape(known) == _shape(current) != _shape(announced)


def _shape(schema: TableSchema) -> list[tuple[str, int, str, int]]:
    return [(column.on_source, column.attnum, column.type.name, column.type.modifier) for column in schema.columns]


def _end_of(node: Node, flushed: bool) -> Lsn:
    return position.now(node.connector) if flushed else position.current(node.connector)
