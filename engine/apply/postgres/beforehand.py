"""Many rows of the next batch, brought to the database over a second connection beside the commit of the batch before it.

They lie in temporary tables of an open transaction, or, where they are only inserted, in the tables themselves, seen by nobody. When
the batch's turn comes the same transaction does the rest and is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psycopg

from engine.apply.postgres.changes import BroughtTable, Place, bring_table
from engine.apply.postgres.lanes import tied_tables
from engine.apply.postgres.staging import copy_above
from engine.model.batch import TableChanges
from engine.model.fault import EngineFault
from engine.model.identity import TableId
from engine.model.schema import KeyMode
from engine.model.target import BatchCommit, TableCommit
from engine.postgres.sessions import PostgresConnection

_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '1s'"
"""A row of the batch under way may be in the way of one of these; it is not worth a long wait."""


@dataclass(slots=True)
class BroughtTables:
    """Implements BroughtRows: an open transaction and what it holds."""

    connection: PostgresConnection
    commits: Mapping[TableId, TableCommit]
    tables: Mapping[TableId, BroughtTable]
    done: Callable[[PostgresConnection], None]
    """Takes the connection back, with or without a transaction."""
    over: bool = False
    """The connection is somebody else's now."""

    def fits(self, batch: BatchCommit) -> bool:
        """Whether all of it belongs to this batch, unchanged."""
        found = {commit.table: commit for commit in batch.tables}
        return all(_same(commit, found.get(table)) for table, commit in self.commits.items())

    def discard(self) -> None:
        if not self.over:
            self.over = True
            self.done(self.connection)


def bring(
    connection: PostgresConnection,
    commits: Sequence[TableCommit],
    place_of: Callable[[TableCommit], Place],
    done: Callable[[PostgresConnection], None],
) -> BroughtTables | None:
    """Begin a transaction and bring what is many of these tables' changes. None, and no transaction, where that is nothing, or fails."""
    few = copy_above(connection)
    worth = [commit for commit in commits if _worth(commit, few)]
    if not worth:
        done(connection)
        return None
    tables: dict[TableId, BroughtTable] = {}
    try:
        connection.execute("BEGIN")
        connection.execute(_LOCK_TIMEOUT)
        places = {commit.table: place_of(commit) for commit in worth}
        tied = tied_tables(connection, [place.qualified for place in places.values()])
        for number, commit in enumerate(worth):
            place = places[commit.table]
            insert = place.qualified not in tied
            brought = bring_table(connection, place, commit.changes, number, insert=insert)
            if brought is not None:
                tables[commit.table] = brought
        connection.execute("SET LOCAL lock_timeout TO DEFAULT")
    except (psycopg.Error, EngineFault):
        # Whatever it is, the commit meets it again and says whose fault it is.
        tables.clear()
    if not tables:
        with suppress(psycopg.Error):
            connection.execute("ROLLBACK")
        done(connection)
        return None
    return BroughtTables(connection, {c.table: c for c in worth if c.table in tables}, tables, done)


def _worth(commit: TableCommit, few: int) -> bool:
    """Whether its changes can be brought beforehand at all, and are many."""
    if commit.handover or commit.resumed or commit.parked is not None or len({c.piece for c in commit.changes}) != 1:
        return False
    if any(c.truncated or c.fault is not None or c.in_order is not None for c in commit.changes):
        return False
    if commit.schema.mode is KeyMode.BAG and any(c.deletes is not None for c in commit.changes):
        return False
    return sum(rows_of(change) for change in commit.changes) > few


def rows_of(change: TableChanges) -> int:
    """Rows that a table's changes hold, wherever they lie."""
    if change.staged:
        return sum(change.staged.values())
    return sum(rows.num_rows for rows in (change.deletes, change.inserts, change.partials) if rows is not None)


def _same(brought: TableCommit, commit: TableCommit | None) -> bool:
    if commit is None or (commit.schema, commit.target) != (brought.schema, brought.target):
        return False
    if commit.handover or commit.resumed or commit.parked is not None or len(commit.changes) != len(brought.changes):
        return False
    return all(one is other for one, other in zip(commit.changes, brought.changes, strict=True))
