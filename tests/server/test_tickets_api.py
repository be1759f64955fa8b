"""Tickets over HTTP: created, reported by the engine, compared, listed, lost, and given to the next engine."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.link.messages import Assign, TicketReport
from engine.link.tickets import Ticket
from server.tickets import service
from tests.fixtures.channel import DEADLINE_S, FakeEngine, RunningServer, declare, running_server

Rig = tuple[httpx.Client, FakeEngine, Assign]
_TICKETS = "/subscriptions/orders/tickets"
_BEGUN = datetime(2026, 5, 4, 10, tzinfo=UTC)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with running_server(tmp_path) as server:
        yield server


@pytest.fixture
def capture() -> dict[str, Any] | None:
    """How the changes of the subscription's source are captured; None: from the log."""
    return None


@pytest.fixture
def rig(server: RunningServer, capture: dict[str, Any] | None) -> Iterator[Rig]:
    with server.client() as client:
        declare(client, capture=capture)
        engine = FakeEngine(server.url)
        try:
            yield client, engine, engine.run(applied="0/50")
        finally:
            engine.close()


def at(seconds: float) -> str:
    return (_BEGUN + timedelta(seconds=seconds)).isoformat()


def report_ticket(rig: Rig, ticket: str, state: str, **known: Any) -> None:
    """As the engine reports it."""
    _, engine, assign = rig
    report = {"subscription": "orders", "epoch": assign.epoch, "ticket_id": ticket, "state": state, **known}
    engine.link.report(TicketReport.model_validate(report))
    assert engine.link.flush(DEADLINE_S)


def passage(begun_s: float, position: str, transactions: int, commands: int) -> dict[str, Any]:
    """Stages that take 1, 2, 4 and 8 s."""
    stages = ("written_at", "captured_at", "sealed_at", "computed_at", "applied_at")
    times = {stage: at(begun_s + spent) for stage, spent in zip(stages, (0, 1, 3, 7, 15), strict=True)}
    counts = {"transactions": transactions, "commands": commands, "counted_since": at(-60)}
    return {"position": position, "until": position, **times, **counts}


def applied(rig: Rig, begun_s: float, position: str, transactions: int, commands: int) -> str:
    """A ticket that is on the target."""
    made: str = rig[0].post(_TICKETS).json()["id"]
    report_ticket(rig, made, "applied", **passage(begun_s, position, transactions, commands))
    return made


def test_a_ticket_is_followed_stage_by_stage(rig: Rig) -> None:
    client, engine, _ = rig
    answer = client.post(_TICKETS, json={"name": "before the batch"})
    assert answer.status_code == 202
    made = answer.json()
    assert (made["state"], made["name"], made["counts"]) == ("pending", "before the batch", None)
    where = answer.headers["Location"].removeprefix("/api/v1")
    command = engine.seen(Ticket)
    assert (command.ticket_id, command.until) == (made["id"], None)

    whole = passage(0, "0/55", 3, 12)
    report_ticket(rig, made["id"], "under_way", until="0/60", written_at=whole["written_at"])
    written = client.get(where).json()
    assert (written["state"], written["position"], written["times"]["captured_at"]) == ("under_way", None, None)
    report_ticket(rig, made["id"], "under_way", **{**whole, "sealed_at": None, "computed_at": None, "applied_at": None})
    captured = client.get(where).json()
    counts = {"log_bytes": 0x55, "transactions": 3, "commands": 12, "counted_since": "2026-05-04T09:59:00Z"}
    assert (captured["state"], captured["counts"]) == ("under_way", counts)
    assert (captured["durations"]["capture_ms"], captured["durations"]["seal_ms"]) == (1000, None)

    report_ticket(rig, made["id"], "applied", **whole)
    report_ticket(rig, made["id"], "lost", code="late", reason="It came late.", remedy="None.")
    ended = client.get(where).json()
    assert (ended["state"], ended["position"], ended["code"]) == ("applied", "0/55", None)
    assert ended["times"]["applied_at"] == "2026-05-04T10:00:15Z"
    wanted = {"capture_ms": 1000, "seal_ms": 2000, "compute_ms": 4000, "apply_ms": 8000, "total_ms": 15000}
    assert ended["durations"] == wanted
    events = client.get("/events?kind=ticket_applied").json()["items"]
    assert [(e["subscription"], e["subject"]) for e in events] == [("orders", "before the batch")]


