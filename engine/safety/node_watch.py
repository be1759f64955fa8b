"""Reports nodes of a source of several logs that cannot be read, or of which nothing comes while others wait, once for each outage."""

from __future__ import annotations

from collections.abc import Iterable

from engine.model.fault import FaultKind
from engine.model.merged_logs import LogStatus
from engine.model.position import Lsn
from engine.platform.clock import Clock
from engine.tables.reporter import Reporter

_AFTER_S = 5.0
"""Seconds after which a node is reported: longer than a restart of a small server, or the pauses of a busy one. Not measured."""


class NodeWatch:
    """Of one subscription. It outlives runs, so that an outage that ends one is not reported twice. One thread at a time."""

    def __init__(self, reporter: Reporter, clock: Clock) -> None:
        self._reporter = reporter
        self._clock = clock
        self._reported: dict[str, Lsn | None] = {}
        """By name of a node that was reported, up to where it was read; None: it was away since, or that is not known."""

    def look(self, logs: Iterable[LogStatus]) -> None:
        """Judge what a check found of each node, and report what is new."""
        for log in logs:
            since_us = log.silent_since_us if log.away is None else log.away.since_us
            if not since_us:
                if self._is_heard(log):
                    del self._reported[log.name]
                    self._reporter.event("info", "node_heard", log.name, f"the log of node {log.name} is read again")
            elif log.name in self._reported:
                if log.away is not None:
                    self._reported[log.name] = None
            elif self._clock.wall_us() - since_us >= _AFTER_S * 1e6:
                self._reported[log.name] = None if log.away is not None else log.read
                self._reporter.event("warning", FaultKind.NODE_SILENT.value, log.name, _detail(log))

    def _is_heard(self, log: LogStatus) -> bool:
        """Whether a reported node that no other waits for is read again: if it is only that none waits for a moment, or that no log reader
        says what is read, its outage lasts."""
        if log.name not in self._reported or log.read is None:
            return False
        known = self._reported[log.name]
        return known is None or log.read > known


def _detail(log: LogStatus) -> str:
    if log.away is None:
        return f"transactions of other nodes wait for node {log.name}, and nothing of its log arrives"
    return f"node {log.name} cannot be read ({log.away.code}: {log.away.reason}); what needs its log waits"
