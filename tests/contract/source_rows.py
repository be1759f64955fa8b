"""A source without a log of its own, over `rows_database`: rows in dicts, positions that are whole numbers of transactions.

It knows nothing of PostgreSQL: what it lands, it writes with `engine.records`.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import pairwise
from typing import Any

import numpy as np

from engine.model.absent_capabilities import (
    EverythingSent,
    LogAnnouncesAll,
    NoChangeTriggers,
    NoCycles,
    NoDdlReports,
    NoPartitions,
    NoRanges,
    NoSequences,
    NothingComputed,
    NoTickets,
)
from engine.model.control import ControlKind
from engine.model.copies import KeyBound
from engine.model.ddl import Capture
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableId, TableName
from engine.model.last_commit import LastCommit
from engine.model.position import Lsn
from engine.model.schema import Column, KeyMode, ReplicaIdentity, SourceType, TableSchema
from engine.model.source import (
    WHOLE_TABLE,
    CatalogAt,
    DiscoveredTable,
    ExportedSnapshot,
    Finding,
    GuardReading,
    KeyWalk,
    ReaderStatus,
    RecordChunk,
    Resolve,
    Severity,
    Source,
    SourceIdentity,
    SourceTerms,
    TableSplit,
)
from engine.model.subscription import OriginFilter, TableSpec
from engine.records.encode import (
    DELETE,
    INSERT,
    UPDATE,
    Texts,
    encode_rows,
    truncate_record,
)
from engine.records.history import HistoryCheck, SessionCommits
from engine.records.relation import Announced, AnnouncedColumn, parse_relation, relation_record
from engine.records.scan import RecordScanner, find_controls
from tests.contract import rows_database as rows
from tests.contract.rows_database import RowsDatabase, Structure
from tests.contract.source_material import Can
from tests.fixtures.records import begin_record, commit_record

_MOST_TRANSACTIONS = 500
_WAIT_S = 0.02
"""How long a read waits for the database before it looks for a command of the engine."""
_SCHEMA = "public"
_ROW_BYTES = 100
_OPERATIONS = {rows.INSERT: INSERT, rows.UPDATE: UPDATE, rows.DELETE: DELETE}


class _Calls:
    """The database, whose absence is a fault of the source."""

    def __init__(self, database: RowsDatabase) -> None:
        self._database = database

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._database, name)

        def call(*given: Any) -> Any:
            try:
                return method(*given)
            except (ConnectionError, EOFError) as error:
                raise EngineFault(FaultKind.SOURCE_UNREACHABLE, "rows", str(error)) from error

        return call


def _name(structure: Structure) -> TableName:
    return TableName(_SCHEMA, structure.name)


def _identity(structure: Structure) -> ReplicaIdentity:
    return ReplicaIdentity.DEFAULT if structure.key else ReplicaIdentity.NOTHING


def _schema(structure: Structure, spec: TableSpec) -> TableSchema | None:
    """None where its changes cannot be followed as declared."""
    key = spec.key or structure.key
    if not key and not spec.insert_only:
        return None
    return TableSchema(
        _name(structure),
        RelationId(structure.relation),
        tuple(
            Column(each.name, SourceType(each.type, each.modifier, oid=each.oid), each.number, each.name not in key)
            for each in structure.fields
        ),
        () if spec.insert_only else tuple(key),
        KeyMode.APPEND if spec.insert_only else KeyMode.KEYED,
        _identity(structure),
        skipped=spec.skipped,
    )


def _announced(structure: Structure) -> Announced:
    columns = (AnnouncedColumn(f.name, f.name in structure.key, f.oid, f.modifier) for f in structure.fields)
    return Announced(RelationId(structure.relation), _name(structure), _identity(structure), tuple(columns))


class RowsLog:
    """`LogSource`: the numbered transactions."""

    def __init__(self, calls: _Calls) -> None:
        self._calls = calls

    def now(self) -> Lsn:
        return Lsn(self._calls.last_number())

    def current(self) -> Lsn:
        return self.now()

    def catalog_at(self, tables: Sequence[TableSpec], slot: str, *, now: bool) -> CatalogAt:
        del slot, now
        position, structures = self.now(), self._calls.structures()
        return CatalogAt(position, repr([structures.get(table.source.name) for table in tables]))

    def open_stream(
        self,
        slot: str,
        start: Lsn,
        application: str,
        wake: int | None = None,
        origin: OriginFilter = OriginFilter.ANY,
        last: LastCommit | None = None,
    ) -> RowsStream:
        del origin
        reader = self._calls.reader(slot)
        if reader is None or reader.confirmed > start.value:
            raise EngineFault(FaultKind.LOG_GAP, slot, "the reader's place is gone, or beyond the start")
        session = self._calls.attach(slot, application)
        if not session:
            raise EngineFault(FaultKind.SLOT_IN_USE, slot, f"{reader.application} reads")
        history = HistoryCheck(slot, last or LastCommit.unknown(start), start, SourceTerms())
        history.confirmed(Lsn(reader.confirmed))
        return RowsStream(self._calls, slot, session, max(reader.confirmed, history.begin.value), history, wake)

    def resolve(
        self, payload: bytes, spec: TableSpec, known: TableSchema | None, capture: Capture | None = None
    ) -> TableSchema:
        return self.resolver([payload])(payload, spec, known, capture)

    def resolver(self, payloads: Collection[bytes]) -> Resolve:
        found: dict[bytes, Structure] = {}
        for payload in payloads:
            announced = parse_relation(payload)
            known = self._calls.structures_of(announced.relation)
            found[payload] = next(each for each in reversed(known) if _announced(each) == announced)

        def resolve(
            payload: bytes, spec: TableSpec, known: TableSchema | None, capture: Capture | None = None, /
        ) -> TableSchema:
            del known, capture
            schema = _schema(found[payload], spec)
            if schema is None:
                raise EngineFault(FaultKind.TABLE_NO_IDENTITY, str(spec.source), "it has no key")
            return schema

        return resolve

    def relation_name(self, payload: bytes) -> TableName:
        return parse_relation(payload).name


class RowsStream:
    """`LogStream`: transactions after one another, each written as records when it is read."""

    def __init__(
        self, calls: _Calls, reader: str, session: int, after: int, history: HistoryCheck, wake: int | None
    ) -> None:
        self._calls = calls
        self._reader = reader
        self._session = session
        self._read = after
        self._history = history
        self._commits = SessionCommits()
        self._wake = wake
        self._sent: dict[int, Structure] = {}
        self._reported = -1
        self._durable = 0

    @property
    def verified(self) -> bool:
        return self._history.done

    def read(self, timeout_s: float) -> RecordChunk | None:
        deadline, wait_s = time.monotonic() + timeout_s, 0.0
        while True:
            found = self._calls.since(self._read, _MOST_TRANSACTIONS, wait_s)
            if not self._calls.is_attached(self._reader, self._session):
                raise EngineFault(FaultKind.SOURCE_UNREACHABLE, self._reader, "the session was ended")
            if found or self._read != self._reported or not self.verified:
                return self._chunk(found)
            wait_s = min(deadline - time.monotonic(), _WAIT_S)
            if wait_s <= 0 or (self._wake is not None and select.select([self._wake], [], [], 0)[0]):
                return None

    def _chunk(self, found: Sequence[rows.Transaction]) -> RecordChunk:
        records = [record for transaction in found for record in self._records(transaction)]
        offsets = np.zeros(len(records) + 1, np.int32)
        np.cumsum([len(record) for record in records], out=offsets[1:])
        data = np.frombuffer(b"".join(records), np.uint8)
        controls, _ = find_controls(data, offsets, 0)
        self._read = found[-1].number if found else self._read
        self._reported = self._read
        if not self._history.done:
            self._history.check_commits(self._commits.commits_of(data, offsets, controls), Lsn(self._read))
        at = controls["ordinal"][controls["kind"] == ControlKind.RELATION].tolist()
        return RecordChunk(data, offsets, controls, {i: records[i] for i in at}, Lsn(self._read))

    def _records(self, transaction: rows.Transaction) -> Iterator[bytes]:
        if not transaction.changes:
            return
        end = Lsn(transaction.number)
        yield begin_record(end, transaction.number, transaction.time_us)
        for change in transaction.changes:
            structure = change.structure
            if self._sent.get(structure.relation) != structure:
                self._sent[structure.relation] = structure
                yield relation_record(_announced(structure))
            yield _record(change)
        yield commit_record(end, transaction.time_us)

    def confirm(self, durable: Lsn) -> None:
        self._durable = max(self._durable, durable.value)
        self._release()

    def _release(self) -> None:
        if self._history.done and self._durable:
            self._calls.confirm(self._reader, self._session, self._durable)

    def ask_position(self) -> None:
        self._release()

    def close(self) -> None:
        self._calls.detach(self._reader, self._session)


def _record(change: rows.Change) -> bytes:
    structure = change.structure
    relation = RelationId(structure.relation)
    if change.operation == rows.TRUNCATE:
        return truncate_record([relation])
    width, old, new = len(structure.fields), change.old, change.new
    key = (
        None
        if old is None
        else [v if f.name in structure.key else None for f, v in zip(structure.fields, old, strict=True)]
    )
    if old is not None and new is not None and all(old[i] == new[i] for i in map(structure.place, structure.key)):
        key = None
    data, _ = encode_rows(
        relation,
        np.array([_OPERATIONS[change.operation]], np.uint8),
        Texts.from_values([new or [None] * width], width),
        None if key is None else Texts.from_values([key], width),
    )
    return data.tobytes()


class RowsSnapshots(NoRanges):
    """`SnapshotSource`: copies of the dicts."""

    def __init__(self, calls: _Calls) -> None:
        self._calls = calls

    @contextmanager
    def snapshot(self, timeout_s: float) -> Iterator[ExportedSnapshot]:
        del timeout_s
        name, number = self._calls.take_snapshot()
        try:
            yield ExportedSnapshot(name, Lsn(number))
        finally:
            self._calls.drop_snapshot(name)

    def splits(self, schema: TableSchema, spec: TableSpec, split_bytes: int) -> list[TableSplit]:
        del spec
        if not any(s.relation == schema.relation for s, _ in self._calls.structures().values()):
            raise EngineFault(FaultKind.TABLE_MISSING, str(schema.name), "the table is gone")
        numbers = self._calls.row_numbers(schema.relation)
        step = max(1, split_bytes // _ROW_BYTES)
        borders = [0, *numbers[step::step], 1 << 62]
        columns = tuple((each.attnum, each.name) for each in schema.columns)
        return [
            TableSplit(schema.relation, f"{low} {high}", step * _ROW_BYTES, step, columns=columns)
            for low, high in pairwise(borders)
        ]

    def key_splits(
        self, schema: TableSchema, spec: TableSpec, keys: Sequence[tuple[str | None, ...]]
    ) -> list[TableSplit]:
        del keys
        return self.splits(schema, spec, WHOLE_TABLE)

    def walk_key(
        self,
        schema: TableSchema,
        after: KeyBound | None,
        split_bytes: int,
        most_splits: int,
        above_bytes: int | None = None,
    ) -> KeyWalk | None:
        del schema, after, split_bytes, most_splits, above_bytes
        return None

    def read_split(self, split: TableSplit, snapshot: str) -> Iterator[bytes]:
        low, high = map(int, split.sql.split())
        found = self._calls.read_snapshot(snapshot, split.relation, low, high)
        if isinstance(found, str):
            kind = FaultKind.COPY_LOST if found == "snapshot" else FaultKind.TABLE_MISSING
            raise EngineFault(kind, f"relation {split.relation}", f"the {found} is gone")
        structure, lines = found
        places = {each.number: place for place, each in enumerate(structure.fields)}
        if not all(number in places for number, _ in split.columns):
            raise EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, structure.name, "a column is gone")
        yield b"".join(_copy_line([row[places[number]] for number, _ in split.columns]) for row in lines)


def _copy_line(values: Sequence[rows.Value]) -> bytes:
    escaped = (r"\N" if v is None else v.translate({92: r"\\", 9: r"\t", 10: r"\n", 13: r"\r"}) for v in values)
    return ("\t".join(escaped) + "\n").encode()


class RowsReader:
    """`ReaderControl`: a place in the numbered transactions."""

    def __init__(self, calls: _Calls) -> None:
        self._calls = calls

    @contextmanager
    def create(self, slot: str) -> Iterator[ExportedSnapshot]:
        name, number = self._calls.take_snapshot()
        if not self._calls.create_reader(slot, number):
            raise EngineFault(FaultKind.SLOT_IN_USE, slot, "a reader of this name exists")
        try:
            yield ExportedSnapshot(name, Lsn(number))
        finally:
            self._calls.drop_snapshot(name)

    def status(self, slot: str) -> ReaderStatus:
        reader = self._calls.reader(slot)
        if reader is None:
            return ReaderStatus(exists=False)
        confirmed = Lsn(reader.confirmed)
        return ReaderStatus(True, confirmed, confirmed, reader.session or None)

    def check_reader(self, slot: str) -> GuardReading:
        return GuardReading(self.status(slot), oldest_open="a session" if self._calls.is_in_use() else None)

    def release(self, slot: str) -> list[str]:
        self._calls.drop_reader(slot)
        return []

    def remove(self, slot: str) -> list[str]:
        return self.release(slot)

    def end_other(self, slot: str, application: str) -> bool:
        reader = self._calls.reader(slot)
        if reader is None or reader.application is None:
            return False
        if not reader.application.startswith(application.rpartition("-")[0] + "-"):
            raise EngineFault(FaultKind.SLOT_IN_USE, slot, f"{reader.application} reads")
        self._calls.detach(slot)
        return True


class RowsSource:
    """`Source` over a database of rows."""

    def __init__(self, database: RowsDatabase) -> None:
        self._calls = calls = _Calls(database)
        self.log = RowsLog(calls)
        self.copies = RowsSnapshots(calls)
        self.terms = SourceTerms()
        self.reader = RowsReader(calls)
        self.sent_tables = EverythingSent(self.describe)
        self.partitioned = NoPartitions()
        self.safety = LogAnnouncesAll(self.reader.check_reader)
        self.ddl = NoDdlReports()
        self.triggers = NoChangeTriggers()
        self.tickets = NoTickets()
        self.sequences = NoSequences()
        self.computed = NothingComputed()
        self.cycles = NoCycles()

    def preflight(
        self, tables: Sequence[TableSpec], slot: str | None, origin: OriginFilter = OriginFilter.ANY
    ) -> list[Finding]:
        del slot, origin
        try:
            structures = self._calls.structures()
        except EngineFault as fault:
            return [Finding(Severity.ERROR, fault.kind.value, fault.detail, "Start the database.")]
        found = []
        for table in tables:
            if table.source.name not in structures:
                what = f"{table.source} does not exist"
                found.append(Finding(Severity.ERROR, FaultKind.TABLE_MISSING.value, what, "Create it."))
            elif _schema(structures[table.source.name][0], table) is None:
                what = f"{table.source} has no key"
                found.append(Finding(Severity.ERROR, FaultKind.TABLE_NO_IDENTITY.value, what, "Give it one."))
        return found

    def discover(self) -> list[DiscoveredTable]:
        found = []
        for structure, count in self._calls.structures().values():
            columns = tuple({"name": each.name, "type": each.type} for each in structure.fields)
            spec = TableSpec(TableId("t"), _name(structure), _name(structure))
            problems = tuple(self.preflight([spec], None))
            size = count * _ROW_BYTES
            found.append(
                DiscoveredTable(spec.source, structure.key, _identity(structure), False, count, size, columns, problems)
            )
        return found

    def identify(self) -> SourceIdentity:
        return SourceIdentity(self._calls.identity(), 0, 0)

    def describe(self, tables: Sequence[TableSpec]) -> dict[TableName, TableSchema]:
        structures = self._calls.structures()
        found = {t.source: _schema(structures[t.source.name][0], t) for t in tables if t.source.name in structures}
        return {name: schema for name, schema in found.items() if schema is not None}

    def names(self, relations: Collection[RelationId]) -> dict[RelationId, TableName]:
        present = {s.relation: _name(s) for s, _ in self._calls.structures().values()}
        return {relation: present[relation] for relation in relations if relation in present}

    def standing(self, schemas: Collection[str]) -> dict[RelationId, TableName]:
        structures = self._calls.structures().values() if _SCHEMA in schemas else ()
        return {RelationId(structure.relation): _name(structure) for structure, _ in structures}

    def close(self) -> None:
        """Nothing is held."""


class RowsOrigin:
    """Origin over a database of a test's own."""

    def __init__(self, name: str) -> None:
        self.database = RowsDatabase(name)
        self.scanner = RecordScanner()
        self.slot = "contract"
        self.can: frozenset[Can] = frozenset(Can) - {
            Can.STREAM_OPEN_TRANSACTIONS,
            Can.PUBLISH,
            Can.SELECT_COLUMNS,
            Can.TAKE_TICKETS,
            Can.CONTINUE,
        }
        self.source: Source = self.open()

    def open(self) -> Source:
        return RowsSource(self.database)

    def table(self, name: str, **options: Any) -> TableSpec:
        source = TableName(_SCHEMA, name)
        return TableSpec(TableId("t" + name.encode().hex()), source, source, **options)

    def session(self) -> AbstractContextManager[rows.RowsSession]:
        return nullcontext(self.database.session())

    def stream_early(self) -> None:
        raise NotImplementedError("transactions come whole")

    def stop(self) -> None:
        self.database.stopped = True

    def start(self) -> None:
        self.database.stopped = False
        self.database.detach(self.slot)


def rows_source(fixture: Callable[[str], Any], stack: ExitStack, own: bool) -> RowsOrigin:
    """A factory, as `postgres_log`."""
    del fixture, stack, own
    return RowsOrigin("rows")
