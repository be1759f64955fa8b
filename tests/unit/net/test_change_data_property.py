"""Change data: applied in order, it leaves the rows that the source had after each transaction, however the log is cut."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.batch import OPTIONAL
from engine.model.schema import KeyMode, ReplicaIdentity
from tests.unit.net.change_data_replay import Images, Keyed, completed, rows_of_slice
from tests.unit.net.history_model import ENDS, History, Row, Transaction
from tests.unit.net.test_soft_delete_property import PLAIN, ROWS, TRANSACTIONS, shares_of
from tests.unit.net.test_versions_property import batches

STAGED = replace(PLAIN, staging=True)
BAG = replace(STAGED, key=(), mode=KeyMode.BAG, identity=ReplicaIdentity.FULL)


def replayed(
    history: History,
    replay: Keyed | Images,
    borders: set[int],
    buckets: int,
    *,
    sliced: bool,
    scattered: bool = False,
) -> tuple[dict[int, Counter[Row]], list[int]]:
    """The rows after each transaction, by its end, and the transactions that are named."""
    records, ranges = history.log()
    states: dict[int, Counter[Row]] = {}
    named: list[int] = []
    for batch in batches(ranges, borders):
        ends: set[int] = set()
        for piece, some in enumerate([[one] for one in batch] if sliced else [batch]):
            schema = BAG if isinstance(replay, Images) else replace(STAGED, scattered=scattered)
            shares = shares_of(records, some, schema, buckets)
            assert [share.fault for share in shares if share.fault] == []
            changes = rows_of_slice(shares, piece)
            before = dict(replay.live) if isinstance(replay, Keyed) else {}
            orders = [order for order, row in changes if row["op"] is not None]
            assert isinstance(replay, Keyed) or len(set(orders)) == len(orders)
            for (end, _, _), row in changes:
                if row["op"] is not None:
                    replay.apply(str(row["op"]), completed(before, row), optional=bool(row.get(OPTIONAL)))
                states[end] = +replay.rows
                ends.add(end)
        named += sorted(ends)
    return states, named


def logged(
    initial: list[Row], transactions: list[Transaction], *, full: bool, keyed: bool, replacing: bool = False
) -> tuple[History, dict[int, Counter[Row]], list[Row]]:
    before = list({row[0]: row for row in initial}.values()) if keyed else initial
    history = History(list(before), full=full, keyed=keyed, replacing=replacing)
    after = {}
    for number, transaction in enumerate(transactions, 1):
        history.run(transaction)
        after[ENDS + number] = Counter(history.rows)
    return history, after, before


@settings(deadline=None, max_examples=250)
@given(ROWS, TRANSACTIONS, st.integers(1, 3), st.sets(st.integers(1, 8), max_size=3), st.booleans(), st.booleans())
def test_rows_after_each_transaction(
    initial: list[Row],
    transactions: list[Transaction],
    buckets: int,
    borders: set[int],
    sliced: bool,
    full: bool,
) -> None:
    sliced = sliced and not full
    history, after, before = logged(initial, transactions, full=full, keyed=True)
    states, named = replayed(history, Keyed(before), borders, buckets, sliced=sliced)
    assert states == {end: after[end] for end in states}
    assert named == sorted(set(named))
    changed = {end for end, rows in after.items() if rows != after.get(end - 1, Counter(before))}
    assert changed <= set(named)


@settings(deadline=None, max_examples=150)
@given(ROWS, TRANSACTIONS, st.integers(1, 3), st.sets(st.integers(1, 8), max_size=3), st.booleans())
def test_rows_after_each_transaction_of_several_nodes(
    initial: list[Row], transactions: list[Transaction], buckets: int, borders: set[int], full: bool
) -> None:
    """A row that comes to a key replaces the one that another node has; whether there was one the target knows."""
    history, after, before = logged(initial, transactions, full=full, keyed=True, replacing=True)
    states, named = replayed(history, Keyed(before), borders, buckets, sliced=False, scattered=True)
    assert states == {end: after[end] for end in states}
    changed = {end for end, rows in after.items() if rows != after.get(end - 1, Counter(before))}
    assert changed <= set(named)


@settings(deadline=None, max_examples=120)
@given(ROWS, TRANSACTIONS, st.integers(1, 3), st.sets(st.integers(1, 8), max_size=3), st.booleans())
def test_images_after_each_transaction(
    initial: list[Row], transactions: list[Transaction], buckets: int, borders: set[int], sliced: bool
) -> None:
    history, after, before = logged(initial, transactions, full=True, keyed=False)
    states, named = replayed(history, Images(before), borders, buckets, sliced=sliced)
    assert states == {end: after[end] for end in states}
    assert named == sorted(set(named))
