"""The Spark stages over a captured backlog, on one core and on more: `python -m bench.isolated.scaling`.

Reads one JSON object from standard input: `folder` (a queue that no other process has open), `source` (settings of a
connection), `tables`, `batch_bytes`, `cores` and `rounds`. The backlog is sorted and sealed in batches of that size,
which form one job with a task each: scan, net, decode, stage. The numbers of cores alternate, each in a Spark session
of its own. Prints a JSON object for each job.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import psutil

from bench.isolated.capture import table_of
from engine.connectors import open_source
from engine.model.batch import SealedBatch, TablePart, TaskDescriptor
from engine.model.identity import BatchId, Epoch, SubscriptionName
from engine.model.position import ZERO
from engine.model.schema import TableSchema
from engine.model.subscription import BatchPolicy, ConnectionSpec, TableSpec
from engine.pipeline.task_functions import load_kernels, net_task, sweep
from engine.queue import QueueCatalog, recover
from engine.sort.batcher import Batcher
from engine.sort.sorter import TransactionSorter
from engine.spark.session import SparkRunner

_START_S = 180.0


def sealed(folder: Path, batch_bytes: int) -> tuple[QueueCatalog, list[SealedBatch]]:
    """All committed transactions of the queue, in batches of about `batch_bytes`."""
    catalog, sorter = QueueCatalog(folder), TransactionSorter(ZERO)
    batcher = Batcher(BatchPolicy(max_transactions=10_000_000, max_bytes=batch_bytes, max_age_ms=0), ZERO)
    for landed in recover(folder).landed:
        if landed.block is not None:
            catalog.add(landed.block)
        sorter.feed(landed.controls, landed.relations)
        batcher.add(sorter.drain(), 0)
        batcher.advance(landed.wal_end)
    batches: list[SealedBatch] = []
    while (batch := batcher.seal(1, catalog.bytes_between)) is not None:
        batches.append(batch)
    return catalog, [batch for batch in batches if batch.transactions]


def descriptors(
    catalog: QueueCatalog,
    batches: Sequence[SealedBatch],
    tables: Sequence[tuple[TableSpec, TableSchema]],
    staging: Path,
) -> list[TaskDescriptor]:
    """A task for each batch. The tables have one structure throughout."""
    found = []
    for number, batch in enumerate(batches, 1):
        announced = Counter(int(seen.relation) for seen in batch.relations)
        parts = tuple(
            TablePart(spec.table, (schema,) * (1 + announced[int(schema.relation)]), ZERO) for spec, schema in tables
        )
        found.append(
            TaskDescriptor(
                subscription=SubscriptionName("scaling"),
                epoch=Epoch(1),
                batch=BatchId(number),
                attempt=0,
                bucket=0,
                buckets=1,
                ranges=tuple(batch.ranges),
                blocks=catalog.blocks_for(batch.ranges),
                tables=parts,
                staging=str(staging),
            )
        )
    return found


def measure(cores: int, tasks: Sequence[TaskDescriptor], folder: Path, rounds: int) -> None:
    """Run the job `rounds` times in one session and print each result, after a warm-up job that is not printed.

    All processes, including Spark's JVM, are restricted to this number of cores.
    """
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:cores])
    runner = SparkRunner(f"local[{cores}]", "scaling", folder / "spark", prepare=load_kernels)
    runner.start()
    runner.wait_ready(_START_S)
    try:
        for number in range(1 + rounds):
            sweep(Path(tasks[0].staging))
            used, began = _cpu_s(), perf_counter()
            results = runner.run(net_task, tasks, f"round-{number}")
            took = perf_counter() - began
            rows = sum(sum(table.counts.values()) for result in results for table in result.tables)
            if number:
                _print_document(
                    {"cores": cores, "tasks": len(tasks), "seconds": took, "rows": rows, "cpu_s": _cpu_s() - used}
                )
    finally:
        runner.stop()
        os.sched_setaffinity(0, allowed)


def main() -> int:
    """Run all measurements."""
    order: dict[str, Any] = json.loads(sys.stdin.readline())
    folder = Path(order["folder"])
    specs = [table_of(number, one) for number, one in enumerate(order["tables"])]
    source = open_source(ConnectionSpec("source", "postgres", order["source"]))
    try:
        described = source.describe(specs)
    finally:
        source.close()
    catalog, batches = sealed(folder, int(order["batch_bytes"]))
    tables = [(spec, described[spec.source]) for spec in specs]
    tasks = descriptors(catalog, batches, tables, folder / "staged")
    for cores in order["cores"]:
        measure(int(cores), tasks, folder, int(order["rounds"]))
    return 0


def _cpu_s() -> float:
    """CPU seconds so far of this process, Spark's JVM and the workers."""
    own = psutil.Process()
    times = [process.cpu_times() for process in (own, *own.children(recursive=True)) if process.is_running()]
    return sum(one.user + one.system for one in times)


def _print_document(document: dict[str, Any]) -> None:
    print(json.dumps(document), flush=True)


if __name__ == "__main__":
    sys.exit(main())
