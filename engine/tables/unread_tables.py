"""Tables that the source cannot be read of any more, as the log says at its place: see `engine.records.unread`.

Such a table parks after the changes before that place. As its source reads nothing of it, the log has no changes of it until the table
can be read again, and then all since: it continues without a copy. It is parked when the batch is planned, as batches after it are
planned before it is committed.
"""

from __future__ import annotations

from collections.abc import Set

from engine.model.fault import FaultKind
from engine.model.identity import BatchId, TableId
from engine.model.subscription_state import Reason
from engine.model.table_state import Refused
from engine.platform.fault_policy import policy
from engine.records.unread import Unread
from engine.tables.registry import TableEntry, TableRegistry
from engine.tables.state import AwaitSource, Live, Parked, Paused, Unreadable


class UnreadTables:
    """Follows the records of one log. Used by the thread that plans batches."""

    def __init__(self, book: TableRegistry) -> None:
        self._book = book
        self._last: dict[TableId, Reason] = {}
        """Tables whose last record says that they could not be read, and why."""

    def take(self, entry: TableEntry, why: Unread) -> bool:
        """The table could not be read. Returns whether its rows, with the changes that are retained for it, are complete up to here:
        False for one that waits for a copy, or gets one."""
        kind, state = FaultKind.TABLE_NOT_READ, entry.state
        reason = self._last[entry.table] = Reason(kind.value, f"{why.kind.value}: {why.detail}", policy(kind).remedy)
        if isinstance(state, Parked):
            if isinstance(state.then, AwaitSource) and not state.reason.known:
                self._book.apply(entry.table, Unreadable(reason, state.then.since))
            return True
        return isinstance(state, Live) or (isinstance(state, Paused) and state.kept_from is not None)

    def read(self, table: TableId) -> None:
        """The table was read."""
        self._last.pop(table, None)

    def park(self, applied: Set[TableId], since: BatchId) -> frozenset[TableId]:
        """Park those of these tables, to which the planned batch applies, that could not be read at its end. `since`: the next batch."""
        found = set()
        for table, reason in self._last.items():
            if table in applied and not isinstance(self._book.apply(table, Unreadable(reason, since)), Refused):
                found.add(table)
        return frozenset(found)
