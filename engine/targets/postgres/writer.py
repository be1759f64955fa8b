"""The connection that commits batches: its transactions, and the outcome of an unanswered COMMIT."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from weakref import WeakSet

import psycopg
from psycopg import pq

from engine.model.identity import SubscriptionName, TableId, TableName
from engine.model.target import BatchCommit
from engine.postgres.sessions import PostgresConnection, Sessions
from engine.targets.batch_writer import BatchWriter
from engine.targets.postgres.errors import TARGET, fault_of_table
from engine.targets.postgres.ingest import Ingest, measured_ingest
from engine.targets.postgres.metadata import PostgresMetadata
from engine.targets.postgres.origins import Origins, drop_unused
from engine.targets.postgres.plans import FIND_BY_KEY
from engine.targets.postgres.shared import PostgresViews
from engine.targets.postgres.staging import needs_measurement, set_copy_above
from engine.targets.postgres.tables import PostgresTables
from engine.targets.postgres.two_phase.recovery import settle_parts
from engine.targets.quarantined_rows import DecodeText
from engine.targets.target_metadata import Position, counts, same_batch

STATEMENTS_KEPT = 200
"""Prepared statements kept by a writer's connection, least recently used ones dropped first."""
_PREPARE_AFTER = 3
"""Executions of a statement after which it is prepared: every batch repeats the statements of its tables. psycopg's default is 5. Not
measured."""


