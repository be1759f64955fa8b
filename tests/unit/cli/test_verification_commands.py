"""Commands about verifications and their schedule, against a fake server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from server.cli.exit_codes import ExitCode
from tests.fixtures.stand_in import Run, StandIn

PATH = "/subscriptions/m"
LAST = {"at": "2026-05-04T10:00:00Z", "equal": True, "before_copy": False, "overdue": False}
PROBLEM = {
    "detail": "Open transactions.",
    "remedy": "End them.",
    "attempts": 3,
    "retry_at": "2026-05-04T11:00:00Z",
}
SHARE = {"tables": 4, "verified_tables": 1, "tables_ratio": 0.25, "rows_ratio": 0.413}


def found(every: int | None = 86_400, share: dict[str, Any] | None = SHARE) -> dict[str, Any]:
    return {"name": "m", "verify": {"every_seconds": every, "budget": 0.1, "method": "rows"}, "verified": share}


@pytest.mark.parametrize(
    ("arguments", "verify"),
    [
        (("set", "--every", "24h"), {"every_seconds": 86_400}),
        (("set", "--every", "90m", "--budget", "0.5"), {"every_seconds": 5400, "budget": 0.5}),
        (("set", "--every", "1h", "--method", "checksum"), {"every_seconds": 3600, "method": "checksum"}),
        (("set", "--every", "1h", "--sample", "0.01"), {"every_seconds": 3600, "sample": 0.01}),
        (("remove",), {"every_seconds": None, "budget": None, "method": None, "sample": None}),
    ],
)
def test_the_schedule_is_a_setting(
    stand_in: StandIn, run: Run, arguments: tuple[str, ...], verify: dict[str, Any]
) -> None:
    stand_in.replies["PATCH", PATH] = (200, found())
    assert run("verifications", "schedule", *arguments, "-s", "m").exit_code == ExitCode.DONE
    assert stand_in.requests[-1][:3] == ("PATCH", f"/api/v1{PATH}", {"verify": verify})


def test_a_wrong_duration_names_its_option(stand_in: StandIn, run: Run) -> None:
    refused = run("verifications", "schedule", "set", "--every", "daily", "-s", "m")
    assert refused.exit_code == ExitCode.USAGE
    assert "--every" in refused.stderr


def test_the_schedule_is_shown_with_what_is_not_verified(stand_in: StandIn, run: Run) -> None:
    stand_in.replies["GET", PATH] = (200, found())
    lasts: list[dict[str, Any] | None] = [LAST, {**LAST, "equal": False}, {**LAST, "overdue": True}, None]
    tables = [
        {"schema": "public", "name": f"t{i}", "verified": last, "verification_problem": None if last else PROBLEM}
        for i, last in enumerate([*lasts, {**LAST, "before_copy": True}])
    ]
    stand_in.replies["GET", f"{PATH}/tables"] = (200, {"items": tables})
    shown = run("verifications", "schedule", "show", "-s", "m")
    assert "every 1 day, 0:00:00 by rows" in " ".join(shown.stdout.split())
    assert "1 of 4 tables, 41 % of the rows" in " ".join(shown.stdout.split())
    said = " ".join(shown.stderr.split())
    assert "t0" not in said
    for part in (
        "t1: different",
        "t2: overdue",
        "t3: not compared",
        "Tried 3 times",
        "End them.",
        "t4: before its copy",
    ):
        assert part in said
    assert "sample" not in shown.stdout + shown.stderr
    answer = json.loads(run("verifications", "schedule", "show", "-s", "m", "--json").stdout)
    assert answer == {"subscription": "m", "verify": found()["verify"], "verified": SHARE}
    stand_in.replies["GET", PATH] = (200, found(None, None))
    assert "not verified on a schedule" in run("verifications", "schedule", "show", "-s", "m").stdout


def test_a_sample_is_shown_as_one(stand_in: StandIn, run: Run) -> None:
    shown = found(share={**SHARE, "sampled_tables": 2})
    stand_in.replies["GET", PATH] = (200, {**shown, "verify": {**shown["verify"], "sample": 0.01}})
    table = {"schema": "public", "name": "t0", "verified": {**LAST, "sample": 0.01}, "verification_problem": None}
    stand_in.replies["GET", f"{PATH}/tables"] = (200, {"items": [table]})
    result = run("verifications", "schedule", "show", "-s", "m")
    said = " ".join(result.stdout.split())
    assert "A sample of 1 % of each table of m is compared every 1 day" in said
    assert "Only a sample was found equal of 2 other tables." in said
    assert "t0: a sample of 1 %" in " ".join(result.stderr.split())


def test_verifications_are_listed(stand_in: StandIn, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[list[str | None]] = []
    monkeypatch.setattr("server.cli.verification_commands.print_table", lambda _, rows: printed.extend(rows))
    item = {
        "id": "v1",
        "trigger": "schedule",
        "state": "succeeded",
        "tables": [{"schema": "public", "name": "orders", "equal": False}],
        "position": "0/5",
        "created_at": "2026-05-04T10:00:00Z",
    }
    stand_in.replies["GET", f"{PATH}/verifications"] = (200, {"items": [item]})
    assert run("verifications", "list", "--trigger", "schedule", "-s", "m").exit_code == ExitCode.DONE
    assert printed[0][:2] == ["v1", "schedule"]
    assert printed[0][3:6] == ["public.orders", "[red]1[/]", "0/5"]
