"""History: the versions of rows are those that single changes give, however the log is cut into batches, slices and buckets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.model.batch import LogRange, TableChanges
from engine.model.identity import Ordinal
from engine.model.position import Lsn
from engine.model.schema import TableSchema
from tests.unit.net.history_model import ENDS, History, Row, Step, Transaction, time_of
from tests.unit.net.test_soft_delete_property import PLAIN, ROWS, SOFT, TRANSACTIONS, shares_of
from tests.unit.net.version_oracle import Version, Versions, apply_slice, oracle

KEPT = replace(PLAIN, history=True)


def batches(ranges: list[LogRange], borders: set[int]) -> Iterator[list[LogRange]]:
    """The ranges of the batches that end after the transactions with these numbers."""
    for low, high in pairwise([0, *sorted(borders), 1000]):
        some = [one for one in ranges if low < one.end.value - ENDS <= high]
        if some:
            yield some


def logged(initial: list[Row], transactions: list[Transaction], *, full: bool = False) -> tuple[list[Row], History]:
    before = list({row[0]: row for row in initial}.values())
    history = History(list(before), full=full, keyed=True)
    for transaction in transactions:
        history.run(transaction)
    return before, history


def kept(
    before: list[Row], history: History, borders: set[int], buckets: int, *, sliced: bool, schema: TableSchema = KEPT
) -> Versions:
    """The versions after batches. `sliced`: each chunk of a streamed transaction is a slice of its own."""
    records, ranges = history.log()
    found = Versions.initial(before)
    for batch in batches(ranges, borders):
        for part in [[one] for one in batch] if sliced else [batch]:
            shares = shares_of(records, part, schema, buckets)
            assert [share.fault for share in shares if share.fault] == []
            check_times(shares)
            apply_slice(found, shares)
    return found


def check_times(shares: list[TableChanges]) -> None:
    for share in shares:
        for rows, borders in ((share.versions, ("from", "to")), (share.ended, ("to",))):
            for row in rows.to_pylist() if rows is not None else ():
                for border in borders:
                    end, time_us = row[f"{border}_end"], row[f"{border}_us"]
                    assert (end is None) == (time_us is None)
                    assert end is None or time_us == time_of(end)


@settings(deadline=None, max_examples=200)
@given(ROWS, TRANSACTIONS, st.integers(1, 3), st.sets(st.integers(1, 8), max_size=3), st.booleans())
def test_versions_are_those_of_single_changes(
    initial: list[Row], transactions: list[Transaction], buckets: int, borders: set[int], sliced: bool
) -> None:
    before, history = logged(initial, transactions)
    records, ranges = history.log()
    expected = oracle(before, shares_of(records, ranges, PLAIN, 1, in_order=True))
    assert {row for row, _ in expected.current.values()} == set(history.rows)
    assert kept(before, history, borders, buckets, sliced=sliced).all() == expected.all()


def _step(verb: str, row: int, other: int) -> Step:
    return Step(verb, row, other, 0, keep=False)


_TWIN = [
    Transaction(
        [("top", [_step("insert", 0, 0)]), ("top", [_step("swap", 1, 0)]), ("top", [_step("delete", 0, 0)])], [], [0]
    ),
    Transaction([("top", [_step("delete", 0, 0)])], [], [0]),
]
"""A row that has the key and the values of another one within a transaction, of which one is deleted."""
_SWAP = [Transaction([("top", [_step("swap", 0, 1)])], [], [0])]


@settings(deadline=None, max_examples=80)
@example([(0, None, None), (1, None, None)], _SWAP, 1, set())
@example([(1, None, None)], _TWIN, 1, {1})
@given(ROWS, TRANSACTIONS, st.integers(1, 3), st.sets(st.integers(1, 8), max_size=3))
def test_versions_where_keys_collide_until_a_commit(
    initial: list[Row], transactions: list[Transaction], buckets: int, borders: set[int]
) -> None:
    before, history = logged(initial, transactions, full=True)
    found = kept(before, history, borders, buckets, sliced=False)
    assert {row for row, _ in found.current.values()} == set(history.rows)
    assert joined(found) == joined(kept(before, history, set(), 1, sliced=False))


def joined(versions: Versions) -> list[Version]:
    """Without the borders between versions with equal values: of two equal rows that swap their keys it is not known which one moved."""
    found: list[Version] = []
    for row, since, until in sorted(versions.all(), key=lambda version: (repr(version[0]), version[1])):
        goes_on = found and found[-1][0] == row and found[-1][2] == since
        found.append((row, found.pop()[1] if goes_on else since, until))
    return found


@settings(deadline=None, max_examples=30)
@given(ROWS, TRANSACTIONS, st.integers(1, 3), st.booleans())
def test_the_net_changes_are_the_same_with_versions(
    initial: list[Row], transactions: list[Transaction], buckets: int, soft: bool
) -> None:
    _, history = logged(initial, transactions)
    plain = SOFT if soft else PLAIN
    shares = {}
    for schema in (plain, replace(plain, history=True)):
        shares[schema.history] = shares_of(*history.log(), schema, buckets)
    for share in shares[True]:
        # A share without net changes may have versions.
        other = next(
            (one for one in shares[False] if one.counts == share.counts and one.inserts == share.inserts), None
        )
        assert other is not None or not share.counts
        if other is not None:
            assert (other.deletes, other.partials, other.tombstones) == (
                share.deletes,
                share.partials,
                share.tombstones,
            )
            assert other.tally == share.tally


def test_what_lives_within_one_transaction_is_no_version() -> None:
    steps = [
        Step("insert", 0, 5, 1, keep=False),
        Step("update", 0, 5, 2, keep=False),
        Step("delete", 0, 5, 2, keep=False),
    ]
    before, history = logged([], [Transaction([("top", steps)], [], [0])])
    assert kept(before, history, set(), 1, sliced=False).all() == []


@pytest.mark.parametrize("late", [True, False])
def test_changes_computed_before_their_commit_get_its_place(late: bool) -> None:
    """A slice of an open transaction: its versions have the placeholders that the target replaces (`commit_end`)."""
    _, history = logged([(1, "x", None)], [Transaction([("top", [Step("update", 0, 1, 2, keep=True)])], [1], [0])])
    records, (one, *_) = history.log()
    end = Lsn(2**64 - 1) if late else one.end
    (share,) = shares_of(records, [LogRange(Ordinal(one.start), Ordinal(one.stop), end, one.xid)], KEPT, 1)
    assert share.versions is not None
    assert share.ended is not None
    assert (share.versions["from_end"].to_pylist(), share.versions["to_end"].to_pylist()) == ([end.value], [None])
    assert share.ended["to_end"].to_pylist() == [end.value]
    assert share.staged["begin"] == share.staged["end"] == 1
