"""The job stage of one run: plan a sealed batch, run its tasks in Spark or here, hand the result to the commit stage."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine.model.batch import BlockRef, SealedBatch, TableChanges, TaskDescriptor, TaskResult
from engine.model.subscription import SubscriptionSpec
from engine.model.tasks import TaskRunner
from engine.queue.catalog import QueueCatalog
from engine.runtime.clock import Clock
from engine.runtime.failpoints import Failpoint, hit
from engine.runtime.planner import PlannedBatch, Planner
from engine.runtime.worker import load, net_here, net_task

BUCKET_BYTES = 256 * 1024 * 1024
"""Raw bytes that one bucket may span before the batch is cut into more buckets."""


@dataclass(frozen=True, slots=True)
class Computed:
    """A batch whose net changes are known; `changes` hold rows as pyarrow.Table."""

    planned: PlannedBatch
    changes: tuple[TableChanges, ...]
    log_bytes: int
    path: Literal["driver", "spark"]
    sealed_ms: float
    sealed_us: int
    job_ms: float
    files: tuple[str, ...] = ()


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
    ) -> None:
        self._spec = spec
        self._planner = planner
        self._catalog = catalog
        self._runner = runner
        self._staging = staging
        self._clock = clock

    def compute(self, batch: SealedBatch, sealed_ms: float, sealed_us: int) -> Computed:
        """Plan and run one batch. Raises EngineFault: SPARK_FAILED, QUEUE_CORRUPT, and what resolving a structure raises."""
        hit(Failpoint.BATCH_BEFORE_JOB)
        planned = self._planner.plan(batch)
        blocks = self._catalog.blocks_for(planned.ranges) if planned.parts else ()
        log_bytes = sum(block.length for block in blocks)
        small = 0 < planned.records < self._spec.batch.small_rows or not self._runner.ready
        path: Literal["driver", "spark"] = "driver" if small or not planned.records else "spark"
        results = self._run(planned, blocks, log_bytes, path) if blocks and planned.records else []
        hit(Failpoint.BATCH_AFTER_JOB)
        changes = tuple(change for result in results for change in result.tables)
        return Computed(
            planned,
            changes,
            log_bytes,
            path,
            sealed_ms,
            sealed_us,
            self._clock.monotonic_ms(),
            tuple(self._files(planned)) if path == "spark" else (),
        )

    def _run(
        self, planned: PlannedBatch, blocks: tuple[BlockRef, ...], log_bytes: int, path: Literal["driver", "spark"]
    ) -> list[TaskResult]:
        if path == "driver":
            return [net_here(self._descriptor(planned, blocks, 0, 1))]
        tasks = max(self._spec.batch.tasks, -(-log_bytes // BUCKET_BYTES))
        descriptors = [self._descriptor(planned, blocks, bucket, tasks) for bucket in range(tasks)]
        group = f"{self._spec.name}-{self._spec.epoch}-{planned.number}"
        return [load(result) for result in self._runner.run(net_task, descriptors, group)]

    def _descriptor(
        self, planned: PlannedBatch, blocks: tuple[BlockRef, ...], bucket: int, buckets: int
    ) -> TaskDescriptor:
        return TaskDescriptor(
            subscription=self._spec.name,
            epoch=self._spec.epoch,
            batch=planned.number,
            attempt=0,
            bucket=bucket,
            buckets=buckets,
            ranges=planned.ranges,
            blocks=blocks,
            tables=planned.parts,
            staging=str(self._staging),
        )

    def _files(self, planned: PlannedBatch) -> list[str]:
        return [str(path) for path in self._staging.glob(f"e{self._spec.epoch}-b{planned.number}-*")]
