"""The engine's end of the channel against a server that a test scripts: away, forgetful, slow, gone for good."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from engine.link.client import LinkLimits, ServerLink
from engine.link.messages import (
    Answer,
    BatchReport,
    Command,
    Demand,
    EventReport,
    PositionBundle,
    Progress,
    Registration,
    Report,
)
from engine.model.position import Lsn

_DEADLINE_S = 10.0


class _Script:
    """What the server does, and what it got."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.bundles: list[dict[str, Any]] = []
        self.answers: list[dict[str, Any]] = []
        self.registrations = 0
        self.positions: list[dict[str, Any]] = []
        self.status_of_positions = 204
        self.may_answer = threading.Event()
        """Reports are answered once it is set."""
        self.may_answer.set()
        self.statuses: list[int] = []
        """Answers to the next reports, before they succeed."""
        self.commands: list[bytes] = [b'{"kind":"sync","subscriptions":{}}\n']
        self.released = threading.Event()

    def note(self, change: Callable[[], None]) -> None:
        with self.changed:
            change()
            self.changed.notify_all()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, _DEADLINE_S)

    def reports(self) -> list[dict[str, Any]]:
        return [report for bundle in self.bundles for report in bundle["reports"]]


def _handler(script: _Script) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def _reply(self, status: int, body: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path.endswith("/engines"):
                script.note(lambda: setattr(script, "registrations", script.registrations + 1))
                body = {"engine_id": "e1", "lease_seconds": 10, "heartbeat_seconds": 1, "report_sequence": 40}
                self._reply(200, json.dumps(body).encode())
            elif self.path.endswith("/answers"):
                script.note(lambda: script.answers.append(content))
                self._reply(204)
            elif self.path.endswith("/positions"):
                script.note(lambda: script.positions.append(content))
                self._reply(script.status_of_positions)
            elif script.statuses:
                self._reply(script.statuses.pop(0))
            else:
                script.note(lambda: script.bundles.append(content))
                script.may_answer.wait(_DEADLINE_S)
                self._reply(204)

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            for line in script.commands:
                self.wfile.write(line)
                self.wfile.flush()
            script.released.wait(_DEADLINE_S)
            self.close_connection = True

    return Handler


@pytest.fixture
def script() -> _Script:
    return _Script()


@pytest.fixture
def url(script: _Script) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(script))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    script.released.set()
    server.shutdown()
    server.server_close()
    thread.join(_DEADLINE_S)


@pytest.fixture
def open_link(url: str) -> Iterator[Callable[..., ServerLink]]:
    opened: list[ServerLink] = []

    def open_it(on_command: Callable[[Command], None] = lambda _: None, **options: Any) -> ServerLink:
        registration = Registration(instance="i", name="n", version="v")
        link = ServerLink(url, "t" * 20, registration, on_command, LinkLimits(retry_most_s=0.05, **options))
        opened.append(link)
        link.start()
        return link

    yield open_it
    for link in opened:
        link.close()


def _event(detail: str) -> EventReport:
    return EventReport(subscription="s", epoch=1, severity="info", code="c", subject="x", detail=detail)


def _progress(applied: int) -> Progress:
    return Progress(subscription="s", epoch=1, applied=Lsn(applied), at=datetime(2026, 1, 1, tzinfo=UTC))


def _batch(number: int) -> BatchReport:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return BatchReport(
        subscription="s",
        epoch=1,
        batch=number,
        after=Lsn(0),
        end=Lsn(1),
        transactions=1,
        path="driver",
        committed_at=at,
    )


@pytest.mark.parametrize("trouble", [[500, 502], [503], [401]])
def test_reports_are_sent_until_they_are_taken_in_and_once(
    script: _Script, open_link: Callable[..., ServerLink], trouble: list[int]
) -> None:
    script.statuses = list(trouble)
    link = open_link()
    for detail in ("a", "b", "c"):
        link.report(_event(detail))
    assert link.flush(_DEADLINE_S)
    assert [r["detail"] for r in script.reports()] == ["a", "b", "c"]
    numbers = [bundle["sequence"] for bundle in script.bundles]
    assert numbers[0] == 41
    assert numbers == sorted(set(numbers))


