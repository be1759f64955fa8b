"""Checks whether the tables of a statement follow their source, for queries that demand fresh rows.

The target's record in the statement's own snapshot decides: it shows a table that was parked just before the statement ran. The run's
registry supplies the reason and the remedy, and shows tables that are not yet parked or paused in the target's record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from enum import Enum

from engine.model.identity import SubscriptionName, TableId
from engine.model.subscription_state import Reason
from engine.model.table_state import TableStateKind
from engine.model.target import QueryRefused, TableRead, TargetProgress
from engine.tables.registry import TableEntry
from engine.tables.state import ReadStatus, read_status

NOT_FOLLOWING = "freshness_unreachable"
"""Refusal code: a table of the statement does not follow its source until the user acts."""
NOT_READY = "table_not_ready"
"""Refusal code: a table of the statement is not complete yet. The user has to do nothing but wait."""
_WORD = re.compile(r"[^\W\d][\w$]*")


class Follows(Enum):
    """Whether a subscription follows its source, as far as this engine knows."""

    YES = "yes"
    SOON = "soon"
    """It is to run, and has no run at the moment."""
    NOT = "not"
    """Not before the user acts."""


FindEntry = Callable[[SubscriptionName, TableId], TableEntry | None]

FindSubscription = Callable[[SubscriptionName], Follows]

_REMEDIES = {
    TableStateKind.PAUSED.value: "Set the table's desired_state to 'running'",
    TableStateKind.PARKED.value: "Reload the table",
    TableStateKind.REMOVED.value: "Add the table to the subscription again",
}


class ReadTables:
    """Checks the tables of one statement that queries a subscription.

    `demanded`: refuse the statement unless all follow. `available`: refuse it if one does not follow until a user acts.
    `follows`: for tables of other subscriptions, whose rows a shared table shows.
    """

    def __init__(
        self,
        find: FindEntry,
        subscription: SubscriptionName,
        follows: FindSubscription,
        *,
        demanded: bool = False,
        available: bool = False,
    ) -> None:
        self._find = find
        self._follows = follows
        self._subscription = subscription
        self._demanded = demanded
        self._available = available or demanded
        self.tables: list[TableId] = []
        """Tables of the subscription that the statement reads."""
        self.not_following: list[TableId] = []
        """Those of `tables` that do not follow their source."""

    def judge(self, reads: Sequence[TableRead]) -> None:
        """Set `tables` and `not_following` from the tables that the statement reads. Called again when the statement is retried.

        Raises:
            QueryRefused: NOT_FOLLOWING, if `demanded` or `available`; NOT_READY, if `demanded`.
        """
        self.tables, self.not_following = [], []
        coming: list[TableRead] = []
        for read in reads:
            entry = self._find(read.subscription, read.table)
            follows, out = _standing(read, entry)
            if follows and self._demanded and read.subscription != self._subscription:
                follows, out = self._standing_of_other(read.subscription)
            if read.subscription == self._subscription:
                self.tables.append(read.table)
                self.not_following += [] if follows else [read.table]
            if follows or not self._available:
                continue
            if out is not None:
                raise _refused(read, out, entry.reason if entry is not None else None)
            coming.append(read)
        if coming and self._demanded:
            names = ", ".join(str(read.target) for read in coming)
            own = [read.table for read in coming if read.subscription == self._subscription]
            raise QueryRefused(NOT_READY, f"the rows of {names} are not complete at this position yet", tables=own)

    def _standing_of_other(self, subscription: SubscriptionName) -> tuple[bool, str | None]:
        """As `_standing`, for a table that is complete: its subscription may be at an old position."""
        follows = self._follows(subscription)
        return follows is Follows.YES, "not followed" if follows is Follows.NOT else None


def absent_table(sql: str, entries: Iterable[TableEntry], progress: TargetProgress | None) -> QueryRefused | None:
    """The refusal of a statement that failed on the target and names a table of the subscription that is not there yet.

    Names are compared as words of the statement, so a statement that fails for another reason may get this one first.
    """
    records = progress.tables if progress is not None else {}
    words = {word.lower() for word in _WORD.findall(sql)}
    for entry in entries:
        record, name = records.get(entry.table), entry.spec.target.name
        if (record is not None and record.ready) or not words.issuperset(_WORD.findall(name.lower())):
            continue
        read = TableRead(SubscriptionName(""), entry.table, entry.spec.target, complete=False)
        if read_status(entry.state) is ReadStatus.OUT:
            return _refused(read, entry.shown.value, entry.reason)
        detail = f"table {read.target} is {entry.shown.value}; its first copy is not complete"
        return QueryRefused(NOT_READY, detail, tables=[entry.table])
    return None


def _standing(read: TableRead, entry: TableEntry | None) -> tuple[bool, str | None]:
    """Whether the table follows its source; if only an action of the user makes it follow, also its state, else None."""
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
