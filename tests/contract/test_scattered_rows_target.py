"""Tables of several nodes as every target keeps them: a row that comes to a key replaces the one that the target has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.batch import TableChanges
from engine.model.fault import FaultKind
from engine.model.identity import TableId, TableName
from engine.model.position import Lsn
from engine.model.schema import TableSchema
from engine.model.target import TableCommit
from engine.targets.structure_text import from_text, to_text
from tests.contract.target_material import SUBSCRIPTION, Pipeline, changes, fault_of, inserts, keys, structure
from tests.contract.targets import EACH_KIND, OpenTarget, target_opener
from tests.contract.test_history_target import KEPT_AT, TABLE, Dated, history
from tests.contract.test_rows_set_aside import MOST, Aside, prices, refused
from tests.contract.test_rows_set_aside import T as PRICES
from tests.unit.net.dictionary_target import Marked
from tests.unit.net.history_model import ENDS, Row, Transaction
from tests.unit.net.test_scattered_rows_property import SCATTERED, run
from tests.unit.net.test_soft_delete_property import PLAIN, ROWS, TRANSACTIONS, one_by_one, shares_of
from tests.unit.net.version_oracle import INITIAL, Versions, oracle

pytestmark = pytest.mark.pg

ORDERS = TableId("t0a")
orders = replace(
    structure(TableName("public", "orders"), {"id": "int4", "state": "text"}, ["id"]),
    scattered=True,
)


@pytest.fixture
def pipeline(opened: OpenTarget) -> Iterator[Pipeline]:
    made = Dated(opened()).claim()
    yield made
    made.target.close()


def replacing(*numbers: int, **more: object) -> TableChanges:
    """The keys to which rows came, and perhaps other changes."""
    return replace(changes(ORDERS, **more), replaced=keys(orders, [(n,) for n in numbers]))  # type: ignore[arg-type]


def test_a_row_replaces_the_one_with_its_key_and_others_stay(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "of n0"), (2, "of n0"), (3, "of n0")])
    # Row 1 comes where one is, row 4 where none is, and row 2 comes and leaves again.
    pipeline.change(ORDERS, orders, replacing(1, 2, 4, insert=inserts(orders, [(1, "of n2"), (4, "of n2")])))
    assert pipeline.rows(orders) == [(1, "of n2"), (3, "of n0"), (4, "of n2")]


def test_a_row_comes_to_a_key_of_an_earlier_slice(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [])
    first = replacing(1, insert=inserts(orders, [(1, "of n0")]))
    second = replace(replacing(1, insert=inserts(orders, [(1, "of n2")])), piece=1)
    pipeline.change(ORDERS, orders, first, second)
    assert pipeline.rows(orders) == [(1, "of n2")]


def test_a_row_that_is_deleted_for_certain_must_be_there(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "of n0")])
    missing = replacing(1, delete=keys(orders, [(2,)]))
    assert fault_of(lambda: pipeline.change(ORDERS, orders, missing)).kind is FaultKind.NET_CHANGE_ANOMALY
    assert pipeline.rows(orders) == [(1, "of n0")]


@pytest.mark.parametrize("late", [False, True], ids=["in the copy", "with a late change"])
def test_a_copy_with_a_row_of_two_nodes_is_kept_out(pipeline: Pipeline, late: bool) -> None:
    pipeline.load(ORDERS, orders, [(7, "old")])
    pipeline.target.begin_copy(SUBSCRIPTION, ORDERS, orders.name, orders)
    both = [(1, "of n0"), (1, "of n2"), (2, "of n0")]
    pipeline.target.append_copy(ORDERS, inserts(orders, both))
    # A change of another row does not help; a row that comes to the key replaces both.
    number = 2 if late else 1
    more = replacing(number, insert=inserts(orders, [(number, "new")]))
    hand_over = TableCommit(ORDERS, orders, orders.name, (more,), handover=True, check_key=True)
    if not late:
        pipeline.commit(hand_over)
        assert pipeline.rows(orders) == [(1, "new"), (2, "of n0")]
        return
    fault = fault_of(lambda: pipeline.commit(hand_over))
    assert (fault.kind, fault.subject) == (FaultKind.TABLE_KEY_NOT_UNIQUE, ORDERS)
    assert "the key (id) has 1 values that several rows of nodes share" in fault.detail
    assert pipeline.rows(orders) == [(7, "old")]


def test_a_table_does_not_become_one_of_several_nodes_in_place(pipeline: Pipeline) -> None:
    plain = replace(orders, scattered=False)
    pipeline.load(ORDERS, plain, [(1, "of n0")])
    fault = fault_of(lambda: pipeline.change(ORDERS, orders, replacing(1)))
    assert fault.kind is FaultKind.TABLE_STRUCTURE_CHANGED
    assert pipeline.rows(plain) == [(1, "of n0")]


def test_the_structure_says_it_and_older_records_do_not() -> None:
    assert from_text(to_text(orders)) == orders
    plain = replace(orders, scattered=False)
    assert from_text(to_text(plain).replace('"scattered":false,', "")) == plain


def test_a_rejected_row_replaces_too(opened: OpenTarget) -> None:
    """The table, or the quarantine, has the row to whose key another came; the two together have it once."""
    aside = Aside(opened())
    aside.claim()
    schema = replace(prices, scattered=True)
    aside.load(PRICES, schema, [(1, Decimal("1.00"), "of n0"), (2, Decimal("2.00"), "of n0")])

    def put(change: TableChanges, *numbers: int) -> list[object]:
        change = replace(change, replaced=keys(schema, [(n,) for n in numbers]))
        aside.commit(TableCommit(PRICES, schema, schema.name, (change,), set_aside=MOST, aside=True))
        return [aside.rows(schema), [values for _, _, _, values in aside.kept]]

    second = (2, Decimal("2.00"), "of n0")
    assert put(refused((None, ("1", "NaN", "of n2"))), 1) == [[second], [("1", "NaN", "of n2")]]
    assert put(refused((None, ("1", "NaN", "of n1"))), 1) == [[second], [("1", "NaN", "of n1")]]
    good = (1, Decimal("1.50"), "of n0")
    assert put(changes(PRICES, insert=inserts(schema, [good])), 1) == [[good, second], []]
    aside.target.close()


# Random histories


@pytest.fixture(scope="module", params=EACH_KIND)
def lasting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """One target for all histories."""
    folder: Path = tmp_path_factory.mktemp("scattered")
    with target_opener(request.param, request, folder) as opened:
        made = Dated(opened()).claim()
        yield made
        made.target.close()


def write(
    pipeline: Pipeline,
    initial: list[Row],
    transactions: list[Transaction],
    cut: tuple[int, set[int]],
    kept: TableSchema,
) -> tuple[Marked, Versions]:
    """Copy the rows from before, and write the changes in batches, with a slice for each transaction. `cut`: the number of buckets, and the
    transactions with which batches end. Returns what single changes leave: the deleted rows, and the versions."""
    before, made = run(initial, transactions)
    buckets, borders = cut
    pipeline.load(TABLE, PLAIN, [])
    with pipeline.target.writing() as writer:  # type: ignore[attr-defined]
        writer.tables.drop(KEPT_AT)
    pipeline.load(TABLE, kept, list(before.values()))
    records, ranges = made.log()
    singly = shares_of(records, ranges, PLAIN, 1, in_order=True)
    live, marked = dict(before), Marked()
    one_by_one(live, marked, singly)
    versions = oracle(list(before.values()), singly)
    assert Counter(live.values()) == Counter(made.rows)
    begun = pipeline.end
    for low, high in pairwise([0, *sorted(borders), 1000]):
        slices = [
            replace(share, piece=number)
            for number in sorted({one.end.value for one in ranges if low < one.end.value - ENDS <= high})
            for share in shares_of(records, [one for one in ranges if one.end.value == number], kept, buckets)
        ]
        pipeline.change(TABLE, kept, *slices)
    found = Counter(row[:3] for row in pipeline.rows(kept) if not kept.soft_delete or row[3] is None)
    assert found == Counter(made.rows)
    versions.ended = [(row, begun if since == INITIAL else since, until) for row, since, until in versions.ended]
    versions.current = {
        key: (row, begun if since == INITIAL else since) for key, (row, since) in versions.current.items()
    }
    return marked, versions


_CASE = (ROWS, TRANSACTIONS, st.tuples(st.integers(1, 3), st.sets(st.integers(1, 8), max_size=3)))


@settings(max_examples=15, deadline=None)
@given(*_CASE)
def test_rows_in_batches_and_slices(
    lasting: Pipeline, initial: list[Row], transactions: list[Transaction], cut: tuple[int, set[int]]
) -> None:
    write(lasting, initial, transactions, cut, SCATTERED)


@settings(max_examples=15, deadline=None)
@given(*_CASE)
def test_deleted_rows_in_batches_and_slices(
    lasting: Pipeline, initial: list[Row], transactions: list[Transaction], cut: tuple[int, set[int]]
) -> None:
    kept = replace(SCATTERED, soft_delete=True)
    marked, _ = write(lasting, initial, transactions, cut, kept)
    gone = [(*row, datetime.fromtimestamp(time_us / 1_000_000, UTC)) for row, time_us in marked.values()]
    assert Counter(row for row in lasting.rows(kept) if row[3] is not None) == Counter(gone)


@settings(max_examples=15, deadline=None)
@given(*_CASE)
def test_versions_in_batches_and_slices(
    lasting: Pipeline, initial: list[Row], transactions: list[Transaction], cut: tuple[int, set[int]]
) -> None:
    kept = replace(SCATTERED, history=True)
    _, versions = write(lasting, initial, transactions, cut, kept)
    wanted = [
        (*row, str(Lsn(since)), None if until is None else str(Lsn(until))) for row, since, until in versions.all()
    ]
    assert Counter(history(lasting, kept)) == Counter(wanted)
