"""History as every target keeps it: versions begin and end with their changes, through slices, structures, reloads and removals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.copy.partition_filter import partition_rows
from engine.model.batch import TableChanges
from engine.model.fault import FaultKind
from engine.model.history import FROM_POSITION, HISTORY_COLUMNS, TO_POSITION, VALID_FROM, VALID_TO, history_of
from engine.model.identity import RelationId, SubscriptionName, TableId, TableName
from engine.model.last_commit import LastCommit
from engine.model.masks import Mask, MaskMethod
from engine.model.partitions import LoadReason, RangeBound
from engine.model.position import Lsn
from engine.model.schema import SourceType, TableSchema
from engine.model.target import BatchCommit, PartitionSwap, QueryLimits, QueryRefused, TableCommit, TableRead
from engine.net import decode_copy_text
from tests.contract.target_material import (
    SUBSCRIPTION,
    Pipeline,
    Row,
    changes,
    fault_of,
    inserts,
    keys,
    sql_name,
    structure,
)
from tests.contract.targets import EACH_KIND, OpenTarget, target_opener
from tests.unit.net.batch_builder import column
from tests.unit.net.history_model import OID, History, Step, Transaction, time_of
from tests.unit.net.test_soft_delete_property import PLAIN, ROWS, TRANSACTIONS, shares_of
from tests.unit.net.test_versions_property import KEPT, batches, logged
from tests.unit.net.version_oracle import INITIAL, oracle

pytestmark = pytest.mark.pg

TABLE = TableId(f"t{OID:x}")
KEPT_AT = history_of(KEPT.name)
NOW_US = 1_780_000_000_000_000
ORDERS = TableId("t0a")
_PLAIN = structure(TableName("public", "orders"), {"id": "int4", "state": "text", "note": "text"}, ["id"])
orders = replace(_PLAIN, history=True)


class Dated(Pipeline):
    """Its batches know the time, as those of the engine do."""

    def write(self, batch: BatchCommit) -> None:
        self.target.commit(replace(batch, now_us=NOW_US))


@pytest.fixture
def pipeline(opened: OpenTarget) -> Iterator[Pipeline]:
    made = Dated(opened()).claim()
    yield made
    made.target.close()


def history(pipeline: Pipeline, schema: TableSchema = orders, columns: str | None = None) -> list[Row]:
    """Columns of the versions and their positions, the current ones last."""
    names = columns or ", ".join(f'"{c.name}"' for c in schema.columns)
    place = sql_name(history_of(schema.name))
    sql = f"SELECT {names}, {FROM_POSITION}, {TO_POSITION} FROM {place}"
    return sorted(pipeline.select(sql), key=lambda row: (row[-1] is None, *map(str, row)))


def steps(*taken: Step) -> list[Transaction]:
    """A transaction for each step."""
    return [Transaction([("top", [step])], [], [0]) for step in taken]


def at(time_us: int) -> datetime:
    return datetime.fromtimestamp(time_us / 1_000_000, UTC)


# Copies and reloads


def test_the_history_begins_with_the_copy(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", "a"), (2, "new", None)])
    begun = str(Lsn(pipeline.end))
    assert history(pipeline) == [(1, "new", "a", begun, None), (2, "new", None, begun, None)]
    times = pipeline.select(f"SELECT DISTINCT {VALID_FROM}, {VALID_TO} FROM {sql_name(history_of(orders.name))}")
    assert times == [(at(NOW_US), None)]


def test_the_time_of_a_copy_is_that_of_the_last_transaction_before(pipeline: Pipeline) -> None:
    pipeline.target.adopt(SUBSCRIPTION, ORDERS, orders.name)
    pipeline.target.begin_copy(SUBSCRIPTION, ORDERS, orders.name, orders)
    pipeline.target.append_copy(ORDERS, inserts(orders, [(1, "new", "a")]))
    pipeline.target.finish_copy(ORDERS)
    last = LastCommit(Lsn(1000), Lsn(1050), NOW_US - 7)
    pipeline.commit(TableCommit(ORDERS, orders, orders.name, handover=True), last=last)
    assert pipeline.select(f"SELECT {VALID_FROM} FROM {sql_name(history_of(orders.name))}") == [(at(NOW_US - 7),)]


def test_a_reload_ends_what_differs_and_leaves_equal_versions(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "same", None), (2, "old", "b"), (3, "gone", "c")])
    first = str(Lsn(pipeline.end))
    pipeline.load(ORDERS, orders, [(1, "same", None), (2, "new", "b"), (4, "fresh", "d")])
    second = str(Lsn(pipeline.end))
    assert history(pipeline) == [
        (2, "old", "b", first, second),
        (3, "gone", "c", first, second),
        (1, "same", None, first, None),
        (2, "new", "b", second, None),
        (4, "fresh", "d", second, None),
    ]
    ended = pipeline.select(
        f"SELECT {VALID_TO} FROM {sql_name(history_of(orders.name))} WHERE {TO_POSITION} IS NOT NULL"
    )
    assert ended == [(at(NOW_US),)] * 2


def test_a_reload_distinguishes_values_as_they_are_printed(pipeline: Pipeline) -> None:
    schema = replace(structure(orders.name, {"id": "int4", "n": "float8", "l": "float8[]"}, ["id"]), history=True)
    rows: list[Row] = [(1, float("nan"), None), (2, 0.0, [0.0]), (3, None, [1.5, None])]
    pipeline.load(ORDERS, schema, rows)
    pipeline.load(ORDERS, schema, rows)
    assert len(history(pipeline, schema)) == 3
    pipeline.load(ORDERS, schema, [rows[0], (2, -0.0, [0.0]), (3, None, [1.5, 0.0])])
    assert [row[0] for row in history(pipeline, schema) if row[-1] is not None] == [2, 3]


def test_a_copy_with_changes_begins_with_its_rows_as_they_are_then(pipeline: Pipeline) -> None:
    pipeline.target.adopt(SUBSCRIPTION, ORDERS, orders.name)
    pipeline.target.begin_copy(SUBSCRIPTION, ORDERS, orders.name, orders, keyed=True)
    pipeline.target.append_copy(ORDERS, inserts(orders, [(1, "old", "a"), (2, "new", "b")]))
    change = changes(ORDERS, delete=keys(orders, [(1,)]), insert=inserts(orders, [(3, "late", None)]))
    pipeline.commit(TableCommit(ORDERS, orders, orders.name, (change,), handover=True))
    begun = str(Lsn(pipeline.end))
    assert history(pipeline) == [(2, "new", "b", begun, None), (3, "late", None, begun, None)]


def test_a_reload_by_partition_ends_versions_of_its_rows_only(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(9, "a", None), (10, "a", None), (11, "a", None), (12, "a", None), (20, "a", None)])
    first = str(Lsn(pipeline.end))
    pipeline.target.begin_copy(SUBSCRIPTION, ORDERS, orders.name, orders, keyed=True, load="r1-1")
    pipeline.target.append_copy(ORDERS, inserts(orders, [(10, "a", None), (11, "b", None), (13, "b", None)]))
    tens = partition_rows([(RangeBound(("id",), ("10",), ("20",)),)], orders, decode_copy_text)
    swap = PartitionSwap(tens, (), {"public.orders_10": LoadReason.ASKED}, "r1", "r1-1")
    pipeline.commit(TableCommit(ORDERS, orders, orders.name, swap=swap))
    second = str(Lsn(pipeline.end))
    ended = [(11, "a", None, first, second), (12, "a", None, first, second)]
    standing = [(10, "a", None, first, None), (20, "a", None, first, None), (9, "a", None, first, None)]
    begun = [(11, "b", None, second, None), (13, "b", None, second, None)]
    found = history(pipeline)
    assert found[:2] == ended
    assert Counter(found[2:]) == Counter(standing + begun)


# Changes


def played(
    pipeline: Pipeline, before: Sequence[Row], transactions: Sequence[Transaction], schema: TableSchema = KEPT
) -> History:
    """Load the table and apply the transactions as one batch."""
    pipeline.load(TABLE, schema, list(before))
    made = History(list(before), full=False, keyed=True)
    for transaction in transactions:
        made.run(transaction)
    pipeline.change(TABLE, schema, *shares_of(*made.log(), schema, 2))
    return made


def test_versions_between_two_batches_are_all_there(pipeline: Pipeline) -> None:
    played(
        pipeline,
        [(1, "a", "long")],
        steps(
            Step("update", 0, 0, 1, keep=True),
            Step("update", 0, 0, 2, keep=True),
            Step("move", 0, 5, 2, keep=True),
            Step("delete", 0, 0, 0, keep=False),
        ),
    )
    place = sql_name(KEPT_AT)
    rows = pipeline.select(
        f"SELECT id, big, {VALID_FROM}, {VALID_TO} FROM {place} WHERE {FROM_POSITION} <> '{Lsn(pipeline.end - 100)}'"
    )
    times = [at(time_of(10_000 + n)) for n in range(1, 5)]
    assert sorted(rows, key=lambda row: row[2]) == [
        (1, "long", times[0], times[1]),
        (1, "long", times[1], times[2]),
        (5, "long", times[2], times[3]),
    ]
    as_of = [
        f"SELECT id FROM {place} WHERE {VALID_FROM} <= '{time}' AND ({VALID_TO} > '{time}' OR {VALID_TO} IS NULL)"
        for time in times
    ]
    assert [pipeline.select(sql) for sql in as_of] == [[(1,)], [(1,)], [(5,)], []]


def test_a_version_to_end_must_be_there(pipeline: Pipeline) -> None:
    pipeline.load(TABLE, KEPT, [(1, "a", "long")])
    made = History([(1, "a", "long"), (2, "b", None)], full=False, keyed=True)
    made.run(*steps(Step("delete", 1, 0, 0, keep=False)))
    (net,) = shares_of(*made.log(), KEPT, 1)
    alone = replace(net, deletes=None, tally=None, versions=None)
    assert fault_of(lambda: pipeline.change(TABLE, KEPT, alone)).kind is FaultKind.NET_CHANGE_ANOMALY


def test_a_batch_that_lacks_versions_is_not_committed(pipeline: Pipeline) -> None:
    pipeline.load(TABLE, KEPT, [(1, "a", None)])
    made = History([(1, "a", None)], full=False, keyed=True)
    made.run(*steps(Step("update", 0, 0, 2, keep=True)))
    (net,) = shares_of(*made.log(), KEPT, 1)
    assert (
        fault_of(lambda: pipeline.change(TABLE, KEPT, replace(net, versions=None))).kind is FaultKind.LEDGER_UNBALANCED
    )
    pipeline.change(TABLE, KEPT, net)
    assert len(history(pipeline, KEPT)) == 2


def test_changes_computed_before_their_commit_have_its_position(pipeline: Pipeline) -> None:
    pipeline.load(TABLE, KEPT, [(1, "a", None)])
    made = History([(1, "a", None)], full=False, keyed=True)
    made.run(*steps(Step("update", 0, 0, 2, keep=True)))
    net = [replace(one, commit_us=NOW_US, commit_end=77) for one in shares_of(*made.log(), KEPT, 1)]
    pipeline.change(TABLE, KEPT, *net)
    assert [row[-2:] for row in history(pipeline, KEPT)] == [(str(Lsn(1100)), str(Lsn(77))), (str(Lsn(77)), None)]


# Structures


def test_columns_are_added_dropped_renamed_and_widened_in_all_versions(pipeline: Pipeline) -> None:
    one, state, note = orders.columns
    short = replace(orders, columns=(one, replace(state, type=SourceType("varchar", 12)), note))
    pipeline.load(ORDERS, short, [(1, "new", "a"), (2, "new", "b")])
    pipeline.load(ORDERS, short, [(1, "new", "a")])
    later = replace(orders, columns=(one, replace(state, name="status"), column("total", "int4", 4, fill="7")))
    pipeline.commit(TableCommit(ORDERS, later, later.name))
    assert [row[:3] for row in history(pipeline, later, "id, status, total")] == [(2, "new", 7), (1, "new", 7)]
    pipeline.load(ORDERS, later, [(1, "a longer state than before", 8)])
    assert [row[1] for row in history(pipeline, later)][-1] == "a longer state than before"


def test_a_table_created_again_is_matched_by_names(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", "a")])
    made = structure(orders.name, {"note": "text", "id": "int8", "total": "int4"}, ["id"])
    again = replace(made, relation=RelationId(20_000), history=True)
    pipeline.load(ORDERS, again, [("x", 2, 5)])
    assert [row[:3] for row in history(pipeline, again)] == [("a", 1, None), ("x", 2, 5)]


@pytest.mark.parametrize("change", ["type", "key", "mask"])
def test_versions_that_do_not_fit_are_not_dropped(pipeline: Pipeline, change: str) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", "a")])
    before = history(pipeline)
    columns = {"id": "int4", "state": "int4" if change == "type" else "text", "note": "text"}
    other = structure(orders.name, columns, ["id", "state"] if change == "key" else ["id"])
    if change == "mask":
        other = replace(other, columns=(*other.columns[:2], replace(other.columns[2], mask=Mask(MaskMethod.NULL))))
    other = replace(other, history=True)
    pipeline.target.begin_copy(SUBSCRIPTION, ORDERS, other.name, other)
    pipeline.target.finish_copy(ORDERS)
    fault = fault_of(lambda: pipeline.commit(TableCommit(ORDERS, other, other.name, handover=True)))
    assert (fault.kind, fault.subject) == (FaultKind.TABLE_COLUMNS_UNFIT, ORDERS)
    assert "history" in fault.detail
    assert history(pipeline) == before


@pytest.mark.parametrize("name", HISTORY_COLUMNS)
def test_a_source_column_with_our_name_is_refused(pipeline: Pipeline, name: str) -> None:
    twin = replace(structure(orders.name, {"id": "int4", name: "text"}, ["id"]), history=True)
    pipeline.target.adopt(SUBSCRIPTION, ORDERS, twin.name)
    fault = fault_of(lambda: pipeline.target.begin_copy(SUBSCRIPTION, ORDERS, twin.name, twin))
    assert (fault.kind, name in fault.detail) == (FaultKind.TABLE_COLUMNS_UNFIT, True)


# Names, options, removal


def test_the_option_is_switched_by_a_reload_and_off_leaves_the_history(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, _PLAIN, [(1, "new", "a")])
    assert (
        fault_of(lambda: pipeline.commit(TableCommit(ORDERS, orders, orders.name))).kind
        is FaultKind.TABLE_STRUCTURE_CHANGED
    )
    pipeline.load(ORDERS, orders, [(1, "new", "a")])
    assert len(history(pipeline)) == 1
    pipeline.load(ORDERS, _PLAIN, [(1, "newer", "a")])
    place = sql_name(history_of(orders.name))
    assert pipeline.look(f"SELECT id, state FROM {place}") == [(1, "new")]
    fault = fault_of(lambda: pipeline.target.begin_copy(SUBSCRIPTION, ORDERS, orders.name, orders))
    assert (fault.kind, "orders__history" in fault.detail) == (FaultKind.TABLE_NAME_COLLISION, True)


@pytest.mark.parametrize("when", ["before", "during"])
def test_another_table_with_the_name_stays(pipeline: Pipeline, when: str) -> None:
    other, place = TableId("t0b"), history_of(orders.name)
    taken = structure(place, {"id": "int4"}, ["id"])
    pipeline.target.adopt(SUBSCRIPTION, ORDERS, orders.name)
    if when == "during":
        pipeline.target.begin_copy(SUBSCRIPTION, ORDERS, orders.name, orders)
        pipeline.target.finish_copy(ORDERS)
    pipeline.load(other, taken, [(7,)])
    if when == "before":
        fault = fault_of(lambda: pipeline.target.begin_copy(SUBSCRIPTION, ORDERS, orders.name, orders))
    else:
        fault = fault_of(lambda: pipeline.commit(TableCommit(ORDERS, orders, orders.name, handover=True)))
    assert (fault.kind, fault.subject) == (FaultKind.TABLE_NAME_COLLISION, ORDERS)
    assert pipeline.rows(taken) == [(7,)]


def test_no_table_takes_the_name_of_a_history(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", "a")])
    fault = fault_of(lambda: pipeline.target.adopt(SUBSCRIPTION, TableId("t0b"), history_of(orders.name)))
    assert fault.kind is FaultKind.TABLE_NAME_COLLISION


def test_a_check_of_the_target_knows_our_history(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", "a")])
    place = history_of(orders.name)
    codes = [finding[1] for finding in pipeline.target.check([orders.name, place])]
    assert "target_table_exists" not in codes
    pipeline.load(ORDERS, _PLAIN, [(1, "new", "a")])
    assert any(place.name in finding[2] for finding in pipeline.target.check([orders.name, place]))


def test_the_history_goes_only_with_a_table_that_is_dropped(pipeline: Pipeline) -> None:
    for table, name in ((ORDERS, "orders"), (TableId("t0b"), "lines")):
        schema = replace(orders, name=TableName("public", name))
        pipeline.load(table, schema, [(1, "new", "a")])
        pipeline.commit(removed=[table], dropped=[table] if name == "orders" else [])
    left = pipeline.look("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1")
    assert left == [("lines",), ("lines__history",)]


def test_readers_see_the_history_and_which_table_it_follows(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", "a")])
    reads: list[TableRead] = []
    sql = "SELECT * FROM public.orders__history"
    with pipeline.target.query(sql, QueryLimits(30.0), SUBSCRIPTION, reads.extend) as answer:
        assert sum(batch.num_rows for batch in answer.batches) == 1
    assert [(read.table, read.complete) for read in reads] == [(ORDERS, True)]


def test_the_history_of_another_subscription_is_not_readable(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", "a")])
    other = Dated(pipeline.target, SubscriptionName("other")).claim()
    other.load(TableId("t0c"), replace(_PLAIN, name=TableName("public", "mine")), [])
    with pytest.raises(QueryRefused, match="orders__history"):
        other.select("SELECT * FROM public.orders__history")


# Random histories


@pytest.fixture(scope="module", params=EACH_KIND)
def lasting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """One target for all histories."""
    with target_opener(request.param, request, tmp_path_factory.mktemp("versions")) as opened:
        made = Dated(opened()).claim()
        yield made
        made.target.close()


@settings(max_examples=15, deadline=None)
@given(ROWS, TRANSACTIONS, st.integers(1, 3), st.sets(st.integers(1, 8), max_size=3))
def test_versions_in_batches_and_slices(
    lasting: Pipeline, initial: list[Any], transactions: list[Transaction], buckets: int, borders: set[int]
) -> None:
    """However the log is cut into batches, and these into slices, the target has the versions that the changes give one by one."""
    before, made = logged(initial, transactions)
    lasting.load(TABLE, PLAIN, [])
    with lasting.target.writing() as writer:  # type: ignore[attr-defined]
        writer.tables.drop(KEPT_AT)
    lasting.load(TABLE, KEPT, before)
    begun = lasting.end
    records, ranges = made.log()
    expected = oracle(before, shares_of(records, ranges, PLAIN, 1, in_order=True))
    for batch in batches(ranges, borders):
        slices: list[TableChanges] = [
            replace(share, piece=number)
            for number, one in enumerate(batch)
            for share in shares_of(records, [one], KEPT, buckets)
        ]
        lasting.change(TABLE, KEPT, *slices)
    wanted = [
        (*row, str(Lsn(begun if since == INITIAL else since)), None if until is None else str(Lsn(until)))
        for row, since, until in expected.all()
    ]
    assert Counter(history(lasting, KEPT)) == Counter(wanted)
