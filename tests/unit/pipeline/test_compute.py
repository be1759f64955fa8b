"""What the job stage learns from commits."""

from __future__ import annotations

from typing import Any, cast

from engine.model.batch import SealedBatch, TableChanges
from engine.model.identity import BatchId, Epoch, RelationId, SubscriptionName, TableId, TableName
from engine.model.position import ZERO, Lsn
from engine.model.schema import Column, KeyMode, ReplicaIdentity, SourceType, TableSchema
from engine.model.subscription import ConnectionSpec, SubscriptionSpec
from engine.pipeline.apply_mode import ApplyModeSelector
from engine.pipeline.compute import Computed, JobStage
from engine.pipeline.cost_model import Written
from engine.platform.clock import SystemClock
from engine.sources.postgres_log.position_form import PostgresLogForm
from engine.tables.planner import PlannedBatch
from engine.tables.registry import TableRegistry
from engine.tables.reporter import Reporter
from engine.tables.state import Chunk
from tests.fixtures.run_context import run_context

LIVE, COPIED, PARTLY = TableId("tlive"), TableId("tcopied"), TableId("tpartly")
SCHEMA = TableSchema(
    TableName("public", "t"),
    RelationId(1),
    (Column("id", SourceType("int4"), 1),),
    ("id",),
    KeyMode.KEYED,
    ReplicaIdentity.FULL,
)
_NONE: Any = None


class Learner:
    """Keeps what it is to learn."""

    def __init__(self) -> None:
        self.learnt: list[Written] = []

    def learn(self, applying: object, transactions: int, written: Written) -> None:
        del applying, transactions
        self.learnt.append(written)


def changes(table: TableId, inserts: int) -> TableChanges:
    return TableChanges(table, truncated=False, counts={"insert": inserts}, net_rows=inserts)


def test_a_commit_is_measured_with_all_that_its_whole_copies_missed() -> None:
    connection = ConnectionSpec("c", "none", {})
    spec = SubscriptionSpec(SubscriptionName("s"), Epoch(1), connection, connection, (), "slot")
    reporter = Reporter(spec, lambda _: None, SystemClock(), PostgresLogForm())
    context = run_context(spec, object(), TableRegistry(), reporter, position_write_s=10)
    learner = Learner()
    stage = JobStage(context, _NONE, _NONE, _NONE, _NONE, cast("ApplyModeSelector", learner))
    whole = Chunk(1, SCHEMA, ZERO, None, first=True)
    last = Chunk(2, SCHEMA, ZERO, None, first=False)
    batch = SealedBatch(ZERO, Lsn(100), 0, (), (), 0, 0)
    planned = PlannedBatch(BatchId(1), batch, (), (), frozenset(), chunks={COPIED: whole, PARTLY: last})
    missed = (changes(COPIED, 1000), changes(PARTLY, 500))
    stage.committed(Computed(planned, (changes(LIVE, 10),), 0, "driver", 0.0, 0, 0.0, missed=missed), 40.0)
    # Of a chunk, only a part of what it missed is written: how much is not known here.
    assert learner.learnt == [Written(1010, 2, 1010, 40.0)]