def test_an_engine_that_the_server_has_forgotten_registers_again(
    script: _Script, open_link: Callable[..., ServerLink]
) -> None:
    script.statuses = [404]
    link = open_link()
    link.report(_event("a"))
    assert link.flush(_DEADLINE_S)
    assert script.registrations == 2
    assert [r["detail"] for r in script.reports()] == ["a"]


def test_a_bundle_that_the_server_refuses_does_not_block_those_behind_it(
    script: _Script, open_link: Callable[..., ServerLink]
) -> None:
    script.statuses = [422]
    link = open_link()
    link.report(_event("bad"))
    assert link.flush(_DEADLINE_S)
    link.report(_event("good"))
    assert link.flush(_DEADLINE_S)
    assert [r["detail"] for r in script.reports()] == ["good"]


def test_progress_waits_for_its_pace_unless_somebody_waits_for_it(
    script: _Script, open_link: Callable[..., ServerLink]
) -> None:
    demanded = threading.Event()
    script.commands.append(b'{"kind":"demand","subscription":"s","position":"0/9"}\n')
    link = open_link(lambda c: demanded.set() if isinstance(c, Demand) else None, pace_s=3600.0)
    assert demanded.wait(_DEADLINE_S)
    link.report(_progress(5))
    script.wait_until(lambda: len(script.bundles) == 1)
    assert link.flush(_DEADLINE_S)
    link.report(_progress(9))
    script.wait_until(lambda: len(script.bundles) == 2)
    link.report(_progress(10))
    link.report(_progress(11))
    link.report(_event("now"))  # What is no progress goes at once, and takes the newest progress along.
    script.wait_until(lambda: len(script.bundles) == 3)
    assert [(r["kind"], r.get("applied")) for r in script.bundles[2]["reports"]] == [
        ("progress", "0/B"),
        ("event", None),
    ]


@pytest.fixture
def awaiting(script: _Script, open_link: Callable[..., ServerLink]) -> ServerLink:
    """A link whose server waits for a position far ahead, and answers no bundle until `may_answer` is set."""
    demanded = threading.Event()
    script.may_answer.clear()
    script.commands.append(b'{"kind":"demand","subscription":"s","position":"0/FF"}\n')
    link = open_link(lambda c: demanded.set() if isinstance(c, Demand) else None, pace_s=3600.0)
    assert demanded.wait(_DEADLINE_S)
    return link


def _contents(bundle: dict[str, Any]) -> list[tuple[str, str | None]]:
    return [(report["kind"], report.get("applied")) for report in bundle["reports"]]


def test_a_batch_waits_for_the_progress_that_it_led_to(monkeypatch: pytest.MonkeyPatch) -> None:
    link, now_s = _still("http://127.0.0.1:1"), 0.0
    coming: list[Report] = [_batch(1), _progress(5)]

    def wait(_: float | None = None) -> bool:
        nonlocal now_s
        now_s += 3600.0 if len(coming) == 2 else 0.0  # The link was idle for long, and its pace does not matter.
        link.report(coming.pop(0))
        return True

    monkeypatch.setattr("engine.link.client.monotonic", lambda: now_s)
    monkeypatch.setattr(link._state, "wait", wait)
    assert link._next_reports() == [_batch(1), _progress(5)]
    link.close()


@pytest.mark.parametrize("status", [204, 409, 404])
def test_an_awaited_position_overtakes_the_bundle_in_flight_and_is_sent_again(
    script: _Script, awaiting: ServerLink, status: int
) -> None:
    script.status_of_positions = status
    awaiting.report(_progress(5))
    script.wait_until(lambda: len(script.bundles) == 1)
    awaiting.report(_batch(1))
    awaiting.report(_progress(6))
    script.wait_until(lambda: len(script.positions) == 1)
    (sent,) = script.positions
    assert (sent["after"], [one["applied"] for one in sent["positions"]]) == (41, ["0/6"])
    script.may_answer.set()
    assert awaiting.flush(_DEADLINE_S)
    assert [_contents(bundle) for bundle in script.bundles[1:]] == [[("batch", None), ("progress", "0/6")]]
    assert status != 204 or len(script.positions) == 1


