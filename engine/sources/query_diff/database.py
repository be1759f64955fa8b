"""What capture by queries needs of one kind of database: each implements `ComparedDatabase` in a folder of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from engine.model.copies import KeyBound
from engine.model.identity import RelationId, TableName
from engine.model.quarantine import Texts
from engine.model.ranges import KeySample, RangeSource
from engine.model.row_filter import RowFilter
from engine.model.schema import TableSchema
from engine.model.sequences import SequenceReader
from engine.model.source import (
    ComputedColumns,
    DiscoveredTable,
    Finding,
    KeyWalk,
    Resolve,
    SourceTerms,
    TableSplit,
)
from engine.model.subscription import OriginFilter, TableSpec
from engine.sources.query_diff.key_ranges import ALL_KEYS, DigestedRange, KeyRange, Page
from engine.sources.query_diff.stamps import Since, Stamp

if TYPE_CHECKING:
    from engine.sources.query_diff.source_copies import SourceCopies

KEYLESS = (
    "rows have NULL in a column of the declared key, or the same key as another row; or they were not there when a view was read again in"
    " one snapshot, as with now() or LIMIT, which the method incremental does not do"
)
"""Why a table with a declared key cannot be compared."""


class Method(StrEnum):
    """How the changed rows of a table are found."""

    INCREMENTAL = "incremental"
    """All rows are read, and hashed here."""
    ROW_CHECKSUM = "row_checksum"
    """The database hashes the rows; keys and hashes are read, and then the rows whose hash changed."""
    RANGE_CHECKSUM = "range_checksum"
    """The database hashes ranges of the key; of those that differ keys and hashes are read, and then the rows whose hash changed."""
    OUTER_JOIN = "outer_join"
    """The database joins the table with a copy of it, which it keeps; the rows that differ are read. Hashes are those of INCREMENTAL."""
    KEYS = "keys"
    """Keys are kept, and no hashes. Only keys are read where the database finds the rows with new keys by these. Not declared: it takes the
    place of others if updates are not followed."""


DECLARED = tuple(method for method in Method if method is not Method.KEYS)
"""The methods that a subscription can name."""


@dataclass(frozen=True, slots=True)
class ComparedTable:
    """A table as it is now. `schema`: with all of its columns, unmasked, and the key that identifies a row; `spec`: of the reads;
    `record`: its relation record; `unreadable`: a record that matches no structure; `stamps`: columns that may be stamps; `keyless`: only
    of a table whose key is declared, and not kept unique by the database: the record which says that rows have no key of their own;
    `hashes`: the form in which the database hashes its rows, of those that it can; `below`: of a view whose rows are found by the stamps of
    relations below it; `in_key_order`: see `table_walk`; False where cycles have one snapshot; `generation`: stamps count only
    as long as this text stays the same."""

    schema: TableSchema
    spec: TableSpec
    record: bytes
    unreadable: bytes
    stamps: frozenset[str] = frozenset()
    keyless: bytes = b""
    hashes: str = ""
    below: tuple[StampBelow, ...] = ()
    in_key_order: bool = False
    generation: str = ""

    @property
    def key_places(self) -> tuple[int, ...]:
        names = [column.name for column in self.schema.columns]
        return tuple(names.index(name) for name in self.schema.key)


@dataclass(frozen=True, slots=True)
class StampBelow:
    """A relation below a view, whose changed rows say which rows of the view may have changed. `name`: of the stamp, other if the view, or
    what is declared, is another one; `relation`: as a table whose key are the columns that say so; `columns`: of the view, with equal
    values; `places`: of these in the view's key, if all of them are part of it."""

    name: str
    relation: ComparedTable
    stamp: str
    columns: tuple[str, ...]
    places: tuple[int, ...] | None


class DatabaseReads(Protocol):
    """Reads under a snapshot; each method is that of SnapshotSource."""

    def splits(self, schema: TableSchema, spec: TableSpec, split_bytes: int) -> list[TableSplit]: ...

    def key_splits(self, schema: TableSchema, spec: TableSpec, keys: Sequence[Texts]) -> list[TableSplit]: ...

    def walk_key(
        self,
        schema: TableSchema,
        after: KeyBound | None,
        split_bytes: int,
        most_splits: int,
        above_bytes: int | None = None,
    ) -> KeyWalk | None: ...

    def sample_key(self, schema: TableSchema, share: float, seed: str) -> KeySample | None: ...

    def read_split(self, split: TableSplit, snapshot: str) -> Iterator[bytes]: ...

    def ranges(self, schema: TableSchema) -> RangeSource: ...


