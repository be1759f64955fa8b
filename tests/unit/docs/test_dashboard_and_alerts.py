"""The Grafana dashboard and the alert rules query metrics, labels and values that the server exposes, and nothing it does not."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from engine.link.cycles import LastCyclePart
from engine.link.messages import BatchReport, LedgerPart, Progress
from engine.model.ledger import LedgerEntry
from engine.model.position import Lsn
from engine.model.subscription import GuardPolicy
from engine.model.subscription_state import SubscriptionState
from engine.model.table_state import TableStateKind
from engine.sources.postgres_log.declaration import PostgresLogCapture
from engine.sources.postgres_log.position_form import PostgresLogForm
from server.clock import Clock
from server.declarations.freshness_goals import FreshnessGoal
from server.declarations.policies import FreshnessBody
from server.freshness.schemas import Receipt
from server.freshness.subscription_status import SubscriptionStatus, TableView
from server.freshness.tracker import FreshnessTracker
from server.freshness.wait import WaitOutcome
from server.freshness.wait_registry import WaitStatus
from server.gateway.hub import Hub
from server.goals.budget import FAST_RATE, LONG_H, SHORT_H, SLOW_RATE, judge
from server.goals.recorder import Measurement
from server.goals.timeline import HOUR_MS, Interval, Outcome, Timeline
from server.metrics.gauges import Gauges
from server.metrics.meters import Meters
from server.tables.schemas import VerifiedShare
from tests.fixtures.promql import OF_COUNTERS, OF_GAUGES, Query, Selector, is_duration, parse
from tests.tidy.documents import page
from tests.tidy.source_tree import ROOT

DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "penstock.json").read_text(encoding="utf-8"))
ALERTS = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = [(target["expr"], target["legendFormat"]) for panel in PANELS for target in panel["targets"]]
NOT_SHOWN = {
    "penstock_apply_calls_total": "has a series for each table, and serves the choice of indexes and paths, not operation",
    "penstock_batch_tuning": "figures of different units under one name",
}
"""Metrics that no panel shows, each with the reason."""
OF_SCRAPE = frozenset({"job", "instance"})
"""Labels that Prometheus adds to each series."""
OUTCOMES = {each.name for each in fields(LedgerEntry)} | {"left_out"}
VALUES: dict[tuple[str, str], set[str]] = {
    ("penstock_subscription_state", "state"): {state.value for state in SubscriptionState},
    ("penstock_tables", "state"): {state.value for state in TableStateKind},
    ("penstock_freshness_wait_seconds_bucket", "outcome"): {status.value for status in WaitStatus},
    ("penstock_ledger_changes_total", "outcome"): OUTCOMES,
    ("up", "job"): {"penstock"},
}
"""What a matcher may compare a label with."""
_NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Exposed:
    """`labels`: of each sample, by its name. `families`: the name in the reference of each sample's metric."""

    labels: dict[str, frozenset[str]]
    families: dict[str, str]


@functools.cache
def exposed() -> Exposed:
    """What the server exposes about one subscription that had a wait, a batch and a query."""
    meters = Meters()
    meters.registry.register(_gauges())
    receipt = cast("Receipt", SimpleNamespace(on_arrival=True))
    meters.record_wait("s", WaitOutcome(WaitStatus.SATISFIED, 5.0, "0/1", "0/1", receipt))
    meters.record_wake_up("s", 0.1)
    meters.record_report(
        BatchReport(
            subscription="s",
            epoch=1,
            batch=1,
            after=Lsn(1),
            end=Lsn(2),
            transactions=1,
            rows={"insert": 1},
            path="driver",
            seconds={"job": 0.1},
            tuning={"tasks": 1},
            apply_calls={"t": {"insert": {"1": 1}}},
            ledger=LedgerPart(captured=1, tables={"t": {"captured": 1, "applied": 1}}),
            committed_at=_NOW,
        )
    )
    meters.record_query("s", "answered", 0.1)
    found = Exposed({"up": OF_SCRAPE}, {})
    for family in text_string_to_metric_families(generate_latest(meters.registry).decode()):
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                found.labels[sample.name] = frozenset(sample.labels) | OF_SCRAPE
                found.families[sample.name] = sample.name if family.type == "counter" else family.name
    return found