def test_two_tickets_give_the_throughput_between_them(rig: Rig) -> None:
    client, *_ = rig
    first, last = applied(rig, 0, "1/0", 100, 400), applied(rig, 85, "2/0", 1090, 4360)
    found = client.get(f"{_TICKETS}/{last}", params={"since": first}).json()["throughput"]
    assert (found["since"], found["seconds"], found["log_bytes"]) == (first, 99, 1 << 32)
    assert (found["transactions"], found["commands"]) == (990, 3960)
    assert found["log_gib_per_hour"] == pytest.approx(4 / 99 * 3600)
    assert (found["commands_per_second"], found["transactions_per_second"]) == (40, 10)
    listed = client.get(_TICKETS, params={"since": first}).json()["items"]
    assert {item["id"]: item["throughput"] for item in listed} == {last: found, first: None}
    assert client.get(f"{_TICKETS}/{last}").json()["throughput"] is None


@pytest.mark.parametrize("capture", [{"kind": "triggers"}])
def test_positions_that_do_not_count_bytes_make_no_throughput_of_log(rig: Rig) -> None:
    client, *_ = rig
    first, last = applied(rig, 0, "1/0", 100, 400), applied(rig, 85, "2/0", 1090, 4360)
    ticket = client.get(f"{_TICKETS}/{last}", params={"since": first}).json()
    assert ticket["counts"]["log_bytes"] is None
    found = ticket["throughput"]
    assert (found["log_bytes"], found["log_gib_per_hour"]) == (None, None)
    assert (found["transactions"], found["commands"]) == (990, 3960)


def test_throughput_waits_for_both_and_is_refused_where_it_never_comes(rig: Rig) -> None:
    client, *_ = rig
    first, last = applied(rig, 0, "1/0", 100, 400), applied(rig, 85, "2/0", 1090, 4360)
    pending, lost = (client.post(_TICKETS).json()["id"] for _ in range(2))
    report_ticket(rig, lost, "lost", code="ticket_missed", reason="It was missed.", remedy="Make another.")
    waiting = client.get(f"{_TICKETS}/{pending}", params={"since": last})
    assert (waiting.status_code, waiting.json()["throughput"]) == (200, None)
    for ticket, since in ((first, last), (first, first), (last, lost), (lost, first)):
        answer = client.get(f"{_TICKETS}/{ticket}", params={"since": since})
        assert (answer.status_code, answer.json()["code"]) == (409, "tickets_not_comparable")
    for url in (f"{_TICKETS}/{last}", _TICKETS):
        answer = client.get(url, params={"since": "tk0"})
        assert (answer.status_code, answer.json()["errors"][0]["in"]) == (422, "query")
    assert client.get(f"{_TICKETS}/tk0").status_code == 404


def test_a_lost_ticket_says_why_and_keeps_what_was_known(rig: Rig) -> None:
    client, *_ = rig
    made = client.post(_TICKETS).json()["id"]
    known = {**passage(0, "0/55", 3, 12), "applied_at": None}
    report_ticket(rig, made, "under_way", **known)
    remedy = "POST /subscriptions/{name}/reloads, then make another."
    report_ticket(rig, made, "lost", code="ticket_missed", reason="It was missed.", remedy=remedy)
    found = client.get(f"{_TICKETS}/{made}").json()
    assert (found["state"], found["code"], found["remedy"]) == ("lost", "ticket_missed", remedy)
    assert [(a["action"], set(a["arguments"])) for a in found["actions"]] == [("subscription.reload", {"subscription"})]
    assert (found["position"], found["durations"]["compute_ms"]) == ("0/55", 4000)
    event = client.get("/events?kind=ticket_lost").json()["items"][0]
    assert (event["severity"], event["subject"], event["remedy"]) == ("warning", made, remedy)


