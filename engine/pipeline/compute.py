"""The job stage of one run: plan a sealed batch, run its tasks in Spark or here, hand the result to the commit stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from engine.model.batch import TableChanges, TaskDescriptor, TaskResult
from engine.model.identity import TableId
from engine.model.ledger import LogTally
from engine.model.tasks import Unfinished
from engine.pipeline.apply_mode import AS_BATCH, ApplyModeSelector, ApplyPlan
from engine.pipeline.batch_slices import BatchSlice, Sizes, Staged, compute
from engine.pipeline.cost_model import JobPlacement, Way, Written
from engine.pipeline.generated_columns import rows_needed
from engine.pipeline.intake import Sealed
from engine.pipeline.skew import Skew, skew_of_keys, skew_of_tasks
from engine.pipeline.speculative_insert import SpeculativeRows
from engine.pipeline.streamed_transactions import StreamedTransactionStager, files_of
from engine.pipeline.task_functions import net_all_here, net_task
from engine.platform.failpoints import Failpoint, hit
from engine.queue.catalog import QueueCatalog
from engine.tables.context import RunContext
from engine.tables.planner import PlannedBatch, Planner


@dataclass(slots=True)
class Scans:
    """Tallies of the scans of a batch's records, one for each slice, and the tasks' numbers of changes by table, one for each bucket.

    `apart`: of the scans for tables that are computed as a whole, which read the same records again. `disagreed`: tasks over the same
    records counted differently, or one did not count.
    """

    slices: list[LogTally] = field(default_factory=list)
    apart: list[LogTally] = field(default_factory=list)
    disagreed: bool = False
    buckets: dict[int, Counter[TableId]] = field(default_factory=dict)

    def add(self, tallies: Sequence[LogTally | None], *, apart: bool) -> None:
        """Add a slice with the tallies of all its tasks."""
        first = tallies[0]
        if first is None or any(one != first for one in tallies):
            self.disagreed = True
        else:
            (self.apart if apart else self.slices).append(first)

    def took(self, bucket: int, tables: Sequence[TableChanges]) -> None:
        """Add the changes that a task found in its bucket."""
        rows = self.buckets.setdefault(bucket, Counter())
        for one in tables:
            rows[one.table] += sum(one.counts.values())


@dataclass(frozen=True, slots=True)
class Computed:
    """A batch whose net changes are known: as pyarrow tables where it was computed here, else as paths of the staged files."""

    planned: PlannedBatch
    changes: tuple[TableChanges, ...]
    log_bytes: int
    path: Literal["driver", "spark"]
    sealed_ms: float
    sealed_us: int
    job_ms: float
    files: tuple[str, ...] = ()
    tuning: Mapping[str, float] = field(default_factory=dict)
    """What was chosen for it, and the measurements that decided: see `BatchReport.tuning`."""
    early: SpeculativeRows | None = None
    """The rows of it that were inserted ahead."""
    applying: ApplyPlan = AS_BATCH
    missed: tuple[TableChanges, ...] = ()
    """The changes since their snapshots of the chunks that the batch takes."""
    scans: Scans | None = None
    """What the scans for `changes` counted; None if nothing was scanned."""
    missed_scans: Scans | None = None
    """The same for `missed`."""

    @property
    def applied_changes(self) -> tuple[TableChanges, ...]:
        """The changes of the batch, and all those that whole copies missed."""
        whole = self.planned.whole
        return (*self.changes, *(change for change in self.missed if change.table in whole))

    @property
    def task_skew(self) -> Skew | None:
        """Whether one of the parallel tasks that computed it has most of its changes."""
        return (
            skew_of_tasks(list(self.scans.buckets.values()))
            if self.scans is not None and self.path == "spark"
            else None
        )

    @property
    def key_skew(self) -> Skew | None:
        """Whether one key has most of its changes, which parallel connections write."""
        way = self.applying.way
        return skew_of_keys(self.changes, way.lanes) if way is not None and way.lanes > 1 else None

    def rows_by_table(self) -> Counter[TableId]:
        """The rows of `applied_changes`."""
        found = Counter[TableId]()
        for change in self.applied_changes:
            found[change.table] += change.net_rows
        return found


NETTED_ATTEMPT = 50
"""First attempt number of a batch whose changes could not be written in order."""
MISSED_ATTEMPT = 100
"""First attempt number of what chunks have missed: their files share a folder with those of the batch's own parts."""