class ComparedDatabase(Protocol):
    """A database that is only queried. Methods may be called from several threads, and raise EngineFault as those of Source."""

    terms: SourceTerms
    statement_bytes: int
    """Bytes of a table, estimated, that one statement of a cycle reads."""
    reads: DatabaseReads
    cycle_reads: DatabaseReads
    """As `reads`, with the limits that cycles have."""
    sequences: SequenceReader
    computed: ComputedColumns
    copies: SourceCopies
    """For OUTER_JOIN."""

    def snapshot(self, timeout_s: float) -> AbstractContextManager[str]:
        """A snapshot of the whole database that other sessions, also of other processes, can read while the context lasts."""
        ...

    def adopted(self, snapshot: str) -> AbstractContextManager[str] | None:
        """A snapshot of another process, by a name that stays valid while the context lasts, whatever that process does. None if no
        session but its own can keep it. The context raises EngineFault(COPY_LOST) if it is over."""
        ...

    def flagged_splits(self, table: ComparedTable, filters: Sequence[RowFilter | None]) -> list[TableSplit] | None:
        """Splits of the rows that meet one of these row filters, whatever that of the table is. After the columns each line has, for each
        filter, `t` if the row meets it, else `f`; None is met by all rows. None if the database cannot say."""
        ...

    def tables(self, followed: Mapping[TableName, str | None]) -> dict[TableName, ComparedTable]:
        """These tables as they are now, by name, with their row filters; those that are gone, or have no key, are left out."""
        ...

    def methods(self, table: ComparedTable) -> frozenset[Method]:
        """How it can be compared, without OUTER_JOIN: see `copies`."""
        ...

    def hashed_rows(
        self,
        table: ComparedTable,
        snapshot: str,
        ranges: Sequence[KeyRange] | None = None,
        since: Since | None = None,
    ) -> Iterator[bytes]:
        """COPY text in pieces of whole lines: a number, the key's fields and the hashes of each row, as `row_digest.hashed_lines` takes it.

        `ranges`: only rows in these, range by range in key order; the number is that of the range. None: all rows in any order. `since`:
        only rows whose stamps are not older, or that were touched. For methods by checksum only.
        """
        ...

    def placed_rows(
        self, table: ComparedTable, snapshot: str, firsts: Sequence[tuple[str, ...]]
    ) -> Iterator[bytes] | None:
        """As `hashed_rows`, of all rows in any order, with the number of each row's range: `firsts` are the first keys of all but the first
        one. None if the database cannot look them up. For RANGE_CHECKSUM only."""
        ...

    def range_digests(
        self, table: ComparedTable, snapshot: str, firsts: Sequence[tuple[str, ...]], within: KeyRange = ALL_KEYS
    ) -> list[DigestedRange]:
        """Digests of all ranges `within` these keys: `firsts` are the first keys of all but the first one. For RANGE_CHECKSUM only."""
        ...

    def page(self, table: ComparedTable, snapshot: str, page: Page, *, hashed: bool) -> Iterator[bytes]:
        """COPY text in pieces of whole lines: the rows of a page in key order; `hashed`: as of `hashed_rows`, with the number 0. The rows
        count only if the iterator ends without a fault. For a table with `in_key_order` only."""
        ...

    def rows_since(self, table: ComparedTable, snapshot: str, since: Since) -> Iterator[bytes]:
        """COPY text in pieces of whole lines: the rows whose stamps are not older, or that were touched. For a table with stamps, or a view
        with stamps below it."""
        ...

    def left_since(self, table: ComparedTable, snapshot: str, since: Stamp) -> Iterator[bytes]:
        """COPY text in pieces of whole lines: the keys of rows whose stamps are not older, and which do not meet the row filter. For a
        table with stamps and a row filter."""
        ...

    def newest_stamp(self, table: ComparedTable, snapshot: str, column: str, overlap_s: float) -> str | None:
        """The newest value of a stamp in any row, less so many seconds, as text; None without rows. For a table with stamps."""
        ...

    def open_for_s(self) -> float:
        """For how many seconds the oldest open transaction may have been open, whose stamps may be as old; 0 without stamps."""
        ...

    def resolver(self, payloads: Collection[bytes]) -> Resolve:
        """See LogSource.resolver."""
        ...

    def mark(self, tables: Collection[TableName]) -> str:
        """Text that changes with the structure of these tables."""
        ...

    def server_version(self) -> int: ...

    def preflight(self, tables: Sequence[TableSpec], origin: OriginFilter) -> list[Finding]: ...

    def discover(self) -> list[DiscoveredTable]: ...

    def describe(self, tables: Sequence[TableSpec]) -> dict[TableName, TableSchema]: ...

    def names(self, relations: Collection[RelationId]) -> dict[RelationId, TableName]: ...

    def standing(self, schemas: Collection[str]) -> dict[RelationId, TableName]: ...

    def close(self) -> None: ...
