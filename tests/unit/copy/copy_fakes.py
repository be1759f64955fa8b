"""A source, a target and a listener in memory, scripted by each test, and a runner in this process."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from engine.copy.coordinator import CopyCoordinator
from engine.copy.job import CopyJob, CopySettings, CopyTable, CopyTools
from engine.model.batch import TableFault
from engine.model.copies import CopyProgress
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import Epoch, RelationId, SubscriptionName, TableId, TableName
from engine.model.position import Lsn
from engine.model.schema import Column, KeyMode, ReplicaIdentity, SourceType, TableSchema
from engine.model.source import ExportedSnapshot, SourceTerms, TableSplit
from engine.model.subscription import ConnectionSpec, TableSpec

POSITION = Lsn(0x1000)
CONNECTION = ConnectionSpec("shop", "fake", {})
BAD = b"bad\n"


def decode_lines(text: bytes, schema: TableSchema) -> pa.RecordBatch:
    """Decodes one whole number per line; the line `bad` is out of the domain."""
    if BAD in text:
        raise EngineFault(FaultKind.VALUE_OUT_OF_DOMAIN, str(schema.name), "column id: not a value of this column")
    return pa.record_batch({"c0": pa.array([int(line) for line in text.split()], pa.int64())})


@dataclass
class FakeSource:
    """Tables as lists of splits, each a list of numbers. `faults`: raised one after the other when the split (table, split) is read."""

    tables: dict[str, list[list[int]]]
    faults: dict[tuple[str, int], list[EngineFault]] = field(default_factory=dict)
    plan_faults: dict[str, EngineFault] = field(default_factory=dict)
    before_read: Callable[[str, int], None] = lambda table, split: None
    reads: list[tuple[str, int]] = field(default_factory=list)
    opened: int = 0
    closed: int = 0
    terms: SourceTerms = field(default_factory=SourceTerms)

    @property
    def copies(self) -> FakeSource:
        return self

    def splits(self, schema: TableSchema, spec: TableSpec, split_bytes: int) -> list[TableSplit]:
        name = schema.name.name
        if name in self.plan_faults:
            raise self.plan_faults[name]
        return [
            TableSplit(schema.relation, f"{name} {number}", 10 * len(rows), len(rows))
            for number, rows in enumerate(self.tables[name])
        ]

    def read_split(self, split: TableSplit, snapshot: str) -> Iterator[bytes]:
        name, number = split.sql.split()
        self.reads.append((name, int(number)))
        self.before_read(name, int(number))
        rows = self.tables[name][int(number)]
        half = len(rows) // 2
        yield b"".join(_line(row) for row in rows[:half])
        waiting = self.faults.get((name, int(number)))
        if waiting:
            raise waiting.pop(0)
        yield b"".join(_line(row) for row in rows[half:])

    def open(self, connection: ConnectionSpec) -> Any:
        assert connection == CONNECTION
        self.opened += 1
        return self

    def close(self) -> None:
        self.closed += 1


def _line(row: int) -> bytes:
    return BAD if row < 0 else b"%d\n" % row


@dataclass
class FakeTarget:
    """Hidden tables as lists. Records whether two threads used it at the same time, or one without holding `writing()`."""

    hidden: dict[TableId, list[int]] = field(default_factory=dict)
    finished: list[TableId] = field(default_factory=list)
    discarded: list[TableId] = field(default_factory=list)
    append_fault: EngineFault | None = None
    turn: threading.Lock = field(default_factory=threading.Lock)
    without_turn: int = 0

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self.turn:
            yield

    def begin_copy(
        self,
        subscription: str,
        table: TableId,
        target: TableName,
        schema: TableSchema,
        *,
        keyed: bool = False,
        load: str | None = None,
    ) -> None:
        del keyed, load
        self.without_turn += not self.turn.locked()
        self.hidden[table] = []

    def append_copy(self, table: TableId, rows: pa.Table) -> int:
        self.without_turn += not self.turn.locked()
        if self.append_fault is not None:
            raise self.append_fault
        self.hidden[table].extend(rows.column("c0").to_pylist())
        return int(rows.num_rows)

    def finish_copy(self, table: TableId) -> None:
        self.without_turn += not self.turn.locked()
        self.finished.append(table)

    def discard_copy(self, table: TableId) -> None:
        self.without_turn += not self.turn.locked()
        del self.hidden[table]
        self.discarded.append(table)


@dataclass
class Notes:
    """A listener that records every call and its thread."""

    copied: dict[TableId, tuple[Lsn, int]] = field(default_factory=dict)
    failed: dict[TableId, TableFault] = field(default_factory=dict)
    lost: dict[TableId, str] = field(default_factory=dict)
    progress: list[CopyProgress] = field(default_factory=list)
    order: list[TableId] = field(default_factory=list)
    threads: set[int] = field(default_factory=set)
    on_copied: Callable[[TableId], None] = lambda table: None

    def on_table_copied(self, table: TableId, position: Lsn, rows: int) -> None:
        assert table not in self.copied
        self.copied[table] = (position, rows)
        self._note(table)
        self.on_copied(table)

    def on_table_failed(self, table: TableId, fault: TableFault) -> None:
        assert table not in self.failed
        self.failed[table] = fault
        self._note(table)

    def on_table_lost(self, table: TableId, detail: str) -> None:
        assert table not in self.lost
        self.lost[table] = detail
        self._note(table)

    def on_progress(self, progress: CopyProgress) -> None:
        self.progress.append(progress)
        self.threads.add(threading.get_ident())

    def _note(self, table: TableId) -> None:
        self.order.append(table)
        self.threads.add(threading.get_ident())


def table_of(name: str, mode: KeyMode = KeyMode.KEYED) -> CopyTable:
    number = SourceType("int8")
    schema = TableSchema(
        TableName("public", name), RelationId(1), (Column("id", number, 1),), ("id",), mode, ReplicaIdentity.DEFAULT
    )
    spec = TableSpec(TableId(f"t{name}"), schema.name, schema.name)
    return CopyTable(spec, schema)


class InlineRunner:
    """Runs tasks one after the other in a thread. A cancelled run raises at once, and its running task ends unobserved."""

    parallelism = 1

    def __init__(self) -> None:
        self._cancels: dict[str, threading.Event] = {}

    def run(self, function: Callable[[Any], Any], descriptors: Sequence[Any], group: str) -> list[Any]:
        self._cancels[group] = over = threading.Event()
        answers: list[Any] = []

        def work() -> None:
            answers.extend(function(descriptor) for descriptor in descriptors)
            over.set()

        threading.Thread(target=work, daemon=True).start()
        assert over.wait(60)
        if len(answers) < len(descriptors):
            raise EngineFault(FaultKind.SPARK_FAILED, group, "the run was cancelled")
        return answers

    def unfinished(self, group: str) -> None:
        """Not known."""

    def cancel(self, group: str) -> None:
        if group in self._cancels:
            self._cancels[group].set()


@dataclass
class Bench:
    """A copy that is ready to run."""

    source: FakeSource
    folder: Path
    settings: CopySettings = field(default_factory=CopySettings)
    target: FakeTarget = field(default_factory=FakeTarget)
    notes: Notes = field(default_factory=Notes)
    runner: Any = field(default_factory=InlineRunner)
    clock: list[float] = field(default_factory=lambda: [0.0])

    def coordinator(self) -> CopyCoordinator:
        job = CopyJob(
            SubscriptionName("s"),
            Epoch(3),
            CONNECTION,
            ExportedSnapshot(uuid.uuid4().hex, POSITION),
            tuple(table_of(name) for name in self.source.tables),
            self.folder,
            self.settings,
        )
        tools = CopyTools(
            self.source,  # type: ignore[arg-type]
            self.target,  # type: ignore[arg-type]
            self.runner,
            self.source.open,
            decode_lines,
            self.target.writing,
            self._now,
        )
        return CopyCoordinator(job, tools, self.notes)

    def _now(self) -> float:
        self.clock[0] += 0.1
        return self.clock[0]

    def rows(self, name: str) -> list[int]:
        return sorted(self.target.hidden[TableId(f"t{name}")])

    def leftovers(self) -> list[Path]:
        return list(self.folder.rglob("*"))
