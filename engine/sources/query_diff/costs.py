"""What methods of finding changed rows cost by the source document's formulas, and what Penstock's cost here. Pure.

Costs are pages of 8 KiB that the source reads for one cycle (the document's: for one run, with the pages of the copy, which it keeps in the
same database; Penstock keeps keys and hashes on the engine's machine, and only for `outer_join` a copy too).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from engine.sources.query_diff.key_ranges import RANGE_ROWS


@dataclass(frozen=True, slots=True)
class Variables:
    """The document's variables, with its default values (table 2). Sizes in pages."""

    table: float = 1000.0
    """N."""
    stamped: float = 1.1
    """S, in N: the table with stamp and flag."""
    index: float = 0.1
    """I, in N: the index on the stamp."""
    height: float = 3.0
    """K: pages from the root of the index to a leaf."""
    changed: float = 0.01
    """A: the share of rows that change between two runs."""
    copy: float = 0.3
    """M, in N: the copy with the wanted columns only."""
    wanted: float = 0.1
    """W, in N: the copy if a tenth of the columns is wanted."""
    range_pages: float = 10.0
    """Pages of a range of keys."""
    ranges_per_page: float = 100.0
    """Rows of the list of ranges in one page."""


DEFAULTS = Variables()


def full_join(v: Variables = DEFAULTS) -> float:
    """MDS: the table and a full copy of it are joined."""
    return 2 * v.table


def full_join_sorted(v: Variables = DEFAULTS) -> float:
    """MDS at its worst: both are sorted before."""
    return 4 * v.table


def full_join_restricted(v: Variables = DEFAULTS) -> float:
    """MDS of few rows, found by an index: .03 N, and a page each for the copy and the index."""
    return 3 * v.changed * v.table + 2


def incremental(v: Variables = DEFAULTS) -> float:
    """ID: the table, a full copy, and the list of ranges."""
    return 2 * v.table + v.table / v.range_pages / v.ranges_per_page


def range_checksum(v: Variables = DEFAULTS) -> float:
    """ID/RCS: the table, the list of ranges, and the part of the copy that changed."""
    return v.table + v.table / v.range_pages / v.ranges_per_page + v.changed * v.copy * v.table


def row_checksum(v: Variables = DEFAULTS) -> float:
    """TLCS: the table, and the part of the copy that changed."""
    return v.table + v.changed * v.wanted * v.table


def timestamp(v: Variables = DEFAULTS) -> float:
    """TS: the table without an index on the stamp, and the part of the copy that changed."""
    return v.stamped * v.table + v.changed * v.table


def delete_flag(v: Variables = DEFAULTS) -> float:
    """TDI: by an index on the stamp, which leads to the table's changed part."""
    return v.stamped * v.changed * v.table + v.changed * v.table + v.index * v.changed * v.table + v.height


def delete_flag_covered(v: Variables = DEFAULTS) -> float:
    """ATDI: the index has all wanted columns."""
    return v.index * v.changed * v.table + v.changed * v.table + v.height


def delete_flag_projected(v: Variables = DEFAULTS) -> float:
    """ATDI with a copy of the wanted columns."""
    return v.index * v.changed * v.table + v.changed * v.copy * v.table + v.height


class Way(StrEnum):
    """How the changed rows of a table may be found: a method of the settings, with the index that it would use."""

    INCREMENTAL = "incremental"
    ROW_CHECKSUM = "row_checksum"
    RANGE_CHECKSUM = "range_checksum"
    OUTER_JOIN = "outer_join"
    TIMESTAMP = "timestamp"
    DELETE_FLAG = "timestamp_delete_flag"


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What of a table decides about its costs. `pages`, `rows`, `bytes`: estimates of the database; `ordered`: its key has an index whose
    order is known; `columns`: of the index on the stamp, `covers`: it has all wanted ones, which counts only for stamps."""

    pages: int
    rows: int
    bytes: int
    ordered: bool = True
    stamp: str | None = None
    flag: str | None = None
    indexed: bool = False
    covers: bool = False
    unique: bool = True
    """The database keeps the key unique."""
    joins: bool = False
    """The user may keep a copy of it on the source."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a scheduled cycle in which the share `Variables.changed` of the rows changed. `sent`: bytes over the network."""

    way: Way
    pages: float
    sent: float


_PAGE_BYTES = 8192
"""Of PostgreSQL, as usual. A page that is read and one that is sent count alike."""
_HASH_BYTES = 49.5
"""A key and two hashes as text, with an integer key of six digits. Measured with `tests.bench.query_cycles`."""
_RANGE_BYTES = 60.0
"""As in the code that compares."""


def costs(facts: TableFacts, v: Variables = DEFAULTS) -> list[Cost]:
    """What each possible method costs, the cheapest first; among equal ones, what loads the database least comes first.

    A cycle reads changed rows once more, by their keys; where a stamp has an index, twice by it: the rows, and the newest stamp.
    """
    changed = v.changed * facts.pages
    row_bytes = facts.bytes / facts.rows if facts.rows else 0.0
    moved = v.changed * facts.rows * row_bytes
    found = [Cost(Way.INCREMENTAL, float(facts.pages), float(facts.bytes))]
    found.append(Cost(Way.ROW_CHECKSUM, facts.pages + changed, facts.rows * _HASH_BYTES + moved))
    if facts.ordered and facts.unique:
        ranges = facts.rows / RANGE_ROWS
        different = min(ranges, v.changed * facts.rows)
        sent = ranges * _RANGE_BYTES + different * RANGE_ROWS * _HASH_BYTES + moved
        found.append(
            Cost(Way.RANGE_CHECKSUM, facts.pages * (1 + min(1.0, different / max(ranges, 1.0))) + changed, sent)
        )
    if facts.joins:
        # The copy is read once more, for its mark.
        pages = full_join(replace(v, table=float(facts.pages))) + facts.pages
        found.append(Cost(Way.OUTER_JOIN, pages, moved))
    if facts.stamp is not None and facts.unique:
        way = Way.TIMESTAMP if facts.flag is None else Way.DELETE_FLAG
        found.append(Cost(way, _by_stamp(facts, v) + changed, v.changed * facts.rows * _HASH_BYTES + moved))
    return sorted(found, key=lambda cost: (cost.pages + cost.sent / _PAGE_BYTES, cost.sent))


def _by_stamp(facts: TableFacts, v: Variables) -> float:
    """Pages for the rows whose stamps are recent, and for the newest stamp."""
    reads = 2 if facts.flag is None else 3
    if not facts.indexed:
        return float(reads * facts.pages)
    index = v.index * v.changed * facts.pages + v.height
    table = 0.0 if facts.covers else v.changed * facts.pages
    return (reads - 1) * (index + table) + v.height