def _gauges() -> Gauges:
    progress = Progress(
        subscription="s",
        epoch=1,
        source=Lsn(3),
        captured=Lsn(2),
        applied=Lsn(1),
        lag_bytes=2,
        lag_seconds=1.0,
        retained_bytes=4,
        applied_of_logs={"": Lsn(1), "n1": Lsn(1)},
        source_of_logs={"n1": Lsn(2)},
        cycle=LastCyclePart(number=1, taken_at=_NOW, seconds=2.0, bytes_read=3),
        at=_NOW,
    )
    table = TableView("t", "public", "orders", TableStateKind.LIVE)
    status = SubscriptionStatus("s", PostgresLogForm(), tables={"t": table}, progress=progress)
    hub = SimpleNamespace(engines=[], owner=lambda _: "engine")
    tracker = SimpleNamespace(statuses=[status], count_waits=lambda _: 0)
    clock = SimpleNamespace(now=lambda: _NOW)
    goal = FreshnessGoal(lag_seconds=10, percent=99.5, window_hours=168, count_pauses=True)
    hour = Timeline()
    hour.add(Interval(0, HOUR_MS), Outcome.FRESH)
    measured = Measurement(("s", ""), judge(goal, 0, HOUR_MS, hour), None)
    goals = {("s", ""): measured}
    shares = {
        "s": VerifiedShare(
            tables=1, verified_tables=1, tables_ratio=1.0, rows_ratio=1.0, sampled_ratio=0.0, oldest_at=_NOW
        )
    }
    return Gauges(
        cast("Hub", hub), cast("FreshnessTracker", tracker), cast("Clock", clock), "1", lambda: goals, lambda: shares
    )


def in_reference() -> dict[str, frozenset[str]]:
    """The metrics of the reference page with their labels, without `subscription`."""
    found = {}
    for line in page("docs/reference/metrics.md").text.splitlines():
        cells = [re.findall(r"`(\w+)`", cell) for cell in line.strip("|").split("|")]
        for name in cells[0] if line.startswith("| `") else ():
            found[name] = frozenset(cells[1]) if len(cells) == 3 else frozenset()
    return found


def wrong(query: Query) -> Iterator[str]:
    """What of an expression does not match the exposed metrics."""
    labels = exposed().labels
    for selector in query.selectors:
        if selector.metric not in labels:
            yield f"no metric {selector.metric}"
            continue
        yield from (
            f"{selector.metric} has no label {label}" for label in _used(query, selector) - labels[selector.metric]
        )
        yield from _wrong_values(selector)
        yield from _wrong_function(selector)
    if "histogram_quantile" in query.functions and "le" not in (query.grouped or ()):
        yield "a quantile without le"


def _used(query: Query, selector: Selector) -> set[str]:
    return {label for label, _, _ in selector.matchers} | (query.grouped or set())


def _wrong_values(selector: Selector) -> Iterator[str]:
    for label, operator, text in selector.matchers:
        if label == "subscription":
            if (operator, text) != ("=~", "$subscription"):
                yield "a subscription is chosen by the variable"
            continue
        values = set(text.split("|")) if "~" in operator else {text}
        yield from (f"{label} is never {value}" for value in values - VALUES.get((selector.metric, label), set()))


def _wrong_function(selector: Selector) -> Iterator[str]:
    cumulative = selector.metric.endswith(("_total", "_bucket", "_sum", "_count"))
    if selector.duration is None:
        if selector.function in OF_COUNTERS | OF_GAUGES:
            yield f"{selector.function} of {selector.metric} needs a range"
    elif selector.function not in (OF_COUNTERS if cumulative else OF_GAUGES):
        yield f"{selector.function} is not for {selector.metric}"


def kept(query: Query) -> set[str]:
    """Labels that every result of the expression has."""
    of_each = [exposed().labels[selector.metric] for selector in query.selectors]
    known = set(frozenset.intersection(*of_each)) if of_each else set()
    return known if "sum" not in query.functions else known & (query.grouped or set())


def test_the_reference_has_what_is_exposed() -> None:
    found: dict[str, set[str]] = {}
    for sample, family in exposed().families.items():
        found.setdefault(family, set()).update(exposed().labels[sample] - OF_SCRAPE - {"le", "subscription"})
    assert {name: set(labels) for name, labels in in_reference().items()} == found


@pytest.mark.parametrize(("text", "legend"), TARGETS)
def test_panel_queries_what_is_exposed(text: str, legend: str) -> None:
    query = parse(text)
    assert list(wrong(query)) == []
    assert set(re.findall(r"{{\s*(\w+)\s*}}", legend)) <= kept(query)
    per_subscription = [each for each in query.selectors if "subscription" in exposed().labels[each.metric]]
    assert all("subscription" in {label for label, _, _ in each.matchers} for each in per_subscription)


