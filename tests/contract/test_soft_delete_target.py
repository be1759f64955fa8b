"""Soft delete as every target keeps it: deleted rows stay with their last values, come back, and survive reloads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.copy.partition_filter import partition_rows
from engine.model.batch import TableChanges
from engine.model.fault import FaultKind
from engine.model.identity import RelationId, TableId, TableName
from engine.model.partitions import LoadReason, RangeBound
from engine.model.schema import SourceType, TableSchema
from engine.model.soft_delete import DELETED_AT
from engine.model.target import BatchCommit, PartitionSwap, QueryLimits, TableCommit
from engine.net import decode_copy_text
from tests.contract.target_material import (
    SUBSCRIPTION,
    Pipeline,
    Row,
    changes,
    fault_of,
    inserts,
    keys,
    partials,
    structure,
)
from tests.contract.targets import EACH_KIND, OpenTarget, target_opener
from tests.unit.net.batch_builder import column
from tests.unit.net.dictionary_target import Marked
from tests.unit.net.history_model import ENDS, OID, History, Step, Transaction
from tests.unit.net.test_soft_delete_property import PLAIN, ROWS, SOFT, TRANSACTIONS, one_by_one, shares_of

pytestmark = pytest.mark.pg

ORDERS, LOGGED = TableId("t0a"), TableId(f"t{OID:x}")
_PLAIN = structure(TableName("public", "orders"), {"id": "int4", "state": "text", "note": "text"}, ["id"])
orders = replace(_PLAIN, soft_delete=True)
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
NOW_US = 1_780_000_000_000_000


def us(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


class Keeping(Pipeline):
    """Its batches know the time, as those of the engine do."""

    def write(self, batch: BatchCommit) -> None:
        self.target.commit(replace(batch, now_us=NOW_US))


@pytest.fixture
def pipeline(opened: OpenTarget) -> Iterator[Pipeline]:
    made = Keeping(opened()).claim()
    yield made
    made.target.close()


def tombstones(rows: list[tuple[Row, Row, frozenset[int]]], at: list[datetime | None]) -> Any:
    """Deleted rows, as partials, each with its time."""
    return _timed(partials(orders, rows), at)


def _timed(rows: Any, at: list[datetime | None]) -> Any:
    numbered = rows.append_column("n", pa.array(range(len(at)), pa.int64()))
    numbered = numbered.append_column("doubtful", pa.array([False] * len(at)))
    return numbered.append_column("at", pa.array(at, pa.timestamp("us", "UTC")))


def deleted(*ids: int, at: datetime | None = NOON) -> TableChanges:
    """The deletes of rows whose last values the target has."""
    rows = [((i,), (i, None, None), frozenset({1, 2})) for i in ids]
    change = changes(ORDERS, delete=keys(orders, [(i,) for i in ids]))
    return replace(change, tombstones=tombstones(rows, [at] * len(ids)))


def compared(pipeline: Pipeline, schema: TableSchema, rows: list[Row]) -> tuple[int, int, list[dict[str, Any]]]:
    progress = pipeline.target.progress(SUBSCRIPTION)
    assert progress is not None
    with pipeline.target.pin(SUBSCRIPTION) as reader:
        return reader.compare(progress.tables[ORDERS], inserts(schema, rows).to_batches(), 5)


def test_a_deleted_row_stays_with_its_values_and_comes_back(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", "a"), (2, "new", "b")])
    pipeline.change(ORDERS, orders, deleted(1))
    assert pipeline.rows(orders) == [(1, "new", "a", NOON), (2, "new", "b", None)]
    assert compared(pipeline, orders, [(2, "new", "b")]) == (1, 1, [])
    pipeline.change(ORDERS, orders, changes(ORDERS, insert=inserts(orders, [(1, "again", None)])))
    assert pipeline.rows(orders) == [(1, "again", None, None), (2, "new", "b", None)]


def test_whoever_reads_a_table_whole_sees_which_rows_are_deleted(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", "a"), (2, "new", "b")])
    pipeline.change(ORDERS, orders, deleted(1))
    progress = pipeline.target.progress(SUBSCRIPTION)
    assert progress is not None
    with (
        pipeline.target.pin(SUBSCRIPTION) as reader,
        reader.rows(progress.tables[ORDERS], QueryLimits(60.0)) as answer,
    ):
        rows = pa.Table.from_batches(answer.batches, answer.schema)
    assert rows.column_names == ["id", "state", "note", DELETED_AT]
    found = {row["id"]: row[DELETED_AT] for row in rows.to_pylist()}
    assert found.keys() == {1, 2}
    assert found[1] is not None
    assert found[2] is None


def test_a_row_that_lived_within_one_batch_is_kept_too(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", "a")])
    late = NOON + timedelta(microseconds=123_457)
    rows = [((5,), (5, "short", "life"), frozenset[int]()), ((1,), (1, "paid", None), frozenset({2}))]
    change = replace(changes(ORDERS, delete=keys(orders, [(1,)])), tombstones=tombstones(rows, [NOON, late]))
    pipeline.change(ORDERS, orders, change)
    assert pipeline.rows(orders) == [(1, "paid", "a", late), (5, "short", "life", NOON)]
    assert compared(pipeline, orders, []) == (0, 0, [])
    back = tombstones([((5,), (5, "second", None), frozenset())], [late])
    pipeline.change(ORDERS, orders, replace(changes(ORDERS), tombstones=back))
    assert pipeline.rows(orders) == [(1, "paid", "a", late), (5, "second", None, late)]


@pytest.mark.parametrize(("first", "second"), [(-0.0, 0.0), (0.0, -0.0)])
def test_of_deleted_rows_with_equal_keys_the_last_one_stays(pipeline: Pipeline, first: float, second: float) -> None:
    """Keys that the log writes differently may be equal on the target."""
    schema = replace(structure(orders.name, {"id": "float8", "note": "text"}, ["id"]), soft_delete=True)
    pipeline.load(ORDERS, schema, [(1.5, "other")])
    gone = partials(schema, [((first,), (first, "first"), frozenset()), ((second,), (second, "second"), frozenset())])
    change = replace(changes(ORDERS), tombstones=_timed(gone, [NOON, NOON]))
    pipeline.change(ORDERS, schema, change)
    assert pipeline.rows(schema) == [(second, "second", NOON), (1.5, "other", None)]


def test_a_row_that_still_has_the_key_makes_a_doubtful_deleted_row_void(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "here", "a"), (2, "gone", "b")])
    rows = [((1,), (1, "collided", None), frozenset[int]()), ((2,), (2, "gone", "b"), frozenset[int]())]
    doubtful = tombstones(rows, [NOON, NOON])
    doubtful = doubtful.set_column(doubtful.schema.get_field_index("doubtful"), "doubtful", pa.array([True, True]))
    pipeline.change(ORDERS, orders, replace(changes(ORDERS, delete=keys(orders, [(2,)])), tombstones=doubtful))
    assert pipeline.rows(orders) == [(1, "here", "a", None), (2, "gone", "b", NOON)]


def test_a_key_update_marks_the_old_key(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", "a")])
    moved = partials(orders, [((1,), (2, "new", None), frozenset({2}))])
    pipeline.change(ORDERS, orders, replace(deleted(1), partials=moved))
    assert pipeline.rows(orders) == [(1, "new", "a", NOON), (2, "new", "a", None)]


def test_a_truncate_marks_all_rows_and_none_twice(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", "a"), (2, "new", "b"), (3, "new", "c")])
    pipeline.change(ORDERS, orders, deleted(1))
    later = NOON + timedelta(hours=1)
    cleared = changes(ORDERS, truncated=True, insert=inserts(orders, [(2, "again", None)]))
    pipeline.change(ORDERS, orders, replace(cleared, truncated_us=us(later)))
    assert pipeline.rows(orders) == [(1, "new", "a", NOON), (2, "again", None, None), (3, "new", "c", later)]


def test_changes_computed_before_their_commit_have_its_time(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", "a"), (2, "new", "b")])
    pipeline.change(ORDERS, orders, replace(deleted(1, at=None), commit_us=us(NOON)))
    pipeline.change(ORDERS, orders, replace(changes(ORDERS, truncated=True), commit_us=us(NOON)))
    assert pipeline.rows(orders) == [(1, "new", "a", NOON), (2, "new", "b", NOON)]


@pytest.mark.parametrize("what", ["delete", "tombstone", "update"])
def test_a_deleted_row_is_no_row_that_a_change_may_find(pipeline: Pipeline, what: str) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", "a")])
    pipeline.change(ORDERS, orders, deleted(1))
    before = pipeline.rows(orders)
    change = {
        "delete": changes(ORDERS, delete=keys(orders, [(1,)])),
        "tombstone": replace(deleted(1), deletes=None),
        "update": changes(ORDERS, delete=keys(orders, [(1,)]), insert=inserts(orders, [(1, "x", "y")]), paired=1),
    }[what]
    assert fault_of(lambda: pipeline.change(ORDERS, orders, change)).kind is FaultKind.NET_CHANGE_ANOMALY
    assert pipeline.rows(orders) == before


def test_columns_are_added_dropped_renamed_and_widened_for_deleted_rows_too(pipeline: Pipeline) -> None:
    one, state, note = orders.columns
    short = replace(orders, columns=(one, replace(state, type=SourceType("varchar", 12)), note))
    pipeline.load(ORDERS, short, [(1, "new", "a"), (2, "new", "b")])
    pipeline.change(ORDERS, short, deleted(1))
    later = replace(orders, columns=(one, replace(state, name="status"), column("total", "int4", 4, fill="7")))
    pipeline.commit(TableCommit(ORDERS, later, later.name))
    names = "id, status, total"
    rows = pipeline.select(f"SELECT {names}, {DELETED_AT} FROM public.orders ORDER BY id")
    assert rows == [(1, "new", 7, NOON), (2, "new", 7, None)]


def test_a_source_column_with_our_name_is_refused(pipeline: Pipeline) -> None:
    twin = replace(structure(orders.name, {"id": "int4", DELETED_AT: "text"}, ["id"]), soft_delete=True)
    pipeline.target.adopt(SUBSCRIPTION, ORDERS, twin.name)
    fault = fault_of(lambda: pipeline.target.begin_copy(SUBSCRIPTION, ORDERS, twin.name, twin))
    assert (fault.kind, DELETED_AT in fault.detail) == (FaultKind.TABLE_COLUMNS_UNFIT, True)


# Reloads


def test_a_reload_keeps_deleted_rows_and_marks_those_that_vanished(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(i, "new", str(i)) for i in range(1, 6)])
    pipeline.change(ORDERS, orders, deleted(1, 2))
    pipeline.load(ORDERS, orders, [(2, "back", None), (3, "new", "3")])
    vanished = datetime.fromtimestamp(NOW_US / 1_000_000, UTC)
    expected = [
        (1, "new", "1", NOON), (2, "back", None, None), (3, "new", "3", None), (4, "new", "4", vanished),
        (5, "new", "5", vanished),
    ]  # fmt: skip
    assert pipeline.rows(orders) == expected
    pipeline.load(ORDERS, orders, [(2, "back", None), (3, "new", "3")])
    assert pipeline.rows(orders) == expected


def test_a_copy_keeps_what_it_has_deleted_itself(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "old", "a"), (2, "old", "b")])
    pipeline.target.begin_copy(SUBSCRIPTION, ORDERS, orders.name, orders, keyed=True)
    pipeline.target.append_copy(ORDERS, inserts(orders, [(1, "new", "a"), (2, "new", "b")]))
    pipeline.commit(TableCommit(ORDERS, orders, orders.name, (deleted(1),), handover=True))
    assert pipeline.rows(orders) == [(1, "new", "a", NOON), (2, "new", "b", None)]


def test_the_option_is_switched_by_a_reload(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, _PLAIN, [(1, "new", "a"), (2, "new", "b")])
    fault = fault_of(lambda: pipeline.commit(TableCommit(ORDERS, orders, orders.name)))
    assert fault.kind is FaultKind.TABLE_STRUCTURE_CHANGED
    pipeline.load(ORDERS, orders, [(1, "new", "a")])
    vanished = datetime.fromtimestamp(NOW_US / 1_000_000, UTC)
    assert pipeline.rows(orders) == [(1, "new", "a", None), (2, "new", "b", vanished)]
    pipeline.load(ORDERS, _PLAIN, [(1, "new", "a")])
    assert pipeline.rows(_PLAIN) == [(1, "new", "a")]


def test_a_table_created_again_is_matched_by_names(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", "a")])
    made = structure(orders.name, {"note": "text", "id": "int8", "total": "int4"}, ["id"])
    again = replace(made, relation=RelationId(20_000), soft_delete=True)
    pipeline.load(ORDERS, again, [("x", 2, 5)])
    vanished = datetime.fromtimestamp(NOW_US / 1_000_000, UTC)
    assert pipeline.rows(again) == [("a", 1, None, vanished), ("x", 2, 5, None)]


@pytest.mark.parametrize("change", ["type", "key"])
def test_deleted_rows_that_do_not_fit_are_not_dropped(pipeline: Pipeline, change: str) -> None:
    pipeline.load(ORDERS, orders, [(1, "new", "a")])
    before = pipeline.rows(orders)
    columns = {"id": "int4", "state": "int4" if change == "type" else "text", "note": "text"}
    other = structure(orders.name, columns, ["id"] if change == "type" else ["id", "state"])
    other = replace(other, soft_delete=True)
    pipeline.target.begin_copy(SUBSCRIPTION, ORDERS, other.name, other)
    pipeline.target.finish_copy(ORDERS)
    fault = fault_of(lambda: pipeline.commit(TableCommit(ORDERS, other, other.name, handover=True)))
    assert (fault.kind, fault.subject) == (FaultKind.TABLE_COLUMNS_UNFIT, ORDERS)
    assert "deletes" in fault.detail
    assert pipeline.rows(orders) == before


def test_a_reload_by_partition_keeps_deleted_rows(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(9, "a", None), (10, "a", None), (11, "a", None), (12, "a", None), (20, "a", None)])
    pipeline.change(ORDERS, orders, deleted(10, 11, 20))
    pipeline.target.begin_copy(SUBSCRIPTION, ORDERS, orders.name, orders, keyed=True, load="r1-1")
    pipeline.target.append_copy(ORDERS, inserts(orders, [(11, "b", None), (13, "b", None), (14, "b", None)]))
    tens = partition_rows([(RangeBound(("id",), ("10",), ("20",)),)], orders, decode_copy_text)
    swap = PartitionSwap(tens, (deleted(14),), {"public.orders_10": LoadReason.ASKED}, "r1", "r1-1")
    pipeline.commit(TableCommit(ORDERS, orders, orders.name, swap=swap))
    vanished = datetime.fromtimestamp(NOW_US / 1_000_000, UTC)
    assert pipeline.rows(orders) == [
        (10, "a", None, NOON), (11, "b", None, None), (12, "a", None, vanished), (13, "b", None, None),
        (14, "b", None, NOON), (20, "a", None, NOON), (9, "a", None, None),
    ]  # fmt: skip
    progress = pipeline.target.progress(SUBSCRIPTION)
    assert progress is not None
    with pipeline.target.pin(SUBSCRIPTION) as reader:
        source = inserts(orders, [(11, "b", None), (13, "b", None)]).to_batches()
        assert reader.compare(progress.tables[ORDERS], source, 5, tens) == (2, 2, [])


def test_the_ledger_counts_marked_rows(pipeline: Pipeline) -> None:
    """A batch of which the target wrote another number of deleted rows than the netting left is not committed."""
    pipeline.load(LOGGED, SOFT, [(1, "new", "a")])
    history = History([(1, "new", "a")], full=False, keyed=True)
    history.run(Transaction([("top", [Step("delete", 0, 0, 0, keep=False)])], [], [0]))
    (net,) = shares_of(*history.log(), SOFT, 1)
    assert net.staged == {"delete": 1, "mark": 1}
    short = replace(net, tombstones=None)
    assert fault_of(lambda: pipeline.change(LOGGED, SOFT, short)).kind is FaultKind.LEDGER_UNBALANCED
    pipeline.change(LOGGED, SOFT, net)
    assert [row[0] for row in pipeline.rows(SOFT) if row[3] is not None] == [1]


# Random histories


@pytest.fixture(scope="module", params=EACH_KIND)
def lasting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """One target for all histories."""
    with target_opener(request.param, request, tmp_path_factory.mktemp("soft")) as opened:
        made = Keeping(opened()).claim()
        yield made
        made.target.close()


@settings(max_examples=15, deadline=None)
@given(ROWS, TRANSACTIONS, st.integers(1, 3), st.sets(st.integers(1, 8), max_size=3))
def test_histories_in_batches_and_slices(
    lasting: Pipeline, initial: list[Any], transactions: list[Transaction], buckets: int, borders: set[int]
) -> None:
    """However the log is cut into batches, and these into slices, the target has what the changes give one by one."""
    live, marked = {row[0]: row for row in initial}, Marked()
    history = History(list(live.values()), full=False, keyed=True)
    for schema in (PLAIN, SOFT):
        lasting.load(LOGGED, schema, list(live.values()))
    for transaction in transactions:
        history.run(transaction)
    records, ranges = history.log()
    one_by_one(live, marked, shares_of(records, ranges, PLAIN, 1, in_order=True))
    for low, high in pairwise([0, *sorted(borders), 1000]):
        slices = [
            replace(share, piece=number)
            for number in sorted({one.end.value for one in ranges if low < one.end.value - ENDS <= high})
            for share in shares_of(records, [one for one in ranges if one.end.value == number], SOFT, buckets)
        ]
        lasting.change(LOGGED, SOFT, *slices)
    gone = [(*row, datetime.fromtimestamp(time_us / 1_000_000, UTC)) for row, time_us in marked.values()]
    expected = [*((*row, None) for row in live.values()), *gone]
    assert Counter(lasting.rows(SOFT)) == Counter(expected)
