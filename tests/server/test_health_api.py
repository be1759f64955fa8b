"""The health of a subscription and of its tables over HTTP, as an engine comes, reports, fails and goes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.link.messages import Assign
from engine.link.verifications import Verification, VerifiedTable
from tests.fixtures.channel import ADMIN, DEADLINE_S, FakeEngine, RunningServer, declare, running_server
from tests.fixtures.waiting import wait_until

_PATH = "/subscriptions/orders"


class Rig:
    """A server, an engine that runs `orders`, and a client."""

    def __init__(self, server: RunningServer, client: httpx.Client, engine: FakeEngine, assign: Assign) -> None:
        self.server, self.client, self.engine, self.assign = server, client, engine, assign

    @property
    def subscription(self) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(_PATH).json()
        return found

    @property
    def health(self) -> tuple[str, str]:
        found = self.subscription["health"]
        return found["status"], found["word"]

    @property
    def tables(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.client.get(f"{_PATH}/tables").json()["items"]
        return found

    def table(self, number: int, state: str, **why: str) -> None:
        self.engine.table(self.assign, self.assign.tables[number].table, state, **why)
        assert self.engine.link.flush(DEADLINE_S)

    def progress(self, applied: str) -> None:
        self.engine.progress(self.assign, applied)
        assert self.engine.link.flush(DEADLINE_S)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    # No lease runs out while the test lasts: what is known at once is known by the connection alone.
    with running_server(tmp_path, lease_s=3600.0) as server, server.client() as client:
        declare(client)
        engine = FakeEngine(server.url)
        try:
            yield Rig(server, client, engine, engine.run(applied="0/50"))
        finally:
            engine.close()


def test_a_lost_engine_is_known_at_once_and_told_to_who_watches(rig: Rig) -> None:
    assert rig.health == ("running", "running")
    assert [table["health"]["status"] for table in rig.tables] == ["running", "running"]
    headers = {"Authorization": f"Bearer {ADMIN}"}
    with (
        httpx.Client(timeout=DEADLINE_S, trust_env=False) as watching,
        watching.stream("GET", f"{rig.server.url}/api/v1/events/stream", headers=headers) as news,
    ):
        lines = news.iter_lines()
        assert next(lines) == ": connected"
        rig.engine.close()
        told = (json.loads(line.removeprefix("data:")) for line in lines if line.startswith("data:"))
        assert next(told)["subscription"] == "orders"
    assert rig.health == ("unknown", "no_engine")
    assert rig.subscription["state"] == "running", "the lease has not run out"
    assert [(t["state"], t["health"]["status"], t["health"]["following"]) for t in rig.tables] == [
        ("live", "unknown", False)
    ] * 2
    again = FakeEngine(rig.server.url)
    try:
        again.run(applied="0/60")
        assert rig.health == ("running", "running")
    finally:
        again.close()


def test_the_lag_of_a_lost_engine_grows_and_that_of_a_copy_is_not_known(rig: Rig) -> None:
    assert rig.subscription["lag"] == {"bytes": 0, "seconds": 0.0, "tables": 2}
    assert "penstock_subscription_lag_seconds" in _metrics(rig)
    for number in (0, 1):
        rig.table(number, "reloading")
    rig.progress("0/58")
    assert rig.subscription["lag"] == {"bytes": None, "seconds": None, "tables": 0}
    assert rig.health == ("moving", "copying")
    assert "penstock_subscription_lag_seconds" not in _metrics(rig)
    for number in (0, 1):
        rig.table(number, "live")
    assert rig.subscription["lag"]["seconds"] == 0.0
    rig.engine.close()
    wait_until(lambda: rig.health == ("unknown", "no_engine"))
    wait_until(lambda: rig.subscription["lag"]["seconds"] > 0)
    assert _metrics(rig)["penstock_subscription_lag_seconds"] > 0


def _metrics(rig: Rig) -> dict[str, float]:
    """The gauges of the subscription that have a value."""
    text = httpx.get(f"{rig.server.url}/metrics", headers={"Authorization": f"Bearer {ADMIN}"}, trust_env=False).text
    found = text_string_to_metric_families(text)
    samples = [sample for family in found for sample in family.samples]
    return {sample.name: sample.value for sample in samples if sample.labels == {"subscription": "orders"}}


def test_a_fault_of_the_whole_is_over_when_it_runs_again(rig: Rig) -> None:
    why = {"code": "source_unreachable", "reason": "shop: no route", "remedy": "Mend the network."}
    rig.engine.state(rig.assign, "starting", **why)
    assert rig.health == ("attention", "retrying")
    found = rig.subscription
    assert (found["last_fault"]["detail"], found["last_fault"]["over"]) == ("shop: no route", False)
    assert {table["health"]["status"] for table in rig.tables} == {"attention"}
    rig.engine.state(rig.assign, "failed", code="log_gap", reason="the slot is gone", remedy="Reload.")
    assert rig.health == ("failed", "failed")
    assert [(table["state"], table["health"]["status"]) for table in rig.tables] == [("live", "attention")] * 2
    rig.engine.state(rig.assign, "running")
    rig.progress("0/70")
    found = rig.subscription
    assert rig.health == ("running", "running")
    assert (found["last_fault"]["code"], found["last_fault"]["over"]) == ("log_gap", True)


def test_a_fault_of_a_table_is_over_when_that_table_is_live(rig: Rig) -> None:
    rig.table(0, "parked", code="table_no_identity", reason="no key", remedy="Add a key.")
    assert rig.health == ("attention", "parked_tables")
    last = rig.subscription["last_fault"]
    assert (last["table"], last["over"]) == (rig.assign.tables[0].table, False)
    rig.table(0, "reloading")
    assert (rig.health, rig.subscription["last_fault"]["over"]) == (("moving", "copying"), False)
    rig.table(0, "catching_up")
    rig.table(0, "live")
    assert (rig.health, rig.subscription["last_fault"]["over"]) == (("running", "running"), True)


def test_why_a_table_is_parked_outlives_the_engine_that_found_it(rig: Rig) -> None:
    why = {"code": "value_out_of_domain", "remedy": "Map it as text."}
    rig.table(0, "parked", reason="column at: year 294270", **why)
    events = "/events?subscription=orders&severity=error"
    before = rig.client.get(events).json()["items"]
    rig.table(0, "parked", **why)
    found = next(table for table in rig.tables if table["state"] == "parked")
    assert (found["reason"], found["remedy"]) == ("column at: year 294270", "Map it as text.")
    assert rig.client.get(events).json()["items"] == before
    rig.table(0, "parked", code="table_missing", remedy="Make it.")
    found = next(table for table in rig.tables if table["state"] == "parked")
    assert found["code"] == "table_missing"
    assert "ended before reporting the reason" in found["reason"], "the reason of another fault is not its own"


def test_a_table_that_was_verified_different_is_not_well_until_it_is_copied_or_equal(rig: Rig) -> None:
    def verified(*, equal: bool) -> None:
        verification = rig.client.post(f"{_PATH}/verifications").json()["id"]
        table = VerifiedTable(table=rig.assign.tables[0].table, equal=equal, source_rows=9, target_rows=8)
        rig.engine.link.report(
            Verification(
                subscription="orders",
                epoch=rig.assign.epoch,
                verification_id=verification,
                state="succeeded",
                tables=(table,),
                total=1,
            )
        )
        assert rig.engine.link.flush(DEADLINE_S)

    verified(equal=False)
    assert rig.health == ("attention", "different")
    assert sorted(table["health"]["status"] for table in rig.tables) == ["attention", "running"]
    verified(equal=True)
    assert rig.health == ("running", "running")
    verified(equal=False)
    rig.table(0, "reloading")
    rig.table(0, "live")
    assert rig.health == ("running", "running")
