"""The state of merged logs as every target records it: with the data of its batch, or neither."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from engine.model.fault import FaultKind
from engine.model.identity import TableId, TableName
from engine.model.last_commit import LastCommit
from engine.model.merged_logs import MOST_NODES, MergedLogs, NodeLog
from engine.model.position import Lsn
from engine.model.subscription import OriginFilter
from engine.model.target import TableCommit
from tests.contract.target_material import SUBSCRIPTION, Pipeline, changes, fault_of, inserts, structure
from tests.contract.targets import OpenTarget

pytestmark = pytest.mark.pg

ITEMS = TableId("t0a")
items = structure(TableName("public", "items"), {"id": "int4"}, ["id"])
_T = 1_700_000_000_000_000
_NODES = tuple(NodeLog(Lsn(n), Lsn(2**64 - 1), Lsn(2**63 + n), _T + n) for n in range(MOST_NODES))
_NAMES = [" ", "'", '"\\\\u0020\\', "$1 %s {} logs=", "\U0001f600\udcff\x01", *(f"{n:0199d}" for n in range(280))]
"""Global transactions with almost as long a text as is allowed."""
FULL = MergedLogs(_NODES, dict.fromkeys(_NAMES, (0, 63)))


@pytest.fixture
def pipeline(opened: OpenTarget) -> Iterator[Pipeline]:
    target = opened()
    made = Pipeline(target).claim()
    made.load(ITEMS, items, [(1,)])
    yield made
    target.close()


def recorded(pipeline: Pipeline) -> LastCommit | None:
    progress = pipeline.target.progress(SUBSCRIPTION)
    assert progress is not None
    return progress.last


def insert(row: int) -> TableCommit:
    return TableCommit(ITEMS, items, items.name, (changes(ITEMS, insert=inserts(items, [(row,)])),))


def test_the_state_is_recorded_with_the_position(pipeline: Pipeline) -> None:
    for last in (
        LastCommit(Lsn(1000), Lsn(1050), _T, logs=FULL),
        LastCommit.unknown(Lsn(1100), OriginFilter.NONE, MergedLogs(_NODES[:1])),
        LastCommit(Lsn(1100), Lsn(1150), _T, certain=False, logs=FULL),
    ):
        pipeline.commit(last=last)
        assert recorded(pipeline) == last
        pipeline.claim()
        assert recorded(pipeline) == last


def test_a_batch_whose_state_is_too_long_is_not_written(pipeline: Pipeline) -> None:
    pipeline.commit(insert(2), last=LastCommit(Lsn(1000), Lsn(1050), _T, logs=FULL))
    before = recorded(pipeline)
    large = replace(FULL, open={**FULL.open, **{f"{n:0199d}": (1,) for n in range(500, 600)}})
    last = LastCommit(Lsn(1100), Lsn(1160), _T + 1, logs=large)
    assert fault_of(lambda: pipeline.commit(insert(3), last=last)).kind is FaultKind.NODE_SILENT
    pipeline.claim()
    assert (recorded(pipeline), pipeline.rows(items)) == (before, [(1,), (2,)])
    pipeline.commit(insert(3), last=replace(last, logs=FULL))
    assert (recorded(pipeline), pipeline.rows(items)) == (replace(last, logs=FULL), [(1,), (2,), (3,)])
