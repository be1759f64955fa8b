"""Tables whose changes are found by stamps: the columns and triggers that a check offers, what readers are promised, and the purges.

Deletes, and old keys of rows whose key changed, are found later than other changes, unless a flag marks the deleted rows. So fewer sums
hold at any moment. Marked rows are removed from the source as the guide says, as soon as a cycle says that they may go.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

import psycopg

from engine.model.identity import TableName
from engine.sources.postgres_queries.stamp_script import PURGE_SETTING, flag_sql, index_sql, stamp_sql
from server.cli.client import Document, NoServerError, ProblemError
from tests.chaos import bank, open_transactions
from tests.chaos.open_transactions import Habits
from tests.fixtures.rig import Rig

StampedMethod = Literal["timestamp", "timestamp_delete_flag"]
METHODS: tuple[StampedMethod, ...] = get_args(StampedMethod)
OWN_WRITES_EVERY_S = 8.0
"""Seconds between waits, each of which begins a cycle that compares all rows: most cycles shall read rows by their stamps."""
_STAMP, _FLAG = "changed_at", "deleted"
_SWEEP_EVERY = 8
_PURGE_EVERY_S = 3.0
_KEYS: Mapping[str, tuple[str, ...]] = {
    "checking": ("id",),
    "savings": ("branch", "id"),
    "entries": ("move", "side"),
    "labels": ("name",),
    "moves": ("move",),
    "vault": ("keeper", "place"),
    "poured": ("generation", "place"),
}
_PLACES = f"(SELECT count(DISTINCT (keeper, abs(place))) FROM vault WHERE abs(place) <= {open_transactions.ROWS})"
_UNDONE = f"(SELECT count(*) FROM vault WHERE note = '{open_transactions.UNDONE}')"


class Stamped:
    """A thread that removes marked rows from `start` to `stop`, and what a method by stamps changes in a run."""

    def __init__(self, rig: Rig, method: StampedMethod) -> None:
        self.purged = 0
        self.failure: BaseException | None = None
        self._rig = rig
        self._flag = _FLAG if method == "timestamp_delete_flag" else None
        self.by_stamp: set[int] = set()
        """Numbers of cycles that were seen and read a table by its stamps."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="purges", daemon=True)

    @property
    def habits(self) -> Habits:
        """A prepared transaction makes cycles read what was changed in 15 minutes, whatever else is open: there is none."""
        return Habits(prepares=False, flag=self._flag)

    @property
    def sums(self) -> str:
        if self._flag is None:
            return f"SELECT {bank.SUMS}, {_PLACES}, {_UNDONE}"
        return f"SELECT {bank.SUMS}, {open_transactions.INVARIANTS}"

    @property
    def expected(self) -> list[Any]:
        if self._flag is None:
            return [*bank.SUMS_EXPECTED, (open_transactions.KEEPERS + 1) * open_transactions.ROWS, 0]
        return [*bank.SUMS_EXPECTED, *open_transactions.EXPECTED]

    def create(self, connection: psycopg.Connection[Any]) -> None:
        for name, key in _KEYS.items():
            table = TableName("public", name)
            flagged = [] if self._flag is None else [self._flag]
            statements = [*stamp_sql(table, _STAMP, add=True)]
            statements += [] if self._flag is None else flag_sql(table, key, self._flag, None)
            for statement in (*statements, *index_sql(table, _STAMP, [*key, *flagged])):
                connection.execute(statement.encode())

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stopping.wait(_PURGE_EVERY_S):
            try:
                self._look()
            except (psycopg.OperationalError, NoServerError, ProblemError):
                continue  # The source or the server is being restarted.
            except BaseException as error:
                self.failure = error
                return

    def _look(self) -> None:
        cycles = self._rig.api.get(f"{self._rig.path}/cycles", page_size=20)["items"]
        self.by_stamp.update(int(each["number"]) for each in cycles if any(t["since_stamp"] for t in each["tables"]))
        applied = next((each for each in cycles if each["state"] == "applied"), None)
        if self._flag is not None and applied is not None:
            self._purge(applied["tables"])

    def _purge(self, tables: Iterable[Document]) -> None:
        with self._rig.connect() as connection:
            connection.execute("SET lock_timeout = '5s'; SET statement_timeout = '20s'")
            for table in tables:
                if table["known_before"] is None:
                    continue
                with connection.transaction():
                    connection.execute(f"SET LOCAL {PURGE_SETTING} = on".encode())
                    sql = f"DELETE FROM {table['name']} WHERE {self._flag} AND {_STAMP} < %s"
                    self.purged += connection.execute(sql.encode(), [table["known_before"]]).rowcount


def detection(method: StampedMethod) -> dict[str, Document]:
    """`tables` of the capture."""
    flag = {"flag_column": _FLAG} if method == "timestamp_delete_flag" else {}
    chosen = {"method": method, "stamp_column": _STAMP, "sweep_every": _SWEEP_EVERY, **flag}
    return {f"public.{name}": chosen for name in _KEYS}