def test_every_metric_of_the_reference_is_shown_or_left_out_for_a_reason() -> None:
    shown = {exposed().families[each.metric] for text, _ in TARGETS for each in parse(text).selectors}
    assert shown | set(NOT_SHOWN) == set(in_reference())
    assert shown & set(NOT_SHOWN) == set()


def test_the_dashboard_is_whole() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(set(cells)) == len(cells), "panels overlap"
    assert max(x for x, _ in cells) < 24
    source = {"type": "prometheus", "uid": "${datasource}"}
    assert all(each["datasource"] == source for panel in PANELS for each in (panel, *panel["targets"]))
    assert all(panel["description"] for panel in PANELS)
    variables = {each["name"] for each in DASHBOARD["templating"]["list"]}
    assert set(re.findall(r"\$([a-z]\w*)", " ".join(text for text, _ in TARGETS))) | {"datasource"} == variables


def test_limits_are_the_defaults_of_a_subscription() -> None:
    goal, guard = FreshnessBody().goal_seconds, GuardPolicy()
    budget = PostgresLogCapture.model_fields["slot_budget_bytes"].default
    chosen = {each["name"]: each.get("query") for each in DASHBOARD["templating"]["list"]}
    assert (chosen["goal_seconds"], chosen["slot_budget_bytes"]) == (f"{goal:g}", str(budget))
    level = next(panel for panel in PANELS if panel["title"] == "Guard level")
    shares = [step["value"] for step in level["fieldConfig"]["defaults"]["thresholds"]["steps"][1:]]
    levels = [guard.warn_share, guard.persist_share, guard.stop_copies_share, guard.name_transaction_share]
    assert shares == [*levels, guard.drop_slot_share]
    rules = {rule["alert"]: rule["expr"] for rule in RULES}
    assert f"lag_seconds > {goal:g} " in rules["PenstockLagAboveGoal"]
    assert rules["PenstockSlotRetainsLog"].endswith(f"> {guard.warn_share:g} * {budget}")
    assert rules["PenstockSlotAtRisk"].endswith(f"> {guard.name_transaction_share:g} * {budget}")
    assert f"4 * 3600) > {budget} " in rules["PenstockSlotFillsSoon"]
    assert rules["PenstockFreshnessBudgetFastBurn"].endswith(f"_{SHORT_H}h >= {FAST_RATE:g}")
    assert rules["PenstockFreshnessBudgetSlowBurn"].endswith(f"_{LONG_H}h >= {SLOW_RATE:g}")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_alert_is_a_valid_rule(rule: dict[str, Any]) -> None:
    query = parse(rule["expr"])
    assert list(wrong(query)) == []
    assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"Penstock[A-Za-z]+", rule["alert"])
    assert is_duration(rule["for"])
    assert rule["labels"] in ({"severity": "critical"}, {"severity": "warning"})
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}
    used = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    assert used <= kept(query)
    path, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert path.startswith("docs/")
    assert not anchor or anchor in page(path).anchors()


def test_groups_and_alerts_have_names_of_their_own() -> None:
    for names in ([group["name"] for group in ALERTS["groups"]], [rule["alert"] for rule in RULES]):
        assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("penstock_gone > 0", "no metric penstock_gone"),
        ("sum by (stage) (penstock_tables)", "penstock_tables has no label stage"),
        ('penstock_rows_set_aside{table="t"}', "penstock_rows_set_aside has no label table"),
        ('penstock_tables{state="park"}', "state is never park"),
        ("rate(penstock_rows_set_aside[5m])", "rate is not for penstock_rows_set_aside"),
        ("rate(penstock_applied_rows_total)", "rate of penstock_applied_rows_total needs a range"),
        ("histogram_quantile(0.5, rate(penstock_query_seconds_bucket[5m]))", "a quantile without le"),
    ],
)
def test_what_does_not_match_is_found(text: str, found: str) -> None:
    assert found in list(wrong(parse(text)))


@pytest.mark.parametrize(
    "text", ["rat(up[5m])", "sum(up", "up[5x]", 'up{job>"penstock"}', "up{job=penstock}", "up)", "[5m]", "up ; up"]
)
def test_what_is_not_promql_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(text)
