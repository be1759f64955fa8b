"""Counters and histograms. One registry per application."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from engine.link.messages import BatchReport, Report
from server.freshness.wait import WaitOutcome

_WAIT_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 2.5, 5, 10, 30, 60, 300, 600)
_WAKE_UP_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.75, 1, 2.5, 5, 10, 30)
_BATCH_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_BATCH_TRANSACTIONS = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 200_000)


class Meters:
    """Counters and histograms that events update. Gauges are read from the current state at each scrape."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        of = ["subscription"]
        self._waits = Histogram(
            "penstock_freshness_wait_seconds",
            "Freshness waits by how they ended.",
            [*of, "outcome"],
            buckets=_WAIT_SECONDS,
            registry=self.registry,
        )
        self._on_arrival = Counter(
            "penstock_freshness_waits_satisfied_on_arrival",
            "Freshness waits whose position was applied already when they came.",
            of,
            registry=self.registry,
        )
        self._wake_ups = Histogram(
            "penstock_freshness_wake_up_seconds",
            "Time from the receipt of the report that satisfied a freshness wait to the answer, of waits that were open at the receipt.",
            of,
            buckets=_WAKE_UP_SECONDS,
            registry=self.registry,
        )
        self._rows = Counter(
            "penstock_applied_rows", "Row changes applied, by operation.", [*of, "op"], registry=self.registry
        )
        self._batches = Histogram(
            "penstock_batch_seconds",
            "Time that batches spent in a stage.",
            [*of, "stage"],
            buckets=_BATCH_SECONDS,
            registry=self.registry,
        )
        self._transactions = Histogram(
            "penstock_batch_transactions",
            "Source transactions per batch, by the path that it took and the mode in which it was written to the target.",
            [*of, "path", "mode"],
            buckets=_BATCH_TRANSACTIONS,
            registry=self.registry,
        )
        self._apply_calls = Counter(
            "penstock_apply_calls",
            "How often rows were brought into a table (its id), by operation, path, and how many they were at least: 1, 10, 100 and so on.",
            [*of, "table", "op", "path", "rows"],
            registry=self.registry,
        )
        self._ledger = Counter(
            "penstock_ledger_changes",
            "Changes by outcome: see `ledger` of a batch. `left_out`: of tables without a part in the batch.",
            [*of, "outcome"],
            registry=self.registry,
        )
        self._tuning = Gauge(
            "penstock_batch_tuning",
            "What was chosen for the last batch that had it, and the measurements that decided: see `tuning` of a batch.",
            [*of, "what"],
            registry=self.registry,
        )
        self._queries = Histogram(
            "penstock_query_seconds", "Queries by how they ended.", [*of, "outcome"], registry=self.registry
        )

    def record_wait(self, subscription: str, outcome: WaitOutcome) -> None:
        self._waits.labels(subscription, outcome.status.value).observe(outcome.waited_ms / 1000)
        if outcome.receipt is not None and outcome.receipt.on_arrival:
            self._on_arrival.labels(subscription).inc()

    def record_wake_up(self, subscription: str, seconds: float) -> None:
        """`seconds`: from the receipt of the report that satisfied the wait until its answer was handed to the transport."""
        self._wake_ups.labels(subscription).observe(seconds)

    def record_report(self, report: Report) -> None:
        if isinstance(report, BatchReport):
            self._record_batch(report)

    def _record_batch(self, batch: BatchReport) -> None:
        for operation, count in batch.rows.items():
            self._rows.labels(batch.subscription, operation).inc(count)
        for stage, duration in batch.seconds.items():
            self._batches.labels(batch.subscription, stage).observe(duration)
        for table, operations in batch.apply_calls.items():
            for operation, sizes in operations.items():
                for rows, calls in sizes.items():
                    self._apply_calls.labels(batch.subscription, table, operation, batch.path, rows).inc(calls)
        if batch.ledger is not None:
            self._ledger.labels(batch.subscription, "left_out").inc(batch.ledger.left_out)
            for counts in batch.ledger.tables.values():
                for outcome, count in counts.items():
                    self._ledger.labels(batch.subscription, outcome).inc(count)
        for what, value in batch.tuning.items():
            self._tuning.labels(batch.subscription, what).set(value)
        self._transactions.labels(batch.subscription, batch.path, batch.mode.value).observe(batch.transactions)

    def record_query(self, subscription: str, outcome: str, seconds: float) -> None:
        self._queries.labels(subscription, outcome).observe(seconds)
