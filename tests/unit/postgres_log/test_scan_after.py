"""A run of plain transactions that a table's `after` falls into: each counts by its own commit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.batch import LogRange, TablePart
from engine.model.identity import Ordinal
from engine.model.position import Lsn
from engine.records.scan import RecordScanner
from tests.unit.net import pgoutput_encoder as pgoutput
from tests.unit.net.batch_builder import column, part, table

COMMIT_BYTES = 0x30
TABLES = [table([column("id")], ["id"], oid=oid) for oid in (1, 2)]


def run_of(starts: list[int]) -> list[bytes]:
    """One transaction per start of a commit record: a row of each table, a truncate of the first, a relation record of the second."""
    records = []
    for start in starts:
        records += [
            pgoutput.begin(start, start & 0xFFFF),
            pgoutput.insert(1, ["a"]),
            pgoutput.truncate([1]),
            pgoutput.relation(2, ["id"]),
            pgoutput.insert(2, ["b"]),
            pgoutput.commit(start, start + COMMIT_BYTES),
        ]
    return records


def scanned(records: list[bytes], parts: list[TablePart], end: int, xid: int = 0) -> list[tuple[int, int, int]]:
    """(operation, relation, version) of what one range over all records gives."""
    data, offsets = pgoutput.pack(records)
    first = np.arange(len(records), dtype=np.int64)
    whole = LogRange(Ordinal(0), Ordinal(len(records)), Lsn(end), xid)
    found = RecordScanner().scan(data, offsets.astype(np.int64), first, [whole], parts)
    return list(zip(found.op.tolist(), found.relation.tolist(), found.version.tolist(), strict=True))


def expected(starts: list[int], after: list[int]) -> list[tuple[int, int, int]]:
    found = []
    for number, start in enumerate(starts, 1):
        end = start + COMMIT_BYTES
        if end > after[0]:
            found += [(1, 1, 0), (4, 1, 0)]
        if end > after[1]:
            found.append((1, 2, number))
    return found


STARTS = [0x1000, 0x1200, 0x1200 + COMMIT_BYTES, 0x2000]
"""The third transaction's commit record begins where the second one's ends."""


@pytest.mark.parametrize(
    ("after", "left"),
    [
        (0, 4),
        (0x1000, 4),  # the border before the first commit record
        (0x1000 + COMMIT_BYTES, 3),  # its end, exactly
        (0x1000 + COMMIT_BYTES + 0x40, 3),  # a border within the second transaction
        (0x1200, 3),
        (0x1200 + COMMIT_BYTES, 2),  # an end, and the start of the next commit record
        (0x1200 + 2 * COMMIT_BYTES, 1),
        (0x2000, 1),
        (0x2000 + COMMIT_BYTES, 0),
        (0x2000 + COMMIT_BYTES + 0x40, 0),
    ],
)
def test_transactions_that_end_behind_it_count(after: int, left: int) -> None:
    end = STARTS[-1] + COMMIT_BYTES
    found = scanned(run_of(STARTS), [part(TABLES[0], after=after)], end)
    assert found == [(1, 1, 0), (4, 1, 0)] * left


def test_each_table_has_its_own() -> None:
    after = [STARTS[1] + COMMIT_BYTES, STARTS[0] + COMMIT_BYTES]
    parts = [part(one, after=at) for one, at in zip(TABLES, after, strict=True)]
    found = scanned(run_of(STARTS), parts, STARTS[-1] + COMMIT_BYTES)
    assert found == expected(STARTS, after)
    # Relation records of transactions that do not count move the version all the same.
    assert [version for _, oid, version in found if oid == 2] == [2, 3, 4]


def test_positions_above_half_of_their_range() -> None:
    starts = [2**63 + at for at in STARTS]
    for at, left in ((starts[1], 3), (starts[1] + COMMIT_BYTES, 2)):
        found = scanned(run_of(starts), [part(TABLES[0], after=at)], starts[-1] + COMMIT_BYTES)
        assert len(found) == 2 * left


def test_a_streamed_range_counts_by_its_own_end() -> None:
    records = [pgoutput.insert(1, ["a"], xid=9), pgoutput.insert(1, ["b"], xid=10)]
    assert scanned(records, [part(TABLES[0], after=50)], 51, xid=9) == [(1, 1, 0)] * 2
    assert scanned(records, [part(TABLES[0], after=51)], 51, xid=9) == []


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_any_run_and_any_record_border(data: st.DataObject) -> None:
    gaps = data.draw(st.lists(st.sampled_from([0, 8, 0x100]), min_size=1, max_size=6))
    starts, at = [], 0x1000
    for gap in gaps:
        starts.append(at + gap)
        at += gap + COMMIT_BYTES
    borders = sorted({*starts, *(start + COMMIT_BYTES for start in starts), 0x800, at + 8})
    after = data.draw(st.tuples(st.sampled_from(borders), st.sampled_from(borders)))
    parts = [part(one, after=one_after) for one, one_after in zip(TABLES, after, strict=True)]
    assert scanned(run_of(starts), parts, at) == expected(starts, list(after))
