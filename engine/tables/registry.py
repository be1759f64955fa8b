"""The tables of one running subscription: their states, and their schemas as announced by the log.

Every change of a state goes through `apply`, and listeners are called in that order. One lock guards everything; it is held briefly, but
also while listeners are called, so they must not block. Who reads and changes a table in one step holds it too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from engine.model.identity import BatchId, RelationId, TableId, TableName
from engine.model.position import Lsn
from engine.model.schema import TableSchema
from engine.model.subscription import TableSpec
from engine.model.subscription_state import Reason
from engine.model.table_state import Refused, TableStateKind
from engine.tables.state import (
    Approve,
    AwaitApproval,
    AwaitSource,
    Chunk,
    ChunkBegun,
    ChunkVoided,
    Copy,
    CopyLost,
    CopyStarted,
    CopyVoided,
    Fault,
    Hold,
    Live,
    Parked,
    PartitionReload,
    Reloading,
    TableEvent,
    TableState,
    Unreadable,
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
                return isinstance(then, AwaitApproval | AwaitSource)
            case Reloading(copy=copy):
                return copy is not None
            case _:
                return True


@dataclass(frozen=True, slots=True)
class TableChange:
    """A table was added, is reported again, or changed by an event. `position`: as of which it is in this state; None if unknown."""

    entry: TableEntry
    position: Lsn | None = None
    shown: bool = True
    """Users see it. Progress of a copy or of a partition reload is not shown here: the copy's own thread reports it."""
    became_live: bool = False
    chunk_ended: bool = False
    """The chunk of its copy was discarded, or its partition reload ended."""
    ended: bool = False
    """It was parked or removed."""


TableListener = Callable[[TableChange], None]
"""Called with each change, in order and within the registry's lock. Must not block."""


class TableEntries(tuple[TableEntry, ...]):
    """All tables of a subscription at one moment."""

    __slots__ = ()

    def in_state(self, *kinds: TableStateKind) -> list[TableEntry]:
        return [entry for entry in self if entry.kind in kinds]

    def by_relation(self, relation: RelationId) -> TableEntry | None:
        """The source's table with this number; None if there is none. Another table may have had the number before, so one whose schema is
        current comes first."""
        found = [e for e in self if e.schema is not None and e.schema.relation == relation]
        return _first([*(e for e in found if e.followed), *found])

    def by_name(self, name: TableName) -> TableEntry | None:
        return _first(e for e in self if e.spec.source == name and e.kind is not TableStateKind.REMOVED)


class TableRegistry:
    """All tables of a subscription. Safe to use from any thread."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Held by callers for a check and the change that follows from it."""
        self._entries: dict[TableId, TableEntry] = {}
        self._generation = 0
        """The last generation used. Each is used once in a run."""
        self._listeners: list[TableListener] = []

    def subscribe(self, listener: TableListener) -> None:
        """Call `listener` with every change from now on, after the listeners before it."""
        with self.lock:
            self._listeners.append(listener)

    def retire(self) -> None:
        """The run of this registry has ended: no listener is called for changes that its threads still make."""
        with self.lock:
            self._listeners.clear()

    def report(self) -> None:
        """Call the listeners with every table, in order with concurrent changes."""
        with self.lock:
            for entry in self._entries.values():
                self._notify_listeners(TableChange(entry))

    def add(self, entry: TableEntry) -> None:
        """Add or replace a table, and call the listeners."""
        with self.lock:
            self._entries[entry.table] = replace(entry, generation=self._next_generation())
            self._notify_listeners(TableChange(self._entries[entry.table]))

    def forget(self, table: TableId) -> None:
        with self.lock:
            self._entries.pop(table, None)

    def all(self) -> TableEntries:
        with self.lock:
            return TableEntries(self._entries.values())

    def get(self, table: TableId) -> TableEntry | None:
        with self.lock:
            return self._entries.get(table)

    def apply(self, table: TableId, event: TableEvent, position: Lsn | None = None) -> TableEntry | Refused:
        """Change a table's state by `event`, as of `position`. Returns the new entry, or the refusal, which changes nothing."""
        with self.lock:
            entry = self._entries.get(table)
            if entry is None:
                return Refused("the table is not part of the subscription")
            after = transition(entry.state, event)
            if isinstance(after, Refused):
                return after
            moved = replace(_with_structures(entry, event), state=after)
            if outdates_plans(entry.state, event, after):
                moved = replace(moved, generation=self._next_generation())
            self._entries[table] = moved
            self._notify_listeners(_change(entry, event, moved, position))
            return moved

    def amend(
        self,
        table: TableId,
        *,
        spec: TableSpec | None = None,
        schema: TableSchema | None = None,
        kept: TableSchema | None = None,
    ) -> None:
        """Change the spec or the schemas of a table, not its state. None: unchanged. Ignored for a table that was removed.

        `kept`: the schema that the target keeps because it does not follow schema changes of the source.
        """
        with self.lock:
            entry = self._entries.get(table)
            if entry is not None:
                self._entries[table] = replace(
                    entry, spec=spec or entry.spec, schema=schema or entry.schema, kept=kept or entry.kept
                )

    def _notify_listeners(self, change: TableChange) -> None:
        for listener in self._listeners:
            listener(change)

    def _next_generation(self) -> int:
        self._generation += 1
        return self._generation


def _change(before: TableEntry, event: TableEvent, after: TableEntry, position: Lsn | None) -> TableChange:
    lost = isinstance(event, ChunkVoided | CopyVoided) and before.copy is not None and before.copy.chunk is not None
    again = isinstance(before.state, Reloading) and isinstance(event, CopyStarted | CopyLost | CopyVoided)
    shown = after.kind is not before.kind or again or isinstance(event, Fault | Hold | Unreadable)
    held = isinstance(event, Hold) and awaits_approval(before.state)
    return TableChange(
        after,
        None if held else position,
        shown=shown,
        became_live=isinstance(after.state, Live) and not isinstance(before.state, Live),
        chunk_ended=lost or (before.reload is not None and after.reload is None),
        ended=shown and not held and after.kind in {TableStateKind.PARKED, TableStateKind.REMOVED},
    )


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
