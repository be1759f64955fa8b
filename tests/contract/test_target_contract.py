"""What every target must do, whatever database it is."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from engine.model.batch import TableFault
from engine.model.fault import FaultKind
from engine.model.identity import BatchId, SubscriptionName, TableId, TableName
from engine.model.last_commit import LastCommit
from engine.model.position import Lsn
from engine.model.schema import Column, KeyMode, SourceType
from engine.model.subscription import OriginFilter
from engine.model.target import TARGET_TYPE, BatchCommit, LogStart, QueryLimits, QueryRefused, TableCommit, Target
from tests.contract.target_material import (
    SLOT,
    SUBSCRIPTION,
    SYSTEM,
    Pipeline,
    Row,
    changes,
    fault_of,
    images,
    inserts,
    keys,
    partials,
    source_type,
    sql_name,
    structure,
)
from tests.contract.targets import Build, OpenTarget, builder
from tests.fixtures.answers import answered

pytestmark = pytest.mark.pg

ORDERS = TableId("t0a")
ITEMS = TableId("t0b")
LOGS = TableId("t0c")
orders = structure(TableName("public", "orders"), {"id": "int4", "state": "text", "note": "text"}, ["id"])
items = structure(
    TableName("public", "items"), {"order_id": "int4", "n": "int4", "price": "numeric(10,2)"}, ["order_id", "n"]
)
logs = structure(TableName("public", "logs"), {"word": "text", "x": "float8", "n": "int4"}, mode=KeyMode.BAG)


@pytest.fixture
def target(opened: OpenTarget) -> Iterator[Target]:
    made = opened()
    yield made
    made.close()


@pytest.fixture
def pipeline(target: Target) -> Pipeline:
    return Pipeline(target).claim()


@pytest.fixture
def build(target: Target) -> Build:
    return builder(target)


# Progress and the fence


def test_an_unknown_subscription_has_no_progress(target: Target) -> None:
    assert target.progress(SUBSCRIPTION) is None


def test_a_claim_records_where_replication_starts(pipeline: Pipeline) -> None:
    progress = pipeline.target.progress(SUBSCRIPTION)
    assert progress is not None
    assert (progress.epoch, progress.batch, progress.end) == (1, 0, Lsn(1000))
    assert (progress.system_id, progress.timeline, progress.reader, dict(progress.tables)) == (SYSTEM, 1, SLOT, {})


def test_a_take_over_keeps_the_position_and_raises_the_epoch(pipeline: Pipeline) -> None:
    end = pipeline.commit()
    pipeline.target.claim(SUBSCRIPTION, 5, LogStart(SYSTEM, 2, "shop_new", Lsn(7)))  # type: ignore[arg-type]
    progress = pipeline.target.progress(SUBSCRIPTION)
    assert progress is not None
    assert (progress.epoch, progress.end, progress.timeline, progress.reader) == (5, end, 2, "shop_new")


def test_an_older_epoch_neither_claims_nor_commits(pipeline: Pipeline) -> None:
    newer = Pipeline(pipeline.target, epoch=2).claim()
    assert fault_of(pipeline.commit).kind is FaultKind.EPOCH_LOST
    assert fault_of(pipeline.claim).kind is FaultKind.EPOCH_LOST
    newer.commit()


def test_progress_of_another_cluster_is_foreign(pipeline: Pipeline) -> None:
    claim = lambda: pipeline.target.claim(SUBSCRIPTION, pipeline.epoch, LogStart("other", 1, SLOT, Lsn(1)))  # noqa: E731
    assert fault_of(claim).kind is FaultKind.TARGET_FOREIGN


def test_a_batch_without_tables_moves_only_the_position(pipeline: Pipeline) -> None:
    end = pipeline.commit()
    progress = pipeline.target.progress(SUBSCRIPTION)
    assert progress is not None
    assert (progress.batch, progress.end) == (1, end)


def test_the_last_transaction_is_recorded_with_the_position(pipeline: Pipeline) -> None:
    def recorded() -> LastCommit | None:
        progress = pipeline.target.progress(SUBSCRIPTION)
        assert progress is not None
        return progress.last

    assert recorded() == LastCommit.unknown(Lsn(1000))
    for last in (
        LastCommit(Lsn(1000), Lsn(1090), 1_700_000_000_000_001),
        LastCommit(Lsn(1100), Lsn(1150), 1_700_000_000_000_002, OriginFilter.NONE, certain=False),
        None,
        LastCommit(Lsn(1150), Lsn(1160), 1_700_000_000_000_003),
    ):
        pipeline.commit(last=last)
        assert recorded() == last
        pipeline.claim()
        assert recorded() == last
    pipeline.target.rebase(SUBSCRIPTION, pipeline.epoch, LogStart(SYSTEM, 1, SLOT, Lsn(5000)))
    assert recorded() == LastCommit.unknown(Lsn(5000))


def test_a_batch_behind_the_position_is_refused(pipeline: Pipeline) -> None:
    pipeline.commit()
    pipeline.end = 500
    assert fault_of(pipeline.commit).kind is FaultKind.INTERNAL


# Copies and hand-over


def test_a_copy_is_invisible_until_it_is_handed_over(pipeline: Pipeline) -> None:
    target = pipeline.target
    target.adopt(SUBSCRIPTION, ORDERS, orders.name)
    target.begin_copy(SUBSCRIPTION, ORDERS, orders.name, orders)
    assert target.append_copy(ORDERS, inserts(orders, [(1, "new", None), (2, "old", "x")])) == 2
    with pytest.raises(QueryRefused):
        pipeline.select("SELECT * FROM public.orders")
    end = pipeline.commit(TableCommit(ORDERS, orders, orders.name, handover=True))
    assert pipeline.rows(orders) == [(1, "new", None), (2, "old", "x")]
    record = target.progress(SUBSCRIPTION).tables[ORDERS]  # type: ignore[union-attr]
    assert (record.ready, record.schema, record.target, record.applied) == (True, orders, orders.name, end)


def test_changes_made_during_the_copy_arrive_with_the_hand_over(pipeline: Pipeline) -> None:
    target = pipeline.target
    target.adopt(SUBSCRIPTION, ORDERS, orders.name)
    target.begin_copy(SUBSCRIPTION, ORDERS, orders.name, orders)
    target.append_copy(ORDERS, inserts(orders, [(1, "new", "long")]))
    late = changes(
        ORDERS, delete=keys(orders, [(1,)]), partial=partials(orders, [((1,), (1, "paid", None), frozenset({2}))])
    )
    pipeline.commit(TableCommit(ORDERS, orders, orders.name, (late,), handover=True))
    assert pipeline.rows(orders) == [(1, "paid", "long")]


def test_a_reload_keeps_the_old_rows_readable_until_the_swap(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", None)])
    wider = structure(orders.name, {"id": "int8", "state": "text", "total": "numeric(8,2)"}, ["id"])
    pipeline.target.begin_copy(SUBSCRIPTION, ORDERS, orders.name, wider)
    pipeline.target.append_copy(ORDERS, inserts(wider, [(7, "done", Decimal("1.50"))]))
    assert pipeline.rows(orders) == [(1, "new", None)]
    pipeline.commit(TableCommit(ORDERS, wider, wider.name, handover=True))
    assert pipeline.rows(wider) == [(7, "done", Decimal("1.50"))]


def test_a_copy_begun_again_starts_empty(pipeline: Pipeline) -> None:
    target = pipeline.target
    target.adopt(SUBSCRIPTION, ORDERS, orders.name)
    for row in ((1, "a", None), (2, "b", None)):
        target.begin_copy(SUBSCRIPTION, ORDERS, orders.name, orders)
        target.append_copy(ORDERS, inserts(orders, [row]))
    pipeline.commit(TableCommit(ORDERS, orders, orders.name, handover=True))
    assert pipeline.rows(orders) == [(2, "b", None)]


@pytest.mark.parametrize(
    ("rows", "late"),
    [
        ([(1, 1, None), (1, 1, Decimal("2.00"))], []),
        ([(1, 1, None), (2, 1, None)], [(2, 1, None)]),
        ([(1, 1, None), (None, 1, None)], []),
        ([(1, None, None), (1, None, None)], []),
    ],
    ids=["in the copy", "with a late change", "no value", "no value twice"],
)
def test_a_declared_key_that_tells_no_rows_apart_keeps_the_copy_out(
    pipeline: Pipeline, rows: list[tuple[Any, ...]], late: list[tuple[Any, ...]]
) -> None:
    pipeline.load(ITEMS, items, [(7, 7, None)])
    before = pipeline.target.progress(SUBSCRIPTION)
    pipeline.target.begin_copy(SUBSCRIPTION, ITEMS, items.name, items)
    pipeline.target.append_copy(ITEMS, inserts(items, rows))
    more = (changes(ITEMS, insert=inserts(items, late)),) if late else ()
    hand_over = TableCommit(ITEMS, items, items.name, more, handover=True, check_key=True)
    fault = fault_of(lambda: pipeline.commit(hand_over))
    assert (fault.kind, fault.subject) == (FaultKind.TABLE_KEY_NOT_UNIQUE, ITEMS)
    assert "order_id, n" in fault.detail
    assert pipeline.target.progress(SUBSCRIPTION) == before
    assert pipeline.rows(items) == [(7, 7, None)]
    pipeline.commit(TableCommit(ITEMS, items, items.name, parked=fault.kind.value))
    assert pipeline.rows(items) == [(7, 7, None)]


def test_a_declared_key_that_tells_rows_apart_is_no_hindrance(pipeline: Pipeline) -> None:
    target = pipeline.target
    for table, schema, rows in (
        (ITEMS, items, [(1, 1, None), (1, 2, None), (2, 1, None)]),
        (LOGS, logs, [("a", None, 1), ("a", None, 1)]),
    ):
        target.adopt(SUBSCRIPTION, table, schema.name)
        target.begin_copy(SUBSCRIPTION, table, schema.name, schema)
        target.append_copy(table, inserts(schema, rows))
        pipeline.commit(TableCommit(table, schema, schema.name, handover=True, check_key=True))
        assert pipeline.rows(schema) == rows


@pytest.mark.parametrize("end_it", ["discard", "claim", "remove"])
def test_an_unfinished_copy_goes_without_a_trace(pipeline: Pipeline, end_it: str) -> None:
    target = pipeline.target
    target.adopt(SUBSCRIPTION, ORDERS, orders.name)
    target.begin_copy(SUBSCRIPTION, ORDERS, orders.name, orders)
    target.append_copy(ORDERS, inserts(orders, [(1, "a", None)]))
    if end_it == "discard":
        target.discard_copy(ORDERS)
    elif end_it == "claim":
        pipeline.claim()
    else:
        pipeline.commit(removed=[ORDERS])
    assert fault_of(lambda: target.append_copy(ORDERS, inserts(orders, [(2, "b", None)]))).kind is FaultKind.COPY_FAILED
    hand_over = lambda: pipeline.commit(TableCommit(ORDERS, orders, orders.name, handover=True))  # noqa: E731
    assert fault_of(hand_over).subject == ORDERS
    assert (
        pipeline.select("SELECT table_name FROM information_schema.tables WHERE table_name LIKE '%penstock_copy%'")
        == []
    )


# Changes


def test_insert_update_and_delete(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", "a"), (2, "new", "b"), (3, "new", "c")])
    bucket = changes(
        ORDERS, delete=keys(orders, [(1,), (2,)]), insert=inserts(orders, [(2, "paid", None), (4, "new", "d")])
    )
    end = pipeline.change(ORDERS, orders, bucket)
    assert pipeline.rows(orders) == [(2, "paid", None), (3, "new", "c"), (4, "new", "d")]
    assert pipeline.target.progress(SUBSCRIPTION).tables[ORDERS].applied == end  # type: ignore[union-attr]


def test_rows_that_stay_under_their_key(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", "a"), (2, "new", "b"), (3, "new", "c"), (4, "new", "d")])
    buckets = (
        changes(
            ORDERS, delete=keys(orders, [(1,), (3,)]), insert=inserts(orders, [(1, None, "A"), (5, "x", "e")]), paired=1
        ),
        changes(ORDERS, delete=keys(orders, [(2,)]), insert=inserts(orders, [(2, "paid", None)]), paired=1),
        changes(ORDERS, insert=inserts(orders, [(3, "again", "C")])),
    )
    pipeline.change(ORDERS, orders, *buckets)
    expected = [(1, None, "A"), (2, "paid", None), (3, "again", "C"), (4, "new", "d"), (5, "x", "e")]
    assert pipeline.rows(orders) == expected
    lost = changes(ORDERS, delete=keys(orders, [(9,)]), insert=inserts(orders, [(9, "x", "y")]), paired=1)
    assert fault_of(lambda: pipeline.change(ORDERS, orders, lost)).kind is FaultKind.NET_CHANGE_ANOMALY
    assert pipeline.rows(orders) == expected


def test_rows_of_nothing_but_a_key_stay_under_it(pipeline: Pipeline) -> None:
    single = structure(TableName("public", "single"), {"id": "int4"}, ["id"])
    pipeline.load(ORDERS, single, [(1,), (2,)])
    same = changes(ORDERS, delete=keys(single, [(1,), (2,)]), insert=inserts(single, [(1,), (3,)]), paired=1)
    pipeline.change(ORDERS, single, same)
    assert pipeline.rows(single) == [(1,), (3,)]


def test_many_rows_at_once(pipeline: Pipeline) -> None:
    """More than any target takes in its way for few."""
    count = 6_000
    pipeline.load(ORDERS, orders, [(i, f"state {i}", f"n'o\"t,e\n{i}") for i in range(count)])
    gone, kept, moved = range(0, count, 3), range(1, count, 3), range(2, count, 3)
    bucket = changes(
        ORDERS,
        delete=keys(orders, [(i,) for i in (*kept, *gone, *moved)]),
        insert=inserts(orders, [(i, "", None) for i in kept] + [(count * 2 + i, "new", "") for i in gone]),
        partial=partials(orders, [((i,), (-i, None, None), frozenset({1, 2})) for i in moved]),
        paired=len(kept),
    )
    pipeline.change(ORDERS, orders, bucket)
    rows = {row[0]: row[1:] for row in pipeline.rows(orders)}
    assert len(rows) == count
    assert all(rows[i] == ("", None) for i in kept)
    assert all(rows[count * 2 + i] == ("new", "") for i in gone)
    assert all(rows[-i] == (f"state {i}", f"n'o\"t,e\n{i}") for i in moved)
    pipeline.change(ORDERS, orders, changes(ORDERS, delete=keys(orders, [(key,) for key in rows])))
    assert pipeline.rows(orders) == []
    pipeline.load(LOGS, logs, [("x", 0.5, i % 3_000) for i in range(count)])
    half = images(logs, {("x", 0.5, i): 1 for i in range(3_000)})
    pipeline.change(LOGS, logs, changes(LOGS, delete=half, insert=inserts(logs, [(None, None, None)])))
    assert len(pipeline.rows(logs)) == 3_001


def test_composite_keys(pipeline: Pipeline) -> None:
    pipeline.load(ITEMS, items, [(1, 1, Decimal("1.00")), (1, 2, Decimal("2.00")), (2, 1, None)])
    pipeline.change(ITEMS, items, changes(ITEMS, delete=keys(items, [(1, 2), (2, 1)])))
    assert pipeline.rows(items) == [(1, 1, Decimal("1.00"))]


def test_unset_columns_keep_what_the_row_holds(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", "big"), (2, "old", None)])
    rows = [((1,), (1, "paid", None), frozenset({2})), ((2,), (2, None, "set"), frozenset({1}))]
    pipeline.change(ORDERS, orders, changes(ORDERS, delete=keys(orders, [(1,), (2,)]), partial=partials(orders, rows)))
    assert pipeline.rows(orders) == [(1, "paid", "big"), (2, "old", "set")]


def test_a_row_that_moves_to_another_key_takes_its_unset_columns_along(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "one", "big one"), (2, "two", "big two")])
    swap = [((1,), (2, "one", None), frozenset({2})), ((2,), (1, "two", None), frozenset({2}))]
    bucket = changes(ORDERS, delete=keys(orders, [(1,), (2,)]), partial=partials(orders, swap))
    pipeline.change(ORDERS, orders, bucket)
    assert pipeline.rows(orders) == [(1, "two", "big two"), (2, "one", "big one")]


def test_buckets_do_not_depend_on_their_order(pipeline: Pipeline) -> None:
    """A key that one bucket vacates and another fills, with an unset column that is read from a row a third deletes."""
    pipeline.load(ORDERS, orders, [(1, "one", "big one"), (2, "two", "big two")])
    buckets = (
        changes(ORDERS, insert=inserts(orders, [(1, "fresh", "n")])),
        changes(ORDERS, partial=partials(orders, [((1,), (9, "one", None), frozenset({2}))])),
        changes(ORDERS, partial=partials(orders, [((2,), (2, None, "x"), frozenset({1}))])),
        changes(ORDERS, delete=keys(orders, [(1,), (2,)])),
    )
    pipeline.change(ORDERS, orders, *buckets)
    assert pipeline.rows(orders) == [(1, "fresh", "n"), (2, "two", "x"), (9, "one", "big one")]


def test_truncate_clears_once_and_before_the_inserts(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", None), (2, "new", None)])
    buckets = (
        changes(ORDERS, truncated=True, insert=inserts(orders, [(1, "again", None)])),
        changes(ORDERS, truncated=True, insert=inserts(orders, [(3, "new", None)])),
    )
    pipeline.change(ORDERS, orders, *buckets)
    assert pipeline.rows(orders) == [(1, "again", None), (3, "new", None)]


def test_later_pieces_delete_equal_rows_that_are_there_and_that_earlier_pieces_bring(pipeline: Pipeline) -> None:
    chance = random.Random(1)
    pipeline.load(LOGS, logs, [])
    held: Counter[Row] = Counter()
    for _ in range(10):
        pieces = []
        for piece in range(4):
            gone = {row: chance.randint(1, count) for row, count in held.items() if chance.random() < 0.5}
            made = Counter[Row](
                {
                    (chance.choice(["same", None, f"word {n}"]), 0.5, n % 400): chance.randint(1, 3)
                    for n in range(chance.randint(1, 300))
                }
            )
            held = held - Counter(gone) + made
            delete = images(logs, gone) if gone else None
            change = changes(LOGS, delete=delete, insert=inserts(logs, list(made.elements())))
            pieces.append(dataclasses.replace(change, piece=piece))
        pipeline.change(LOGS, logs, *pieces)
    assert Counter(pipeline.look(f"SELECT word, x, n FROM {sql_name(logs.name)}")) == held


def test_equal_rows_without_a_key_go_by_count(pipeline: Pipeline) -> None:
    nan = float("nan")
    rows = [("a", 1.0, 1)] * 3 + [(None, nan, None)] * 2 + [("z", 0.0, 0), ("z", -0.0, 0)]
    pipeline.load(LOGS, logs, rows)
    gone = {("a", 1.0, 1): 2, (None, nan, None): 1, ("z", -0.0, 0): 1}
    pipeline.change(LOGS, logs, changes(LOGS, delete=images(logs, gone), insert=inserts(logs, [("b", None, 2)])))
    assert [tuple(map(str, row)) for row in pipeline.rows(logs)] == [
        ("None", "nan", "None"),
        ("a", "1.0", "1"),
        ("b", "None", "2"),
        ("z", "0.0", "0"),
    ]


def test_a_table_without_identity_takes_inserts(pipeline: Pipeline) -> None:
    history = structure(TableName("public", "history"), {"n": "int4"}, mode=KeyMode.APPEND)
    pipeline.load(LOGS, history, [(1,)])
    pipeline.change(LOGS, history, changes(LOGS, insert=inserts(history, [(1,), (2,)])))
    assert pipeline.rows(history) == [(1,), (1,), (2,)]


@pytest.mark.parametrize("what", ["delete", "partial", "image"])
def test_a_row_that_is_not_there_stops_the_batch(pipeline: Pipeline, what: str) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", None)])
    pipeline.load(LOGS, logs, [("a", 1.0, 1)])
    if what == "delete":
        commit = TableCommit(ORDERS, orders, orders.name, (changes(ORDERS, delete=keys(orders, [(1,), (2,)])),))
    elif what == "partial":
        lost = partials(orders, [((2,), (2, "x", None), frozenset({2}))])
        commit = TableCommit(ORDERS, orders, orders.name, (changes(ORDERS, partial=lost),))
    else:
        lost = images(logs, {("a", 1.0, 1): 2})
        commit = TableCommit(LOGS, logs, logs.name, (changes(LOGS, delete=lost),))
    fault = fault_of(lambda: pipeline.commit(commit))
    assert (fault.kind, fault.subject) == (FaultKind.NET_CHANGE_ANOMALY, commit.table)
    assert pipeline.rows(orders) == [(1, "new", None)]
    assert pipeline.rows(logs) == [("a", 1.0, 1)]


def test_a_fault_of_one_table_leaves_nothing_of_the_batch(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", None)])
    pipeline.load(ITEMS, items, [])
    before = pipeline.target.progress(SUBSCRIPTION)
    good = TableCommit(ORDERS, orders, orders.name, (changes(ORDERS, insert=inserts(orders, [(2, "b", None)])),))
    bad = TableCommit(ITEMS, items, items.name, (changes(ITEMS, delete=keys(items, [(1, 1)])),))
    assert fault_of(lambda: pipeline.commit(good, bad)).subject == ITEMS
    assert pipeline.rows(orders) == [(1, "new", None)]
    assert pipeline.target.progress(SUBSCRIPTION) == before
    pipeline.commit(good)
    assert pipeline.rows(orders) == [(1, "new", None), (2, "b", None)]


def test_a_fault_found_while_netting_is_raised_as_it_is(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [])
    found = dataclasses.replace(changes(ORDERS), fault=TableFault("value_out_of_domain", "column note"))
    fault = fault_of(lambda: pipeline.change(ORDERS, orders, found))
    assert (fault.kind, fault.subject, fault.detail) == (FaultKind.VALUE_OUT_OF_DOMAIN, ORDERS, "column note")


def test_staged_columns_of_another_type_are_not_converted(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [])
    odd = structure(orders.name, {"id": "int8", "state": "text", "note": "text"}, ["id"])
    bucket = changes(ORDERS, insert=inserts(odd, [(1, "a", None)]))
    assert fault_of(lambda: pipeline.change(ORDERS, orders, bucket)).subject == ORDERS


# Structure


def with_columns(base: Any, *columns: Column) -> Any:
    return dataclasses.replace(base, columns=columns)


def test_columns_come_and_go_with_the_changes_that_know_them(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", "a"), (2, "new", "b")])
    fresh = Column("total", source_type("numeric(10,2)"), 4, fill="9.50")
    changed = with_columns(orders, orders.columns[0], orders.columns[2], fresh)
    bucket = changes(
        ORDERS,
        delete=keys(changed, [(1,)]),
        insert=inserts(changed, [(3, "c", None)]),
        partial=partials(changed, [((1,), (1, "A", None), frozenset({2}))]),
    )
    pipeline.change(ORDERS, changed, bucket)
    assert pipeline.rows(changed) == [(1, "A", Decimal("9.50")), (2, "b", Decimal("9.50")), (3, "c", None)]
    assert pipeline.target.progress(SUBSCRIPTION).tables[ORDERS].schema == changed  # type: ignore[union-attr]


def test_a_column_replaced_under_its_own_name_loses_its_old_values(pipeline: Pipeline) -> None:
    single = structure(TableName("public", "single"), {"v": "text"}, mode=KeyMode.APPEND)
    pipeline.load(LOGS, single, [("old",)])
    pipeline.change(LOGS, with_columns(single, Column("V", source_type("int4"), 2, fill="5")))
    assert pipeline.rows(single) == [(5,)]


@pytest.mark.parametrize(
    "names",
    [("id", "status", "note"), ("id", "note", "state"), ("number", "state", "note"), ("id", "STATE", "note")],
    ids=["renamed", "swapped", "key", "case"],
)
def test_renamed_columns_keep_their_values(pipeline: Pipeline, names: tuple[str, ...]) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", "a"), (2, "old", "b")])
    columns = [dataclasses.replace(c, name=name) for c, name in zip(orders.columns, names, strict=True)]
    renamed = dataclasses.replace(with_columns(orders, *columns), key=names[:1])
    pipeline.change(ORDERS, renamed, changes(ORDERS, insert=inserts(renamed, [(3, "more", "c")])))
    assert pipeline.rows(renamed) == [(1, "new", "a"), (2, "old", "b"), (3, "more", "c")]
    assert pipeline.target.progress(SUBSCRIPTION).tables[ORDERS].schema == renamed  # type: ignore[union-attr]


def test_columns_move_into_each_others_names_while_others_come_and_go(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", "a")])
    moved = with_columns(
        orders,
        orders.columns[0],
        dataclasses.replace(orders.columns[2], name="state"),
        Column("note", source_type("int4"), 4, fill="7"),
    )
    pipeline.change(ORDERS, moved)
    assert pipeline.rows(moved) == [(1, "a", 7)]


def test_wider_columns_hold_what_they_held_and_more(pipeline: Pipeline) -> None:
    narrow = with_columns(
        orders,
        orders.columns[0],
        Column("code", SourceType("varchar", 3 + 4), 2),
        Column("price", source_type("numeric(4,2)"), 3),
        Column("free", source_type("numeric(4,2)"), 4),
    )
    wide = with_columns(
        orders,
        orders.columns[0],
        Column("code", source_type("text"), 2),
        Column("price", source_type("numeric(9,2)"), 3),
        Column("free", source_type("numeric"), 4),
    )
    pipeline.load(ORDERS, narrow, [(1, "abc", Decimal("1.50"), Decimal("0.50"))])
    new = (2, "longer than three", Decimal("1234567.89"), "12345678901234567890.123456789")
    pipeline.change(ORDERS, wide, changes(ORDERS, insert=inserts(wide, [new])))
    rows = [(*row[:3], str(row[3])) for row in pipeline.rows(wide)]
    assert rows == [(1, "abc", Decimal("1.50"), "0.50"), new]


@pytest.mark.parametrize(
    "columns",
    [
        (Column("id", source_type("int8"), 1), *orders.columns[1:]),
        (orders.columns[0], Column("state", source_type("text"), 2, map_as="text"), orders.columns[2]),
        (),
    ],
    ids=["retyped", "remapped", "no columns"],
)
def test_any_other_change_of_structure_is_refused(pipeline: Pipeline, columns: tuple[Column, ...]) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", "a")])
    fault = fault_of(lambda: pipeline.change(ORDERS, with_columns(orders, *columns)))
    assert (fault.kind, fault.subject) == (FaultKind.TABLE_STRUCTURE_CHANGED, ORDERS)
    assert pipeline.rows(orders) == [(1, "new", "a")]


def test_another_key_is_refused(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [])
    rekeyed = dataclasses.replace(orders, key=("state",))
    assert fault_of(lambda: pipeline.change(ORDERS, rekeyed)).kind is FaultKind.TABLE_STRUCTURE_CHANGED


def test_what_does_not_concern_the_target_changes_freely(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", "a")])
    strict = tuple(dataclasses.replace(column, nullable=False) for column in orders.columns)
    changed = dataclasses.replace(with_columns(orders, *strict), relfilenode=99)
    pipeline.change(ORDERS, changed)
    assert pipeline.target.progress(SUBSCRIPTION).tables[ORDERS].schema == changed  # type: ignore[union-attr]
    assert pipeline.rows(orders) == [(1, "new", "a")]


# Parking and removal


def test_a_parked_table_is_recorded_and_keeps_its_rows(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", None)])
    loaded = pipeline.target.progress(SUBSCRIPTION).tables[ORDERS]  # type: ignore[union-attr]
    changed = with_columns(orders, orders.columns[0])
    pipeline.commit(TableCommit(ORDERS, changed, orders.name, parked="value_out_of_domain"))
    parked = pipeline.target.progress(SUBSCRIPTION).tables[ORDERS]  # type: ignore[union-attr]
    assert parked == dataclasses.replace(loaded, parked="value_out_of_domain")
    assert pipeline.rows(orders) == [(1, "new", None)]


def test_a_table_may_park_after_its_changes_and_resume(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", None)])
    code = "table_not_read"
    changed = TableCommit(ORDERS, orders, orders.name, (changes(ORDERS, insert=inserts(orders, [(2, "new", "b")])),))
    end = pipeline.commit(changed, then_parked={ORDERS: code})
    parked = pipeline.target.progress(SUBSCRIPTION).tables[ORDERS]  # type: ignore[union-attr]
    assert (parked.parked, parked.ready, parked.applied) == (code, True, end)
    assert pipeline.rows(orders) == [(1, "new", None), (2, "new", "b")]
    assert pipeline.commit(then_parked={ORDERS: code}) > end
    end = pipeline.commit(TableCommit(ORDERS, orders, orders.name, resumed=True))
    resumed = pipeline.target.progress(SUBSCRIPTION).tables[ORDERS]  # type: ignore[union-attr]
    assert (resumed.parked, resumed.ready, resumed.applied) == (None, True, end)
    # In one batch, too: it could be read again, and then not.
    both = TableCommit(
        ORDERS, orders, orders.name, (changes(ORDERS, insert=inserts(orders, [(3, "new", "c")])),), resumed=True
    )
    pipeline.commit(both, then_parked={ORDERS: code})
    assert pipeline.target.progress(SUBSCRIPTION).tables[ORDERS].parked == code  # type: ignore[union-attr]
    assert len(pipeline.rows(orders)) == 3


def test_a_table_parked_before_its_copy_is_not_ready(pipeline: Pipeline) -> None:
    pipeline.target.adopt(SUBSCRIPTION, ORDERS, orders.name)
    pipeline.commit(TableCommit(ORDERS, orders, orders.name, parked="copy_failed"))
    record = pipeline.target.progress(SUBSCRIPTION).tables[ORDERS]  # type: ignore[union-attr]
    assert (record.ready, record.parked) == (False, "copy_failed")
    pipeline.load(ORDERS, orders, [(1, "new", None)])
    assert pipeline.target.progress(SUBSCRIPTION).tables[ORDERS].parked is None  # type: ignore[union-attr]


def test_a_removed_table_stays_for_readers_and_may_come_back(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", None)])
    pipeline.commit(removed=[ORDERS])
    assert dict(pipeline.target.progress(SUBSCRIPTION).tables) == {}  # type: ignore[union-attr]
    assert pipeline.rows(orders) == [(1, "new", None)]
    assert fault_of(lambda: pipeline.change(ORDERS, orders)).subject == ORDERS
    pipeline.load(TableId("t0ff"), orders, [(2, "x", None)])
    assert pipeline.rows(orders) == [(2, "x", None)]


def test_a_removed_table_goes_with_the_batch_that_says_so(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", None)])
    pipeline.load(ITEMS, items, [])
    pipeline.commit(removed=[ORDERS], dropped=[ORDERS])
    assert dict(pipeline.target.progress(SUBSCRIPTION).tables).keys() == {ITEMS}  # type: ignore[union-attr]
    with pytest.raises(QueryRefused):
        pipeline.rows(orders)
    assert pipeline.rows(items) == []
    pipeline.commit(removed=[ORDERS], dropped=[ORDERS])
    pipeline.load(TableId("t0ff"), orders, [(2, "x", None)])
    pipeline.commit(removed=[ORDERS], dropped=[ORDERS])
    assert pipeline.rows(orders) == [(2, "x", None)]


def test_a_table_that_was_never_complete_has_nothing_to_drop(pipeline: Pipeline) -> None:
    pipeline.target.adopt(SUBSCRIPTION, ORDERS, orders.name)
    pipeline.target.begin_copy(SUBSCRIPTION, ORDERS, orders.name, orders)
    pipeline.commit(removed=[ORDERS], dropped=[ORDERS])
    assert fault_of(lambda: pipeline.target.append_copy(ORDERS, inserts(orders, []))).kind is FaultKind.COPY_FAILED


def test_what_an_earlier_one_left_behind_is_not_dropped_before_a_copy_took_its_place(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", None)])
    pipeline.commit(removed=[ORDERS])
    again = TableId("t0ff")
    pipeline.target.adopt(SUBSCRIPTION, again, orders.name)
    fault = fault_of(lambda: pipeline.commit(removed=[again], dropped=[again]))
    assert (fault.kind, fault.subject) == (FaultKind.TABLE_NOT_DROPPED, again)
    pipeline.commit(removed=[again])
    assert pipeline.rows(orders) == [(1, "new", None)]


def test_a_table_that_others_depend_on_is_not_dropped_and_nothing_of_the_batch_stays(
    pipeline: Pipeline, build: Build
) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", None)])
    pipeline.load(ITEMS, items, [])
    build(f"CREATE VIEW public.seen AS SELECT * FROM {sql_name(orders.name)}")
    before = pipeline.target.progress(SUBSCRIPTION)
    fault = fault_of(lambda: pipeline.commit(removed=[ORDERS, ITEMS], dropped=[ORDERS, ITEMS]))
    assert (fault.kind, fault.subject) == (FaultKind.TABLE_NOT_DROPPED, ORDERS)
    assert "seen" in fault.detail
    assert pipeline.target.progress(SUBSCRIPTION) == before
    pipeline.commit(removed=[ORDERS, ITEMS], dropped=[ITEMS])
    assert pipeline.rows(orders) == [(1, "new", None)]
    with pytest.raises(QueryRefused):
        pipeline.rows(items)
    build("DROP VIEW public.seen")
    pipeline.commit(removed=[ORDERS], dropped=[ORDERS])
    with pytest.raises(QueryRefused):
        pipeline.rows(orders)


def test_what_another_subscription_left_behind_has_its_name_until_it_is_gone(target: Target, build: Build) -> None:
    one = Pipeline(target).claim()
    one.load(ORDERS, orders, [(1, "new", None)])
    target.forget(one.subscription)
    other = Pipeline(target, SubscriptionName("other")).claim()
    refused = fault_of(lambda: other.load(TableId("t0ff"), orders, []))
    assert (refused.kind, refused.subject) == (FaultKind.TABLE_NAME_COLLISION, "t0ff")
    assert "left by another subscription" in refused.detail
    build(f"DROP TABLE {sql_name(orders.name)}")
    target.adopt(other.subscription, TableId("t0ff"), orders.name)
    target.begin_copy(other.subscription, TableId("t0ff"), orders.name, orders)
    other.commit(TableCommit(TableId("t0ff"), orders, orders.name, handover=True))
    assert other.rows(orders) == []
    one.claim()
    refused = fault_of(lambda: one.load(ORDERS, orders, []))
    assert (refused.kind, "already the target" in refused.detail) == (FaultKind.TABLE_NAME_COLLISION, True)


def test_each_subscription_into_a_target_has_its_own_progress(target: Target) -> None:
    one, other = Pipeline(target).claim(), Pipeline(target, SubscriptionName("other"), epoch=7).claim()
    one.load(ORDERS, orders, [(1, "new", None)])
    other.end = 50_000
    other.load(TableId("t0ff"), items, [])
    end = other.change(
        TableId("t0ff"), items, changes(TableId("t0ff"), insert=inserts(items, [(1, 1, Decimal("1.50"))]))
    )
    mine, theirs = target.progress(one.subscription), target.progress(other.subscription)
    assert mine is not None
    assert theirs is not None
    assert (mine.epoch, mine.end, list(mine.tables)) == (1, Lsn(one.end), [ORDERS])
    assert (theirs.epoch, theirs.end, list(theirs.tables)) == (7, end, [TableId("t0ff")])
    target.forget(one.subscription)
    assert target.progress(one.subscription) is None
    assert target.progress(other.subscription) == theirs
    assert len(other.rows(items)) == 1
    assert other.look("SELECT * FROM public.orders") == [(1, "new", None)]
    with pytest.raises(QueryRefused):
        other.rows(orders)


def test_a_stale_table_is_complete_again_when_it_resumes(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", None)])
    pipeline.load(ITEMS, items, [])
    end = Lsn(pipeline.end + 100)
    stale = BatchCommit(SUBSCRIPTION, pipeline.epoch, BatchId(pipeline.batch + 1), end, stale=(ORDERS,))
    pipeline.target.commit(stale)
    pipeline.batch, pipeline.end = stale.batch, end.value
    tables = pipeline.target.progress(SUBSCRIPTION).tables  # type: ignore[union-attr]
    assert (tables[ORDERS].ready, tables[ITEMS].ready) == (False, True)
    more = (changes(ORDERS, insert=inserts(orders, [(2, "late", None)])),)
    assert fault_of(lambda: pipeline.change(ORDERS, orders, *more)).subject == ORDERS
    resumed = pipeline.commit(TableCommit(ORDERS, orders, orders.name, more, resumed=True))
    record = pipeline.target.progress(SUBSCRIPTION).tables[ORDERS]  # type: ignore[union-attr]
    assert (record.ready, record.applied) == (True, resumed)
    assert pipeline.rows(orders) == [(1, "new", None), (2, "late", None)]


# Marks


def mark_of(pipeline: Pipeline, table: TableId) -> str | None:
    return pipeline.target.progress(SUBSCRIPTION).tables[table].mark  # type: ignore[union-attr]


def test_a_mark_is_written_with_its_batch_and_taken_away_again(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", None)])
    pipeline.load(ITEMS, items, [])
    assert mark_of(pipeline, ORDERS) is None
    text = "[16384,[[7,\"public.\u00e9 'x'\",9]]]"
    pipeline.commit(marks={ORDERS: text})
    assert (mark_of(pipeline, ORDERS), mark_of(pipeline, ITEMS)) == (text, None)
    pipeline.commit(
        TableCommit(ORDERS, orders, orders.name, (changes(ORDERS, truncated=True),)), marks={ORDERS: None, ITEMS: "m"}
    )
    assert (mark_of(pipeline, ORDERS), mark_of(pipeline, ITEMS)) == (None, "m")


def test_a_mark_of_a_batch_that_fails_is_not_written(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [])
    gone = TableCommit(ORDERS, orders, orders.name, (changes(ORDERS, delete=keys(orders, [(9,)])),))
    fault_of(lambda: pipeline.commit(gone, marks={ORDERS: "m"}))
    assert mark_of(pipeline, ORDERS) is None


def test_a_mark_stays_over_ordinary_batches(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", None)])
    pipeline.commit(marks={ORDERS: "m"})
    pipeline.change(ORDERS, orders, changes(ORDERS, insert=inserts(orders, [(2, "x", None)])))
    assert mark_of(pipeline, ORDERS) == "m"
    narrower = with_columns(orders, *orders.columns[:2])
    pipeline.change(ORDERS, narrower)
    assert mark_of(pipeline, ORDERS) == "m"
    pipeline.commit(stale=[ORDERS])
    pipeline.commit(TableCommit(ORDERS, narrower, orders.name, resumed=True))
    assert mark_of(pipeline, ORDERS) == "m"


def test_a_mark_goes_with_a_hand_over_and_with_parking(pipeline: Pipeline) -> None:
    for table, schema in ((ORDERS, orders), (ITEMS, items)):
        pipeline.load(table, schema, [])
        pipeline.commit(marks={table: "m"})
    pipeline.load(ORDERS, orders, [])
    pipeline.commit(TableCommit(ITEMS, items, items.name, parked="table_partitions_changed"))
    assert (mark_of(pipeline, ORDERS), mark_of(pipeline, ITEMS)) == (None, None)


# Names


def test_a_name_is_reserved_for_one_table(pipeline: Pipeline) -> None:
    pipeline.target.adopt(SUBSCRIPTION, ORDERS, orders.name)
    pipeline.target.adopt(SUBSCRIPTION, ORDERS, orders.name)
    fault = fault_of(lambda: pipeline.target.adopt(SUBSCRIPTION, ITEMS, orders.name))
    assert (fault.kind, fault.subject) == (FaultKind.TABLE_NAME_COLLISION, ITEMS)


def test_two_subscriptions_share_a_target_but_no_table(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "a", None)])
    other = Pipeline(pipeline.target, subscription="crm").claim()  # type: ignore[arg-type]
    fault = fault_of(lambda: pipeline.target.adopt(other.subscription, ITEMS, orders.name))
    assert fault.kind is FaultKind.TABLE_NAME_COLLISION
    other.load(ITEMS, items, [(1, 1, None)])
    pipeline.commit(removed=[ORDERS])
    assert fault_of(lambda: pipeline.target.adopt(other.subscription, LOGS, orders.name)).subject == LOGS
    assert list(pipeline.target.progress(other.subscription).tables) == [ITEMS]  # type: ignore[union-attr]


AWKWARD = [
    TableName("public", "MixedCase"),
    TableName("Sales.2024/Q1", 'quo"ted'),
    TableName("größe", "日本語 таблица"),
    TableName("public", "select"),
    TableName("public", "a.b/c;--'\\"),
    TableName("public", "x" * 63),
    TableName("public", " "),
]


@pytest.mark.parametrize("name", AWKWARD, ids=range(len(AWKWARD)))
def test_any_name_works(pipeline: Pipeline, name: TableName) -> None:
    columns = {
        "Id": "int4",
        "rowid": "text",
        'a "b".c': "text",
        "c0": "text",
        "k0": "text",
        "группа": "text",
        "end": "text",
    }
    schema = structure(name, columns, ["Id"])
    first = (1, "a", "b", "c", "d", "e", "f")
    pipeline.load(ORDERS, schema, [first])
    moved = partials(schema, [((1,), (2, "A", None, None, None, None, None), frozenset({2, 3, 4, 5, 6}))])
    pipeline.change(ORDERS, schema, changes(ORDERS, delete=keys(schema, [(1,)]), partial=moved))
    assert pipeline.rows(schema) == [(2, "A", "b", "c", "d", "e", "f")]
    wider = with_columns(schema, *schema.columns[:2], Column('n"w', source_type("text"), 8, fill="it's"))
    pipeline.change(ORDERS, wider)
    assert pipeline.rows(schema) == [(2, "A", "it's")]


def test_rows_without_a_key_go_by_count_whatever_their_columns_are_called(pipeline: Pipeline) -> None:
    schema = structure(TableName("public", "bag"), {"RowId": "int4", "n": "int4", "image": "text"}, mode=KeyMode.BAG)
    pipeline.load(LOGS, schema, [(1, 5, "a"), (1, 5, "a"), (2, 6, None)])
    table = inserts(schema, [(1, 5, "a"), (2, 6, None)])
    both = table.append_column("n", images(schema, {(1, 5, "a"): 1, (2, 6, None): 1})["n"])
    pipeline.change(LOGS, schema, changes(LOGS, delete=both, insert=inserts(schema, [(3, 7, "c")])))
    assert pipeline.rows(schema) == [(1, 5, "a"), (3, 7, "c")]


# Values

EXTREMES: dict[str, list[Any]] = {
    "bool": [True, False],
    "int2": [-(2**15), 2**15 - 1],
    "int4": [-(2**31), 2**31 - 1],
    "int8": [-(2**63), 2**63 - 1],
    "oid": [0, 2**32 - 1],
    "float4": [float("inf"), -0.0, 1.401298464324817e-45],
    "float8": [float("-inf"), -0.0, 5e-324, 1.7976931348623157e308],
    "numeric(38,0)": [Decimal(10**38 - 1), Decimal(-(10**38) + 1)],
    "numeric(38,38)": [Decimal("0." + "9" * 38)],
    "text": ["", "NULL", "\x01 ' \" \\ \n\t", "𝔘𝔫𝔦 é e\u0301"],
    "bytea": [b"", b"\x00\xff\\"],
    "date": [2**31 - 1, -(2**31 - 1), 0, -2_440_588, 2_932_897],
    "timestamp": [2**63 - 1, -(2**63 - 1), 0, -210_866_803_200_000_000, 253_402_300_800_000_000],
    "timestamptz": [2**63 - 1, -(2**63 - 1), 0, -1],
    "time": [0, 86_399_999_999, 86_400_000_000],
    "uuid": ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"],
    "int4[]": [[], [1, None, -(2**31)], [None]],
    "text[]": [["", "NULL", None, 'a,b{}"\\']],
    "uuid[]": [["ffffffff-ffff-ffff-ffff-ffffffffffff", None], []],
    "numeric(5,2)[]": [[Decimal("999.99"), None]],
}


@pytest.mark.parametrize("kind", sorted(EXTREMES))
def test_values_arrive_exactly(pipeline: Pipeline, kind: str) -> None:
    schema = structure(TableName("public", "v"), {"id": "int4", "v": kind}, ["id"])
    rows = list(enumerate([*EXTREMES[kind], None]))
    pipeline.load(ORDERS, schema, rows[:1])
    pipeline.change(ORDERS, schema, changes(ORDERS, insert=inserts(schema, rows[1:])))
    answer = answered(pipeline.target, "SELECT v FROM public.v ORDER BY id", 100, 10.0, SUBSCRIPTION)
    expected = inserts(schema, rows)["c1"]
    got = answer.table.column(0).cast(expected.type)
    if "float" in kind:
        assert [str(x) for x in got.to_pylist()] == [str(x) for x in expected.to_pylist()]
    else:
        assert got.equals(expected)
    record = pipeline.target.progress(SUBSCRIPTION).tables[ORDERS]  # type: ignore[union-attr]
    with pipeline.target.pin(SUBSCRIPTION) as reader:
        assert reader.compare(record, inserts(schema, rows).to_batches(), 10) == (len(rows), len(rows), [])
        with reader.rows(record, QueryLimits(60.0)) as answer:
            read = pa.Table.from_batches(answer.batches, answer.schema).sort_by("id")
    read_values = read.column(1).cast(expected.type)
    assert read_values.equals(got) or ("float" in kind and [*map(str, read_values)] == [*map(str, got)])


# Reading


def test_an_answer_names_the_batch_it_saw(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "a", None), (2, "b", None), (3, "c", None)])
    end = pipeline.commit()
    answer = answered(pipeline.target, "SELECT id FROM public.orders ORDER BY id", 2, 10.0, SUBSCRIPTION)
    assert (answer.position, answer.truncated, answer.table.to_pydict()) == (end, True, {"id": [1, 2]})
    whole = answered(pipeline.target, "SELECT id FROM public.orders ORDER BY id", 3, 10.0, SUBSCRIPTION)
    assert (whole.truncated, whole.table.num_rows) == (False, 3)


def test_a_pinned_reader_stays_where_it_is(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "a", None)])
    record = pipeline.target.progress(SUBSCRIPTION).tables[ORDERS]  # type: ignore[union-attr]
    end = Lsn(pipeline.end)
    with pipeline.target.pin(SUBSCRIPTION) as reader:
        wider = with_columns(orders, *orders.columns, Column("more", source_type("int4"), 4, fill="1"))
        pipeline.change(
            ORDERS, wider, changes(ORDERS, delete=keys(wider, [(1,)]), insert=inserts(wider, [(2, "b", None, 3)]))
        )
        assert reader.position == end
        assert reader.compare(record, inserts(orders, [(1, "a", None)]).to_batches(), 10) == (1, 1, [])
    assert pipeline.rows(wider) == [(2, "b", None, 3)]


def test_a_pinned_reader_reads_tables_of_one_boundary(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "a", None)])
    pipeline.load(ITEMS, items, [(1, 1, Decimal("1.00"))])
    end = Lsn(pipeline.end)
    with pipeline.target.pin(SUBSCRIPTION) as reader:
        pipeline.change(ORDERS, orders, changes(ORDERS, insert=inserts(orders, [(2, "b", None)])))
        pipeline.change(ITEMS, items, changes(ITEMS, insert=inserts(items, [(2, 1, Decimal("2.00"))])))
        progress = reader.progress(SUBSCRIPTION)
        assert progress is not None
        assert (reader.position, progress.end, progress.tables.keys()) == (end, end, {ORDERS, ITEMS})
        found = {}
        for table, record in progress.tables.items():
            with reader.rows(record, QueryLimits(60.0)) as answer:
                assert answer.position == end
                found[table] = pa.Table.from_batches(answer.batches, answer.schema).to_pylist()
                assert all(field.metadata[TARGET_TYPE] for field in answer.schema)
        assert found == {
            ORDERS: [{"id": 1, "state": "a", "note": None}],
            ITEMS: [{"order_id": 1, "n": 1, "price": Decimal("1.00")}],
        }


def test_a_pinned_read_ends_at_its_limit_and_when_cancelled(pipeline: Pipeline) -> None:
    pipeline.load(LOGS, logs, [("a", 1.0, i) for i in range(5000)])
    cancelled = QueryLimits(60.0)
    cancelled.cancellation.cancel()

    def read(limits: QueryLimits) -> None:
        with pipeline.target.pin(SUBSCRIPTION) as reader:
            record = reader.progress(SUBSCRIPTION).tables[LOGS]  # type: ignore[union-attr]
            with reader.rows(record, limits) as answer:
                list(answer.batches)

    for limits, code in ((QueryLimits(0.0), "query_timeout"), (cancelled, "query_cancelled")):
        with pytest.raises(QueryRefused) as refused:
            read(limits)
        assert refused.value.code == code


def test_comparison_names_the_keys_that_differ(pipeline: Pipeline) -> None:
    pipeline.load(ITEMS, items, [(1, 1, Decimal("1.00")), (1, 2, None), (2, 1, Decimal("3.00")), (3, 1, Decimal(0))])
    record = pipeline.target.progress(SUBSCRIPTION).tables[ITEMS]  # type: ignore[union-attr]
    source = [(1, 1, Decimal("1.00")), (1, 2, Decimal(0)), (2, 2, Decimal("3.00")), (3, 1, Decimal(0))]
    expected = [
        {"key": ["1", "2"], "kind": "different", "columns": ("price",), "exact": ("1", "2")},
        {"key": ["2", "1"], "kind": "extra", "columns": (), "exact": ("2", "1")},
        {"key": ["2", "2"], "kind": "missing", "columns": (), "exact": ("2", "2")},
    ]
    with pipeline.target.pin(SUBSCRIPTION) as reader:
        assert reader.compare(record, inserts(items, source).to_batches(max_chunksize=1), 10) == (4, 4, expected)
        assert reader.compare(record, inserts(items, source).to_batches(), 2) == (4, 4, expected[:2])
        extra = {"key": ["1", "1"], "kind": "extra", "columns": (), "exact": ("1", "1")}
        assert reader.compare(record, iter(()), 1) == (0, 4, [extra])


def test_comparison_without_a_key_counts_copies(pipeline: Pipeline) -> None:
    pipeline.load(LOGS, logs, [("a", -0.0, 1), ("a", -0.0, 1), (None, float("nan"), None)])
    record = pipeline.target.progress(SUBSCRIPTION).tables[LOGS]  # type: ignore[union-attr]
    source = [("a", -0.0, 1), (None, float("nan"), None), ("a", 0.0, 1)]
    with pipeline.target.pin(SUBSCRIPTION) as reader:
        rows, held, differences = reader.compare(record, inserts(logs, source).to_batches(), 10)
    assert (rows, held) == (3, 3)
    assert sorted((d["kind"], d["copies"]) for d in differences) == [("extra", 1), ("missing", 1)]
    assert all(d["key"][0] == "a" for d in differences)


@pytest.mark.parametrize("size", [20_000, 400_000])
@pytest.mark.parametrize("mode", [KeyMode.KEYED, KeyMode.BAG])
def test_comparison_of_large_values_finds_what_differs_far_behind(pipeline: Pipeline, mode: KeyMode, size: int) -> None:
    """The larger rows are more than are to be read at once."""
    key = ["id"] if mode is KeyMode.KEYED else []
    pages = structure(TableName("public", "pages"), {"id": "int4", "v": "text", "b": "bytea"}, key, mode)
    held = [(i, f"{i}" * size, bytes([i]) * size) for i in range(1, 6)] + [(6, "short", None), (7, None, b"")]
    pipeline.load(ORDERS, pages, held)
    record = pipeline.target.progress(SUBSCRIPTION).tables[ORDERS]  # type: ignore[union-attr]
    other = [(i, v, b) for i, v, b in held if i != 5]
    other[1] = (2, held[1][1][:-1] + "x", held[1][2])
    other[2] = (3, held[2][1], held[2][2][:-1] + b"x")
    other[3] = (4, None, held[3][2])
    with pipeline.target.pin(SUBSCRIPTION) as reader:
        assert reader.compare(record, inserts(pages, held).to_batches(max_chunksize=2), 20) == (7, 7, [])
        rows, there, found = reader.compare(record, inserts(pages, other).to_batches(), 20)
    assert (rows, there) == (6, 7)
    kinds = sorted((d["key"][0], d["kind"]) for d in found)
    if mode is KeyMode.KEYED:
        assert kinds == [("2", "different"), ("3", "different"), ("4", "different"), ("5", "extra")]
    else:
        pairs = [(i, kind) for i in "234" for kind in ("extra", "missing")]
        assert kinds == sorted([*pairs, ("5", "extra")])
        assert all(len(text or "") <= 200 for d in found for text in d["key"])


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "SELECT 1; SELECT 2",
        "INSERT INTO public.orders VALUES (9)",
        "DELETE FROM public.orders",
        "DROP TABLE public.orders",
        "CREATE TABLE public.mine (a int)",
        "BEGIN; SELECT 1",
        "WITH gone AS (DELETE FROM public.orders RETURNING *) SELECT * FROM gone",
        "SELECT * FROM public.nothing",
        "SELEC",
    ],
)
def test_anything_but_one_read_is_refused(pipeline: Pipeline, sql: str) -> None:
    pipeline.load(ORDERS, orders, [(1, "a", None)])
    with pytest.raises(QueryRefused) as caught:
        pipeline.select(sql)
    assert caught.value.code in {"query_not_a_read", "query_invalid"}
    assert pipeline.rows(orders) == [(1, "a", None)]


# Keeping


def test_all_is_still_there_when_the_target_is_opened_again(opened: OpenTarget) -> None:
    first = opened()
    pipeline = Pipeline(first).claim()
    pipeline.load(ORDERS, orders, [(1, "a", None)])
    odd = dataclasses.replace(
        logs, columns=(*logs.columns, Column("e", SourceType("mood", category="e", oid=7), 9, False, "sad", "text"))
    )
    pipeline.load(LOGS, odd, [])
    pipeline.commit(marks={ORDERS: "m"})
    before = first.progress(SUBSCRIPTION)
    first.close()
    second = opened()
    assert second.progress(SUBSCRIPTION) == before
    assert Pipeline(second).rows(orders) == [(1, "a", None)]
    second.close()


def test_preflight_finds_names_that_cannot_stand_beside_each_other(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [])
    findings = pipeline.target.check([TableName("public", "fresh"), orders.name])
    assert [f for f in findings if f[0] == "error"] == []
    twice = pipeline.target.check([TableName("public", "fresh"), TableName("public", "fresh")])
    assert [(f[0], f[1]) for f in twice if f[0] == "error"] == [("error", "table_name_collision")]
