"""The DuckDB target: one file, written by one thread, read by any."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import SubscriptionName, TableId, TableName
from engine.model.position import Lsn
from engine.model.quarantine import SetAside
from engine.model.repair import Repair, RepairResult
from engine.model.schema import TableSchema
from engine.model.shared import SharedInto
from engine.model.subscription import ConnectionSpec
from engine.model.target import (
    BatchCommit,
    JudgeReads,
    QueryAnswer,
    QueryLimits,
    QueryRefused,
    SpeculativeTransaction,
    SqlClient,
    TargetReader,
    any_reads,
)
from engine.queries.pool import Begin, QueryPool
from engine.targets.batch_writer import BatchWriter
from engine.targets.duckdb.changes import Place
from engine.targets.duckdb.database import Database, roll_back, transaction
from engine.targets.duckdb.errors import fault_of, is_broken
from engine.targets.duckdb.held import DuckDbHeld
from engine.targets.duckdb.identifiers import folded, folded_name, qualified
from engine.targets.duckdb.loading import CopyLoad
from engine.targets.duckdb.metadata import DuckDbMetadata
from engine.targets.duckdb.preflight import (
    ambiguous_members,
    fault_finding,
    is_reserved,
    name_findings,
    place_findings,
    standing,
    taken_finding,
)
from engine.targets.duckdb.query import Reads, run_query
from engine.targets.duckdb.query_process import ProcessLimits
from engine.targets.duckdb.query_process import main as query_process
from engine.targets.duckdb.reader import DuckDbReader
from engine.targets.duckdb.settings import DuckDbSettings, settings_from
from engine.targets.duckdb.shared import DuckDbViews
from engine.targets.duckdb.speculative_insert import DuckDbSpeculativeInsert
from engine.targets.duckdb.structure import DUCKDB_STRUCTURE
from engine.targets.duckdb.tables import DuckDbTables
from engine.targets.metadata_store import MetadataStore
from engine.targets.quarantined_rows import DecodeText, no_decoder
from engine.targets.shared import shared_findings
from engine.targets.sql_target import SqlTarget
from engine.targets.target_metadata import Member, Position, counts, hidden_name, places_of, same_batch

_CLOSED = "the target was closed"
"""Why held snapshots end with the target."""


class DuckDbTarget(SqlTarget):
    """Implements Target. The file is opened at first use and held open until `close`.

    Any method may raise EngineFault(TARGET_LOCKED, TARGET_UNAVAILABLE, TARGET_DISK_FULL, TARGET_FILE_GONE). After a fault that broke the
    instance the next call opens the file again; after TARGET_FILE_GONE, the next call after `close`.
    """

    structure = DUCKDB_STRUCTURE

    def __init__(
        self,
        path: str | Path,
        settings: DuckDbSettings | None = None,
        home: Path | None = None,
        decode: DecodeText = no_decoder,
    ) -> None:
        """A relative `path` is relative to `home`, by default the working directory. `decode` converts the texts of quarantined rows
        to columns."""
        super().__init__()
        self._decode = decode
        self.path = ((home or Path.cwd()) / path).absolute()
        self._relative = not Path(path).is_absolute()
        self._settings = settings or DuckDbSettings()
        self._lock = threading.RLock()
        """Held while the writer's connection is in use."""
        self._opening = threading.Lock()
        """Guards `_database`. Acquired after `_lock`, never before it, except without waiting."""
        self._database: Database | None = None
        self._in_doubt: BatchCommit | None = None
        self._speculative: DuckDbSpeculativeInsert | None = None
        """The newest one. It may end at any time; `_lock` is held to begin or commit one."""
        self._loads: dict[TableId, CopyLoad] = {}
        """Unfinished copies with appended rows. Guarded by `_loading`, which is held only briefly."""
        self._loading = threading.Lock()
        self._held: list[DuckDbHeld] = []
        """Held snapshots; those that have ended may be among them. Replaced, not changed, while `_holding` is held."""
        self._holding = threading.Lock()

    def check(
        self,
        tables: Sequence[TableName],
        existing: Collection[TableName] = (),
        shared: Mapping[TableName, SharedInto] = MappingProxyType({}),
    ) -> list[tuple[str, str, str, str]]:
        """Preflight: (severity, code, what, remedy) per finding. Creates no file. Existing tables cannot be used."""
        del existing
        relations = list(dict.fromkeys(into.relation for into in shared.values()))
        findings = name_findings([*tables, *relations], self.path.stem) + place_findings(
            self.path, relative=self._relative
        )
        findings += ambiguous_members(shared, self.path.stem)
        if not self.path.exists():
            return findings + shared_findings(shared, [], folded)
        try:
            taken, members = self._foreign_tables()
        except EngineFault as fault:
            return [*findings, fault_finding(fault)]
        findings += [taken_finding(table) for table in [*tables, *relations] if folded_name(table) in taken]
        return findings + shared_findings(shared, members, folded)

    @contextmanager
    def writing(self, table: TableId | None = None) -> Iterator[BatchWriter]:
        with self._lock:
            database = self._open()
            try:
                with transaction(database.writer):
                    yield self._batch_writer(database)
            except duckdb.Error as error:
                raise self._fault(error, database, table) from error

    @contextmanager
    def reading(self) -> Iterator[MetadataStore]:
        with self._reading() as (connection, catalog):
            yield DuckDbMetadata(connection, catalog)

    def on_reset(self, records: MetadataStore, subscription: SubscriptionName, before: Position | None) -> None:
        del before
        self._end_speculative(subscription)
        self._give_up_loads(copy.table for copy in records.copies(subscription))

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
        if into_existing:
            detail = "DuckDB targets do not support into_existing; leave it out"
            raise EngineFault(FaultKind.TABLE_UNFIT, table, detail)
        for place in [target] if shared is None else [target, shared.relation]:
            if is_reserved(place):
                detail = f"the schema {place.schema!r} of the target is reserved; map it to another name"
                raise EngineFault(FaultKind.TABLE_NAME_COLLISION, table, detail)
        ambiguous = ambiguous_members({} if shared is None else {target: shared}, self.path.stem)
        if ambiguous:
            raise EngineFault(FaultKind.SHARED_TABLE_CONFLICT, table, ambiguous[0][2])
        with self.writing(table) as writer:
            self._reserve(writer, subscription, table, target)
            writer.shared.adopt(subscription, table, target, shared)

    def _reserve(self, writer: BatchWriter, subscription: SubscriptionName, table: TableId, target: TableName) -> None:
        records = writer.records
        records.create()
        same = [r for r in records.reservations(None) if folded_name(r.target) == folded_name(target)]
        mine = {r.table: r for r in records.reservations(subscription) if folded_name(r.target) == folded_name(target)}
        if table in mine and not mine[table].removed:
            return
        exists = writer.tables.exists(target)
        others = [other for other in same if other.table not in mine or not other.removed]
        if others and all(other.removed for other in others):
            if exists:
                detail = f"{target} was left by another subscription: drop it, or map this table to another name"
                raise EngineFault(FaultKind.TABLE_NAME_COLLISION, table, detail)
            # The table left by another subscription was dropped, so its name is free.
            records.delete_left(target)
            mine = {}
        elif others:
            detail = f"{target} is already the target of {others[0].target}; names differ in more than case"
            raise EngineFault(FaultKind.TABLE_NAME_COLLISION, table, detail + "; map one to another name")
        if not mine and exists:
            detail = (
                f"a table or view {target} that Penstock did not create exists on the target; map it to another name"
            )
            raise EngineFault(FaultKind.TABLE_NAME_COLLISION, table, detail)
        records.reserve(subscription, table, target, [r.table for r in mine.values()])

    def begin_copy(
        self,
        subscription: SubscriptionName,
        table: TableId,
        target: TableName,
        schema: TableSchema,
        *,
        keyed: bool = False,
        load: str | None = None,
    ) -> None:
        self._give_up_loads([table])
        super().begin_copy(subscription, table, target, schema, keyed=keyed, load=load)
        database = self._open()
        place = Place(table, qualified(database.catalog, hidden_name(table, target)), schema)
        with self._loading:
            self._loads[table] = CopyLoad(database, place)

    def append_copy(self, table: TableId, rows: Any) -> int:
        load = self._load_of(table)
        with self._loading_faults(table, load):
            return load.append(rows)

    def finish_copy(self, table: TableId) -> None:
        with self._loading:
            load = self._loads.pop(table, None)
        if load is not None:
            with self._loading_faults(table, load):
                load.finish()

    def _load_of(self, table: TableId) -> CopyLoad:
        """The load of a copy. Right after `begin_copy` the writer's lock is not needed: commits would have to wait for it."""
        with self._loading:
            load = self._loads.get(table)
        if load is not None and not load.database.broken:
            return load
        with self.writing(table) as writer:
            _, copy = self.loading(writer.records, table)
            database = self._open()
            place = Place(table, qualified(database.catalog, copy.place), copy.schema)
            with self._loading:
                return self._loads.setdefault(table, CopyLoad(database, place))

    @contextmanager
    def _loading_faults(self, table: TableId, load: CopyLoad) -> Iterator[None]:
        """Give up the load on any error."""
        try:
            yield
        except duckdb.TransactionException as error:
            self._give_up_loads([table])
            detail = "its copy on the target was changed or dropped while it was loaded"
            raise EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, table, detail) from error
        except duckdb.Error as error:
            self._give_up_loads([table])
            raise self._fault(error, load.database, table) from error
        except BaseException:
            self._give_up_loads([table])
            raise
        finally:
            if load not in self._loads.values():
                load.give_up()

    def _give_up_loads(self, tables: Iterable[TableId] | None = None) -> None:
        """Roll back uncommitted rows of copies of these tables; by default of all."""
        with self._loading:
            given_up = [self._loads.pop(t, None) for t in (list(self._loads) if tables is None else tables)]
        for load in given_up:
            if load is not None:
                load.give_up()

    def discard_copy(self, table: TableId) -> None:
        self._give_up_loads([table])
        super().discard_copy(table)

    def commit(self, batch: BatchCommit) -> Mapping[TableId, SetAside]:
        """See the protocol, with one exception: if the file cannot be opened again after a failure in the commit itself, the outcome
        is determined, and reported to the next call, when it can be opened."""
        for commit in batch.tables:
            if commit.handover or commit.swap is not None:
                self.finish_copy(commit.table)
        self._give_up_loads(batch.removed)
        with self._lock:
            if self._in_doubt is not None and self._resolve_commit(batch):
                return self.standing_aside(batch)
            if self._speculative is not None and self._speculative.in_the_way_of(batch):
                self._end_speculative()
            try:
                return self._commit_once(batch)
            except duckdb.OutOfMemoryException:
                return self._retry(batch)

    def tuning(self) -> dict[str, float]:
        database = self._database
        if database is None:
            return {}
        index = database.index
        return {
            "keys_found": float(index.found),
            "keys_searched": float(index.searched),
            "key_index_bytes": float(index.bytes),
        }

    def expect(self, subscription: SubscriptionName, position: Lsn) -> None:
        database = self._database
        if database is not None:
            database.pace.expect(subscription, position)

    def reached(self, subscription: SubscriptionName, position: Lsn) -> None:
        database = self._database
        if database is not None:
            database.pace.reached(subscription, position)

    def check_place(self) -> None:
        with self._opening:
            database = self._database
        if database is not None:
            database.check_file(log=True)

    def retry_refused(self, subscription: SubscriptionName, table: TableId, rows: Collection[str] | None) -> list[str]:
        with self._lock:
            self._end_speculative(subscription)
            return super().retry_refused(subscription, table, rows)

    def repair(self, repair: Repair) -> RepairResult:
        with self._lock:
            self._end_speculative(repair.subscription)
            return super().repair(repair)

    def begin_speculative_insert(self, subscription: SubscriptionName) -> SpeculativeTransaction | None:
        with self._lock:
            if self._speculative is not None and not self._speculative.over:
                return None
            database = self._open()
            try:
                self._speculative = DuckDbSpeculativeInsert(database, subscription, self._commit_speculative)
            except duckdb.Error as error:
                raise self._fault(error, database) from error
            return self._speculative

    @contextmanager
    def query(
        self,
        sql: str,
        limits: QueryLimits,
        subscription: SubscriptionName,
        judge: JudgeReads = any_reads,
        parameters: Sequence[str | None] = (),
        client: SqlClient | None = None,
    ) -> Iterator[QueryAnswer]:
        database = self._open()
        reads, pool = Reads.of_present(database), self._pool_of(database)
        try:
            with run_query(reads, pool, (sql, parameters), limits, subscription, judge, client) as answer:
                yield answer
        except duckdb.Error as error:
            raise self._fault(error, database) from error

    def _pool_of(self, database: Database) -> QueryPool:
        return self.query_pool(partial(self._query_process, database), Path(f"{self.path}.queries.tmp"))

    def hold(self, subscription: SubscriptionName, seconds: float) -> DuckDbHeld:
        del seconds
        database = self._open()
        try:
            held = DuckDbHeld(database, partial(self._pool_of, database), self._fault, subscription)
        except duckdb.Error as error:
            raise self._fault(error, database) from error
        with self._holding:
            self._held = [*(other for other in self._held if other.lost() is None), held]
        if self._database is not database:  # closed meanwhile, perhaps before it could find this one
            held.end(_CLOSED)
        return held

    def _end_held(self, why: str) -> None:
        with self._holding:
            held, self._held = self._held, []
        for one in held:
            one.end(why)

    def _query_process(self, database: Database, folder: Path | None) -> Begin:
        given = self._settings
        limits = ProcessLimits(database.catalog, given.query_memory, given.threads, given.spill_limit, str(folder))
        return query_process, (limits,)

    @contextmanager
    def pin(self, subscription: SubscriptionName) -> Iterator[TargetReader]:
        """See the protocol. Raises QueryRefused(query_unavailable) if the subscription has no record."""
        with self._reading() as (connection, catalog):
            connection.execute("BEGIN TRANSACTION")
            # DuckDB takes its snapshot at the first access to the file, not at BEGIN.
            position = DuckDbMetadata(connection, catalog).position(subscription)
            if position is None:
                raise QueryRefused("query_unavailable", "nothing has been replicated to this target yet")
            yield DuckDbReader(connection, catalog, position.end)

    def close(self) -> None:
        """Checkpoint and close the file. Running queries are interrupted. A later call opens the file again."""
        self.close_queries()
        with self._lock:
            self._end_speculative()
            self._give_up_loads()
            database, self._database = self._database, None
            self._end_held(_CLOSED)
            if database is not None:
                database.close(checkpoint=True)

    def _commit_once(self, batch: BatchCommit) -> Mapping[TableId, SetAside]:
        """Raises duckdb.OutOfMemoryException, because a retry may succeed after queries were stopped."""
        database = self._open()
        connection = database.writer
        try:
            connection.execute("BEGIN TRANSACTION")
            writer = self._batch_writer(database)
            with database.index.batch():
                writer.apply(batch)
        except duckdb.OutOfMemoryException:
            roll_back(connection)
            raise
        except duckdb.Error as error:
            roll_back(connection)
            raise self._fault(error, database) from error
        except BaseException:
            roll_back(connection)
            raise
        try:
            connection.commit()
        except duckdb.Error as error:
            roll_back(connection)
            fault = self._fault(error, database)
            self._in_doubt = batch
            if not self._resolve_commit(batch):
                raise fault from error
        return writer.refused.set_aside

    def _commit_speculative(self, rows: DuckDbSpeculativeInsert, batch: BatchCommit) -> bool:
        """Implements `commit` of a speculative insert, between two batches of the writer, the only one that moves the fence."""
        with self._lock:
            if self._in_doubt is not None and self._resolve_commit(batch):
                rows.roll_back()
                return True
            database = self._open()
            try:
                position = self._batch_writer(database).fence(batch)
            except duckdb.Error as error:
                raise self._fault(error, database) from error
            if rows.database is not database or not rows.write(batch, position, database.writer):
                rows.roll_back()
                return False
            try:
                rows.finish()
            except duckdb.Error as error:
                database.broken = database.broken or is_broken(error)
                self._in_doubt = batch
                if not self._resolve_commit(batch):
                    return False
            self._fold(batch)
            return True

    def _fold(self, batch: BatchCommit) -> None:
        """Reduce the progress record to one row after a speculative commit. If it fails, the next batch does it."""
        with suppress(EngineFault), self.writing() as writer:
            records = writer.records
            position = records.position(batch.subscription)
            if position is not None:
                records.write_position(batch.subscription, position)
            records.write_applied(batch.subscription, [one.table for one in batch.tables], batch.end)

    def _end_speculative(self, subscription: SubscriptionName | None = None) -> None:
        """Roll back speculative inserts of this subscription, or of any."""
        if self._speculative is not None and subscription in {None, self._speculative.subscription}:
            self._speculative.roll_back()
            self._speculative = None

    def _retry(self, batch: BatchCommit) -> Mapping[TableId, SetAside]:
        """Retry after ending queries, held snapshots and speculative inserts, which share the memory with the batch and can be repeated."""
        self._end_speculative()
        self._end_held("a batch needed the target's memory")
        database = self._open()
        database.interrupt_readers()
        try:
            return self._commit_once(batch)
        except duckdb.OutOfMemoryException as error:
            raise self._fault(error, database) from error

    def _resolve_commit(self, batch: BatchCommit) -> bool:
        """Determine whether the batch with the failed COMMIT took effect: a checkpoint may fail after the commit is durable.

        True if it did and is the given batch.
        """
        doubted = self._in_doubt
        if doubted is None:
            return False
        database = self._open()
        try:
            position = DuckDbMetadata(database.writer, database.catalog).position(doubted.subscription)
        except duckdb.Error as error:
            raise self._fault(error, database) from error
        self._in_doubt = None
        return counts(position, doubted) and same_batch(doubted, batch)

    @contextmanager
    def _reading(self) -> Iterator[tuple[Any, str]]:
        """A separate connection, from any thread; the driver's errors become faults."""
        database = self._open()
        try:
            with database.reader() as connection:
                yield connection, database.catalog
        except duckdb.Error as error:
            raise self._fault(error, database) from error

    def _foreign_tables(self) -> tuple[set[tuple[str, str]], list[Member]]:
        """Folded names of tables and views in the file that are not ours, and of relations shown by shared tables."""
        with self._reading() as (connection, catalog):
            records = DuckDbMetadata(connection, catalog)
            members = records.members() if records.exist() else []
            ours = set(map(folded_name, places_of(records.reservations(None)))) if records.exist() else set()
            ours |= {folded_name(member.into.relation) for member in members if member.schema is not None}
            return {folded_name(name) for name in standing(connection)} - ours, members

    def _batch_writer(self, database: Database) -> BatchWriter:
        speculative = self._speculative is not None and not self._speculative.over
        return BatchWriter(
            DuckDbMetadata(database.writer, database.catalog, crowded=speculative or database.is_read),
            DuckDbTables(database.writer, database.catalog, self.path, database.index),
            DuckDbViews(database.writer, database.catalog),
            self._decode,
        )

    def _open(self) -> Database:
        with self._opening:
            if self._database is not None and self._database.broken:
                self._give_up(self._database)
            if self._database is None:
                self._database = Database(self.path, self._settings)
            self._database.check_file()
            return self._database

    def _give_up(self, database: Database) -> None:
        """Close a broken instance, so that the file can be opened again; not while another thread writes to it."""
        if not self._lock.acquire(blocking=False):
            raise EngineFault(FaultKind.TARGET_UNAVAILABLE, str(self.path), "the file failed and must be opened again")
        try:
            self._end_speculative()
            self._give_up_loads()
            self._database = None
            self._end_held("the target's file failed, and was opened again")
            database.close(checkpoint=False)
        finally:
            self._lock.release()

    def _fault(self, error: duckdb.Error, database: Database, table: TableId | None = None) -> EngineFault:
        database.broken = database.broken or is_broken(error)
        fault = fault_of(error, self.path, table)
        if fault.kind is FaultKind.TARGET_DISK_FULL:
            database.index.give_up()  # its files are on the same disk
        return fault


def open_target(spec: ConnectionSpec, home: Path | None = None, decode: DecodeText = no_decoder) -> DuckDbTarget:
    """The target of a connection of the kind `duckdb`: settings `path`, optionally memory_limit, threads, spill_limit."""
    return DuckDbTarget(str(spec.settings["path"]), settings_from(spec.settings), home, decode)
