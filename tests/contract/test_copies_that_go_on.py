"""Resumable copies in chunks, as every target stores them, over new engines and changed schemas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.model.batch import TableChanges
from engine.model.copies import KeyBound, StandingCopy
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import BatchId, TableId, TableName
from engine.model.position import Lsn
from engine.model.schema import Column, TableSchema
from engine.model.target import BatchCommit, LogStart, TableCommit
from tests.contract.target_material import (
    SLOT,
    SUBSCRIPTION,
    SYSTEM,
    Pipeline,
    changes,
    inserts,
    keys,
    source_type,
    structure,
)
from tests.contract.targets import OpenTarget, target_opener

pytestmark = pytest.mark.pg

ORDERS = TableId("t0a")
orders = structure(TableName("public", "orders"), {"id": "int4", "part": "text", "note": "text"}, ["id", "part"])


@pytest.fixture
def pipeline(opened: OpenTarget) -> Iterator[Pipeline]:
    target = opened()
    yield Pipeline(target).claim()
    target.close()


def standing(upto: int, stretches: int = 1, schema: TableSchema = orders) -> StandingCopy:
    return StandingCopy(ORDERS, schema, KeyBound((str(upto), "b")), 10 * stretches, 100 * stretches, stretches)


def copying(copy: StandingCopy, *buckets: TableChanges, schema: TableSchema = orders) -> TableCommit:
    return TableCommit(ORDERS, schema, orders.name, buckets, copy=copy)


def begin(pipeline: Pipeline, *rows: tuple[Any, ...]) -> None:
    target = pipeline.target
    target.adopt(SUBSCRIPTION, ORDERS, orders.name)
    target.begin_copy(SUBSCRIPTION, ORDERS, orders.name, orders, keyed=True)
    assert target.append_copy(ORDERS, inserts(orders, list(rows))) == len(rows)
    target.finish_copy(ORDERS)


def copies(pipeline: Pipeline) -> dict[TableId, StandingCopy]:
    progress = pipeline.target.progress(SUBSCRIPTION)
    assert progress is not None
    return dict(progress.copies)


def finish(pipeline: Pipeline, schema: TableSchema = orders) -> list[tuple[Any, ...]]:
    pipeline.commit(TableCommit(ORDERS, schema, schema.name, handover=True))
    return pipeline.rows(schema)


def test_a_copy_stands_from_the_batch_that_says_so_and_outlives_its_engine(pipeline: Pipeline) -> None:
    begin(pipeline, (1, "a", "x"), (2, "b", "y"))
    assert copies(pipeline) == {}
    pipeline.commit(copying(standing(2), changes(ORDERS, delete=keys(orders, [(1, "a")]))))
    assert copies(pipeline) == {ORDERS: standing(2)}
    newer = Pipeline(pipeline.target, epoch=2)
    newer.end, newer.batch = pipeline.end, pipeline.batch
    newer.claim()
    assert copies(newer) == {ORDERS: standing(2)}
    pipeline.target.append_copy(ORDERS, inserts(orders, [(3, "a", "z")]))
    pipeline.target.finish_copy(ORDERS)
    newer.commit(copying(standing(3, 2), changes(ORDERS, insert=inserts(orders, [(0, "a", "new")]))))
    assert copies(newer) == {ORDERS: standing(3, 2)}
    assert finish(newer) == [(0, "a", "new"), (2, "b", "y"), (3, "a", "z")]
    assert copies(newer) == {}


def test_rows_behind_a_place_of_the_key_are_trimmed(pipeline: Pipeline) -> None:
    begin(pipeline, (1, "z", ""), (2, "B", ""), (2, "a", ""), (2, "b", ""), (2, "c", ""), (3, "a", ""))
    pipeline.commit(copying(standing(2)))
    above = keys(orders, [(2, "b")])
    assert pipeline.target.trim_copy(ORDERS, above) == 2
    assert pipeline.target.trim_copy(ORDERS, above) == 0
    pipeline.commit(copying(replace(standing(1), upto=KeyBound(("1",)))))
    assert pipeline.target.trim_copy(ORDERS, keys(orders, [(1, "b")]).select(["k0"])) == 3
    assert finish(pipeline) == [(1, "z", "")]


def test_a_copy_that_was_left_out_goes_with_the_next_claim(pipeline: Pipeline) -> None:
    begin(pipeline, (1, "a", "x"))
    pipeline.commit(copying(standing(2)))
    number, end = BatchId(pipeline.batch + 1), Lsn(pipeline.end + 100)
    pipeline.write(BatchCommit(SUBSCRIPTION, pipeline.epoch, number, end, left=(ORDERS,)))
    assert copies(pipeline) == {}
    pipeline.target.claim(SUBSCRIPTION, pipeline.epoch, LogStart(SYSTEM, 1, SLOT, end))
    with pytest.raises(EngineFault) as caught:
        pipeline.target.append_copy(ORDERS, inserts(orders, [(3, "a", "z")]))
    assert caught.value.kind is FaultKind.COPY_FAILED


def test_a_batch_made_for_another_copy_is_refused(pipeline: Pipeline) -> None:
    begin(pipeline, (1, "a", "x"))
    pipeline.commit(copying(standing(2)))
    begin(pipeline, (5, "a", "x"))
    with pytest.raises(EngineFault) as caught:
        pipeline.commit(copying(standing(2, 2)))
    assert caught.value.kind is FaultKind.INTERNAL
    assert finish(pipeline) == [(5, "a", "x")]


def test_a_copy_follows_the_structure(pipeline: Pipeline) -> None:
    begin(pipeline, (1, "a", "x"))
    pipeline.commit(copying(standing(1)))
    wider = replace(orders, columns=(*orders.columns, Column("more", source_type("int4"), 9, fill="7")))
    insert = changes(ORDERS, insert=inserts(wider, [(0, "a", "y", 8)]))
    pipeline.commit(copying(standing(1, schema=wider), insert, schema=wider))
    assert copies(pipeline)[ORDERS].schema == wider
    assert finish(pipeline, wider) == [(0, "a", "y", 8), (1, "a", "x", 7)]


def test_beginning_elsewhere_drops_what_stood(pipeline: Pipeline) -> None:
    begin(pipeline, (1, "a", "x"))
    pipeline.commit(copying(standing(2)))
    pipeline.target.rebase(SUBSCRIPTION, pipeline.epoch, LogStart(SYSTEM, 1, "shop_new", Lsn(5000)))
    assert copies(pipeline) == {}


def test_readers_keep_the_old_rows_meanwhile(pipeline: Pipeline) -> None:
    pipeline.load(ORDERS, orders, [(1, "a", "old")])
    begin(pipeline, (1, "a", "new"))
    pipeline.commit(copying(standing(2), changes(ORDERS, insert=inserts(orders, [(2, "a", "more")]))))
    assert pipeline.rows(orders) == [(1, "a", "old")]
    assert finish(pipeline) == [(1, "a", "new"), (2, "a", "more")]


def test_an_engine_that_was_replaced_writes_to_no_copy(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with target_opener("postgres16", request, tmp_path) as opener:
        older, newer = opener(), opener()
        pipeline = Pipeline(older).claim()
        begin(pipeline, (1, "a", "x"))
        pipeline.commit(copying(standing(2)))
        successor = Pipeline(newer, epoch=2)
        successor.end, successor.batch = pipeline.end, pipeline.batch
        successor.claim()
        late = [
            lambda: older.append_copy(ORDERS, inserts(orders, [(3, "a", "stale")])),
            lambda: older.trim_copy(ORDERS, keys(orders, [(0, "a")])),
            lambda: older.begin_copy(SUBSCRIPTION, ORDERS, orders.name, orders),
            lambda: older.discard_copy(ORDERS),
        ]
        for call in late:
            with pytest.raises(EngineFault) as caught:
                call()
            assert caught.value.kind is FaultKind.EPOCH_LOST
        assert finish(successor) == [(1, "a", "x")]
        older.close()
        newer.close()