def test_a_run_that_reads_the_marker_again_times_it_anew(rig: Rig) -> None:
    client, *_ = rig
    made = client.post(_TICKETS).json()["id"]
    report_ticket(rig, made, "under_way", **{**passage(0, "0/55", 3, 12), "applied_at": None})
    again = {**passage(60, "0/55", 1, 2), "sealed_at": None, "computed_at": None, "applied_at": None}
    report_ticket(rig, made, "under_way", **again)
    found = client.get(f"{_TICKETS}/{made}").json()
    assert (found["times"]["sealed_at"], found["counts"]["commands"]) == (None, 2)


def test_the_next_engine_is_told_of_tickets_that_have_not_ended(rig: Rig, server: RunningServer) -> None:
    client, engine, _ = rig
    done = applied(rig, 0, "0/52", 1, 1)
    made = client.post(_TICKETS).json()["id"]
    engine.seen(Ticket, lambda c: c.ticket_id == made)
    report_ticket(rig, made, "under_way", until="0/60", written_at=at(0))
    engine.close()
    second = FakeEngine(server.url)
    try:
        command = second.seen(Ticket)
        assert (command.ticket_id, str(command.until)) == (made, "0/60")
        assert all(c.ticket_id != done for c in second.commands if isinstance(c, Ticket))
    finally:
        second.close()


def test_it_waits_for_an_engine_and_a_paused_subscription_takes_it_too(server: RunningServer) -> None:
    with server.client() as client:
        declare(client)
        made = client.post(_TICKETS).json()["id"]
        engine = FakeEngine(server.url)
        try:
            assert engine.seen(Ticket).ticket_id == made
            engine.state(engine.assigned(), "paused")
            answer = client.post(_TICKETS)
            assert (answer.status_code, answer.json()["state"]) == (202, "pending")
        finally:
            engine.close()


def test_an_idempotency_key_makes_one_ticket_of_two_requests(rig: Rig) -> None:
    client, engine, _ = rig
    first, second = (client.post(_TICKETS, headers={"Idempotency-Key": "once"}) for _ in range(2))
    assert second.status_code == first.status_code == 202
    assert second.json() == first.json()
    assert second.headers["Location"] == first.headers["Location"]
    engine.seen(Ticket)
    assert engine.count(Ticket) == 1


def test_a_name_is_plain_text(rig: Rig) -> None:
    client, *_ = rig
    for name in ("", "x" * 101, "two\nlines", 5):
        assert client.post(_TICKETS, json={"name": name}).status_code == 422, name
    assert client.post("/subscriptions/other/tickets").status_code == 404


def test_there_is_an_end_to_open_tickets_and_to_old_ones(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    client, *_ = rig
    monkeypatch.setattr(service, "MOST_UNENDED", 2)
    monkeypatch.setattr(service, "KEPT", 3)
    old = [applied(rig, 0, "0/52", 1, 1) for _ in range(3)]
    opened = [client.post(_TICKETS).json()["id"] for _ in range(2)]
    refused = client.post(_TICKETS)
    assert (refused.status_code, refused.json()["code"]) == (409, "too_many_tickets")
    kept = [item["id"] for item in client.get(_TICKETS).json()["items"]]
    assert kept == [opened[1], opened[0], old[2]]


def test_tickets_are_listed_page_by_page(rig: Rig) -> None:
    client, *_ = rig
    made = [client.post(_TICKETS).json()["id"] for _ in range(3)]
    seen: list[str] = []
    page: dict[str, Any] = {"next_page_token": None}
    while not seen or page["next_page_token"]:
        token = {"page_token": page["next_page_token"]} if seen else {}
        page = client.get(_TICKETS, params={"page_size": 1, **token}).json()
        seen += [item["id"] for item in page["items"]]
    assert seen == made[::-1]


def test_a_viewer_may_look_and_not_make_one(rig: Rig, server: RunningServer) -> None:
    client, *_ = rig
    answer = client.post("/tokens", json={"name": "reader", "role": "viewer"})
    with server.client(answer.json()["token"]) as viewer:
        assert viewer.get(_TICKETS).status_code == 200
        assert viewer.post(_TICKETS).status_code == 403