class Writer:
    """Commits in the thread that holds `lock`. Connects at first use, and again after a lost connection."""

    def __init__(self, sessions: Sessions, origins: Origins, decode: DecodeText, copy_above: int | None = None) -> None:
        """`decode` converts the texts of quarantined rows to columns. `copy_above`: number of rows above which they are passed by
        COPY; None = measured after the first commit for which it matters."""
        self._sessions = sessions
        self._decode = decode
        self._pinned = copy_above
        self.ingest: Ingest | None = None
        """The measured values."""
        self.lock = threading.RLock()
        """Held while the writer's connection is in use."""
        self._origins = origins
        self._connection: PostgresConnection | None = None
        self._constrained: WeakSet[PostgresConnection] = WeakSet()
        """Sessions in which foreign keys are checked and triggers fire."""
        self._in_doubt: BatchCommit | None = None

    @property
    def connection(self) -> PostgresConnection:
        """Raises EngineFault(TARGET_UNAVAILABLE)."""
        if self._connection is None or self._connection.closed:
            self._connection = self._open_kept()
        return self._connection

    def open(self) -> PostgresConnection:
        """A session that writes. Its transactions must be stamped (Origins) before their commit."""
        connection = self._sessions.open(statement_timeout_ms=0)
        try:
            # The source has checked its foreign keys and fired its triggers.
            connection.execute("SET session_replication_role = replica")
        except psycopg.errors.InsufficientPrivilege:
            self._constrained.add(connection)
        connection.execute(FIND_BY_KEY)
        self._origins.mark(connection)
        return connection

    @property
    def pid(self) -> int | None:
        """The server process of the connection; None if there is none. From any thread."""
        connection = self._connection
        return None if connection is None or connection.closed else connection.info.backend_pid

    @contextmanager
    def transaction(self, table: TableId | None = None) -> Iterator[PostgresConnection]:
        """The connection in a separate transaction. The driver's errors become faults, of the table if they name one."""
        with self.lock:
            connection = self.connection
            try:
                with connection.transaction():
                    yield connection
                    self._origins.stamp(connection)
            except psycopg.Error as error:
                if table is not None:
                    raise fault_of_table(error, table) from error
                raise TARGET.fault(error, self._sessions.name) from error

    def apply(
        self,
        work: Callable[[BatchWriter], object],
        *,
        in_place: bool = True,
        durable: bool = True,
        careful: Collection[TableId] = frozenset(),
    ) -> None:
        """Execute `work` in a new transaction, which stays open; rolled back if it raises. `careful`: as in BatchWriter."""
        connection = self.connection
        try:
            connection.execute("BEGIN")
            if not durable:
                connection.execute("SET LOCAL synchronous_commit = off")
            constrained = connection in self._constrained
            if constrained:
                # Tables and rows are written in another order than on the source.
                connection.execute("SET CONSTRAINTS ALL DEFERRED")
            work(self.batch_writer(in_place=in_place, careful=careful))
            if constrained:
                _check_constraints(connection)
        except psycopg.Error as error:
            roll_back(connection)
            raise TARGET.fault(error, self._sessions.name) from error
        except BaseException:
            roll_back(connection)
            raise

    def batch_writer(self, *, in_place: bool = True, careful: Collection[TableId] = frozenset()) -> BatchWriter:
        """The BatchWriter for the connection's transaction."""
        records = PostgresMetadata(self.connection, fence=True)
        tables = PostgresTables(self.connection, records, self._decode, in_place=in_place)
        return BatchWriter(records, tables, PostgresViews(self.connection), self._decode, careful)

    def commit(self) -> None:
        """Commit the open transaction. Raises EngineFault(TARGET_UNAVAILABLE)."""
        try:
            self._origins.commit(self.connection)
        except psycopg.Error as error:
            raise TARGET.fault(error, self._sessions.name) from error

    def make_durable(self, batch: BatchCommit) -> None:
        """Commit the transaction that contains the batch's end, or verify that it is committed."""
        connection = self.connection
        try:
            self._origins.commit(connection)
        except psycopg.Error as error:
            roll_back(connection)
            self._in_doubt = batch
            if not self.settled(batch):
                raise TARGET.fault(error, self._sessions.name) from error
        else:
            if needs_measurement(connection):
                self._measure(connection)

    def doubt(self, batch: BatchCommit) -> None:
        """The outcome of this batch's commit must be determined before the next batch."""
        self._in_doubt = batch

    def settled(self, batch: BatchCommit) -> bool:
        """Determine the outcome of the batch in doubt, if there is one, and end its parts. True if it is committed and is the given
        one."""
        doubted = self._in_doubt
        if doubted is None:
            return False
        connection = self.connection
        try:
            with connection.transaction():
                position = PostgresMetadata(connection, fence=True).position(doubted.subscription)
                self.settle_parts(doubted.subscription, position)
        except psycopg.Error as error:
            raise TARGET.fault(error, self._sessions.name) from error
        self._in_doubt = None
        return counts(position, doubted) and same_batch(doubted, batch)

    def settle_parts(self, subscription: SubscriptionName, position: Position | None) -> None:
        """End the subscription's prepared parts over another connection: the caller's transaction holds the record and has read
        `position`."""
        with self._sessions.session() as other:
            settle_parts(other, subscription, position.end if position is not None else None)

    def close(self) -> None:
        """Close the connection. A later call connects again."""
        with self.lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def leave(self) -> None:
        """Close the connection, and drop unused origins. The next writer takes one again."""
        with self.lock:
            if self._connection is not None and not self._connection.closed:
                drop_unused(self._connection)
            self.close()

    def _open_kept(self) -> PostgresConnection:
        connection = self.open()
        connection.prepare_threshold = _PREPARE_AFTER
        connection.prepared_max = STATEMENTS_KEPT
        known = self._pinned if self.ingest is None else self.ingest.copy_above
        if known is not None:
            set_copy_above(connection, known)
        return connection

    def _measure(self, connection: PostgresConnection) -> None:
        """Outside a transaction. Errors are ignored: they recur where they matter."""
        with suppress(psycopg.Error):
            self.ingest = measured_ingest(connection)
            set_copy_above(connection, self.ingest.copy_above)


def _check_constraints(connection: PostgresConnection) -> None:
    """Check deferred constraints now, so that an error becomes the fault of a table of ours."""
    try:
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
    except psycopg.errors.IntegrityError as error:
        roll_back(connection)
        place = TableName(error.diag.schema_name or "", error.diag.table_name or "")
        for reserved in PostgresMetadata(connection).reservations(None):
            if reserved.target == place:
                raise fault_of_table(error, reserved.table) from error
        raise


def roll_back(connection: PostgresConnection) -> None:
    """Roll back the open transaction, if there is one."""
    if connection.info.transaction_status != pq.TransactionStatus.IDLE:
        with suppress(psycopg.Error):
            connection.execute("ROLLBACK")
