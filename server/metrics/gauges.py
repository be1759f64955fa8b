"""Gauges that are read from the state of things when somebody asks for the metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.model.table_state import TableState
from server.clock import Clock
from server.freshness.subscription_status import Picture
from server.freshness.tracker import FreshnessService
from server.gateway.hub import Hub

_POSITIONS: dict[str, Callable[[Picture], float | None]] = {
    "source": lambda picture: picture.source.value if picture.source else None,
    "captured": lambda picture: picture.captured.value if picture.captured else None,
    "applied": lambda picture: picture.applied.value if picture.applied else None,
}


class Gauges(Collector):
    """Collected on the event loop, where the pictures live."""

    def __init__(self, hub: Hub, freshness: FreshnessService, clock: Clock, version: str) -> None:
        self._clock = clock
        self._hub = hub
        self._freshness = freshness
        self._version = version

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily("penstock_build", "The running release.", value={"version": self._version})
        yield _plain("penstock_engines_connected", "Engines that hold a command stream.", len(self._hub.engines))
        pictures = sorted(self._freshness.pictures, key=lambda picture: picture.name)
        yield _by_subscription(
            "penstock_subscription_lag_seconds",
            "How far the live tables are behind.",
            pictures,
            lambda p: self._lag(p)[1],
        )
        yield _by_subscription(
            "penstock_subscription_lag_bytes",
            "Log that is not yet applied.",
            pictures,
            lambda p: self._lag(p)[0],
        )
        yield _by_subscription(
            "penstock_slot_retained_bytes", "Log that the slot holds back.", pictures, lambda p: p.retained_bytes
        )
        for name, read in _POSITIONS.items():
            yield _by_subscription(
                f"penstock_subscription_{name}_position_bytes", f"The {name} position, as an offset.", pictures, read
            )
        yield _by_subscription(
            "penstock_freshness_waits_outstanding",
            "Freshness waits that have not ended.",
            pictures,
            lambda p: self._freshness.waiting(p.name),
        )
        yield _by_subscription(
            "penstock_rows_set_aside",
            "Rows that the target refused and that stand aside.",
            pictures,
            lambda p: sum(table.set_aside for table in p.tables.values()),
        )
        yield _states(pictures)
        yield _table_states(pictures)

    def _lag(self, picture: Picture) -> tuple[int | None, float | None]:
        return picture.lag_at(self._clock.now(), engine=self._hub.owner(picture.name) is not None)


def _plain(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _by_subscription(
    name: str, text: str, pictures: list[Picture], read: Callable[[Picture], float | None]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=["subscription"])
    for picture in pictures:
        value = read(picture)
        if value is not None:
            family.add_metric([picture.name], value)
    return family


def _states(pictures: list[Picture]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "penstock_subscription_state", "1 for the state that a subscription is in.", labels=["subscription", "state"]
    )
    for picture in pictures:
        family.add_metric([picture.name, picture.state.value], 1)
    return family


def _table_states(pictures: list[Picture]) -> GaugeMetricFamily:
    """With zeroes, so that an alarm on parked tables has something to look at before there are any."""
    family = GaugeMetricFamily("penstock_tables", "Tables by their state.", labels=["subscription", "state"])
    for picture in pictures:
        count = Counter(table.state for table in picture.tables.values())
        for state in TableState:
            family.add_metric([picture.name, state.value], count[state])
    return family
