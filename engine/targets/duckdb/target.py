"""The DuckDB target: one file, written by one thread, read by any."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import BatchId, Epoch, SubscriptionName, TableId, TableName
from engine.model.last_commit import LastCommit
from engine.model.position import Lsn
from engine.model.quarantine import RefusedCause, RefusedRow, SetAside, Texts
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
    TargetProgress,
    TargetReader,
    any_reads,
)
from engine.targets.batch_writer import BatchWriter
from engine.targets.duckdb.changes import Place, delete_behind
from engine.targets.duckdb.database import Database, roll_back, transaction
from engine.targets.duckdb.errors import fault_of, is_broken
from engine.targets.duckdb.identifiers import folded, folded_name, qualified, quoted
from engine.targets.duckdb.loading import CopyLoad
from engine.targets.duckdb.preflight import (
    ambiguous_members,
    fault_finding,
    is_reserved,
    name_findings,
    place_findings,
    standing,
    taken_finding,
)
from engine.targets.duckdb.query import run_query
from engine.targets.duckdb.query_process import ProcessLimits
from engine.targets.duckdb.query_process import main as query_process
from engine.targets.duckdb.reader import DuckDbReader
from engine.targets.duckdb.records import DuckDbRecords
from engine.targets.duckdb.settings import DuckDbSettings, settings_from
from engine.targets.duckdb.shared import DuckDbViews
from engine.targets.duckdb.speculative_insert import AheadTransaction
from engine.targets.duckdb.structure import check_columns, create_statements, evolve_statements
from engine.targets.duckdb.tables import DuckDbTables
from engine.targets.evolution import evolution
from engine.targets.quarantined_rows import DecodeText, in_order, no_decoder
from engine.targets.query_pool import Begin, QueryPool
from engine.targets.shared import shared_findings
from engine.targets.target_metadata import (
    CopyRecord,
    Member,
    Position,
    claimed,
    hidden_name,
    mark_of,
    progress_of,
    rebased,
    stands,
)


class DuckDbTarget:
    """Implements Target. The file is opened at the first use that needs it and held until `close`.

    Any method may raise EngineFault(TARGET_LOCKED, TARGET_UNAVAILABLE, TARGET_DISK_FULL, TARGET_FILE_GONE). After a fault that
    broke the instance the next call opens the file anew; after TARGET_FILE_GONE, the next call behind `close`.
    """

    def __init__(
        self,
        path: str | Path,
        settings: DuckDbSettings | None = None,
        home: Path | None = None,
        decode: DecodeText = no_decoder,
    ) -> None:
        """A relative `path` lies below `home`, or below the working folder where that is not given.

        `decode` makes columns of the texts of rows that stand aside.
        """
        self._decode = decode
        self.path = ((home or Path.cwd()) / path).absolute()
        self._relative = not Path(path).is_absolute()
        self._settings = settings or DuckDbSettings()
        self._lock = threading.RLock()
        """Held while the writer's connection is in use."""
        self._opening = threading.Lock()
        """Guards `_database`. Taken after `_lock`, never before it, except without waiting."""
        self._database: Database | None = None
        self._queries: QueryPool | None = None
        """What readers' statements run in. Guarded by `_opening`."""
        self._in_doubt: BatchCommit | None = None
        self._ahead: AheadTransaction | None = None
        """The last one begun. It may end at any time; `_lock` is held to begin or commit one."""
        self._loads: dict[TableId, CopyLoad] = {}
        """Copies that rows were appended to and that are not finished. Guarded by `_loading`, which is held for moments only."""
        self._loading = threading.Lock()

    def check(
        self,
        tables: Sequence[TableName],
        existing: Collection[TableName] = (),
        shared: Mapping[TableName, SharedInto] = MappingProxyType({}),
    ) -> list[tuple[str, str, str, str]]:
        """Preflight: (severity, code, what, remedy) per finding. Creates no file. No table that stands there is taken."""
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

    def progress(self, subscription: SubscriptionName) -> TargetProgress | None:
        with self._reading() as (connection, catalog):
            records = DuckDbRecords(connection, catalog)
            position = records.position(subscription) if records.exist() else None
            if position is None:
                return None
            return progress_of(
                position,
                records.reservations(subscription),
                records.copies(subscription),
                records.set_aside(subscription),
                records.loads(subscription),
            )

    def claim(
        self,
        subscription: SubscriptionName,
        epoch: Epoch,
        system_id: str,
        timeline: int,
        slot: str,
        start: Lsn,
        publications: str = "",
    ) -> None:
        """As the protocol says. Drops the subscription's unfinished copies, whoever began them, but for those that can go on."""
        wanted = Position(epoch, BatchId(0), start, system_id, timeline, slot, publications, LastCommit.unknown(start))
        with self._writing() as (connection, database):
            records = DuckDbRecords(connection, database.catalog)
            self._begin_again(database, records, subscription, lambda before: claimed(subscription, before, wanted))
            copies = records.copies(subscription)
            self._give_up_loads(copy.table for copy in copies)
            self._writer(database).drop_copies([copy for copy in copies if copy.standing is None])
        # What fails here fails again where the shared table is defined next, and has a table to blame then.
        with suppress(EngineFault), self._writing() as (_, database):
            self._writer(database).mend_shared(subscription)

    def rebase(
        self,
        subscription: SubscriptionName,
        epoch: Epoch,
        system_id: str,
        timeline: int,
        slot: str,
        start: Lsn,
        publications: str = "",
    ) -> None:
        """Begin a subscription again from another place in the log, or another log: what a whole reload needs.

        Its tables keep their rows for readers and count as not ready until each has been handed over again.
        Raises EngineFault(EPOCH_LOST) where the claim is another engine's.
        """
        wanted = Position(epoch, BatchId(0), start, system_id, timeline, slot, publications, LastCommit.unknown(start))
        with self._writing() as (connection, database):
            records = DuckDbRecords(connection, database.catalog)
            self._begin_again(database, records, subscription, lambda before: rebased(subscription, before, wanted))
            self._drop_copies(database, records, subscription)
            records.mark_unready(subscription)

    def _begin_again(
        self,
        database: Database,
        records: DuckDbRecords,
        subscription: SubscriptionName,
        next_: Callable[[Position | None], Position],
    ) -> None:
        """Put the subscription where `next_` says, and end what others have begun."""
        self._end_ahead(subscription)
        records.create()
        records.write_position(subscription, next_(records.position(subscription)))

    def forget(self, subscription: SubscriptionName) -> None:
        """Drop the subscription's record and unfinished copies; its tables stay, and it may take them up again."""
        with self._writing() as (connection, database):
            self._end_ahead(subscription)
            records = DuckDbRecords(connection, database.catalog)
            if records.exist():
                records.create()
                self._drop_copies(database, records, subscription)
                records.forget(subscription)

    def adopt(
        self,
        subscription: SubscriptionName,
        table: TableId,
        target: TableName,
        *,
        into_existing: bool = False,
        shared: SharedInto | None = None,
    ) -> None:
        """As the protocol says. A table that this subscription left behind on removal may be taken up again."""
        if into_existing:
            detail = "into_existing is not for DuckDB files; leave it out"
            raise EngineFault(FaultKind.TABLE_UNFIT, table, detail)
        for place in [target] if shared is None else [target, shared.relation]:
            if is_reserved(place):
                detail = (
                    f"the schema {place.schema!r} of the target is not for replicated tables; map it to another name"
                )
                raise EngineFault(FaultKind.TABLE_NAME_COLLISION, table, detail)
        ambiguous = ambiguous_members({} if shared is None else {target: shared}, self.path.stem)
        if ambiguous:
            raise EngineFault(FaultKind.SHARED_TABLE_CONFLICT, table, ambiguous[0][2])
        with self._writing() as (connection, database):
            self._adopt(connection, database, subscription, table, target)
            self._writer(database).adopt_shared(subscription, table, target, shared)

    def _adopt(
        self, connection: Any, database: Database, subscription: SubscriptionName, table: TableId, target: TableName
    ) -> None:
        records = DuckDbRecords(connection, database.catalog)
        records.create()
        same = [r for r in records.reservations(None) if folded_name(r.target) == folded_name(target)]
        mine = {r.table: r for r in records.reservations(subscription) if folded_name(r.target) == folded_name(target)}
        if table in mine and not mine[table].removed:
            return
        stands = folded_name(target) in map(folded_name, standing(connection))
        others = [other for other in same if other.table not in mine or not other.removed]
        if others and all(other.removed for other in others):
            if stands:
                detail = f"{target} was left by another subscription: drop it, or map this table to another name"
                raise EngineFault(FaultKind.TABLE_NAME_COLLISION, table, detail)
            # What another subscription left behind is gone by now, and its name is free.
            records.delete_left(target)
            mine = {}
        elif others:
            detail = f"{target} is already the target of {others[0].target}; names differ in more than case"
            raise EngineFault(FaultKind.TABLE_NAME_COLLISION, table, detail + "; map one to another name")
        if not mine and stands:
            detail = f"a table or view {target} that Penstock did not make exists there; map it to another name"
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
        del keyed
        self._give_up_loads([table])
        check_columns(table, schema)
        try:
            with self._writing() as (connection, database):
                records = DuckDbRecords(connection, database.catalog)
                if not any(
                    r.table == table and folded_name(r.target) == folded_name(target)
                    for r in records.reservations(subscription, [table])
                ):
                    raise EngineFault(FaultKind.INTERNAL, table, "its name on the target was not reserved")
                writer = self._writer(database)
                writer.refuse_columns(table, target, schema)
                writer.drop_copies(records.copies(None, table))
                place = Place(table, qualified(database.catalog, hidden_name(table, target)), schema)
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(database.catalog)}.{quoted(target.schema)}")
                for statement in create_statements(place.qualified, schema):
                    connection.execute(statement)
                records.write_copy(subscription, CopyRecord(table, hidden_name(table, target), schema, load=load))
                with self._loading:
                    self._loads[table] = CopyLoad(database, place)
        except BaseException:
            self._give_up_loads([table])
            raise

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
        """Where `begin_copy` was called just now, the writer is not asked for: commits would have to wait."""
        with self._loading:
            load = self._loads.get(table)
        if load is not None and not load.database.broken:
            return load
        with self._writing(table) as (connection, database):
            place = self._copy(connection, database, table)
            with self._loading:
                return self._loads.setdefault(table, CopyLoad(database, place))

    @contextmanager
    def _loading_faults(self, table: TableId, load: CopyLoad) -> Iterator[None]:
        """Whatever goes wrong, the load is over."""
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
        """Roll back what was appended to copies of these tables, by default of all, and does not count yet."""
        with self._loading:
            given_up = [self._loads.pop(t, None) for t in (list(self._loads) if tables is None else tables)]
        for load in given_up:
            if load is not None:
                load.give_up()

    def set_aside_of_copy(self, table: TableId, refused: Sequence[tuple[Texts, RefusedCause]], most: int) -> None:
        with self._writing(table) as (connection, database):
            records = DuckDbRecords(connection, database.catalog)
            subscription = records.copying(table)
            if subscription is None:
                raise EngineFault(FaultKind.COPY_FAILED, table, "no copy of this table is being loaded")
            copy = records.copies(subscription, table)[0]
            self._writer(database).refused.keep_of_copy(subscription, copy, refused, most)

    def trim_copy(self, table: TableId, above: Any) -> int:
        self.finish_copy(table)
        with self._writing(table) as (connection, database):
            return delete_behind(connection, self._copy(connection, database, table), above)

    def _copy(self, connection: Any, database: Database, table: TableId) -> Place:
        """The hidden table that is being loaded."""
        copies = DuckDbRecords(connection, database.catalog).copies(None, table)
        if not copies:
            raise EngineFault(FaultKind.COPY_FAILED, table, "no copy of this table is being loaded")
        return Place(table, qualified(database.catalog, copies[0].place), copies[0].schema)

    def _drop_copies(self, database: Database, records: DuckDbRecords, subscription: SubscriptionName) -> None:
        copies = records.copies(subscription)
        self._give_up_loads(copy.table for copy in copies)
        self._writer(database).drop_copies(copies)

    def discard_copy(self, table: TableId) -> None:
        self._give_up_loads([table])
        with self._writing(table) as (connection, database):
            self._writer(database).drop_copies(DuckDbRecords(connection, database.catalog).copies(None, table))

    def commit(self, batch: BatchCommit) -> Mapping[TableId, SetAside]:
        """As the protocol says, with one exception: where the file cannot be opened again after a failure in the commit
        itself, whether the batch counts is decided, and this call's successor told, when it can be."""
        for commit in batch.tables:
            if commit.handover or commit.swap is not None:
                self.finish_copy(commit.table)
        self._give_up_loads(batch.removed)
        with self._lock:
            if self._in_doubt is not None and self._settle(batch):
                return self._standing(batch)
            if self._ahead is not None and self._ahead.in_the_way_of(batch):
                self._end_ahead()
            try:
                return self._commit_once(batch)
            except duckdb.OutOfMemoryException:
                return self._retry(batch)

    def check_place(self) -> None:
        with self._opening:
            database = self._database
        if database is not None:
            database.check_file(log=True)

    def _standing(self, batch: BatchCommit) -> dict[TableId, SetAside]:
        """What stands aside behind a batch of which nothing else is known any more."""
        if not any(commit.set_aside or commit.aside for commit in batch.tables):
            return {}
        with self._reading() as (connection, catalog):
            counts = DuckDbRecords(connection, catalog).set_aside(batch.subscription)
        return {commit.table: SetAside(counts.get(commit.table, 0), 0) for commit in batch.tables}

    def refused_rows(self, subscription: SubscriptionName, table: TableId) -> list[RefusedRow]:
        with self._reading() as (connection, catalog):
            records = DuckDbRecords(connection, catalog)
            return in_order(records.refused(subscription, table)) if records.exist() else []

    def retry_refused(self, subscription: SubscriptionName, table: TableId, rows: Collection[str] | None) -> list[str]:
        with self._writing(table) as (_, database):
            self._end_ahead(subscription)
            return self._writer(database).refused.retry(subscription, table, rows)

    def skip_refused(
        self, subscription: SubscriptionName, table: TableId, rows: Collection[str] | None, by: str
    ) -> list[str]:
        with self._writing(table) as (_, database):
            return self._writer(database).refused.skip(subscription, table, rows, by)

    def evolution(self, table: TableId, target: TableName, old: TableSchema, new: TableSchema) -> list[str]:
        place = f"{quoted(target.schema)}.{quoted(target.name)}"
        return evolve_statements(table, place, evolution(table, old, new))

    def tuning(self) -> dict[str, float]:
        """Nothing: there is one way in."""
        return {}

    def in_parts(self) -> None:
        """Not offered: one transaction writes a batch as fast as several would."""

    def in_order(self) -> None:
        """Not offered: a small transaction costs this database as much as a large one."""

    def sequences(self) -> None:
        """Not offered: nobody but the engine writes to the file, so nothing there draws values."""

    def begin_ahead(self, subscription: SubscriptionName) -> SpeculativeTransaction | None:
        with self._lock:
            if self._ahead is not None and not self._ahead.over:
                return None
            database = self._open()
            try:
                self._ahead = AheadTransaction(database, subscription, self._commit_ahead)
            except duckdb.Error as error:
                raise self._fault(error, database) from error
            return self._ahead

    @contextmanager
    def query(
        self, sql: str, limits: QueryLimits, subscription: SubscriptionName, judge: JudgeReads = any_reads
    ) -> Iterator[QueryAnswer]:
        database = self._open()
        with self._opening:
            if self._queries is None:
                self._queries = QueryPool(partial(self._query_process, database), Path(f"{self.path}.queries.tmp"))
            queries = self._queries
        try:
            with run_query(database, queries, sql, limits, subscription, judge) as answer:
                yield answer
        except duckdb.Error as error:
            raise self._fault(error, database) from error

    def _query_process(self, database: Database, folder: Path | None) -> Begin:
        given = self._settings
        limits = ProcessLimits(database.catalog, given.query_memory, given.threads, given.spill_limit, str(folder))
        return query_process, (limits,)

    @contextmanager
    def pin(self, subscription: SubscriptionName) -> Iterator[TargetReader]:
        """As the protocol says. Raises QueryRefused(query_unavailable) where the subscription has no record."""
        with self._reading() as (connection, catalog):
            connection.execute("BEGIN TRANSACTION")
            # DuckDB takes its snapshot at the first look at the file, not at BEGIN.
            position = DuckDbRecords(connection, catalog).position(subscription)
            if position is None:
                raise QueryRefused("query_unavailable", "nothing has been replicated to this target yet")
            yield DuckDbReader(connection, catalog, position.end)

    def close(self) -> None:
        """Checkpoint and give the file up. Running queries are interrupted. A later call opens the file again."""
        with self._opening:
            queries, self._queries = self._queries, None
        if queries is not None:
            queries.close()
        with self._lock:
            self._end_ahead()
            self._give_up_loads()
            database, self._database = self._database, None
            if database is not None:
                database.close(checkpoint=True)

    def _commit_once(self, batch: BatchCommit) -> Mapping[TableId, SetAside]:
        """Raises duckdb.OutOfMemoryException, since that may pass when queries have been stopped."""
        database = self._open()
        connection = database.writer
        try:
            connection.execute("BEGIN TRANSACTION")
            writer = self._writer(database)
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
            if not self._settle(batch):
                raise fault from error
        return writer.refused.set_aside

    def _commit_ahead(self, rows: AheadTransaction, batch: BatchCommit) -> bool:
        """What `rows.commit` does: between two batches of the writer, which alone moves the fence."""
        with self._lock:
            if self._in_doubt is not None and self._settle(batch):
                rows.roll_back()
                return True
            database = self._open()
            try:
                position = self._writer(database).fence(batch)
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
                if not self._settle(batch):
                    return False
            self._fold(batch)
            return True

    def _fold(self, batch: BatchCommit) -> None:
        """Leave one row of the progress record behind a commit ahead. Where it fails, the next batch does it."""
        with suppress(EngineFault), self._writing() as (connection, database):
            records = DuckDbRecords(connection, database.catalog)
            position = records.position(batch.subscription)
            if position is not None:
                records.write_position(batch.subscription, position)
            records.write_applied(batch.subscription, [one.table for one in batch.tables], batch.end)

    def _end_ahead(self, subscription: SubscriptionName | None = None) -> None:
        """Roll back what is open ahead of its commit, of this subscription or any."""
        if self._ahead is not None and subscription in {None, self._ahead.subscription}:
            self._ahead.roll_back()
            self._ahead = None

    def _retry(self, batch: BatchCommit) -> Mapping[TableId, SetAside]:
        """Once more without the queries and what is ahead of its commit, which share the memory with the batch and may wait."""
        self._end_ahead()
        database = self._open()
        database.interrupt_readers()
        try:
            return self._commit_once(batch)
        except duckdb.OutOfMemoryException as error:
            raise self._fault(error, database) from error

    def _settle(self, batch: BatchCommit) -> bool:
        """Find out whether the batch whose COMMIT failed counts: a checkpoint may fail after the commit itself is durable.

        True where it does and is the one given.
        """
        doubted = self._in_doubt
        if doubted is None:
            return False
        database = self._open()
        try:
            position = DuckDbRecords(database.writer, database.catalog).position(doubted.subscription)
        except duckdb.Error as error:
            raise self._fault(error, database) from error
        self._in_doubt = None
        same = doubted.subscription == batch.subscription and mark_of(doubted) == mark_of(batch)
        return same and stands(position, doubted)

    @contextmanager
    def _writing(self, table: TableId | None = None) -> Iterator[tuple[Any, Database]]:
        """The writer's connection in a transaction, and the driver's errors as faults."""
        with self._lock:
            database = self._open()
            try:
                with transaction(database.writer):
                    yield database.writer, database
            except duckdb.Error as error:
                raise self._fault(error, database, table) from error

    @contextmanager
    def _reading(self) -> Iterator[tuple[Any, str]]:
        """A connection of its own, from any thread, and the driver's errors as faults."""
        database = self._open()
        try:
            with database.reader() as connection:
                yield connection, database.catalog
        except duckdb.Error as error:
            raise self._fault(error, database) from error

    def _foreign_tables(self) -> tuple[set[tuple[str, str]], list[Member]]:
        """Folded names of tables and views in the file that are not ours, and what shared tables show."""
        with self._reading() as (connection, catalog):
            records = DuckDbRecords(connection, catalog)
            members = records.members() if records.exist() else []
            ours = {folded_name(r.target) for r in records.reservations(None)} if records.exist() else set()
            ours |= {folded_name(member.into.relation) for member in members if member.schema is not None}
            return {folded_name(name) for name in standing(connection)} - ours, members

    def _writer(self, database: Database) -> BatchWriter:
        crowded = self._ahead is not None and not self._ahead.over
        return BatchWriter(
            DuckDbRecords(database.writer, database.catalog, crowded=crowded),
            DuckDbTables(database.writer, database.catalog, self.path),
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
        """Close a broken instance, so that the file can be opened anew; not while another thread writes on it."""
        if not self._lock.acquire(blocking=False):
            raise EngineFault(
                FaultKind.TARGET_UNAVAILABLE, str(self.path), "the file failed and has to be opened again"
            )
        try:
            self._end_ahead()
            self._give_up_loads()
            database.close(checkpoint=False)
            self._database = None
        finally:
            self._lock.release()

    def _fault(self, error: duckdb.Error, database: Database, table: TableId | None = None) -> EngineFault:
        database.broken = database.broken or is_broken(error)
        return fault_of(error, self.path, table)


def open_target(spec: ConnectionSpec, home: Path | None = None, decode: DecodeText = no_decoder) -> DuckDbTarget:
    """The target of a connection of kind `duckdb`: settings `path`, and optionally memory_limit, threads, spill_limit."""
    return DuckDbTarget(str(spec.settings["path"]), settings_from(spec.settings), home, decode)
