"""Inserts the rows of a copy in DuckDB transactions concurrent with the writer's, so that batches are committed meanwhile.

DuckDB writes complete row groups directly to the file. An incomplete row group at a COMMIT goes to the write-ahead log, which later
commits of the writer must checkpoint; and an open transaction retains every version of rows that the writer updates. Rows are therefore
held back until they fill row groups, and each transaction is short.
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
"""DuckDB's row group size."""
HELD_BYTES = 128 * 1024 * 1024
"""Limit of memory for the rows of one copy that wait for a full row group."""


class CopyLoad:
    """The insertion into one hidden table. The target's lock is never requested while this one's is held.

    Methods raise duckdb.Error, or EngineFault(COPY_FAILED) if it was given up or rows are missing; after either, only `give_up` may be
    called.
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
        """Add staged rows; they are inserted when they fill a row group, or by `finish`."""
        with self._lock:
            self._refuse_over()
            self._held.append(rows)
            self._rows += rows.num_rows
            self._bytes += rows.nbytes
            if self._rows >= ROW_GROUP or self._bytes >= HELD_BYTES:
                self._insert()
            return int(rows.num_rows)

    def finish(self) -> None:
        """Insert the held rows and close the connection."""
        with self._lock:
            self._refuse_over()
            if self._held:
                self._insert()
            self._end()

    def give_up(self) -> None:
        """Discard all rows that were not inserted yet. Callable from any thread; idempotent."""
        if not self._over:
            with suppress(duckdb.Error):  # it has just ended
                self._connection.interrupt()
            with self._lock:
                self._end()

    def _insert(self) -> None:
        with transaction(self._connection):
            taken = insert_rows(self._connection, self._place, pa.concat_tables(self._held))
        if taken != self._rows:
            detail = f"the target accepted {taken} of {self._rows} copied rows"
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
