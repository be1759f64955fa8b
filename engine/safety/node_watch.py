"""Reports nodes of a source of several logs that cannot be read, or of which nothing comes while others wait, once for each outage."""

from __future__ import annotations

from collections.abc import Iterable

from engine.model.fault import FaultKind
from engine.model.merged_logs import LogStatus
from engine.platform.clock import Clock
from engine.tables.reporter import Reporter

_AFTER_S = 5.0
"""Seconds after which a node is reported: longer than a restart of a small server, or the pauses of a busy one. Not measured."""


class NodeWatch:
    """Of one subscription. It outlives runs, so that an outage that ends one is not reported twice. One thread at a time."""

    def __init__(self, reporter: Reporter, clock: Clock) -> None:
        self._reporter = reporter
        self._clock = clock
        self._reported: set[str] = set()

    def look(self, logs: Iterable[LogStatus]) -> None:
        """Judge what a check found of each node, and report what is new."""
        for log in logs:
            since_us = log.silent_since_us if log.away is None else log.away.since_us
            if not since_us:
                if log.name in self._reported:
                    self._reported.discard(log.name)
                    self._reporter.event("info", "node_heard", log.name, f"the log of node {log.name} is read again")
            elif log.name not in self._reported and self._clock.wall_us() - since_us >= _AFTER_S * 1e6:
                self._reported.add(log.name)
                self._reporter.event("warning", FaultKind.NODE_SILENT.value, log.name, _detail(log))


def _detail(log: LogStatus) -> str:
    if log.away is None:
        return f"transactions of other nodes wait for node {log.name}, and nothing of its log arrives"
    return f"node {log.name} cannot be read ({log.away.code}: {log.away.reason}); what needs its log waits"
