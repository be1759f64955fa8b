"""The tables of one running subscription: their states, structures and what their next batch has to know.

Every change of a state goes through `next_state`; listeners see it in order. Guarded by one lock, held for moments only.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from engine.model.copies import KeyBound
from engine.model.fault import FaultKind
from engine.model.identity import BatchId, RelationId, TableId, TableName
from engine.model.partitions import LoadReason, Region
from engine.model.position import ZERO, Lsn
from engine.model.schema import TableSchema
from engine.model.subscription import SchemaPolicy, TableSpec
from engine.model.subscription_state import Reason
from engine.model.table_state import Refused, TableEvent, TableState, next_state
from engine.platform.fault_policy import RENEWED, policy


@dataclass(frozen=True, slots=True)
class Stretch:
    """The rows of a table behind those that its copy holds, up to and with the key `upto` (None = all), read under one snapshot.

    They count from the first batch that reaches `after`, the snapshot's position. `number` tells it from every other of the run.
    """

    number: int
    schema: TableSchema
    after: Lsn
    upto: KeyBound | None
    life: int
    """Number of the copy's first stretch: another one is another copy."""
    rows: int = 0
    bytes: int = 0
    read: bool = False
    taken: bool = False
    """A batch that takes it in is planned."""

    @property
    def first(self) -> bool:
        return self.number == self.life


