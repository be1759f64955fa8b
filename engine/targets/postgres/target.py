"""The PostgreSQL target: one database, written over one connection or several lanes, read over others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import Any

import psycopg

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import Epoch, SubscriptionName, TableId, TableName
from engine.model.lag import Blocker
from engine.model.position import Lsn
from engine.model.quarantine import SetAside
from engine.model.redaction import redacted
from engine.model.shared import SharedInto
from engine.model.subscription import ConnectionSpec, OriginFilter
from engine.model.target import (
    PARTS_FROM_ROWS,
    BatchCommit,
    CommitRates,
    InOrderPlan,
    JudgeReads,
    QueryAnswer,
    QueryLimits,
    QueryRefused,
    SqlClient,
    TargetReader,
    any_reads,
)
from engine.postgres.query_answers import DecodeText
from engine.postgres.query_process import main as query_process
from engine.postgres.sessions import APPLICATION, PostgresConnection, Sessions
from engine.queries.pool import QueryPool
from engine.targets.batch_writer import BatchWriter
from engine.targets.identifiers import qualified
from engine.targets.metadata_store import MetadataStore
from engine.targets.postgres.changes import Place, insert_rows
from engine.targets.postgres.errors import TARGET
from engine.targets.postgres.held import PostgresHeld
from engine.targets.postgres.lanes import LaneWriter, OrderedTable, stream_of, tied_tables
from engine.targets.postgres.metadata import PostgresMetadata
from engine.targets.postgres.origins import Origins, origin_findings
from engine.targets.postgres.owner_tables.claim import adopt, refuse_reserved
from engine.targets.postgres.owner_tables.inspect import place_of
from engine.targets.postgres.preflight import (
    existing_findings,
    fault_finding,
    is_taken,
    name_findings,
    place_findings,
    rigid_findings,
    taken_finding,
)
from engine.targets.postgres.query import GAVE_WAY, QueryParts, read_table, run_query
from engine.targets.postgres.rates import measured_rates
from engine.targets.postgres.reader import PostgresReader
from engine.targets.postgres.readers import Readers, role_findings
from engine.targets.postgres.sequences import PostgresSequences
from engine.targets.postgres.structure import POSTGRES_STRUCTURE
from engine.targets.postgres.two_phase.recovery import all_prepared, wait_alone, waiting_parts
from engine.targets.postgres.two_phase.writer import Dealt, PartSessions, PartsUnderWay, apply_part, deal
from engine.targets.postgres.writer import Writer, roll_back
from engine.targets.shared import shared_findings
from engine.targets.sql_target import SqlTarget
from engine.targets.target_metadata import Position, places_of

QUERY_MEMORY = 512 << 20
"""Memory of a query process in bytes where the caller names none; the engine passes its setting `query_memory_mb`."""
_NOT_THE_ROWS = frozenset({FaultKind.TARGET_UNAVAILABLE, FaultKind.TARGET_DISK_FULL, FaultKind.EPOCH_LOST})
"""Faults that another way of writing the same rows would also meet."""

_OF_ROWS = frozenset({FaultKind.VALUE_OUT_OF_DOMAIN, FaultKind.ROW_REFUSED})
"""Faults of single rows."""


class Passage(StrEnum):
    """Steps of a commit at which tests can intervene."""

    PARTS_PREPARED = "parts.prepared"
    """Every part of a batch is written and prepared; nothing is decided."""
    PARTS_DECIDED = "parts.decided"
    """The batch is committed in the progress record; none of its parts is committed yet."""


def _pass(passage: Passage) -> None:
    """The default: no test intervenes."""


def _as_one(fault: EngineFault) -> bool:
    """Whether a batch that failed in parts is to be retried as one transaction, which determines the table at fault, if any."""
    # The limit of prepared transactions is reached, or another session blocks a part.
    passing = isinstance(fault.__cause__, (psycopg.errors.OutOfMemory, psycopg.errors.LockNotAvailable))
    return passing or fault.kind not in _NOT_THE_ROWS


_BLOCKER = """
SELECT greatest(0, extract(epoch FROM clock_timestamp() - w.query_start) * 1000)::float8, b.pid,
       greatest(0, extract(epoch FROM clock_timestamp() - b.xact_start))::float8, coalesce(b.query, '')
