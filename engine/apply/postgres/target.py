"""The PostgreSQL target: one database, written over one connection or several lanes, read over others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any

import psycopg
from psycopg import pq

from engine.apply.batch_writer import BatchWriter
from engine.apply.bookkeeping import (
    CopyRecord,
    Position,
    hidden_name,
    mark_of,
    progress_of,
    refuse_claim,
    refuse_rebase,
    stands,
)
from engine.apply.evolution import require_columns
from engine.apply.postgres.changes import Place, insert_rows
from engine.apply.postgres.errors import TARGET, fault_of_table
from engine.apply.postgres.identifiers import qualified, quoted
from engine.apply.postgres.lanes import LaneWriter, TableStretch, stream_of, tied_tables
from engine.apply.postgres.preflight import (
    fault_finding,
    is_reserved,
    is_taken,
    name_findings,
    place_findings,
    taken_finding,
)
from engine.apply.postgres.query import DecodeText, run_query
from engine.apply.postgres.rates import measured_rates
from engine.apply.postgres.reader import PostgresReader
from engine.apply.postgres.records import PostgresRecords
from engine.apply.postgres.structure import create_statement
from engine.apply.postgres.tables import PostgresTables
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import BatchId, Epoch, SubscriptionName, TableId, TableName
from engine.model.position import Lsn
from engine.model.schema import TableSchema
from engine.model.subscription import ConnectionSpec
from engine.model.target import (
    AheadRows,
    BatchCommit,
    CommitRates,
    InOrder,
    QueryAnswer,
    QueryRefused,
    TargetProgress,
    TargetReader,
)
from engine.postgres.sessions import PostgresConnection, Sessions

_STATEMENTS_KEPT = 200
"""Prepared statements that the writer's connection keeps, the least recently used ones going first."""
_PREPARE_AFTER = 3