@dataclass(frozen=True, slots=True)
class PartitionCopy:
    """Rows of some partitions of a live table that are read anew under one snapshot, to take the place of those there.

    They count from the first batch that reaches `after`, the snapshot's position; changes are kept for them from batch `kept_from` on.
    `number` tells it from every other of the run. `schema` is None until the snapshot is there.
    """

    number: int
    request: str
    kept_from: BatchId
    schema: TableSchema | None = None
    after: Lsn = ZERO
    regions: tuple[Region, ...] = ()
    reasons: Mapping[str, LoadReason] = field(default_factory=dict)
    """By the partition's name."""
    read: bool = False
    taken: bool = False
    """A batch that puts it into place is planned."""


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One table. `schema` is the structure behind the last planned batch; `after`: changes up to here are in its rows.

    `kept`: the structure that the target keeps, where changes of the source's are not followed. `copy_schema` is the structure of its
    hidden copy.
    `copied`: its hidden copy is complete and waits for the batch that hands it over. `deferred_from`: first batch whose changes
    have to be kept for it. `renewing`: it is parked for a moment, and is copied anew without being asked for.
    """

    spec: TableSpec
    state: TableState
    schema: TableSchema | None = None
    kept: TableSchema | None = None
    copy_schema: TableSchema | None = None
    after: Lsn = ZERO
    copied: bool = False
    resuming: bool = False
    deferred_from: BatchId | None = None
    reason: Reason | None = None
    renewing: bool = False
    stretch: Stretch | None = None
    """What is being added to its copy, where that is made stretch by stretch."""
    copy_life: int | None = None
    """Its copy holds the rows up to some key, and every batch applies to it; which copy, as in Stretch.life."""
    load: PartitionCopy | None = None
    """What is being read of it anew while it stays live."""

    @property
    def keeps_from(self) -> BatchId | None:
        """First batch whose changes have to be kept for it, or for a part of it."""
        kept = [self.deferred_from, None if self.load is None else self.load.kept_from]
        return min((number for number in kept if number is not None), default=None)

    @property
    def table(self) -> TableId:
        return self.spec.table

    @property
    def waiting(self) -> bool:
        """Parked until somebody approves of a change that its target can follow; what comes meanwhile is kept."""
        return self.reason is not None and self.reason.code == FaultKind.SCHEMA_CHANGE_WAITING

    @property
    def followed(self) -> bool:
        """Whether its structure is the one that the source has: it does not wait for a new copy, or one is being made."""
        lost = self.state is TableState.PARKED and not self.waiting
        return not lost and (self.state is not TableState.RELOADING or self.copy_schema is not None)

    @property
    def shown(self) -> TableState:
        """As everybody outside the run sees it."""
        return TableState.RELOADING if self.renewing else self.state


_UNFINISHED = frozenset({TableState.REGISTERED, TableState.COPYING, TableState.RELOADING, TableState.CATCHING_UP})
"""Of these there may be a copy that is not complete."""

TableListener = Callable[[TableEntry, Lsn | None], None]

RENEWALS = 5
"""New copies of a table one after another that did not get it live: then it parks."""
_RENEWAL = "None needed: the table is copied again, and its old rows stay readable until then."


RESUMED = 0
"""Number of a copy that was begun before the run."""


class TableRegistry:
    """All tables of a subscription. Safe to use from any thread."""

    def __init__(self, listener: TableListener, policy_: SchemaPolicy = SchemaPolicy.APPLY) -> None:
        self._policy = policy_
        self._renewed: Counter[TableId] = Counter()
        self._stretches = 0
        self._whole: set[TableId] = set()
        self._handing_over: frozenset[TableId] = frozenset()
        self._kept_from: dict[TableId, BatchId | None] = {}
        """By when the last snapshot for copies was taken."""
        self._entries: dict[TableId, TableEntry] = {}
        self._lock = threading.RLock()
        self._listener = listener
        self._watch: Callable[[TableEntry], None] | None = None
        self._void: Callable[[TableId], None] | None = None

    def watch(self, ended: Callable[[TableEntry], None], void: Callable[[TableId], None] | None = None) -> None:
        """Also tell `ended` of every table that parks or leaves, and `void` of those that a stretch is not added to any more."""
        self._watch = ended
        self._void = void

    def retire(self) -> None:
        """The run that this book belongs to is over: what its threads still move is told to nobody."""
        with self._lock:
            self._listener = lambda _entry, _position: None
            self._watch = None

    def put(self, entry: TableEntry) -> None:
        """Add a table, or replace what is known of it, and tell the listener."""
        with self._lock:
            self._entries[entry.table] = entry
            self._listener(entry, None)

    def tell(self) -> None:
        """Tell the listener how every table stands, in order with what moves meanwhile."""
        with self._lock:
            for entry in self._entries.values():
                self._listener(entry, None)

    def all(self) -> list[TableEntry]:
        with self._lock:
            return list(self._entries.values())

    def get(self, table: TableId) -> TableEntry | None:
        with self._lock:
            return self._entries.get(table)

    def in_state(self, *states: TableState) -> list[TableEntry]:
        return [entry for entry in self.all() if entry.state in states]

    @property
    def follows(self) -> bool:
        """Whether some table is live."""
        with self._lock:
            return any(entry.state is TableState.LIVE for entry in self._entries.values())

    def by_relation(self, relation: RelationId) -> TableEntry | None:
        """The table that the source has under this number. One that is followed comes first: another may have had it before."""
        found = [e for e in self.all() if e.schema is not None and e.schema.relation == relation]
        return _first([*(e for e in found if e.followed), *found])

    def by_name(self, name: TableName) -> TableEntry | None:
        return _first(e for e in self.all() if e.spec.source == name and e.state is not TableState.REMOVED)

    def amend(
        self,
        table: TableId,
        *,
        spec: TableSpec | None = None,
        schema: TableSchema | None = None,
        kept: TableSchema | None = None,
    ) -> None:
        """Change what is known of a table without a change of state; what is None stays. A table that is gone stays gone."""
        with self._lock:
            entry = self._entries.get(table)
            if entry is not None:
                self._entries[table] = replace(
                    entry, spec=spec or entry.spec, schema=schema or entry.schema, kept=kept or entry.kept
                )

    @contextmanager
    def handing_over(self, tables: frozenset[TableId]) -> Iterator[None]:
        """A batch may be putting the copies of these tables into place: meanwhile no other begins where they stand. One at a time."""
        with self._lock:
            self._handing_over = tables
        try:
            yield
        finally:
            with self._lock:
                self._handing_over = frozenset()

    def snapshot_follows(self, tables: Iterable[TableId]) -> None:
        """Copies of these tables are to begin under a snapshot that is taken now: what is kept for them must not begin behind it."""
        with self._lock:
            self._kept_from = {t: entry.deferred_from for t in tables if (entry := self._entries.get(t)) is not None}

    def _begins(self, table: TableId) -> TableEntry | None:
        """The entry of a table that waits for a copy which may begin now, under the last snapshot."""
        entry = self._entries.get(table)
        if entry is None or entry.state not in {TableState.COPYING, TableState.RELOADING}:
            return None
        # One that began to wait anew since the snapshot lacks what came between the two.
        overtaken = entry.deferred_from != self._kept_from.get(table, entry.deferred_from)
        return None if overtaken or table in self._handing_over else entry

    def copy_begins(self, table: TableId, schema: TableSchema, after: Lsn) -> bool:
        """A copy with this structure, as of position `after`, is being made. False where the table does not wait for one now."""
        with self._lock:
            entry = self._begins(table)
            if entry is None:
                return False
            self._entries[table] = replace(
                entry, copy_schema=schema, schema=schema, kept=None, after=after, copied=False
            )
            return True

    def copy_ends(self, table: TableId) -> bool:
        """The hidden copy is complete; the next batch that reaches its position hands it over. False where nobody waits for it.

        The table may have been told to begin anew when the last rows were already being written: then it waits for another copy.
        """
        with self._lock:
            entry = self._entries.get(table)
            if entry is None or entry.copy_schema is None:
                return False
            moved = self.move(table, TableEvent.COPY_FINISHED)
            if isinstance(moved, Refused):
                return False
            self._entries[table] = replace(moved, copied=True)
            return True

    def stretch_begins(self, table: TableId, schema: TableSchema, after: Lsn, upto: KeyBound | None) -> Stretch | None:
        """The next rows of a copy are being read. None where the table does not wait for them now, or has another structure by now."""
        with self._lock:
            entry = self._begins(table)
            if entry is None:
                return None
            self._stretches += 1
            life = self._stretches if entry.copy_life is None else entry.copy_life
            stretch = Stretch(self._stretches, schema, after, upto, life)
            if stretch.first:
                entry = replace(entry, copy_schema=schema, schema=schema, kept=None, after=after)
            self._entries[table] = replace(entry, copied=False, stretch=stretch)
            return stretch

    def stretch_read(self, table: TableId, number: int, rows: int, size: int) -> bool:
        """All rows of it are in the hidden table. False where it is void."""
        with self._lock:
            entry = self._entries.get(table)
            if entry is None or entry.stretch is None or entry.stretch.number != number:
                return False
            stretch = replace(entry.stretch, rows=rows, bytes=size, read=True)
            self._entries[table] = replace(entry, stretch=stretch)
            return stretch.upto is not None or not isinstance(self.move(table, TableEvent.COPY_FINISHED), Refused)

    def stretch_taken(self, table: TableId) -> None:
        """A batch that takes it in is planned; all later ones apply to the copy."""
        with self._lock:
            entry = self._entries.get(table)
            if entry is not None and entry.stretch is not None:
                stretch = replace(entry.stretch, taken=True)
                self._entries[table] = replace(entry, stretch=stretch, copy_life=stretch.life)

    def stretch_ends(self, table: TableId, number: int | None = None) -> None:
        """It is in, or void: what was kept for it may go. `number`: only this one."""
        with self._lock:
            entry = self._entries.get(table)
            if entry is None or (number is not None and (entry.stretch is None or entry.stretch.number != number)):
                return
            self._entries[table] = replace(entry, stretch=None, deferred_from=None)

    def stretch_void(self, table: TableId) -> None:
        """What is being read does not count; it is read again, under another snapshot."""
        with self._lock:
            entry = self._entries.get(table)
            if entry is None or entry.stretch is None:
                return
            last = entry.stretch.upto is None and entry.state is TableState.CATCHING_UP
            first = entry.stretch.first
            self.stretch_ends(table)
            if first:
                self._entries[table] = replace(self._entries[table], copy_life=None)
            if last:
                self.move(table, TableEvent.COPY_LOST)
            if self._void is not None:
                self._void(table)

    def copy_stands(self, table: TableId, schema: TableSchema) -> None:
        """The structure of a copy that batches apply to, behind a batch."""
        with self._lock:
            entry = self._entries.get(table)
            if entry is not None and entry.copy_life is not None:
                self._entries[table] = replace(entry, copy_schema=schema)

    def copy_anew(self, table: TableId) -> None:
        """An unfinished copy cannot go on: it begins again with nothing, and is then made under one snapshot."""
        with self._lock:
            self._whole.add(table)
            self.stretch_void(table)
            entry = self._entries.get(table)
            if entry is not None and entry.copy_life is not None:
                self._entries[table] = replace(entry, copy_life=None)
                self.move(table, TableEvent.COPY_LOST)

    def is_whole(self, table: TableId) -> bool:
        """Whether the table is to be copied under one snapshot."""
        with self._lock:
            return table in self._whole

    def load_begins(self, table: TableId, request: str, kept_from: BatchId) -> bool:
        """Rows of some of a live table's partitions are to be read. Between two plannings only. False where it is not live."""
        with self._lock:
            entry = self._entries.get(table)
            if entry is None or entry.state is not TableState.LIVE:
                return False
            self._stretches += 1
            self._entries[table] = replace(entry, load=PartitionCopy(self._stretches, request, kept_from))
            return True

    def load_goes_on(self, load: PartitionCopy, table: TableId) -> bool:
        """More is known of it. False where it does not count any more."""
        with self._lock:
            entry = self._entries.get(table)
            if entry is None or entry.load is None or entry.load.number != load.number:
                return False
            self._entries[table] = replace(entry, load=load)
            return True

    def load_ends(self, table: TableId, number: int | None = None) -> PartitionCopy | None:
        """It is in place, or void: what was kept for it may go. `number`: only this one. Returns what ended."""
        with self._lock:
            entry = self._entries.get(table)
            if entry is None or entry.load is None or number not in {None, entry.load.number}:
                return None
            self._entries[table] = replace(entry, load=None)
            if self._void is not None:
                self._void(table)
            return entry.load

    def keep_from(self, table: TableId, number: BatchId | None) -> None:
        """Keep the changes of a table that is being copied from batch `number` on, where none are kept yet; None = keep none."""
        with self._lock:
            entry = self._entries.get(table)
            if entry is None or entry.state not in {TableState.COPYING, TableState.RELOADING}:
                return
            if number is None or entry.deferred_from is None:
                self._entries[table] = replace(entry, deferred_from=number)

    def pause(self, table: TableId, number: BatchId, after: Lsn, *, taken_in: bool) -> None:
        """Keep the table's changes from batch `number` on; it holds those up to `after`. Between two plannings only.

        `taken_in`: a batch that applies what was kept is already planned. A table that is being copied is paused when it is live.
        """
        with self._lock:
            entry = self._entries.get(table)
            if entry is None:
                return
            if entry.state is TableState.LIVE:
                self._entries[table] = replace(entry, after=after)
                self.move(table, TableEvent.PAUSE, position=after, deferred_from=number)
            elif entry.state is TableState.REGISTERED and entry.copy_life is None:
                self.move(table, TableEvent.PAUSE)
            elif entry.state is TableState.PAUSED and entry.resuming:
                kept = replace(entry, resuming=False)
                self._entries[table] = replace(kept, after=after, deferred_from=number) if taken_in else kept

    def resume(self, table: TableId) -> bool:
        """Ask for a paused table's kept changes to be applied with the next batch. False where none were kept: it has to be copied."""
        with self._lock:
            entry = self._entries.get(table)
            if (
                entry is None
                or entry.state is not TableState.PAUSED
                or entry.deferred_from is None
                or entry.schema is None
            ):
                return False
            self._entries[table] = replace(entry, resuming=True)
            return True

    def move(
        self,
        table: TableId,
        event: TableEvent,
        *,
        position: Lsn | None = None,
        reason: Reason | None = None,
        deferred_from: BatchId | None = None,
        renewing: bool = False,
    ) -> TableEntry | Refused:
        """Move a table by `event`; a refusal leaves everything as it was."""
        with self._lock:
            entry = self._entries.get(table)
            if entry is None:
                return Refused("the table is not part of the subscription")
            after = next_state(entry.state, event)
            if isinstance(after, Refused):
                return after
            keeps = after in {TableState.COPYING, TableState.RELOADING, TableState.CATCHING_UP, TableState.PAUSED}
            keeps = keeps or (reason is not None and reason.code == FaultKind.SCHEMA_CHANGE_WAITING)
            if after is TableState.LIVE:
                del self._renewed[table]
                self._whole.discard(table)
            if entry.renewing or entry.state is after is TableState.RELOADING:
                reason = reason or entry.reason
            moved = replace(
                entry,
                state=after,
                reason=reason if after in {TableState.PARKED, TableState.RELOADING} else None,
                renewing=renewing,
                copied=False,
                copy_schema=entry.copy_schema
                if after is TableState.CATCHING_UP or entry.copy_life is not None
                else None,
                resuming=False,
                deferred_from=(deferred_from if deferred_from is not None else entry.deferred_from) if keeps else None,
            )
            if after not in _UNFINISHED or event is TableEvent.COPY_LOST:
                moved = replace(moved, stretch=None)
            if after not in _UNFINISHED:
                moved = replace(moved, copy_life=None)
            if after is not TableState.LIVE:
                moved = replace(moved, load=None)
            self._entries[table] = moved
            if entry.load is not None and moved.load is None and self._void is not None:
                self._void(table)
            self._listener(moved, position)
            if self._watch is not None and after in {TableState.PARKED, TableState.REMOVED}:
                self._watch(moved)
            return moved

    def park(
        self, table: TableId, code: str, detail: str, position: Lsn | None = None, *, known: TableEntry | None = None
    ) -> bool:
        """Park a table with a fault's code and its remedy; where that is a new copy that nobody has to ask for, until it begins.

        `known`: what the fault was found for; a table that moved on since is left alone, and False returned.
        """
        kind = FaultKind(code)
        if kind is FaultKind.SCHEMA_CHANGE_WAITING:
            return True  # `hold` did it.
        with self._lock:
            if known is not None and self._entries.get(table) != known:
                return False
            entry = self._entries.get(table)
            # Whatever else is found before its new copy has begun, that copy puts right as well.
            began = entry is None or entry.state is not TableState.RELOADING or entry.copy_schema is not None
            renewing = self.renews(kind) and self._renewed[table] + began <= RENEWALS
            self._renewed[table] += renewing and began
            reason = Reason(code, detail, _RENEWAL if renewing else policy(kind).remedy)
            self.move(table, TableEvent.FAULT, position=position, reason=reason, renewing=renewing)
            return True

    def hold(
        self, table: TableId, detail: str, kept: TableSchema, number: BatchId, after: Lsn, *, taken_in: bool
    ) -> None:
        """Keep a table's changes from batch `number` on until somebody approves of its structure. Between two plannings, or in one.

        `kept`: the structure that the target has, with the changes up to `after`. One that waits already waits for this as well.
        `taken_in`: a batch that applies what was kept of it before is already planned.
        """
        kind = FaultKind.SCHEMA_CHANGE_WAITING
        with self._lock:
            entry = self._entries.get(table)
            if entry is None:
                return
            reason = Reason(kind.value, detail, policy(kind).remedy)
            if entry.waiting:
                self._entries[table] = replace(entry, reason=reason)
                self._listener(self._entries[table], None)
                return
            if entry.deferred_from is None or taken_in:
                entry = replace(entry, after=after, deferred_from=number)
            self._entries[table] = replace(entry, kept=kept)
            self.move(table, TableEvent.FAULT, position=after, reason=reason)

    def approve(self, table: TableId) -> bool:
        """Apply what was kept for a table that waited, its structure with it. False where nothing was kept: it has to be copied."""
        with self._lock:
            entry = self._entries.get(table)
            if entry is None or not entry.waiting or entry.deferred_from is None:
                return False
            self._entries[table] = replace(entry, kept=None)
            self.move(table, TableEvent.APPROVE)
            return self.resume(table)

    def renews(self, kind: FaultKind) -> bool:
        """Whether a table with this fault is copied anew by itself."""
        return kind in RENEWED and self._policy is SchemaPolicy.APPLY

    def forget(self, table: TableId) -> None:
        with self._lock:
            self._entries.pop(table, None)


def _first(entries: Iterable[TableEntry]) -> TableEntry | None:
    return next(iter(entries), None)
