"""An engine process of a test's own: replicates the subscription pickled in the file given until it is killed.

Each line on stdin names a queue mode, which the subscription then has, or `reload`, a table's id and one of its partitions, or `reach`
and a position, or `repair`, which verifies all tables with repair; an empty one ends it. Prints tables with their states, each event's
code, `reload` with a reload's state, `chunk` with the query of each chunk that a copy has read, `repaired` with what was repaired, and
`reached` once the target has what was asked for.
"""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.connectors import open_source, open_target, terms_of
from engine.control.supervisor import EngineContext, SubscriptionSupervisor
from engine.control.target_registry import TargetRegistry
from engine.copy.reload_requests import PartitionChoice
from engine.copy.split_task import CopyTask
from engine.link.messages import EventReport, Progress, ReloadReport, Report, TableStateReport
from engine.model.identity import TableId
from engine.model.position import Lsn
from engine.model.subscription import QueueMode
from engine.model.table_state import TableStateKind
from engine.platform.clock import SystemClock
from engine.platform.failpoints import arm_from_environment
from engine.platform.settings import EngineSettings
from engine.tables.reporter import Reporter
from engine.tables.state import kind_of
from tests.fixtures.local_runner import LocalRunner
from tests.fixtures.waiting import wait_until
from tests.pg.engine.repairing import verification


class _Telling(LocalRunner):
    """Says what copies read."""

    def run(self, function: Callable[[Any], Any], descriptors: Sequence[Any], group: str) -> list[Any]:
        found = super().run(function, descriptors, group)
        for task in descriptors:
            for part in task.parts if isinstance(task, CopyTask) else ():
                print("chunk", part.split.sql, flush=True)
        return found


_asked: list[Lsn] = []


def _print_report(report: Report) -> None:
    if isinstance(report, Progress):
        while _asked and _asked[0] <= report.applied:
            print("reached", _asked.pop(0), flush=True)
    elif isinstance(report, EventReport):
        print(report.code, report.detail, flush=True)
    elif isinstance(report, TableStateReport):
        print(report.name, report.state, flush=True)
    elif isinstance(report, ReloadReport):
        print("reload", report.state, flush=True)


def _repair(pipeline: SubscriptionSupervisor) -> None:
    """Verify with repair once all tables are live."""
    wait_until(
        lambda: (
            pipeline.run is not None
            and {kind_of(entry.state) for entry in pipeline.book.all()} == {TableStateKind.LIVE}
        )
    )
    print("repaired", [found.repaired for found in verification(pipeline).tables], flush=True)


def main(given: Path) -> None:
    arm_from_environment()
    spec, home = pickle.loads(given.read_bytes())
    settings = EngineSettings(home=home, guard_interval_s=0.1, position_write_s=1.0, parts_from_rows=1)
    clock = SystemClock()
    targets = TargetRegistry(lambda connection: open_target(connection, settings))
    parts = EngineContext(open_source, targets, _Telling(1), settings, clock)
    pipeline = SubscriptionSupervisor(spec, parts, Reporter(spec, _print_report, clock, terms_of(spec.source).form))
    pipeline.start()
    for line in sys.stdin:
        if not line.strip():
            break
        if line.startswith("reach "):
            _asked.append(Lsn.parse(line.split()[1]))
            pipeline.demand(_asked[-1])
            continue
        if line.startswith("repair"):
            threading.Thread(target=_repair, args=[pipeline], daemon=True).start()
            continue
        if line.startswith("reload "):
            _, table, partition = line.split()
            pipeline.reload("asked", [TableId(table)], PartitionChoice((partition,)))
            continue
        pipeline.update(replace(pipeline.spec, queue_mode=QueueMode(line.strip())))
    pipeline.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