class PostgresTarget:
    """Implements Target. Connects at the first use that needs it.

    Any method may raise EngineFault(TARGET_UNAVAILABLE, TARGET_DISK_FULL). After a lost connection the next call connects anew.
    """

    def __init__(self, spec: ConnectionSpec, decode: DecodeText) -> None:
        """`decode` makes columns of COPY's text form, for the answers of queries."""
        self._sessions = Sessions(spec, TARGET)
        self._decode = decode
        self._lock = threading.RLock()
        """Held while the writer's connection is in use."""
        self._connection: PostgresConnection | None = None
        self._in_doubt: BatchCommit | None = None
        self._lanes = LaneWriter(self._open_writer)

    def check(self, tables: Sequence[TableName]) -> list[tuple[str, str, str, str]]:
        findings = name_findings(tables)
        try:
            with self._sessions.session() as connection:
                findings += place_findings(connection)
                records = PostgresRecords(connection)
                ours = {r.target for r in records.reservations(None)} if records.exist() else set()
                strange = [table for table in tables if table not in ours and is_taken(connection, table)]
        except EngineFault as fault:
            return [*findings, fault_finding(fault)]
        return findings + [taken_finding(table) for table in strange]

    def progress(self, subscription: SubscriptionName) -> TargetProgress | None:
        with self._sessions.session() as connection, connection.transaction():
            records = PostgresRecords(connection)
            position = records.position(subscription) if records.exist() else None
            return progress_of(position, records.reservations(subscription)) if position is not None else None

    def claim(
        self, subscription: SubscriptionName, epoch: Epoch, system_id: str, timeline: int, slot: str, start: Lsn
    ) -> None:
        """As the protocol says. Drops the subscription's unfinished copies, whoever began them."""
        with self._writing() as connection:
            records = PostgresRecords(connection, fence=True)
            records.create()
            before = records.position(subscription)
            refuse_claim(subscription, before, epoch, system_id)
            batch, end = (before.batch, before.end) if before is not None else (BatchId(0), start)
            records.write_position(subscription, Position(epoch, batch, end, system_id, timeline, slot))
            _writer(connection).drop_copies(records.copies(subscription))

    def rebase(
        self, subscription: SubscriptionName, epoch: Epoch, system_id: str, timeline: int, slot: str, start: Lsn
    ) -> None:
        with self._writing() as connection:
            records = PostgresRecords(connection, fence=True)
            records.create()
            before = records.position(subscription)
            refuse_rebase(subscription, before, epoch)
            batch = before.batch if before is not None else BatchId(0)
            records.write_position(subscription, Position(epoch, batch, start, system_id, timeline, slot))
            records.mark_unready(subscription)
            _writer(connection).drop_copies(records.copies(subscription))

    def forget(self, subscription: SubscriptionName) -> None:
        """Drop the subscription's record and unfinished copies; its tables stay, and it may take them up again."""
        with self._writing() as connection:
            records = PostgresRecords(connection, fence=True)
            if records.exist():
                _writer(connection).drop_copies(records.copies(subscription))
                records.forget(subscription)

    def adopt(self, subscription: SubscriptionName, table: TableId, target: TableName) -> None:
        """As the protocol says. A table that this subscription left behind on removal may be taken up again."""
        if is_reserved(target):
            detail = f"the schema {target.schema!r} of the target is not for replicated tables; map it to another name"
            raise EngineFault(FaultKind.TABLE_NAME_COLLISION, table, detail)
        with self._writing() as connection:
            records = PostgresRecords(connection)
            records.create()
            same = [r for r in records.reservations(None) if r.target == target]
            mine = {r.table: r for r in records.reservations(subscription) if r.target == target}
            if table in mine and not mine[table].removed:
                return
            if any(other.table not in mine or not other.removed for other in same):
                detail = f"{target} is already the target of another table; map one to another name"
                raise EngineFault(FaultKind.TABLE_NAME_COLLISION, table, detail)
            if not mine and is_taken(connection, target):
                detail = f"a table or view {target} that Penstock did not make stands there; map it to another name"
                raise EngineFault(FaultKind.TABLE_NAME_COLLISION, table, detail)
            records.reserve(subscription, table, target, [r.table for r in mine.values()])

    def begin_copy(
        self, subscription: SubscriptionName, table: TableId, target: TableName, schema: TableSchema
    ) -> None:
        require_columns(table, schema)
        with self._writing(table) as connection:
            records = PostgresRecords(connection)
            if not any(r.target == target for r in records.reservations(subscription, [table])):
                raise EngineFault(FaultKind.INTERNAL, table, "its name on the target was not reserved")
            _writer(connection).drop_copies(records.copies(None, table))
            place = hidden_name(table, target)
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(target.schema)}".encode())
            connection.execute(create_statement(qualified(place), schema).encode())
            records.write_copy(subscription, CopyRecord(table, place, schema))

    def append_copy(self, table: TableId, rows: Any) -> int:
        with self._writing(table) as connection:
            copies = PostgresRecords(connection).copies(None, table)
            if not copies:
                raise EngineFault(FaultKind.COPY_FAILED, table, "no copy of this table is being loaded")
            return insert_rows(connection, Place(table, qualified(copies[0].place), copies[0].schema), rows)

    def discard_copy(self, table: TableId) -> None:
        with self._writing(table) as connection:
            _writer(connection).drop_copies(PostgresRecords(connection).copies(None, table))

    def commit(self, batch: BatchCommit) -> None:
        """As the protocol says, with one exception: where the database is gone after a failure in the commit itself, whether
        the batch counts is decided, and this call's successor told, when it can be."""
        with self._lock:
            if self._in_doubt is not None and self._settle(batch):
                return
            try:
                self._apply(lambda writer: writer.apply(batch))
            except EngineFault as fault:
                if not isinstance(fault.__cause__, psycopg.errors.UniqueViolation):
                    raise
                self._apply(lambda writer: writer.apply(batch), in_place=False)
            self._make_durable(batch)

    def in_order(self) -> PostgresTarget:
        return self

    def commit_rates(self) -> CommitRates:
        with self._sessions.session() as connection:
            return measured_rates(connection)

    def commit_in_order(self, batch: BatchCommit, way: InOrder) -> int:
        """As the protocol says, with the exception of `commit`."""
        with self._lock:
            if self._in_doubt is not None and self._settle(batch):
                return 0
            after = self._begin_in_order(batch)
            tables = self._stretches(batch, alone=way.lanes == 1)
            redone = self._lanes.redone
            if tables:
                self._lanes.write(batch, stream_of(tables), way, after, lambda: self._recorded(batch))
            self._apply(lambda writer: writer.end_in_order(batch))
            self._make_durable(batch)
            return self._lanes.redone - redone

    def _begin_in_order(self, batch: BatchCommit) -> Lsn:
        """What has to be on record before the batch's transactions; where the subscription stands."""
        position: list[Lsn] = []

        def begin(writer: BatchWriter) -> None:
            position.append(writer.begin_in_order(batch).end)

        # Durable with what comes behind it, and before that nothing of it needs to be.
        self._apply(begin, durable=False)
        try:
            self._writer_connection().execute("COMMIT")
        except psycopg.Error as error:
            raise TARGET.fault(error, self._sessions.name) from error
        return position[0]

    def _stretches(self, batch: BatchCommit, *, alone: bool) -> list[TableStretch]:
        """The tables' changes. `alone`: nothing is written beside them."""
        changed = [commit for commit in batch.tables if commit.changes]
        names = [qualified(commit.target) for commit in changed]
        tied = set() if alone else tied_tables(self._writer_connection(), names)
        return [
            TableStretch(Place(commit.table, name, commit.schema), commit.changes, apart=name in tied)
            for commit, name in zip(changed, names, strict=True)
        ]

    def _recorded(self, batch: BatchCommit) -> Lsn:
        """Where the subscription stands. Raises EngineFault(EPOCH_LOST) where it is another engine's."""
        with self._writing() as connection:
            return _writer(connection).fence(batch).end

    def _apply(self, work: Callable[[BatchWriter], object], *, in_place: bool = True, durable: bool = True) -> None:
        """Work in a new transaction, which stays open. It is rolled back where this raises."""
        connection = self._writer_connection()
        try:
            connection.execute("BEGIN")
            if not durable:
                connection.execute("SET LOCAL synchronous_commit = off")
            work(_writer(connection, in_place=in_place))
        except psycopg.Error as error:
            _roll_back(connection)
            raise TARGET.fault(error, self._sessions.name) from error
        except BaseException:
            _roll_back(connection)
            raise

    def _make_durable(self, batch: BatchCommit) -> None:
        """Commit the transaction that wrote the batch's end."""
        connection = self._writer_connection()
        try:
            connection.execute("COMMIT")
        except psycopg.Error as error:
            _roll_back(connection)
            self._in_doubt = batch
            if not self._settle(batch):
                raise TARGET.fault(error, self._sessions.name) from error

    def begin_ahead(self, subscription: SubscriptionName) -> AheadRows | None:
        """None: rows are not taken before their commit."""
        return None

    def query(self, sql: str, max_rows: int, timeout_s: float, subscription: SubscriptionName) -> QueryAnswer:
        """As the protocol says. A table that was replaced while the query began would look empty to it: it is run again then."""
        deadline = monotonic() + timeout_s
        while (left := deadline - monotonic()) > 0:
            before = self._generations()
            with self._sessions.session() as connection:
                answer = run_query(connection, self._decode, sql, max_rows, left, subscription)
            if self._generations() == before:
                return answer
        raise QueryRefused("query_timeout", f"tables were replaced one after another for {timeout_s:g} s")

    @contextmanager
    def pin(self, subscription: SubscriptionName) -> Iterator[TargetReader]:
        """As the protocol says. Raises QueryRefused(query_unavailable) where the subscription has no record."""
        with self._sessions.session() as connection:
            connection.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            try:
                connection.execute("SET LOCAL statement_timeout = 0")
                records = PostgresRecords(connection)
                position = records.position(subscription) if records.exist() else None
                if position is None:
                    raise QueryRefused("query_unavailable", "nothing has been replicated to this target yet")
                yield PostgresReader(connection, position.end, self._generations)
            finally:
                _roll_back(connection)

    def close(self) -> None:
        """Close all connections. A later call connects again."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()
            self._lanes.close()
            self._sessions.close()

    def _generations(self) -> dict[TableName, int]:
        with self._sessions.session() as connection:
            records = PostgresRecords(connection)
            return records.generations() if records.exist() else {}

    def _settle(self, batch: BatchCommit) -> bool:
        """Find out whether the batch whose COMMIT failed counts. True where it does and is the one given."""
        doubted = self._in_doubt
        if doubted is None:
            return False
        connection = self._writer_connection()
        try:
            with connection.transaction():
                position = PostgresRecords(connection, fence=True).position(doubted.subscription)
        except psycopg.Error as error:
            raise TARGET.fault(error, self._sessions.name) from error
        self._in_doubt = None
        same = doubted.subscription == batch.subscription and mark_of(doubted) == mark_of(batch)
        return same and stands(position, doubted)

    @contextmanager
    def _writing(self, table: TableId | None = None) -> Iterator[PostgresConnection]:
        """The writer's connection in a transaction, and the driver's errors as faults."""
        with self._lock:
            connection = self._writer_connection()
            try:
                with connection.transaction():
                    yield connection
            except psycopg.Error as error:
                if table is not None:
                    raise fault_of_table(error, table) from error
                raise TARGET.fault(error, self._sessions.name) from error

    def _writer_connection(self) -> PostgresConnection:
        if self._connection is None or self._connection.closed:
            connection = self._open_writer()
            connection.prepare_threshold = _PREPARE_AFTER
            connection.prepared_max = _STATEMENTS_KEPT
            self._connection = connection
        return self._connection

    def _open_writer(self) -> PostgresConnection:
        """A session that writes."""
        connection = self._sessions.open(statement_timeout_ms=0)
        with suppress(psycopg.errors.InsufficientPrivilege):
            # The source has checked its foreign keys and fired its triggers.
            connection.execute("SET session_replication_role = replica")
        return connection


def _writer(connection: PostgresConnection, *, in_place: bool = True) -> BatchWriter:
    records = PostgresRecords(connection, fence=True)
    return BatchWriter(records, PostgresTables(connection, records, in_place=in_place))


def _roll_back(connection: PostgresConnection) -> None:
    if connection.info.transaction_status != pq.TransactionStatus.IDLE:
        with suppress(psycopg.Error):
            connection.execute("ROLLBACK")
