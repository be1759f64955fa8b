"""Whether the tables that a statement reads follow their source, where a query asks for fresh rows.

What counts is the target's record in the statement's own snapshot: a table that parks just before the statement runs is seen there. The
book of the run gives the words, and tells of tables that are about to be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.model.identity import SubscriptionName, TableId
from engine.model.subscription_state import Reason
from engine.model.table_state import TableStateKind
from engine.model.target import QueryRefused, TableRead
from engine.tables.registry import TableEntry
from engine.tables.state import ReadStatus, read_status

NOT_FOLLOWING = "freshness_unreachable"
"""A table of the statement does not follow until somebody acts."""
NOT_READY = "table_not_ready"
"""A table of the statement will follow by itself."""
FindEntry = Callable[[SubscriptionName, TableId], TableEntry | None]

_REMEDIES = {
    TableStateKind.PAUSED.value: "Set the table's desired_state to 'running'",
    TableStateKind.PARKED.value: "Reload the table",
    TableStateKind.REMOVED.value: "Add the table to the subscription again",
}


class ReadTables:
    """Judges the tables of one statement of a subscription's reader; `demanded`: they have to follow."""

    def __init__(self, find: FindEntry, subscription: SubscriptionName, *, demanded: bool) -> None:
        self._find = find
        self._subscription = subscription
        self._demanded = demanded
        self.tables: list[TableId] = []
        """Those of the subscription."""
        self.not_following: list[TableId] = []
        """Those of the subscription that do not follow."""

    def judge(self, reads: Sequence[TableRead]) -> None:
        """Raises QueryRefused(NOT_FOLLOWING, NOT_READY). Called again where the statement begins again."""
        self.tables, self.not_following = [], []
        coming: list[TableRead] = []
        for read in reads:
            entry = self._find(read.subscription, read.table)
            follows, out = _standing(read, entry)
            if read.subscription == self._subscription:
                self.tables.append(read.table)
                self.not_following += [] if follows else [read.table]
            if follows or not self._demanded:
                continue
            if out is not None:
                raise _refused(read, out, entry.reason if entry is not None else None)
            coming.append(read)
        if coming:
            names = ", ".join(str(read.target) for read in coming)
            own = [read.table for read in coming if read.subscription == self._subscription]
            raise QueryRefused(NOT_READY, f"the rows of {names} are not complete at this position yet", tables=own)


def _standing(read: TableRead, entry: TableEntry | None) -> tuple[bool, str | None]:
    """Whether the table follows, and the state in which it does not until somebody acts."""
    if read.removed:
        return False, TableStateKind.REMOVED.value
    if entry is not None and read_status(entry.state) is ReadStatus.OUT:
        return False, entry.shown.value
    if read.complete:
        return True, None
    return False, None if entry is not None else "not complete"


def _refused(read: TableRead, state: str, reason: Reason | None) -> QueryRefused:
    because = f": {reason.reason}" if reason is not None else ""
    remedy = reason.remedy if reason is not None and reason.remedy else None
    remedy = (remedy or _REMEDIES.get(state, f"Start subscription {read.subscription!r}")).rstrip(".")
    return QueryRefused(
        NOT_FOLLOWING,
        f"table {read.target} is {state}{because}",
        f'{remedy}; or send "on_unavailable": "include" for the rows that are there.',
        [read.table] if state else (),
    )
