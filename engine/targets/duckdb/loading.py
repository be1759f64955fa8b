"""Rows of a copy, in DuckDB transactions beside the writer's: others commit while they are inserted.

DuckDB writes whole row groups to the file as they fill up. What is left of them at a COMMIT goes to the write-ahead log, which the
writer's next commits have to fold in; and while a transaction is open it keeps every version of what the writer updates. So rows
are held back until they fill row groups, and each transaction is over in a moment.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import duckdb
import pyarrow as pa

from engine.model.fault import EngineFault, FaultKind
from engine.targets.duckdb.changes import Place, insert_rows
from engine.targets.duckdb.database import Database, roll_back, transaction

ROW_GROUP = 122_880
"""DuckDB's own."""
HELD_BYTES = 128 * 1024 * 1024
"""Rows of one copy that wait for a row group to be full take no more memory than this."""


class CopyLoad:
    """What is being inserted into one hidden table. The target's own lock is never asked for while this one's is held.

    Methods raise duckdb.Error, and EngineFault(COPY_FAILED) where it was given up or rows are missing; behind either nothing but
    `give_up` is of use.
    """

    def __init__(self, database: Database, place: Place) -> None:
        self.database = database
        self._place = place
        self._lock = threading.Lock()
        """Held while the connection is in use."""
        self._connection = database.further_writer()
        self._held: list[Any] = []
        self._rows = self._bytes = 0
        """Of what is held."""
        self._over = False

    def append(self, rows: Any) -> int:
        """Take staged rows; they are inserted once they fill a row group, or by `finish`."""
        with self._lock:
            self._refuse_over()
            self._held.append(rows)
            self._rows += rows.num_rows
            self._bytes += rows.nbytes
            if self._rows >= ROW_GROUP or self._bytes >= HELD_BYTES:
                self._insert()
            return int(rows.num_rows)

    def finish(self) -> None:
        """Insert what is held, and let the connection go."""
        with self._lock:
            self._refuse_over()
            if self._held:
                self._insert()
            self._end()

    def give_up(self) -> None:
        """What was not inserted yet never will be. From any thread; safe to repeat."""
        if not self._over:
            with suppress(duckdb.Error):  # it ended just now
                self._connection.interrupt()
            with self._lock:
                self._end()

    def _insert(self) -> None:
        with transaction(self._connection):
            taken = insert_rows(self._connection, self._place, pa.concat_tables(self._held))
        if taken != self._rows:
            detail = f"the target took {taken} of {self._rows} copied rows"
            raise EngineFault(FaultKind.COPY_FAILED, self._place.table, detail)
        self._held, self._rows, self._bytes = [], 0, 0

    def _refuse_over(self) -> None:
        if self._over:
            raise EngineFault(FaultKind.COPY_FAILED, self._place.table, "the copy was given up")

    def _end(self) -> None:
        if not self._over:
            self._over, self._held = True, []
            roll_back(self._connection)
            with suppress(duckdb.Error):
                self._connection.close()