FROM pg_catalog.pg_stat_activity AS w
CROSS JOIN LATERAL unnest(pg_catalog.pg_blocking_pids(w.pid)) AS blocking (pid)
JOIN pg_catalog.pg_stat_activity AS b ON b.pid = blocking.pid
WHERE w.pid = %(pid)s AND w.wait_event_type = 'Lock' AND b.xact_start IS NOT NULL
ORDER BY b.xact_start LIMIT 1
"""
"""The oldest transaction that blocks a session, and since when that session's statement runs."""


class PostgresTarget(SqlTarget):
    """Implements Target. Connects at first use.

    Any method may raise EngineFault(TARGET_UNAVAILABLE, TARGET_DISK_FULL). After a lost connection the next call connects again.
    """

    structure = POSTGRES_STRUCTURE

    def __init__(
        self,
        spec: ConnectionSpec,
        decode: DecodeText,
        passing: Callable[[Passage], None] = _pass,
        *,
        parts_from_rows: int = PARTS_FROM_ROWS,
        copy_above: int | None = None,
        query_memory: int = QUERY_MEMORY,
    ) -> None:
        """`decode` parses COPY's text form for answers of queries; `passing` is called at each passage. More rows than `copy_above`
        are passed by COPY; None = measured. `query_memory`: bytes of each query process."""
        super().__init__()
        self._spec = spec
        self._query_memory = query_memory
        self._parts_from_rows = parts_from_rows
        self._sessions = Sessions(spec, TARGET)
        self._readers = Readers(spec, self._sessions)
        self._decode = decode
        self._passing = passing
        origins = Origins(self._sessions.name)
        self._writer = Writer(self._sessions, origins, decode, copy_above)
        self._loader = Writer(self._sessions, origins, decode, copy_above)
        """Appends to copies while batches are committed."""
        self._lanes = LaneWriter(self._writer.open, self._sessions.open, origins)
        self._parts = PartSessions(self._writer.open, origins)
        self._epochs: dict[SubscriptionName, Epoch] = {}
        """Epochs of the subscriptions claimed by this object."""
        self._whole = threading.Lock()
        """Held while only some parts of a batch are visible, and while a reader of ours takes its snapshot."""
        self._held: list[PostgresHeld] = []
        """Held snapshots; guarded by `_holding`."""
        self._holding = threading.Lock()

    def check(
        self,
        tables: Sequence[TableName],
        existing: Collection[TableName] = (),
        shared: Mapping[TableName, SharedInto] = MappingProxyType({}),
    ) -> list[tuple[str, str, str, str]]:
        relations = list(dict.fromkeys(into.relation for into in shared.values()))
        findings = name_findings([*tables, *relations])
        try:
            with self._sessions.session() as connection:
                findings += place_findings(connection) or origin_findings(connection)
                findings += role_findings(connection, self._spec.settings)
                records = PostgresMetadata(connection)
                ours = places_of(records.reservations(None)) if records.exist() else set()
                members = records.members() if ours else []
                ours |= {member.into.relation for member in members if member.schema is not None}
                new = [place for place in [*tables, *relations] if place not in existing and place not in ours]
                strange = [table for table in new if is_taken(connection, table)]
                findings += existing_findings(connection, [t for t in tables if t in existing], ours)
                findings += rigid_findings(connection, [t for t in tables if t in existing or t in ours])
        except EngineFault as fault:
            return [*findings, fault_finding(fault)]
        findings += shared_findings(shared, members, str)
        return findings + [taken_finding(table) for table in strange]

    @contextmanager
    def writing(self, table: TableId | None = None) -> Iterator[BatchWriter]:
        with self._writer.transaction(table):
            yield self._writer.batch_writer()

    @contextmanager
    def reading(self) -> Iterator[MetadataStore]:
        with self._sessions.session() as connection, connection.transaction():
            yield PostgresMetadata(connection)

    def on_reset(self, records: MetadataStore, subscription: SubscriptionName, before: Position | None) -> None:
        del records
        self._writer.settle_parts(subscription, before)

    def after_claim(self, subscription: SubscriptionName, epoch: Epoch, reached: Lsn | None) -> None:
        self._epochs[subscription] = epoch
        # From here on no part of a batch of an older engine can be committed.
        with self._sessions.session() as connection:
            wait_alone(connection, subscription, reached)

    def fence(self, records: MetadataStore, subscription: SubscriptionName) -> None:
        claimed_here, epoch = self._epochs.get(subscription), records.shared_epoch(subscription)
        if claimed_here is not None and epoch != claimed_here:
            raise EngineFault(FaultKind.EPOCH_LOST, subscription, "another engine has taken over this subscription")

    def forget(self, subscription: SubscriptionName) -> None:
        super().forget(subscription)
        self._loader.leave()
        self._writer.leave()
        self._readers.drop(subscription)

    def adopt(
        self,
        subscription: SubscriptionName,
        table: TableId,
        target: TableName,
        *,
        into_existing: bool = False,
        shared: SharedInto | None = None,
    ) -> None:
        """See the protocol. A table that this subscription left on the target after its removal may be taken over again."""
        with self._writer.transaction(table) as connection:
            adopt(connection, subscription, table, target, into_existing=into_existing)
            if shared is not None:
                refuse_reserved(table, shared.relation)
            self._writer.batch_writer().shared.adopt(subscription, table, target, shared)

    def append_copy(self, table: TableId, rows: Any) -> int:
        with self._loader.transaction(table) as connection:
            _, copy = self.loading(PostgresMetadata(connection), table)
            return insert_rows(connection, Place(table, qualified(copy.place), copy.schema), rows)

    def commit(self, batch: BatchCommit) -> Mapping[TableId, SetAside]:
        """See the protocol, with one exception: if the database is unreachable after a failure in the commit itself, the outcome is
        determined, and reported to the next call, when it is reachable."""
        with self._writer.lock:
            if self._writer.settled(batch):
                return self.standing_aside(batch)
            found = self._apply(batch)
            self._writer.make_durable(batch)
            return found

    def _apply(self, batch: BatchCommit) -> Mapping[TableId, SetAside]:
        """Write the batch in a transaction that stays open. Rejected rows are searched for only if there were any."""
        may = {commit.table for commit in batch.tables if commit.set_aside}
        in_place, careful, found = True, frozenset[TableId](), dict[TableId, SetAside]()
        gave_way = False

        def work(writer: BatchWriter) -> None:
            writer.apply(batch)
            found.update(writer.refused.set_aside)

        while True:
            try:
                self._writer.apply(work, in_place=in_place, careful=careful)
            except EngineFault as fault:
                if in_place and isinstance(fault.__cause__, psycopg.errors.UniqueViolation):
                    in_place = False
                elif fault.kind in _OF_ROWS and TableId(fault.subject) in may - careful:
                    careful |= {TableId(fault.subject)}
                elif not gave_way and isinstance(fault.__cause__, psycopg.errors.LockNotAvailable):
                    gave_way = True
                    if not self._queries_give_way():
                        raise
                else:
                    raise
                continue
            return found

    def _queries_give_way(self) -> bool:
        """End readers' statements, one of which may block a batch's change of a table. False if none runs."""
        queries = self._queries
        return queries is not None and queries.kill_busy(GAVE_WAY)

    def commit_blocked(self) -> Blocker | None:
        pid = self._writer.pid
        if pid is None:
            return None
        with self._sessions.session() as connection:
            row = connection.execute(_BLOCKER, {"pid": pid}).fetchone()
        return Blocker(float(row[0]), int(row[1]), float(row[2]), redacted(str(row[3]))) if row is not None else None

    def tuning(self) -> dict[str, float]:
        found = self._writer.ingest
        if found is None:
            return {}
        return {"copy_above_rows": float(found.copy_above), "copy_setup_ms": round(found.setup_ms, 2)}

    def in_parts(self) -> PostgresTarget:
        return self

    def parts_missing(self, lanes: int) -> str | None:
        with self._sessions.session() as connection:
            most = int(connection.execute("SHOW max_prepared_transactions").fetchall()[0][0])
        if most >= lanes:
            return None
        return f"max_prepared_transactions of the target is {most}; set it to {lanes} or more and restart the target"

    def commit_in_parts(self, batch: BatchCommit, lanes: int) -> int:
        """See the protocol, with the exception of `commit`."""
        with self._writer.lock:
            if self._writer.settled(batch):
                return 1
            dealt = self._dealt(batch, lanes)
            if dealt is None:
                self.commit(batch)
                return 1
            under_way = self._parts.begin(batch, dealt.parts[1:])
            try:
                self._writer.apply(lambda writer: self._apply_first(writer, dealt))
                under_way.wait()
                # This transaction holds the progress record, so no one else can end the parts.
                if not all_prepared(self._writer.connection, under_way.ids):
                    raise EngineFault(FaultKind.TARGET_UNAVAILABLE, self._sessions.name, "a part of the batch is gone")
                self._passing(Passage.PARTS_PREPARED)
            except BaseException as error:
                roll_back(self._writer.connection)
                under_way.roll_back()
                if not isinstance(error, EngineFault) or not _as_one(error):
                    raise
                self.commit(batch)
                return 1
            self._decide(batch, under_way)
            return len(dealt.parts)

    def _dealt(self, batch: BatchCommit, lanes: int) -> Dealt | None:
        connection = self._writer.connection
        try:
            records = PostgresMetadata(connection)
            recorded = records.reservations(batch.subscription, [commit.table for commit in batch.tables])
            schemas = {one.table: one.schema for one in recorded}
            return deal(
                batch,
                lanes,
                self._parts_from_rows,
                lambda commit: schemas.get(commit.table) == commit.schema,
                lambda commit: place_of(connection, records, commit.table, commit.target, commit.schema),
                lambda names: tied_tables(connection, names),
            )
        except psycopg.Error as error:
            raise TARGET.fault(error, self._sessions.name) from error

    def _apply_first(self, writer: BatchWriter, dealt: Dealt) -> None:
        """Write everything that is not in the other parts."""
        writer.apply(dealt.rest)
        apply_part(self._writer.connection, dealt.parts[0])

    def _decide(self, batch: BatchCommit, under_way: PartsUnderWay) -> None:
        """Commit the record, and then its parts."""
        with self._whole:
            try:
                self._writer.make_durable(batch)
            except EngineFault:
                # Whether they are to be committed is determined together with the batch's outcome.
                under_way.leave()
                raise
            try:
                self._passing(Passage.PARTS_DECIDED)
                under_way.commit()
            except BaseException:
                self._writer.doubt(batch)
                raise

    def in_order(self) -> PostgresTarget:
        return self

    def commit_rates(self) -> CommitRates:
        with self._sessions.session() as connection:
            return measured_rates(connection)

    def commit_in_order(self, batch: BatchCommit, way: InOrderPlan) -> int:
        """See the protocol, with the exception of `commit`."""
        with self._writer.lock:
            if self._writer.settled(batch):
                return 0
            after = self._begin_in_order(batch)
            tables = self._ordered_tables(batch, alone=way.lanes == 1)
            redone = self._lanes.redone
            if tables:
                origin = OriginFilter.ANY if batch.last is None else batch.last.origin
                stream = stream_of(tables, batch.times, origin)
                self._lanes.write(batch, stream, way, after, lambda: self._recorded(batch))
            self._writer.apply(lambda writer: writer.end_in_order(batch))
            self._writer.make_durable(batch)
            return self._lanes.redone - redone

    def _begin_in_order(self, batch: BatchCommit) -> Lsn:
        """Write what must be recorded before the batch's transactions; returns the recorded position."""
        position: list[Lsn] = []

        def begin(writer: BatchWriter) -> None:
            position.append(writer.begin_in_order(batch).end)

        # Durable with the next transaction; it need not be before.
        self._writer.apply(begin, durable=False)
        self._writer.commit()
        return position[0]

    def _ordered_tables(self, batch: BatchCommit, *, alone: bool) -> list[OrderedTable]:
        """The tables' changes. `alone`: no other session writes concurrently."""
        changed = [commit for commit in batch.tables if commit.changes]
        connection = self._writer.connection
        try:
            records = PostgresMetadata(connection)
            records.reservations(batch.subscription, [commit.table for commit in changed])
            places = [place_of(connection, records, c.table, c.target, c.schema) for c in changed]
            tied = set() if alone else tied_tables(connection, [place.qualified for place in places])
        except psycopg.Error as error:
            raise TARGET.fault(error, self._sessions.name) from error
        return [
            OrderedTable(place, commit.changes, apart=place.qualified in tied)
            for place, commit in zip(places, changed, strict=True)
        ]

    def _recorded(self, batch: BatchCommit) -> Lsn:
        """The recorded position. Raises EngineFault(EPOCH_LOST) if it is another engine's."""
        with self._writer.transaction():
            return self._writer.batch_writer().fence(batch).end

    def sequences(self) -> PostgresSequences:
        return PostgresSequences(self._sessions)

    def query(
        self,
        sql: str,
        limits: QueryLimits,
        subscription: SubscriptionName,
        judge: JudgeReads = any_reads,
        parameters: Sequence[str | None] = (),
        client: SqlClient | None = None,
    ) -> AbstractContextManager[QueryAnswer]:
        return run_query(self._query_parts(), (sql, parameters), limits, subscription, judge)

    def _query_parts(self) -> QueryParts:
        pool = self._query_processes()
        given = bool(self._spec.settings.get("query_user"))
        return QueryParts(
            self._sessions, self._readers, pool, self._decode, self._snapshot, self._generations, role_given=given
        )

    def hold(self, subscription: SubscriptionName, seconds: float) -> PostgresHeld:
        held = PostgresHeld(self._query_parts, subscription, seconds)
        with self._holding:
            self._held = [*(other for other in self._held if not other.over), held]
        return held

    def _query_processes(self) -> QueryPool:
        return self.query_pool(lambda _: (query_process, (self._query_memory,)))

    @contextmanager
    def pin(self, subscription: SubscriptionName) -> Iterator[TargetReader]:
        """See the protocol. Raises QueryRefused(query_unavailable) if the subscription has no record."""
        with self._sessions.session() as connection:
            try:
                position = self._snapshot(connection, subscription)
                connection.execute("SET LOCAL statement_timeout = 0")
                conninfo = self._sessions.conninfo(APPLICATION, replication=False, statement_timeout_ms=0)
                read = partial(read_table, self._query_processes(), self._decode, conninfo)
                yield PostgresReader(connection, position, self._generations, read)
            finally:
                roll_back(connection)

    def _snapshot(self, connection: PostgresConnection, subscription: SubscriptionName) -> Lsn:
        """Begin a transaction that sees whole batches, up to the returned position.

        Raises QueryRefused(query_unavailable) if nothing is recorded, or an engine was lost while a batch became visible.
        """
        with self._whole:
            waiting = waiting_parts(connection, subscription)
            connection.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            records = PostgresMetadata(connection)
            position = records.position(subscription) if records.exist() else None
        if position is None:
            raise QueryRefused("query_unavailable", "nothing has been replicated to this target yet")
        if any(part.end <= position.end for part in waiting):
            raise QueryRefused("query_unavailable", "a part of the last batch is not visible yet; retry")
        return position.end

    def close(self) -> None:
        """Close all connections. A later call connects again."""
        with self._holding:
            held, self._held = self._held, []
        for each in held:
            each.end("the target was closed")
        self.close_queries()
        self._loader.close()
        with self._writer.lock:
            self._writer.close()
            self._lanes.close()
            self._parts.close()
            self._sessions.close()

    def _generations(self) -> dict[TableName, int]:
        with self._sessions.session() as connection:
            records = PostgresMetadata(connection)
            return records.generations() if records.exist() else {}
