"""A PostgreSQL database of which something changes between two statements of a cycle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from engine.model.identity import TableName
from engine.model.source import TableSplit
from engine.model.subscription import ConnectionSpec
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.reads import PostgresReads
from engine.sources.postgres.splits import PLAIN, ReadRules
from engine.sources.postgres_queries.compared import AS_THEY_ARE, Compared
from engine.sources.postgres_queries.database import PostgresDatabase
from engine.sources.postgres_queries.outer_join import PostgresCopies, PostgresCopyJoin
from engine.sources.query_diff.database import ComparedTable
from engine.sources.query_diff.key_ranges import ALL_KEYS, DigestedRange, KeyRange, Page
from engine.sources.query_diff.stamps import Since
from tests.fixtures.postgres import Database

READER = "meddled_reader"
_ROLE = f"DO $$ BEGIN CREATE ROLE {READER} LOGIN; EXCEPTION WHEN duplicate_object THEN END $$"
_END = f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = '{READER}'"


def reader_of(database: Database) -> ConnectionSpec:
    """A connection whose user may read, and keep copies."""
    database.execute(_ROLE)
    database.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {READER}")
    database.execute(f"CREATE SCHEMA IF NOT EXISTS penstock; GRANT USAGE, CREATE ON SCHEMA penstock TO {READER}")
    return ConnectionSpec("shop", "postgres", {**database.settings, "user": READER})


def end_sessions(database: Database) -> None:
    """Those of the reader."""
    database.execute(_END)


class Meddled(PostgresDatabase):
    """`before` is called before each read of a cycle, with the table and the snapshot."""

    def __init__(self, spec: ConnectionSpec, rules: ReadRules = PLAIN, compared: Compared = AS_THEY_ARE) -> None:
        super().__init__(Connector(spec), compared, rules)
        self.before: Callable[[TableName, str], None] = lambda table, snapshot: None
        self.cycle_reads = _MeddledReads(self._connector, rules, self)
        self.copies = _MeddledCopies(self._connector, rules, self)

    def hashed_rows(
        self,
        table: ComparedTable,
        snapshot: str,
        ranges: Sequence[KeyRange] | None = None,
        since: Since | None = None,
    ) -> Iterator[bytes]:
        self.before(table.schema.name, snapshot)
        return super().hashed_rows(table, snapshot, ranges, since)

    def placed_rows(
        self, table: ComparedTable, snapshot: str, firsts: Sequence[tuple[str, ...]]
    ) -> Iterator[bytes] | None:
        self.before(table.schema.name, snapshot)
        return super().placed_rows(table, snapshot, firsts)

    def range_digests(
        self, table: ComparedTable, snapshot: str, firsts: Sequence[tuple[str, ...]], within: KeyRange = ALL_KEYS
    ) -> list[DigestedRange]:
        self.before(table.schema.name, snapshot)
        return super().range_digests(table, snapshot, firsts, within)

    def page(self, table: ComparedTable, snapshot: str, page: Page, *, hashed: bool) -> Iterator[bytes]:
        self.before(table.schema.name, snapshot)
        return super().page(table, snapshot, page, hashed=hashed)

    def rows_since(self, table: ComparedTable, snapshot: str, since: Since) -> Iterator[bytes]:
        self.before(table.schema.name, snapshot)
        return super().rows_since(table, snapshot, since)

    def newest_stamp(self, table: ComparedTable, snapshot: str, column: str, overlap_s: float) -> str | None:
        self.before(table.schema.name, snapshot)
        return super().newest_stamp(table, snapshot, column, overlap_s)


class _MeddledReads(PostgresReads):
    def __init__(self, connector: Connector, rules: ReadRules, owner: Meddled) -> None:
        super().__init__(connector, rules)
        self._owner = owner

    def read_split(self, split: TableSplit, snapshot: str) -> Iterator[bytes]:
        assert split.reads is not None
        self._owner.before(split.reads, snapshot)
        return super().read_split(split, snapshot)


class _MeddledCopies(PostgresCopies):
    def __init__(self, connector: Connector, rules: ReadRules, owner: Meddled) -> None:
        super().__init__(connector, rules)
        self._owner = owner

    @contextmanager
    def join(self, table: ComparedTable, snapshot: str, copy: str) -> Iterator[PostgresCopyJoin]:
        self._owner.before(table.schema.name, snapshot)
        with super().join(table, snapshot, copy) as join:
            # In the transaction that writes to the copy.
            self._owner.before(table.schema.name, snapshot)
            yield join
            self._owner.before(table.schema.name, snapshot)


def once(act: Callable[[], object], at: int = 1, of: str | None = None) -> Callable[[TableName, str], None]:
    """Acts before the read with this number, of all or of this table."""
    left = at

    def before(table: TableName, snapshot: str) -> None:
        nonlocal left
        del snapshot
        if of in {None, table.name}:
            left -= 1
            if left == 0:
                act()

    return before
