"""The tables of one running subscription: their states, structures and what their next batch has to know.

Every change of a state goes through `next_state`; listeners see it in order. Guarded by one lock, held for moments only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from engine.model.fault import FaultKind
from engine.model.identity import BatchId, RelationId, TableId, TableName
from engine.model.position import ZERO, Lsn
from engine.model.schema import TableSchema
from engine.model.subscription import TableSpec
from engine.model.subscription_state import Reason
from engine.model.table_state import Refused, TableEvent, TableState, next_state
from engine.runtime.fault_policy import policy


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One table. `schema` is the structure behind the last planned batch; `after`: changes up to here are in its rows.

    `copy_schema` is the structure of its hidden copy.
    `copied`: its hidden copy is complete and waits for the batch that hands it over. `deferred_from`: first batch whose changes
    have to be kept for it.
    """

    spec: TableSpec
    state: TableState
    schema: TableSchema | None = None
    copy_schema: TableSchema | None = None
    after: Lsn = ZERO
    copied: bool = False
    resuming: bool = False
    deferred_from: BatchId | None = None
    reason: Reason | None = None

    @property
    def table(self) -> TableId:
        return self.spec.table


TableListener = Callable[[TableEntry, Lsn | None], None]


class TableBook:
    """All tables of a subscription. Safe to use from any thread."""

    def __init__(self, listener: TableListener) -> None:
        self._entries: dict[TableId, TableEntry] = {}
        self._lock = threading.RLock()
        self._listener = listener

    def put(self, entry: TableEntry) -> None:
        """Add a table, or replace what is known of it, and tell the listener."""
        with self._lock:
            self._entries[entry.table] = entry
            self._listener(entry, None)

    def all(self) -> list[TableEntry]:
        with self._lock:
            return list(self._entries.values())

    def get(self, table: TableId) -> TableEntry | None:
        with self._lock:
            return self._entries.get(table)

    def in_state(self, *states: TableState) -> list[TableEntry]:
        return [entry for entry in self.all() if entry.state in states]

    def by_relation(self, relation: RelationId) -> TableEntry | None:
        return _first(e for e in self.all() if e.schema is not None and e.schema.relation == relation)

    def by_name(self, name: TableName) -> TableEntry | None:
        return _first(e for e in self.all() if e.spec.source == name and e.state is not TableState.REMOVED)

    def amend(self, table: TableId, *, spec: TableSpec | None = None, schema: TableSchema | None = None) -> None:
        """Change what is known of a table without a change of state; what is None stays."""
        with self._lock:
            entry = self._entries[table]
            self._entries[table] = replace(entry, spec=spec or entry.spec, schema=schema or entry.schema)

    def set_after(self, table: TableId, after: Lsn) -> None:
        """The table's rows are as of `after` from now on."""
        with self._lock:
            self._entries[table] = replace(self._entries[table], after=after)

    def copy_begins(self, table: TableId, schema: TableSchema, after: Lsn) -> None:
        """A copy with this structure, as of position `after`, is being made."""
        with self._lock:
            entry = self._entries[table]
            self._entries[table] = replace(entry, copy_schema=schema, schema=schema, after=after, copied=False)

    def copy_ends(self, table: TableId) -> TableEntry | Refused:
        """The hidden copy is complete; the next batch that reaches its position hands it over."""
        with self._lock:
            self._entries[table] = replace(self._entries[table], copied=True)
            return self.move(table, TableEvent.COPY_FINISHED)

    def resume(self, table: TableId) -> None:
        """Ask for a paused table's kept changes to be applied with the next batch."""
        with self._lock:
            self._entries[table] = replace(self._entries[table], resuming=True)

    def move(
        self,
        table: TableId,
        event: TableEvent,
        *,
        position: Lsn | None = None,
        reason: Reason | None = None,
        deferred_from: BatchId | None = None,
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
            moved = replace(
                entry,
                state=after,
                reason=reason if after is TableState.PARKED else None,
                copied=entry.copied and after is TableState.CATCHING_UP,
                resuming=False,
                deferred_from=(deferred_from if deferred_from is not None else entry.deferred_from) if keeps else None,
            )
            self._entries[table] = moved
            self._listener(moved, position)
            return moved

    def park(self, table: TableId, code: str, detail: str, position: Lsn | None = None) -> None:
        """Park a table with a fault's code and its remedy."""
        kind = FaultKind(code)
        self.move(table, TableEvent.FAULT, position=position, reason=Reason(code, detail, policy(kind).remedy))

    def forget(self, table: TableId) -> None:
        with self._lock:
            self._entries.pop(table, None)


def _first(entries: Iterable[TableEntry]) -> TableEntry | None:
    return next(iter(entries), None)
