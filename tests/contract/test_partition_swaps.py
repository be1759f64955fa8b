"""Rows of partitions that take the place of those there, as every target puts them: these alone, once, and from the right copy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from engine.copy.partition_filter import partition_rows
from engine.model.batch import TableChanges
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId, TableName
from engine.model.partitions import WHOLE, LoadReason, PartitionLoad, RangeBound, generation_of
from engine.model.target import PartitionSwap, TableCommit
from engine.net import decode_copy_text
from tests.contract.target_material import SUBSCRIPTION, Pipeline, changes, inserts, keys, structure
from tests.contract.targets import OpenTarget

pytestmark = pytest.mark.pg

ORDERS = TableId("t0a")
orders = structure(TableName("public", "orders"), {"id": "int4", "note": "text"}, ["id"])
TENS = partition_rows([(RangeBound(("id",), ("10",), ("20",)),)], orders, decode_copy_text)


@pytest.fixture
def pipeline(opened: OpenTarget) -> Iterator[Pipeline]:
    target = opened()
    made = Pipeline(target).claim()
    made.load(ORDERS, orders, [(9, "a"), (10, "a"), (19, "a"), (20, "a")])
    yield made
    target.close()


def begin(pipeline: Pipeline, load: str | None, *rows: tuple[Any, ...]) -> None:
    pipeline.target.begin_copy(SUBSCRIPTION, ORDERS, orders.name, orders, keyed=True, load=load)
    assert pipeline.target.append_copy(ORDERS, inserts(orders, list(rows))) == len(rows)


def swapping(load: str, *own: TableChanges, missed: tuple[TableChanges, ...] = ()) -> TableCommit:
    swap = PartitionSwap(TENS, missed, {"public.orders_10": LoadReason.ASKED}, "r1", load)
    return TableCommit(ORDERS, orders, orders.name, own, swap=swap)


def loads(pipeline: Pipeline) -> dict[str, PartitionLoad]:
    progress = pipeline.target.progress(SUBSCRIPTION)
    assert progress is not None
    return dict(progress.loads.get(ORDERS, {}))


def test_rows_within_the_bounds_are_replaced_behind_both_sides_changes(pipeline: Pipeline) -> None:
    begin(pipeline, "r1-1", (10, "b"), (11, "b"), (12, "b"))
    own = changes(ORDERS, delete=keys(orders, [(9,), (10,)]), insert=inserts(orders, [(30, "c")]))
    missed = changes(ORDERS, delete=keys(orders, [(12,)]), insert=inserts(orders, [(13, "c")]))
    pipeline.commit(swapping("r1-1", own, missed=(missed,)))
    assert pipeline.rows(orders) == [(10, "b"), (11, "b"), (13, "c"), (20, "a"), (30, "c")]
    known = loads(pipeline)
    assert known[WHOLE].generation == 1
    assert (known["public.orders_10"].generation, known["public.orders_10"].request) == (2, "r1")
    assert known["public.orders_10"].position > known[WHOLE].position
    with pytest.raises(EngineFault) as caught:
        pipeline.target.append_copy(ORDERS, inserts(orders, [(14, "d")]))
    assert caught.value.kind is FaultKind.COPY_FAILED


@pytest.mark.parametrize("other", [None, "r1-2"])
def test_a_copy_that_is_another_ones_is_left_alone(pipeline: Pipeline, other: str | None) -> None:
    begin(pipeline, other, (10, "b"))
    with pytest.raises(EngineFault) as caught:
        pipeline.commit(swapping("r1-1"))
    assert caught.value.kind is FaultKind.INTERNAL
    assert sorted(pipeline.rows(orders)) == [(9, "a"), (10, "a"), (19, "a"), (20, "a")]


def test_what_was_loaded_for_partitions_does_not_become_the_table(pipeline: Pipeline) -> None:
    begin(pipeline, "r1-1", (10, "b"))
    with pytest.raises(EngineFault):
        pipeline.commit(TableCommit(ORDERS, orders, orders.name, handover=True))
    assert len(pipeline.rows(orders)) == 4


def test_a_load_of_the_whole_table_counts_for_every_partition_and_a_claim_keeps_the_counts(pipeline: Pipeline) -> None:
    for load in ("r1-1", "r1-2"):
        begin(pipeline, load, (10, load))
        pipeline.commit(swapping(load))
    assert generation_of(loads(pipeline), "public.orders_10") == 3
    begin(pipeline, None, (1, "x"))
    pipeline.commit(TableCommit(ORDERS, orders, orders.name, handover=True))
    begin(pipeline, "r1-3", (10, "left behind"))
    pipeline.claim()
    assert {name: load.generation for name, load in loads(pipeline).items()} == {WHOLE: 4}
    assert generation_of(loads(pipeline), "public.orders_10") == generation_of(loads(pipeline), "public.any") == 4
    with pytest.raises(EngineFault):
        pipeline.commit(swapping("r1-3"))


def test_a_comparison_of_some_rows_sees_no_others(pipeline: Pipeline) -> None:
    progress = pipeline.target.progress(SUBSCRIPTION)
    assert progress is not None
    with pipeline.target.pin(SUBSCRIPTION) as reader:
        source = inserts(orders, [(10, "a"), (19, "b")]).to_batches()
        found = reader.compare(progress.tables[ORDERS], source, 5, TENS)
        assert found == (2, 2, [{"key": ["19"], "kind": "different", "columns": ("note",), "exact": ("19",)}])
        none: list[pa.RecordBatch] = []
        assert reader.compare(progress.tables[ORDERS], none, 5)[1] == 4
