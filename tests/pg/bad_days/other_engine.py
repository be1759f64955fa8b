"""A second engine process: replicates the subscription pickled in the file given, and prints each state with its code."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from engine.connectors import open_source, open_target
from engine.control.supervisor import EngineContext, SubscriptionSupervisor
from engine.control.target_registry import TargetRegistry
from engine.link.messages import Report, SubscriptionStateReport
from engine.platform.clock import SystemClock
from engine.platform.settings import EngineSettings
from engine.sources.postgres_log.position_form import PostgresLogForm
from engine.tables.reporter import Reporter
from tests.fixtures.local_runner import LocalRunner


def _print_report(report: Report) -> None:
    if isinstance(report, SubscriptionStateReport):
        print(" ".join(filter(None, (report.state, report.code))), flush=True)


def main(given: Path) -> None:
    """Run until stdin ends or the process is killed."""
    spec, home = pickle.loads(given.read_bytes())
    settings = EngineSettings(home=home, guard_interval_s=0.3, position_write_s=1.0)
    clock = SystemClock()
    targets = TargetRegistry(lambda connection: open_target(connection, settings))
    parts = EngineContext(open_source, targets, LocalRunner(1), settings, clock)
    pipeline = SubscriptionSupervisor(spec, parts, Reporter(spec, _print_report, clock, PostgresLogForm()))
    pipeline.start()
    sys.stdin.readline()
    pipeline.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
