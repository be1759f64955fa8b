"""Parks tables with a fault, and decides which of them are copied again automatically."""

from __future__ import annotations

from collections import Counter

from engine.model.fault import FaultKind
from engine.model.identity import TableId
from engine.model.position import Lsn
from engine.model.subscription import SchemaPolicy
from engine.model.subscription_state import Reason
from engine.platform.fault_policy import RENEWED, policy
from engine.tables.registry import TableChange, TableEntry, TableRegistry
from engine.tables.state import Fault, Reloading

RENEWALS = 5
"""Most consecutive automatic copies of a table that did not make it live. After that the table parks."""
_RENEWAL = "None needed: the table is copied again, and its old rows stay readable until then."


class TableParking:
    """Parks the tables of one registry. Safe to use from any thread."""

    def __init__(self, book: TableRegistry, policy_: SchemaPolicy = SchemaPolicy.APPLY) -> None:
        self._book = book
        self._policy = policy_
        self._renewed: Counter[TableId] = Counter()
        """Number of automatic copies of each table since it was live."""
        book.subscribe(self._end_renewals)

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
        with self._book.lock:
            entry = self._book.get(table)
            if known is not None and entry != known:
                return False
            # A copy that has not begun yet also repairs faults that are found until then.
            began = entry is None or not isinstance(entry.state, Reloading) or entry.copy is not None
            recopy = self.renews(kind) and self._renewed[table] + began <= RENEWALS
            self._renewed[table] += recopy and began
            reason = Reason(code, detail, _RENEWAL if recopy else policy(kind).remedy)
            self._book.apply(table, Fault(reason, recopy), position)
            return True

    def renews(self, kind: FaultKind) -> bool:
        """Whether a table with this fault is copied again automatically."""
        return kind in RENEWED and self._policy is SchemaPolicy.APPLY

    def _end_renewals(self, change: TableChange) -> None:
        if change.became_live:
            del self._renewed[change.entry.table]
