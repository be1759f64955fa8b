"""Soft delete: the net changes give the rows and the deleted rows that the changes give one by one, however they are batched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.model.batch import LogRange, TableChanges
from engine.model.schema import TableSchema
from tests.unit.net.batch_builder import column, part, table, task
from tests.unit.net.dictionary_target import Marked, apply_soft
from tests.unit.net.history_model import ENDS, OID, History, Row, Step, Transaction, time_of
from tests.unit.net.history_strategies import PARTS

_COLUMNS = [column("id", "int4"), column("a"), column("big")]
PLAIN = table(_COLUMNS, ["id"], oid=OID)
SOFT = replace(PLAIN, soft_delete=True)
_NUMBERS = st.integers(0, 7)
TRANSACTIONS = st.lists(
    st.builds(Transaction, PARTS, st.lists(st.integers(0, 4), max_size=3), st.lists(_NUMBERS, min_size=1, max_size=3)),
    max_size=8,
)
ROWS = st.lists(st.tuples(_NUMBERS, st.sampled_from([None, "x"]), st.sampled_from([None, "long value"])), max_size=6)


def shares_of(
    records: Sequence[bytes], ranges: Sequence[LogRange], schema: TableSchema, buckets: int, *, in_order: bool = False
) -> list[TableChanges]:
    """The changes of the table in all buckets."""
    return [
        changes
        for bucket in range(buckets)
        for changes in task(records, [part(schema)], ranges, bucket, buckets, in_order=in_order).tables
    ]


def one_by_one(live: dict[int, Row], marked: Marked, shares: Sequence[TableChanges]) -> None:
    """Apply changes in log order (`TableChanges.in_order`)."""
    changes = [row for share in shares if share.in_order is not None for row in share.in_order.to_pylist()]
    for row in sorted(changes, key=lambda row: int(row["n"])):
        time_us = time_of(int(row["end"]))
        before = live.pop(row["k0"], None)
        if row["op"] == 4:
            marked.update({key: (there, time_us) for key, there in live.items()})
            live.clear()
            continue
        after = row["k0"]
        if row["op"] != 3:
            values = [before[c] if before is not None and row.get(f"u{c}") else row[f"c{c}"] for c in range(3)]
            after = values[0]
            live[after] = (values[0], values[1], values[2])
            marked.pop(after, None)
        if before is not None and before[0] not in live:
            marked[before[0]] = (before, time_us)


@settings(deadline=None, max_examples=150)
@given(ROWS, TRANSACTIONS, st.integers(1, 3), st.sets(st.integers(1, 8), max_size=3))
def test_deleted_rows_stay_with_their_last_values(
    initial: list[Row], transactions: list[Transaction], buckets: int, borders: set[int]
) -> None:
    before = {row[0]: row for row in initial}
    history = History(list(before.values()), full=False, keyed=True)
    for transaction in transactions:
        history.run(transaction)
    records, ranges = history.log()
    live, marked = dict(before), Marked()
    one_by_one(live, marked, shares_of(records, ranges, PLAIN, 1, in_order=True))
    assert live == {row[0]: row for row in history.rows}
    found, gone = batched(before, history, borders, buckets)
    assert (found, gone) == (live, marked)


_SWAP = [Transaction([("top", [Step("swap", 0, 1, 0, keep=False)])], [], [0])]


@settings(deadline=None, max_examples=60)
@example([(0, None, None), (1, None, None)], _SWAP, 1, set())
@given(ROWS, TRANSACTIONS, st.integers(1, 3), st.sets(st.integers(1, 8), max_size=3))
def test_keys_that_collide_until_a_commit(
    initial: list[Row], transactions: list[Transaction], buckets: int, borders: set[int]
) -> None:
    before = {row[0]: row for row in initial}
    history = History(list(before.values()), full=True, keyed=True)
    for transaction in transactions:
        history.run(transaction)
    found, gone = batched(before, history, borders, buckets)
    assert found == {row[0]: row for row in history.rows}
    assert before.keys() - found.keys() <= gone.keys()
    assert not gone.keys() & found.keys()


def batched(before: dict[int, Row], history: History, borders: set[int], buckets: int) -> tuple[dict[int, Row], Marked]:
    """The rows and the deleted rows after batches that end after the transactions with these numbers."""
    records, ranges = history.log()
    found, gone = dict(before), Marked()
    for low, high in zip([0, *sorted(borders)], [*sorted(borders), 1000], strict=True):
        some = [one for one in ranges if low < one.end.value - ENDS <= high]
        if some:
            shares = shares_of(records, some, SOFT, buckets)
            assert [share.fault for share in shares if share.fault] == []
            apply_soft(found, gone, shares)
    return found, gone