class JobStage:
    """Computes batches one after another. Used by one thread."""

    def __init__(
        self,
        context: RunContext,
        planner: Planner,
        catalog: QueueCatalog,
        staging: Path,
        ahead: StreamedTransactionStager,
        chooser: ApplyModeSelector,
    ) -> None:
        self._chooser = chooser
        self._spec = context.spec
        self._planner = planner
        self._catalog = catalog
        self._runner = context.runner
        self._staging = staging
        self._clock = context.clock
        self._ahead = ahead
        self._piece_bytes = context.settings.piece_bytes
        self._tuner = JobPlacement(context.spec.batch)
        self._commit_ms = 0.0
        self._group: str | None = None
        """Name of the tasks that run now."""

    def unfinished(self) -> Unfinished | None:
        """The tasks that run now, if they run in parallel. From any thread."""
        group = self._group
        return self._runner.unfinished(group) if group is not None else None

    def committed(self, computed: Computed, took_ms: float) -> None:
        """A batch's commit took `took_ms`, which included what its whole copies missed: a job may take as long. From any thread."""
        self._commit_ms += (took_ms - self._commit_ms) / 4
        applied = computed.applied_changes
        changes = sum(sum(change.counts.values()) for change in applied)
        net = None if computed.applying.way is not None else sum(change.net_rows for change in applied)
        written = Written(changes, len({change.table for change in applied}), net, took_ms)
        self._chooser.learn(computed.applying, computed.planned.batch.transactions, written)

    def compute(self, sealed: Sealed) -> Computed:
        """Plan and run one batch. Raises EngineFault: SPARK_FAILED, QUEUE_CORRUPT, and what resolving a structure raises."""
        hit(Failpoint.BATCH_BEFORE_JOB)
        began = self._clock.monotonic_ms()
        planned = self._planner.plan(sealed.batch)
        blocks = self._catalog.blocks_for(planned.ranges) if planned.parts else ()
        log_bytes = sum(block.length for block in blocks)
        spark = self._runner.parallelism if self._runner.ready else 0
        way = self._tuner.choose(planned.records, self._commit_ms, spark)
        ahead = self._ahead.take_slices(planned.ranges)
        applying = AS_BATCH if ahead.staged or ahead.early is not None else self._chooser.choose(planned)
        in_order = applying.way is not None
        changes: tuple[TableChanges, ...] = ()
        scans: Scans | None = None
        if blocks and planned.records:
            changes, scans = self._run(planned, way, ahead.staged, in_order=in_order)
        if in_order and rows_needed(changes, planned.parts):
            applying = AS_BATCH
            changes, scans = self._run(planned, way, (), in_order=False, attempt=NETTED_ATTEMPT)
        missed, missed_scans = self._run_missed(planned)
        in_pieces = log_bytes > self._piece_bytes
        ended = self._clock.monotonic_ms()
        if blocks and planned.records and not ahead.staged and not in_pieces:
            self._tuner.learn(way, planned.records, ended - began)
        hit(Failpoint.BATCH_AFTER_JOB)
        return Computed(
            planned,
            changes,
            log_bytes,
            way.path,
            sealed.sealed_ms,
            sealed.sealed_us,
            ended,
            (
                *(self._files(planned) if way.path == "spark" or missed or ahead.staged or in_pieces else ()),
                *(file for staged in ahead.staged for file in files_of(staged)),
            ),
            {**self._tuning(way), **applying.tuning},
            ahead.early,
            applying,
            missed,
            scans,
            missed_scans,
        )

    def _run_missed(self, planned: PlannedBatch) -> tuple[tuple[TableChanges, ...], Scans | None]:
        """The net changes that the batch's chunks have missed. Computed apart from the batch's own parts: they begin at other positions."""
        missed = planned.missed
        if missed is None or not missed.parts or not missed.ranges:
            return (), None
        kept = replace(planned, ranges=missed.ranges, relations=missed.relations, parts=missed.parts)
        spark = self._runner.parallelism if self._runner.ready else 0
        way = self._tuner.choose(kept.records, self._commit_ms, spark)
        return self._run(kept, way, (), in_order=False, attempt=MISSED_ATTEMPT)

    def _tuning(self, way: Way) -> dict[str, float]:
        setup = {f"{path}_setup_ms": round(ms, 2) for path, ms in self._tuner.setup_ms.items()}
        return {"tasks": way.tasks, **setup}

    def _run(
        self, planned: PlannedBatch, way: Way, ahead: Sequence[Staged], *, in_order: bool, attempt: int = 0
    ) -> tuple[tuple[TableChanges, ...], Scans]:
        scans = Scans()

        def run(found: Sequence[tuple[int, BatchSlice]], buckets: int, turn: int) -> tuple[TableChanges, ...]:
            descriptors = [
                replace(self._descriptor(planned, number, piece, (bucket, buckets), attempt + turn), in_order=in_order)
                for number, piece in found
                for bucket in range(buckets)
            ]
            results = self._work(planned, descriptors, way)
            for result in results:
                scans.took(result.bucket, result.tables)
            for at in range(0, len(results), buckets):
                scans.add([result.tally for result in results[at : at + buckets]], apart=turn > 0)
            return tuple(
                replace(table, piece=descriptor.piece)
                for descriptor, result in zip(descriptors, results, strict=True)
                for table in result.tables
            )

        sizes = Sizes(self._catalog.bytes_between, self._piece_bytes, way.tasks)
        changes = compute(
            planned.ranges,
            planned.relations,
            planned.parts,
            sizes,
            run,
            ahead,
            lambda staged: scans.add([staged.tally], apart=False),
        )
        return changes, scans

    def _work(self, planned: PlannedBatch, descriptors: list[TaskDescriptor], way: Way) -> list[TaskResult]:
        if way.path == "driver":
            return net_all_here(descriptors)
        group = f"{self._spec.name}-{self._spec.epoch}-{planned.number}"
        self._group = group
        try:
            return self._runner.run(net_task, descriptors, group)
        finally:
            self._group = None

    def _descriptor(
        self, planned: PlannedBatch, number: int, piece: BatchSlice, bucket: tuple[int, int], attempt: int
    ) -> TaskDescriptor:
        return TaskDescriptor(
            subscription=self._spec.name,
            epoch=self._spec.epoch,
            batch=planned.number,
            attempt=attempt,
            bucket=bucket[0],
            buckets=bucket[1],
            ranges=piece.ranges,
            blocks=self._catalog.blocks_for(piece.ranges),
            tables=piece.parts,
            staging=str(self._staging),
            piece=number,
        )

    def _files(self, planned: PlannedBatch) -> list[str]:
        return [str(path) for path in self._staging.glob(f"e{self._spec.epoch}-b{planned.number}-*")]
