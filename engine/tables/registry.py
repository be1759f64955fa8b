"""The tables of one running subscription: their states, and their schemas as announced by the log.

Every change of a state goes through `apply`, and listeners are called in that order. One lock guards everything; it is held briefly, but
also while listeners are called, so they must not block.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from engine.model.copies import KeyBound
from engine.model.fault import FaultKind
from engine.model.identity import BatchId, RelationId, TableId, TableName
from engine.model.position import Lsn
from engine.model.schema import TableSchema
from engine.model.subscription import SchemaPolicy, TableSpec
from engine.model.subscription_state import Reason
from engine.model.table_state import Refused, TableStateKind
from engine.platform.fault_policy import RENEWED, policy
from engine.tables.state import (
    Approve,
    AwaitApproval,
    Chunk,
    ChunkBegun,
    ChunkVoided,
    Copy,
    Copying,
    CopyLost,
    CopyStarted,
    CopyVoided,
    Fault,
    Hold,
    Live,
    Parked,
    PartitionReload,
    Partitions,
    PartitionsBegun,
    Reloading,
    TableEvent,
    TableState,
    awaits_approval,
    awaits_recopy,
    copy_of,
    kept_from,
    kind_of,
    outdates_plans,
    transition,
)


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One table. `schema`: its schema after the last planned batch. `kept`: the target's schema, if the target does not follow changes of
    the source's. `generation`: plans of the table with another generation are invalid."""

    spec: TableSpec
    state: TableState
    schema: TableSchema | None = None
    kept: TableSchema | None = None
    generation: int = 0

    @property
    def table(self) -> TableId:
        return self.spec.table

    @property
    def kind(self) -> TableStateKind:
        return kind_of(self.state)

    @property
    def shown(self) -> TableStateKind:
        """The kind of state that is shown to users."""
        return TableStateKind.RELOADING if awaits_recopy(self.state) else self.kind

    @property
    def reason(self) -> Reason | None:
        """Why it is parked, or is copied again automatically; None if neither."""
        return self.state.reason if isinstance(self.state, Parked | Reloading) else None

    @property
    def copy(self) -> Copy | None:
        return copy_of(self.state)

    @property
    def reload(self) -> PartitionReload | None:
        return self.state.reload if isinstance(self.state, Live) else None

    @property
    def chunk(self) -> Chunk | None:
        """The chunk that is being added to its copy, or that replaces some of its partitions; None if there is none."""
        holder = self.copy or self.reload
        return holder.chunk if holder is not None else None

    @property
    def keeps_from(self) -> BatchId | None:
        """First batch whose changes are retained for the table or for some of its partitions; None if nothing is retained."""
        reload = self.reload
        return kept_from(self.state) if reload is None else reload.kept_from

    @property
    def followed(self) -> bool:
        """Whether its schema is the source's: it does not wait for a new copy, or the new copy has begun."""
        match self.state:
            case Parked(then=then):
                return isinstance(then, AwaitApproval)
            case Reloading(copy=copy):
                return copy is not None
            case _:
                return True


TableListener = Callable[[TableEntry, Lsn | None], None]
"""Called with a table and the position of its change, in order and within the registry's lock. Must not block."""

RENEWALS = 5
"""Most consecutive automatic copies of a table that did not make it live. After that the table parks."""
_RENEWAL = "None needed: the table is copied again, and its old rows stay readable until then."