def test_a_refused_position_is_sent_again_while_the_bundle_is_in_flight(script: _Script, awaiting: ServerLink) -> None:
    script.status_of_positions = 409
    awaiting.report(_progress(5))
    script.wait_until(lambda: len(script.bundles) == 1)
    awaiting.report(_progress(6))
    script.wait_until(lambda: len(script.positions) == 2)
    script.status_of_positions = 204
    script.wait_until(lambda: len(script.positions) > 2)
    assert {(sent["after"], *(one["applied"] for one in sent["positions"])) for sent in script.positions} == {
        (41, "0/6")
    }
    assert len(script.bundles) == 1
    script.may_answer.set()
    assert awaiting.flush(_DEADLINE_S)


def _still(url: str) -> ServerLink:
    """A link whose threads do not run, and whose server waits for a position far ahead."""
    link = ServerLink(url, "t" * 20, Registration(instance="i", name="n", version="v"), lambda _: None)
    link._demanded["s"] = Lsn(255)
    return link


def _in_flight(link: ServerLink, *reports: Report) -> None:
    for report in reports:
        link.report(report)
    link._next_reports()


def test_no_position_overtakes_a_state_that_is_in_flight_or_queued() -> None:
    for flying, queued in ((_event("a"), _batch(1)), (_batch(1), _event("a"))):
        link = _still("http://127.0.0.1:1")
        _in_flight(link, flying, _progress(5))
        link.report(queued)
        link.report(_progress(6))
        assert link._positions_ahead() is None
        link.close()


def test_a_position_overtakes_once_and_only_if_a_wait_needs_it() -> None:
    link = _still("http://127.0.0.1:1")
    link.report(_progress(4))
    assert link._positions_ahead() is None  # Nothing is in flight.
    _in_flight(link, _progress(5))
    assert link._positions_ahead() is None  # It is in flight itself.
    link.report(_progress(6))
    link._demanded["s"] = Lsn(4)
    link._sent["s"] = Lsn(5)
    assert link._positions_ahead() is None
    link._demanded["s"] = Lsn(7)
    assert link._positions_ahead() == PositionBundle(after=1, positions=(_progress(6),))
    assert link._positions_ahead() is None
    link.close()


def test_after_a_failure_no_other_position_overtakes_the_bundle() -> None:
    link = _still("http://127.0.0.1:1")
    _in_flight(link, _progress(5))
    link.report(_progress(6))
    sent = link._positions_ahead()
    assert sent is not None
    link._positions_failed(sent)
    link.report(_progress(7))
    assert link._positions_ahead() is None
    link.close()


def test_lines_that_make_no_sense_and_commands_that_fail_do_not_end_the_stream(
    script: _Script, open_link: Callable[..., ServerLink]
) -> None:
    seen: list[str] = []
    last = threading.Event()

    def on_command(command: Command) -> None:
        seen.append(command.kind)
        if command.kind == "cancel":
            last.set()
        raise RuntimeError("no")

    script.commands += [b"{}\n", b'{"kind":"from_the_future"}\n', b'{"kind":"cancel","request', b'_id":"r1"}\n']
    open_link(on_command)
    assert last.wait(_DEADLINE_S)
    assert seen == ["sync", "cancel"]


def test_answers_go_at_once_and_apart_from_reports(script: _Script, open_link: Callable[..., ServerLink]) -> None:
    link = open_link(pace_s=3600.0)
    link.answer(Answer(request_id="r1", ok=True, body={"position": "0/1"}))
    assert [a["request_id"] for a in script.answers] == ["r1"]
    assert script.bundles == []


def test_closing_does_not_wait_for_a_server_that_says_nothing(
    script: _Script, open_link: Callable[..., ServerLink]
) -> None:
    synced = threading.Event()
    link = open_link(lambda _: synced.set())
    assert synced.wait(_DEADLINE_S)
    closer = threading.Thread(target=link.close)
    closer.start()
    closer.join(4.0)
    assert not closer.is_alive()
    assert not script.released.is_set()
