"""The error budget of a real server and engine: kept while the copy follows, used while a table is paused or the engine is gone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.service import SUBSCRIPTION, Service
from tests.fixtures.waiting import wait_until

pytestmark = [pytest.mark.pg, pytest.mark.chaos]

PATH = f"/subscriptions/{SUBSCRIPTION}"


def test_the_budget_falls_while_nothing_is_applied(own_service: Service) -> None:
    with own_service.server.client() as api:

        def goal() -> dict[str, Any]:
            found: list[dict[str, Any]] = api.get(f"{PATH}/freshness-goals").json()["items"]
            return found[0]

        def late_s() -> float:
            found: float = goal()["shares_seconds"]["late"]
            return found

        freshness = {"goal_seconds": 0.5, "goal_percent": 99, "window_hours": 6}
        assert api.patch(PATH, json={"freshness": freshness}).status_code == 200
        wait_until(lambda: goal()["shares_seconds"]["fresh"] > 1, 30, "reports of an idle engine")
        begun = goal()
        assert begun["budget"]["left_seconds"] > 0
        table = api.get(f"{PATH}/tables").json()["items"][0]["id"]
        api.patch(f"{PATH}/tables/{table}", json={"desired_state": "paused"})
        wait_until(lambda: late_s() > begun["shares_seconds"]["late"] + 1, 30, "late time of a paused table")
        assert goal()["budget"]["left_seconds"] < begun["budget"]["left_seconds"] - 1
        assert goal()["late_since"] is not None
        api.patch(f"{PATH}/tables/{table}", json={"desired_state": "running"})
        wait_until(lambda: goal()["late_since"] is None, 60, "a table that follows again")
        resumed = goal()
        assert resumed["worst"]["seconds"] > 1
        own_service.engine.close()
        wait_until(lambda: late_s() > resumed["shares_seconds"]["late"] + 1, 60, "late time without an engine")
        assert goal()["budget"]["left_seconds"] < resumed["budget"]["left_seconds"] - 1