class TableRegistry:
    """All tables of a subscription. Safe to use from any thread."""

    def __init__(self, listener: TableListener, policy_: SchemaPolicy = SchemaPolicy.APPLY) -> None:
        self._policy = policy_
        self._renewed: Counter[TableId] = Counter()
        self._numbers = 0
        """The last number used for a generation or a chunk. Each number is used once in a run."""
        self._whole: set[TableId] = set()
        self._handing_over: frozenset[TableId] = frozenset()
        self._kept_from: dict[TableId, BatchId | None] = {}
        """First retained batch by table when the last snapshot for copies was taken."""
        self._entries: dict[TableId, TableEntry] = {}
        self._lock = threading.RLock()
        self._listener = listener
        self._watch: Callable[[TableEntry], None] | None = None
        self._void: Callable[[TableId], None] | None = None

    def watch(self, ended: Callable[[TableEntry], None], void: Callable[[TableId], None] | None = None) -> None:
        """Also call `ended` with every table that is parked or removed, and `void` with every table whose chunk or partition reload
        ended."""
        self._watch = ended
        self._void = void

    def retire(self) -> None:
        """The run of this registry has ended: changes that its threads still make are not reported."""
        with self._lock:
            self._listener = lambda _entry, _position: None
            self._watch = None

    def add(self, entry: TableEntry) -> None:
        """Add or replace a table, and call the listener."""
        with self._lock:
            self._entries[entry.table] = replace(entry, generation=self._number())
            self._listener(self._entries[entry.table], None)

    def report(self) -> None:
        """Call the listener with every table, in order with concurrent changes."""
        with self._lock:
            for entry in self._entries.values():
                self._listener(entry, None)

    def forget(self, table: TableId) -> None:
        with self._lock:
            self._entries.pop(table, None)

    def all(self) -> list[TableEntry]:
        with self._lock:
            return list(self._entries.values())

    def get(self, table: TableId) -> TableEntry | None:
        with self._lock:
            return self._entries.get(table)

    def in_state(self, *kinds: TableStateKind) -> list[TableEntry]:
        return [entry for entry in self.all() if entry.kind in kinds]

    def by_relation(self, relation: RelationId) -> TableEntry | None:
        """The source's table with this number; None if there is none. Another table may have had the number before, so one whose schema is
        current comes first."""
        found = [e for e in self.all() if e.schema is not None and e.schema.relation == relation]
        return _first([*(e for e in found if e.followed), *found])

    def by_name(self, name: TableName) -> TableEntry | None:
        return _first(e for e in self.all() if e.spec.source == name and e.kind is not TableStateKind.REMOVED)

    def apply(self, table: TableId, event: TableEvent, position: Lsn | None = None) -> TableEntry | Refused:
        """Change a table's state by `event`, as of `position`. Returns the new entry, or the refusal, which changes nothing."""
        with self._lock:
            entry = self._entries.get(table)
            if entry is None:
                return Refused("the table is not part of the subscription")
            after = transition(entry.state, event)
            if isinstance(after, Refused):
                return after
            moved = replace(_with_structures(entry, event), state=after)
            if outdates_plans(entry.state, event, after):
                moved = replace(moved, generation=self._number())
            self._entries[table] = moved
            self._tell(entry, event, moved, position)
            return moved

    def _tell(self, before: TableEntry, event: TableEvent, after: TableEntry, position: Lsn | None) -> None:
        """Call the listeners. Progress of a copy or of a partition reload is not reported here: the copy's own thread reports it."""
        table = after.table
        if isinstance(after.state, Live) and not isinstance(before.state, Live):
            del self._renewed[table]
            self._whole.discard(table)
        lost = isinstance(event, ChunkVoided | CopyVoided) and before.copy is not None and before.copy.chunk is not None
        if self._void is not None and (lost or (before.reload is not None and after.reload is None)):
            self._void(table)
        again = isinstance(before.state, Reloading) and isinstance(event, CopyStarted | CopyLost | CopyVoided)
        if after.kind is before.kind and not (again or isinstance(event, Fault | Hold)):
            return
        held = isinstance(event, Hold) and awaits_approval(before.state)
        self._listener(after, None if held else position)
        if self._watch is not None and after.kind in {TableStateKind.PARKED, TableStateKind.REMOVED} and not held:
            self._watch(after)

    def amend(self, table: TableId, *, spec: TableSpec | None = None, schema: TableSchema | None = None) -> None:
        """Change the spec or the schema of a table, not its state. None: unchanged. Ignored for a table that was removed."""
        with self._lock:
            entry = self._entries.get(table)
            if entry is not None:
                self._entries[table] = replace(entry, spec=spec or entry.spec, schema=schema or entry.schema)

    def keep_structure(self, table: TableId, kept: TableSchema) -> None:
        """Record that the target keeps this schema, and does not follow schema changes of the source."""
        with self._lock:
            entry = self._entries.get(table)
            if entry is not None:
                self._entries[table] = replace(entry, kept=kept)

    @contextmanager
    def handing_over(self, tables: frozenset[TableId]) -> Iterator[None]:
        """While a batch may be replacing these tables by their copies, no other copy of them begins. One batch at a time.

        A generation is not sufficient: it invalidates what was planned too early, while this prevents a copy from beginning too early.
        """
        with self._lock:
            self._handing_over = tables
        try:
            yield
        finally:
            with self._lock:
                self._handing_over = frozenset()

    def snapshot_follows(self, tables: Iterable[TableId]) -> None:
        """A snapshot for copies of these tables is taken next. What is retained for them must begin before it; `begin_chunk` checks
        that."""
        with self._lock:
            self._kept_from = {t: kept_from(entry.state) for t in tables if (entry := self._entries.get(t)) is not None}

    def _may_begin(self, table: TableId) -> TableEntry | None:
        """The entry of a table whose copy may begin a chunk now, under the last snapshot; None otherwise."""
        entry = self._entries.get(table)
        if entry is None or not isinstance(entry.state, Copying | Reloading) or table in self._handing_over:
            return None
        # Compared by the first retained batch, not by generation: a copy that continues keeps its generation, but may have released its
        # changes and begun to retain them again since the snapshot. The changes between the two would be missing.
        kept = kept_from(entry.state)
        return entry if kept == self._kept_from.get(table, kept) else None

    def begin_chunk(self, table: TableId, schema: TableSchema, position: Lsn, upto: KeyBound | None) -> Chunk | None:
        """Begin to read the next rows of a copy, up to and including the key `upto` (None: all), under the snapshot at `position`.

        Returns None if the table does not wait for a chunk under this snapshot.
        """
        with self._lock:
            entry = self._may_begin(table)
            if entry is None:
                return None
            first = entry.copy is None or not entry.copy.followed
            chunk = Chunk(self._number(), schema, position, upto, first)
            return None if isinstance(self.apply(table, ChunkBegun(chunk)), Refused) else chunk

    def restart_copy(self, table: TableId) -> None:
        """Discard an unfinished copy that cannot be resumed. The new copy is made as one chunk, under one snapshot."""
        with self._lock:
            self._whole.add(table)
            self.apply(table, CopyVoided())

    def is_whole(self, table: TableId) -> bool:
        """Whether the table is to be copied as one chunk, under one snapshot."""
        with self._lock:
            return table in self._whole

    def begin_reload(self, table: TableId, request: str, number: BatchId) -> bool:
        """Begin a reload of partitions of a live table; changes are retained for it from batch `number` on. Between two plannings only.
        Returns False if the table is not live."""
        with self._lock:
            return not isinstance(self.apply(table, PartitionsBegun(request, number)), Refused)

    def begin_partitions(
        self, table: TableId, schema: TableSchema, position: Lsn, partitions: Partitions
    ) -> Chunk | None:
        """Begin to read these partitions under the snapshot at `position`. Returns None if their reload has ended."""
        with self._lock:
            chunk = Chunk(self._number(), schema, position, None, first=False, partitions=partitions)
            return None if isinstance(self.apply(table, ChunkBegun(chunk)), Refused) else chunk

    def end_reload(self, table: TableId) -> PartitionReload | None:
        """Discard the table's partition reload. Returns it; None if there is none."""
        with self._lock:
            entry = self._entries.get(table)
            ended = entry.reload if entry is not None else None
            if ended is not None:
                self.apply(table, ChunkVoided())
            return ended

    def park(
        self, table: TableId, code: str, detail: str, position: Lsn | None = None, *, known: TableEntry | None = None
    ) -> bool:
        """Park a table with a fault's code and remedy. If a new copy repairs the fault, it is made automatically, at most RENEWALS times in
        a row.

        `known`: the entry in which the fault was found. If it has changed since, nothing is done and False is returned.
        """
        kind = FaultKind(code)
        if kind is FaultKind.SCHEMA_CHANGE_WAITING:
            return True  # The event `Hold` has parked it.
        with self._lock:
            entry = self._entries.get(table)
            if known is not None and entry != known:
                return False
            # A copy that has not begun yet also repairs faults that are found until then.
            began = entry is None or not isinstance(entry.state, Reloading) or entry.copy is not None
            recopy = self.renews(kind) and self._renewed[table] + began <= RENEWALS
            self._renewed[table] += recopy and began
            reason = Reason(code, detail, _RENEWAL if recopy else policy(kind).remedy)
            self.apply(table, Fault(reason, recopy), position)
            return True

    def renews(self, kind: FaultKind) -> bool:
        """Whether a table with this fault is copied again automatically."""
        return kind in RENEWED and self._policy is SchemaPolicy.APPLY

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers


def _with_structures(entry: TableEntry, event: TableEvent) -> TableEntry:
    """The entry with the schemas that an event brings: the schema of a new copy is in force from its first chunk on."""
    match event:
        case ChunkBegun(chunk=Chunk(schema=schema, first=True)):
            return replace(entry, schema=schema, kept=None)
        case Hold(kept=kept):
            return entry if awaits_approval(entry.state) else replace(entry, kept=kept)
        case Approve():
            return replace(entry, kept=None)
        case _:
            return entry


def _first(entries: Iterable[TableEntry]) -> TableEntry | None:
    return next(iter(entries), None)
