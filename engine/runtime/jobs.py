"""The job stage of one run: plan a sealed batch, run its tasks in Spark or here, hand the result to the commit stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from engine.model.batch import SealedBatch, TableChanges, TaskDescriptor, TaskResult
from engine.model.subscription import SubscriptionSpec
from engine.model.tasks import TaskRunner
from engine.queue.catalog import QueueCatalog
from engine.runtime.ahead import AheadDesk, files_of
from engine.runtime.clock import Clock
from engine.runtime.early import EarlyRows
from engine.runtime.failpoints import Failpoint, hit
from engine.runtime.pieces import Piece, Sizes, Staged, compute
from engine.runtime.planner import PlannedBatch, Planner
from engine.runtime.worker import net_here, net_task


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
    early: EarlyRows | None = None
    """What of it is in the target already."""


class JobStage:
    """Computes batches one after another. Used by one thread."""

    def __init__(
        self,
        spec: SubscriptionSpec,
        planner: Planner,
        catalog: QueueCatalog,
        runner: TaskRunner,
        staging: Path,
        clock: Clock,
        ahead: AheadDesk,
        piece_bytes: int,
    ) -> None:
        self._spec = spec
        self._planner = planner
        self._catalog = catalog
        self._runner = runner
        self._staging = staging
        self._clock = clock
        self._ahead = ahead
        self._piece_bytes = piece_bytes

    def compute(self, batch: SealedBatch, sealed_ms: float, sealed_us: int) -> Computed:
        """Plan and run one batch. Raises EngineFault: SPARK_FAILED, QUEUE_CORRUPT, and what resolving a structure raises."""
        hit(Failpoint.BATCH_BEFORE_JOB)
        planned = self._planner.plan(batch)
        blocks = self._catalog.blocks_for(planned.ranges) if planned.parts else ()
        log_bytes = sum(block.length for block in blocks)
        small = 0 < planned.records < self._spec.batch.small_rows or not self._runner.ready
        path: Literal["driver", "spark"] = "driver" if small or not planned.records else "spark"
        ahead = self._ahead.take(planned.ranges)
        changes = self._run(planned, path, ahead.staged) if blocks and planned.records else ()
        hit(Failpoint.BATCH_AFTER_JOB)
        return Computed(
            planned,
            changes,
            log_bytes,
            path,
            sealed_ms,
            sealed_us,
            self._clock.monotonic_ms(),
            (
                *(self._files(planned) if path == "spark" else ()),
                *(file for staged in ahead.staged for file in files_of(staged)),
            ),
            ahead.early,
        )

    def _run(
        self, planned: PlannedBatch, path: Literal["driver", "spark"], ahead: Sequence[Staged]
    ) -> tuple[TableChanges, ...]:
        def run(found: Sequence[tuple[int, Piece]], buckets: int, attempt: int) -> tuple[TableChanges, ...]:
            descriptors = [
                self._descriptor(planned, number, piece, (bucket, buckets), attempt)
                for number, piece in found
                for bucket in range(buckets)
            ]
            results = self._work(planned, descriptors, path)
            return tuple(
                replace(table, piece=descriptor.piece)
                for descriptor, result in zip(descriptors, results, strict=True)
                for table in result.tables
            )

        sizes = Sizes(self._catalog.bytes_between, self._piece_bytes, 1 if path == "driver" else self._spec.batch.tasks)
        return compute(planned.ranges, planned.relations, planned.parts, sizes, run, ahead)

    def _work(
        self, planned: PlannedBatch, descriptors: list[TaskDescriptor], path: Literal["driver", "spark"]
    ) -> list[TaskResult]:
        if path == "driver":
            return [net_here(descriptor) for descriptor in descriptors]
        group = f"{self._spec.name}-{self._spec.epoch}-{planned.number}"
        return self._runner.run(net_task, descriptors, group)

    def _descriptor(
        self, planned: PlannedBatch, number: int, piece: Piece, bucket: tuple[int, int], attempt: int
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
