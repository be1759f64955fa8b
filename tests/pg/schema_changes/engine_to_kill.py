"""An engine process of its own: replicates the subscription pickled in the file given until it is killed or its stdin ends.

Each line on stdout is a report, pickled and in base64.
"""

from __future__ import annotations

import base64
import pickle
import sys
from pathlib import Path

from engine.connectors import open_source, open_target
from engine.control.supervisor import EngineContext, SubscriptionSupervisor
from engine.control.target_registry import TargetRegistry
from engine.link.messages import Report
from engine.platform.clock import SystemClock
from engine.platform.failpoints import arm_from_environment
from engine.sources.postgres_log.position_form import PostgresLogForm
from engine.tables.reporter import Reporter
from tests.fixtures.local_runner import LocalRunner


def _print_report(report: Report) -> None:
    sys.stdout.write(base64.b64encode(pickle.dumps(report)).decode() + "\n")
    sys.stdout.flush()


def main(given: Path) -> None:
    arm_from_environment()
    spec, settings = pickle.loads(given.read_bytes())
    clock = SystemClock()
    targets = TargetRegistry(lambda connection: open_target(connection, settings))
    parts = EngineContext(open_source, targets, LocalRunner(2), settings, clock)
    pipeline = SubscriptionSupervisor(spec, parts, Reporter(spec, _print_report, clock, PostgresLogForm()))
    pipeline.start()
    sys.stdin.read()
    pipeline.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
