"""Writes a batch in parts: several sessions concurrently write shares of its rows, each in a transaction that is then prepared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace

import psycopg

from engine.model.batch import TableChanges
from engine.model.schema import KeyMode
from engine.model.target import BatchCommit, TableCommit
from engine.postgres.sessions import PostgresConnection
from engine.targets.postgres.changes import Place, Share, apply_share, shares
from engine.targets.postgres.errors import TARGET, fault_of_table
from engine.targets.postgres.identifiers import literal
from engine.targets.postgres.origins import Origins
from engine.targets.postgres.two_phase.recovery import PartId, database_of, finish, hold_as_part
from engine.targets.postgres.writer import roll_back
from engine.targets.rows_written import require_same


@dataclass(frozen=True, slots=True)
class Dealt:
    """A batch in parts: `rest` lacks the rows of `parts`; the first part is written by the session that writes the rest."""

    rest: BatchCommit
    parts: tuple[tuple[Share, ...], ...]


def deal(
    batch: BatchCommit,
    count: int,
    from_rows: int,
    standing: Callable[[TableCommit], bool],
    place_of: Callable[[TableCommit], Place],
    tied: Callable[[Sequence[str]], set[str]],
) -> Dealt | None:
    """Divide the batch into this many parts of about equal size; None if it has fewer than `from_rows` rows.

    `standing`: whether a table already has the schema of the batch's end; `tied`: which tables, by full quoted name, have rows that may
    block each other even with different keys.
    """
    fitting = [commit for commit in batch.tables if _parts_fit(commit) and standing(commit)]
    if count < 2 or sum(_rows(change) for commit in fitting for change in commit.changes) < from_rows:
        return None
    places = {commit.table: place_of(commit) for commit in fitting}
    hanging = tied([place.qualified for place in places.values()])
    free = [commit for commit in fitting if places[commit.table].qualified not in hanging]
    dealt = [shares(places[commit.table], commit.changes, count) for commit in free]
    if sum(share.rows for table in dealt for share in table) < from_rows:
        return None
    out = {commit.table for commit in free}
    tables = tuple(replace(commit, changes=()) if commit.table in out else commit for commit in batch.tables)
    parts = zip(*dealt, strict=True)
    return Dealt(replace(batch, tables=tables), tuple(tuple(s for s in part if s.rows) for part in parts))


def apply_part(connection: PostgresConnection, part: Sequence[Share]) -> None:
    """Apply a part in the caller's transaction. A fault of a table names it."""
    for share in part:
        try:
            require_same(share.place.table, share.wanted, apply_share(connection, share))
        except psycopg.Error as error:
            raise fault_of_table(error, share.place.table, of_owner=bool(share.place.types)) from error


class PartSessions:
    """The sessions that write parts. One batch at a time."""

    def __init__(self, connect: Callable[[], PostgresConnection], origins: Origins) -> None:
        """`connect` opens a session that writes, in autocommit mode; it raises EngineFault(TARGET_UNAVAILABLE)."""
        self._connect = connect
        self._origins = origins
        self._sessions: list[PostgresConnection] = []

    def begin(self, batch: BatchCommit, parts: Sequence[Sequence[Share]]) -> PartsUnderWay:
        """Begin to write parts of a batch."""
        usable = [session for session in self._sessions if not session.closed]
        while len(usable) < len(parts):
            usable.append(self._connect())
        self._sessions = usable
        try:
            database = database_of(usable[0])
        except psycopg.Error as error:
            raise TARGET.fault(error, "parts") from error
        ids = [PartId(database, batch.subscription, batch.epoch, batch.end, n) for n in range(1, len(parts) + 1)]
        return PartsUnderWay(batch, parts, ids, usable[: len(parts)], self._origins)

    def close(self) -> None:
        """Close the sessions. A later batch connects again."""
        sessions, self._sessions = self._sessions, []
        for session in sessions:
            session.close()


class PartsUnderWay:
    """Parts being written, one per session. `wait` for them, then `commit` or `roll_back`."""

    def __init__(
        self,
        batch: BatchCommit,
        parts: Sequence[Sequence[Share]],
        ids: Sequence[PartId],
        sessions: Sequence[PostgresConnection],
        origins: Origins,
    ) -> None:
        self._batch = batch
        self._origins = origins
        self._sessions = sessions
        self.ids = ids
        self._pool = ThreadPoolExecutor(len(parts), thread_name_prefix="part")
        self._written: list[Future[None]] = [
            self._pool.submit(self._write, session, part, which)
            for session, part, which in zip(sessions, parts, self.ids, strict=True)
        ]

    def wait(self) -> None:
        """Wait until all are prepared. Raises the EngineFault of the first that failed."""
        wait(self._written)
        for one in self._written:
            one.result()

    def commit(self) -> None:
        """Commit them concurrently. Raises EngineFault(TARGET_UNAVAILABLE): some of them are still prepared."""
        try:
            ended = [
                self._pool.submit(self._finish, session, which)
                for session, which in zip(self._sessions, self.ids, strict=True)
            ]
            wait(ended)
            for one in ended:
                one.result()
        finally:
            self._pool.shutdown()

    def leave(self) -> None:
        """Leave them prepared, to be ended once the outcome is known."""
        self._pool.shutdown()

    def roll_back(self) -> None:
        """Roll back what was written, as far as the database is reachable."""
        wait(self._written)
        self._pool.shutdown()
        for session, which in zip(self._sessions, self.ids, strict=True):
            with suppress(psycopg.Error):
                finish(session, [which], commit=False)

    def _write(self, session: PostgresConnection, part: Sequence[Share], which: PartId) -> None:
        try:
            session.execute("BEGIN")
            hold_as_part(session, self._batch.subscription, self._batch.epoch)
            apply_part(session, part)
            self._origins.stamp(session)
            session.execute(f"PREPARE TRANSACTION {literal(which.gid)}".encode())
        except psycopg.Error as error:
            roll_back(session)
            raise TARGET.fault(error, "parts") from error
        except BaseException:
            roll_back(session)
            raise

    def _finish(self, session: PostgresConnection, which: PartId) -> None:
        try:
            finish(session, [which], commit=True)
        except psycopg.Error as error:
            raise TARGET.fault(error, "parts") from error


def _rows(change: TableChanges) -> int:
    """Number of rows in a table's changes."""
    if change.staged:
        return sum(change.staged.values())
    return sum(rows.num_rows for rows in (change.deletes, change.inserts) if rows is not None)


def _parts_fit(commit: TableCommit) -> bool:
    """Whether a table's rows can be changed independently of each other, in any order."""
    if (
        not commit.ordinary
        or commit.compute is not None
        or commit.schema.mode is KeyMode.BAG
        or not commit.changes
        or len({change.piece for change in commit.changes}) != 1
    ):
        return False
    return all(c.partials is None and not c.truncated and c.fault is None for c in commit.changes)
