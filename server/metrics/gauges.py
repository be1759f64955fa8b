"""Gauges that are read from the current state at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial

from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.link.cycles import LastCyclePart
from engine.model.position import Lsn
from engine.model.table_state import TableStateKind
from server.clock import Clock
from server.freshness.node_progress import NodeProgress, node_progress
from server.freshness.subscription_status import SubscriptionStatus
from server.freshness.tracker import FreshnessTracker
from server.gateway.hub import Hub
from server.goals.budget import Standing
from server.goals.recorder import Measurement
from server.goals.repository import GoalKey
from server.tables.schemas import VerifiedShare

_POSITIONS = ("source", "captured", "applied")


_OF_GOALS: tuple[tuple[str, str, Callable[[Standing], float | None]], ...] = (
    ("penstock_freshness_goal_seconds", "The lag that the freshness goal allows.", lambda s: s.goal.lag_seconds),
    (
        "penstock_freshness_goal_ratio",
        "The share of the time in which the lag is to be within the goal.",
        lambda s: s.goal.percent / 100,
    ),
    (
        "penstock_freshness_compliance_ratio",
        "The share of the time in which it was.",
        lambda s: s.compliance,
    ),
    (
        "penstock_freshness_budget_left_seconds",
        "What is left of the error budget; negative if more was used.",
        lambda s: s.left_ms / 1000,
    ),
    (
        "penstock_freshness_budget_seconds",
        "The error budget of a window.",
        lambda s: s.budget_ms / 1000,
    ),
    (
        "penstock_freshness_burn_rate_1h",
        "The error budget used in the last hour, in multiples of what uses it up in one window.",
        lambda s: s.burn_short,
    ),
    (
        "penstock_freshness_burn_rate_6h",
        "The same of the last 6 hours.",
        lambda s: s.burn_long,
    ),
)


_OF_SHARES: tuple[tuple[str, str, Callable[[VerifiedShare], float | None]], ...] = (
    (
        "penstock_verified_rows_ratio",
        "The share of the rows in tables that were found equal to the source within the time that the schedule of verifications wants.",
        lambda s: s.rows_ratio,
    ),
    ("penstock_verified_tables_ratio", "The share of these tables.", lambda s: s.tables_ratio),
    (
        "penstock_sampled_tables_ratio",
        "The share of the other tables of which a sample was found equal to the source within that time.",
        lambda s: s.sampled_ratio,
    ),
)


_OF_CYCLES: tuple[tuple[str, str, Callable[[LastCyclePart, datetime], float]], ...] = (
    (
        "penstock_cycle_snapshot_age_seconds",
        "Time since the snapshot of the last cycle was taken, of a subscription that is captured by queries.",
        lambda cycle, now: max(0.0, (now - cycle.taken_at).total_seconds()),
    ),
    ("penstock_cycle_seconds", "Duration of the last cycle.", lambda cycle, _: cycle.seconds),
    (
        "penstock_cycle_failures",
        "Cycles that failed since the last one that ended.",
        lambda cycle, _: cycle.failures,
    ),
    (
        "penstock_cycle_unread_tables",
        "Tables that the last cycle could not read.",
        lambda cycle, _: cycle.unread,
    ),
    ("penstock_cycle_read_bytes", "Bytes that the last cycle read from the source.", lambda cycle, _: cycle.bytes_read),
)


_OF_NODES: tuple[tuple[str, str, Callable[[NodeProgress], float | None]], ...] = (
    (
        "penstock_node_lag_bytes",
        "Log of a node that is not applied, of a subscription whose source has several.",
        lambda node: node.lag_bytes,
    ),
    ("penstock_node_late", "1 while other nodes wait for this one.", lambda node: int(node.late)),
    ("penstock_node_away", "1 while a node cannot be read.", lambda node: int(node.away is not None)),
)


class Gauges(Collector):
    """Collected on the event loop, which owns the statuses."""

    def __init__(
        self,
        hub: Hub,
        freshness: FreshnessTracker,
        clock: Clock,
        version: str,
        goals: Callable[[], Mapping[GoalKey, Measurement]],
        verified: Callable[[], Mapping[str, VerifiedShare]],
    ) -> None:
        self._clock = clock
        self._goals = goals
        self._verified = verified
        self._hub = hub
        self._freshness = freshness
        self._version = version

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily("penstock_build", "The running release.", value={"version": self._version})
        yield _plain("penstock_engines_connected", "Engines that hold a command stream.", len(self._hub.engines))
        statuses = sorted(self._freshness.statuses, key=lambda status: status.name)
        yield _by_subscription(
            "penstock_subscription_lag_seconds",
            "Lag of the live tables.",
            statuses,
            lambda p: self._lag(p)[1],
        )
        yield _by_subscription(
            "penstock_subscription_lag_bytes",
            "Log that is not yet applied.",
            statuses,
            lambda p: self._lag(p)[0],
        )
        yield _by_subscription(
            "penstock_slot_retained_bytes",
            "Log that the slot holds back.",
            statuses,
            lambda p: p.progress.retained_bytes if p.progress else None,
        )
        for name in _POSITIONS:
            yield _by_subscription(
                f"penstock_subscription_{name}_position_bytes",
                f"The {name} position, as an offset.",
                statuses,
                partial(_position, name),
            )
        yield from _of_nodes(statuses)
        for name, text, of_cycle in _OF_CYCLES:
            yield _by_subscription(name, text, statuses, partial(self._of_cycle, of_cycle))
        yield _by_subscription(
            "penstock_freshness_waits_outstanding",
            "Freshness waits that have not ended.",
            statuses,
            lambda p: self._freshness.count_waits(p.name),
        )
        yield _by_subscription(
            "penstock_rows_set_aside",
            "Rows that the target refused and that are in quarantine.",
            statuses,
            lambda p: sum(table.set_aside for table in p.tables.values()),
        )
        for name, text, read in _OF_SHARES:
            yield _by_subscription(name, text, statuses, partial(self._share, read))
        yield _states(statuses)
        yield _table_states(statuses)
        yield from self._of_goals()

    def _of_goals(self) -> Iterator[Metric]:
        """One series for each goal; `table` is empty for the goal of the subscription."""
        for name, text, read in _OF_GOALS:
            family = GaugeMetricFamily(name, text, labels=["subscription", "table"])
            for (subscription, table_id), found in sorted(self._goals().items()):
                table = self._table_name(subscription, table_id)
                value = read(found.standing)
                if value is not None and table is not None:
                    family.add_metric([subscription, table], value)
            yield family

    def _of_cycle(self, read: Callable[[LastCyclePart, datetime], float], status: SubscriptionStatus) -> float | None:
        cycle = status.progress.cycle if status.progress else None
        return None if cycle is None else read(cycle, self._clock.now())

    def _share(self, read: Callable[[VerifiedShare], float | None], status: SubscriptionStatus) -> float | None:
        share = self._verified().get(status.name)
        return None if share is None else read(share)

    def _table_name(self, subscription: str, table_id: str) -> str | None:
        if not table_id:
            return ""
        status = self._freshness.find_status(subscription)
        table = None if status is None else status.tables.get(table_id)
        return None if table is None else f"{table.schema}.{table.name}"

    def _lag(self, status: SubscriptionStatus) -> tuple[int | None, float | None]:
        return status.lag_at(self._clock.now(), engine=self._hub.owner(status.name) is not None)


def _position(name: str, status: SubscriptionStatus) -> float | None:
    position: Lsn | None = getattr(status.progress, name, None)
    return position.value if position else None


def _plain(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _by_subscription(
    name: str, text: str, statuses: list[SubscriptionStatus], read: Callable[[SubscriptionStatus], float | None]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=["subscription"])
    for status in statuses:
        value = read(status)
        if value is not None:
            family.add_metric([status.name], value)
    return family


def _of_nodes(statuses: list[SubscriptionStatus]) -> Iterator[Metric]:
    for name, text, read in _OF_NODES:
        family = GaugeMetricFamily(name, text, labels=["subscription", "node"])
        for status in statuses:
            for node in node_progress(status):
                value = read(node)
                if value is not None:
                    family.add_metric([status.name, node.name], value)
        yield family


def _states(statuses: list[SubscriptionStatus]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "penstock_subscription_state", "1 for the state that a subscription is in.", labels=["subscription", "state"]
    )
    for status in statuses:
        family.add_metric([status.name, status.state.value], 1)
    return family


def _table_states(statuses: list[SubscriptionStatus]) -> GaugeMetricFamily:
    """Tables by state, including zeroes, so that an alarm on parked tables has a series before any table is parked."""
    family = GaugeMetricFamily("penstock_tables", "Tables by their state.", labels=["subscription", "state"])
    for status in statuses:
        count = Counter(table.state for table in status.tables.values())
        for state in TableStateKind:
            family.add_metric([status.name, state.value], count[state])
    return family
