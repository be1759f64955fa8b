"""Tables of several nodes: a row that comes to a key replaces the one that has it, from before the batch or of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.batch import LogRange, SealedBatch, TableChanges
from engine.model.identity import BatchId
from engine.model.position import Lsn
from engine.model.schema import TableSchema
from engine.model.target import TableCommit
from engine.pipeline.compute import Computed, Scans
from engine.pipeline.ledger import Decided, balanced
from engine.tables.planner import PlannedBatch
from tests.unit.net import pgoutput_encoder as pgoutput
from tests.unit.net.batch_builder import part, rows, task
from tests.unit.net.dictionary_target import Marked, apply_keyed, apply_soft
from tests.unit.net.history_model import OID, History, Row, Step, Transaction
from tests.unit.net.test_soft_delete_property import PLAIN, ROWS, TRANSACTIONS, one_by_one, shares_of
from tests.unit.net.test_versions_property import batches, check_times
from tests.unit.net.version_oracle import Versions, apply_slice, oracle

SCATTERED = replace(PLAIN, scattered=True)
EXAMPLES = int(os.environ.get("SCATTERED_EXAMPLES", "150"))
"""Examples of each property. 10,000 of each were run once, in some minutes."""
_CASE = (ROWS, TRANSACTIONS, st.booleans(), st.integers(1, 3), st.sets(st.integers(1, 8), max_size=3))
"""Rows from before, transactions, whether whole old rows are logged, buckets, and the transactions with which batches end."""


def step(verb: str, row: int, other: int, text: int = 2) -> Step:
    return Step(verb, row, other, text, keep=False)


def run(initial: list[Row], transactions: list[Transaction], *, full: bool = False) -> tuple[dict[int, Row], History]:
    """The rows from before, and what the transactions leave of them."""
    before = {row[0]: row for row in initial}
    history = History(list(before.values()), full, keyed=True, replacing=True)
    for transaction in transactions:
        history.run(transaction)
    return before, history


def netted(
    records: Sequence[bytes], ranges: Sequence[LogRange], schema: TableSchema, buckets: int
) -> list[TableChanges]:
    """The net changes of a batch of these ranges in all buckets, without a fault. Their ledger balances."""
    given = part(schema)
    results = [task(records, [given], ranges, bucket, buckets) for bucket in range(buckets)]
    shares = [share for result in results for share in result.tables]
    assert [share.fault for share in shares if share.fault] == []
    scans = Scans()
    scans.add([result.tally for result in results], apart=False)
    batch = SealedBatch(Lsn(0), Lsn(1), 1, tuple(ranges), (), 0, 0)
    planned = PlannedBatch(BatchId(1), batch, tuple(ranges), (given,), frozenset())
    computed = Computed(planned, tuple(shares), 0, "driver", 0.0, 0, 0.0, scans=scans)
    commit = TableCommit(given.table, schema, schema.name, tuple(share for share in shares if not share.is_empty))
    ledger = balanced(computed, Decided({given.table: commit}, (), {given.table}, ()))
    entry = ledger.tables.get(given.table)
    assert entry is None or min(entry.applied, entry.netted) >= 0
    return shares


def slices(history: History, borders: set[int], *, sliced: bool) -> Iterator[list[LogRange]]:
    """The ranges that are netted together: of a batch, or each chunk of a streamed transaction by itself."""
    for batch in batches(history.log()[1], borders):
        yield from [[one] for one in batch] if sliced else [batch]


@settings(deadline=None, max_examples=EXAMPLES)
@given(*_CASE, st.booleans())
def test_rows_replace_those_with_their_keys(
    initial: list[Row], transactions: list[Transaction], full: bool, buckets: int, borders: set[int], sliced: bool
) -> None:
    before, history = run(initial, transactions, full=full)
    records, found = history.log()[0], list(before.values())
    for some in slices(history, borders, sliced=sliced):
        found = apply_keyed(found, netted(records, some, SCATTERED, buckets))
    assert sorted(found, key=repr) == sorted(history.rows, key=repr)


@settings(deadline=None, max_examples=EXAMPLES)
@given(*_CASE)
def test_a_replaced_row_is_not_marked_as_deleted(
    initial: list[Row], transactions: list[Transaction], full: bool, buckets: int, borders: set[int]
) -> None:
    before, history = run(initial, transactions, full=full)
    records, ranges = history.log()
    live, marked = dict(before), Marked()
    one_by_one(live, marked, shares_of(records, ranges, PLAIN, 1, in_order=True))
    assert sorted(live.values(), key=repr) == sorted(history.rows, key=repr)
    found, gone = dict(before), Marked()
    for some in batches(ranges, borders):
        apply_soft(found, gone, netted(records, some, replace(SCATTERED, soft_delete=True), buckets))
    assert (found, gone) == (live, marked)


@settings(deadline=None, max_examples=EXAMPLES)
@given(*_CASE, st.booleans())
def test_the_version_of_a_replaced_row_ends(
    initial: list[Row], transactions: list[Transaction], full: bool, buckets: int, borders: set[int], sliced: bool
) -> None:
    before, history = run(initial, transactions, full=full)
    records, ranges = history.log()
    expected = oracle(list(before.values()), shares_of(records, ranges, PLAIN, 1, in_order=True))
    found = Versions.initial(before.values())
    for some in slices(history, borders, sliced=sliced):
        shares = netted(records, some, replace(SCATTERED, history=True), buckets)
        check_times(shares)
        apply_slice(found, shares)
    assert found.all() == expected.all()
    assert {row for row, _ in found.current.values()} == set(history.rows)


NEW = ["1", "x", "x"]
INSERT = pgoutput.insert(OID, NEW, 0)
UPDATE = pgoutput.update(OID, ["1", "y", pgoutput.UNCHANGED], None, "K", 0)
DELETE = pgoutput.delete(OID, ["1", None, None], "K", 0)
MOVE = pgoutput.update(OID, ["2", "x", "x"], ["1", None, None], "K", 0)


@pytest.mark.parametrize(
    ("records", "inserts", "deletes", "replaced"),
    [
        ([INSERT], [(1, "x", "x")], [], [(1,)]),
        ([INSERT, UPDATE], [(1, "y", "x")], [], [(1,)]),
        ([INSERT, DELETE], [], [], [(1,)]),
        ([INSERT, INSERT], [(1, "x", "x")], [], [(1,)]),
        ([DELETE, INSERT], [(1, "x", "x")], [(1,)], []),
        ([UPDATE, INSERT], [(1, "x", "x")], [(1,)], []),
        ([INSERT, MOVE], [(2, "x", "x")], [], [(1,), (2,)]),
        ([MOVE], [(2, "x", "x")], [(1,)], [(2,)]),
    ],
    ids=["I", "IU", "ID", "II", "DI", "UI", "IM", "M"],
)
def test_what_a_target_gets(
    records: list[bytes], inserts: list[Row], deletes: list[tuple[int]], replaced: list[tuple[int]]
) -> None:
    """A row is only deleted for certain if a change shows that it was there."""
    (share,) = task(records, [part(SCATTERED)]).tables
    assert share.fault is None
    assert sorted(rows(share.inserts)) == inserts
    assert sorted(rows(share.deletes)) == deletes
    assert sorted(rows(share.replaced)) == replaced
    assert share.staged.get("replace", 0) == len(replaced)


def test_other_tables_park_where_a_row_comes_to_a_key_in_use() -> None:
    (share,) = task([INSERT, INSERT], [part(PLAIN)]).tables
    assert share.fault is not None
    assert share.fault.detail == "two rows have the same key"
