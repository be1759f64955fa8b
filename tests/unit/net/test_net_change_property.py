"""Applying the net changes to the rows of before gives what applying the changes one by one gives."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.batch import TableChanges
from engine.model.schema import KeyMode
from tests.unit.net.batch_builder import column, part, table, task
from tests.unit.net.dictionary_target import apply_bag, apply_keyed
from tests.unit.net.history_model import OID, History, Row, Transaction
from tests.unit.net.history_strategies import PARTS

_COLUMNS = [column("id", "int4"), column("a"), column("big")]
_NUMBERS = st.integers(0, 7)
_TRANSACTIONS = st.lists(
    st.builds(
        Transaction,
        PARTS,
        st.lists(st.integers(0, 4), max_size=3),
        st.lists(_NUMBERS, min_size=1, max_size=3),
    ),
    max_size=6,
)
_ROWS = st.lists(st.tuples(_NUMBERS, st.sampled_from([None, "x"]), st.sampled_from([None, "long value"])), max_size=6)
_CUTS = st.lists(st.integers(1, 60), max_size=3)


def _shares(history: History, mode: KeyMode, buckets: int, cuts: list[int]) -> list[TableChanges]:
    records, ranges = history.log()
    schema = table(_COLUMNS, ["id"] if mode is KeyMode.KEYED else [], mode, oid=OID)
    inside = [cut for cut in cuts if cut < len(records)]
    return [
        changes
        for bucket in range(buckets)
        for changes in task(records, [part(schema)], ranges, bucket, buckets, inside).tables
    ]


@settings(deadline=None, max_examples=80)
@given(_ROWS, _TRANSACTIONS, st.booleans(), st.integers(1, 3), _CUTS)
def test_keyed(initial: list[Row], transactions: list[Transaction], full: bool, buckets: int, cuts: list[int]) -> None:
    before = list({row[0]: row for row in initial}.values())
    history = History(list(before), full, keyed=True)
    for transaction in transactions:
        history.run(transaction)
    shares = _shares(history, KeyMode.KEYED, buckets, cuts)
    assert [share.fault for share in shares if share.fault] == []
    assert Counter(apply_keyed(before, shares)) == Counter(history.rows)


@settings(deadline=None, max_examples=80)
@given(_ROWS, _TRANSACTIONS, st.integers(1, 3), _CUTS)
def test_bag(initial: list[Row], transactions: list[Transaction], buckets: int, cuts: list[int]) -> None:
    history = History(list(initial), full=True, keyed=False)
    for transaction in transactions:
        history.run(transaction)
    shares = _shares(history, KeyMode.BAG, buckets, cuts)
    assert [share.fault for share in shares if share.fault] == []
    assert Counter(apply_bag(initial, shares)) == Counter(history.rows)


@settings(deadline=None, max_examples=40)
@given(_ROWS, _TRANSACTIONS, st.integers(2, 3))
def test_buckets_share_the_changes(initial: list[Row], transactions: list[Transaction], buckets: int) -> None:
    """No change is counted twice or left out, however many buckets there are."""
    history = History(list({row[0]: row for row in initial}.values()), False, keyed=True)
    for transaction in transactions:
        history.run(transaction)
    sums = []
    for count in (1, buckets):
        shares = _shares(history, KeyMode.KEYED, count, [])
        seen = Counter[str]()
        for share in shares:
            seen.update(share.counts)
        sums.append((seen, sum(share.net_rows for share in shares)))
    assert sums[0] == sums[1]
