"""The engine's client of the control channel: receives a stream of commands, sends bundles of reports. It never blocks the pipeline."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic

import httpx
import structlog
from pydantic import ValidationError

from engine.link.message import Problem, encode
from engine.link.messages import (
    COMMANDS,
    Answer,
    Command,
    Demand,
    Heartbeat,
    PositionBundle,
    Progress,
    Registered,
    Registration,
    Report,
    ReportBundle,
    Sync,
)
from engine.link.outgoing import Outgoing, is_unhurried
from engine.link.queries import RanOn
from engine.model.position import ZERO, Lsn

log = structlog.get_logger(__name__)

_JSON = {"Content-Type": "application/json"}
_FRAMES = {"Content-Type": "application/octet-stream"}
# HTTP status codes (RFC 9110): the server does not know this engine or request, and the result is not awaited any more.
_NOT_FOUND = 404
_GONE = 410
_POSITIONS_TIMEOUT_S = 5.0
_BUNDLE = 500
"""Most reports in one message. The server stores a message in one transaction, which must not hold its database for long. Not measured."""
_ANSWER_DEADLINE_S = 30.0
"""Seconds after which an answer is no longer delivered: the default of the server's `engine_request_timeout_s`, after which it is not
awaited."""


class _AwayError(Exception):
    """The server is unavailable; retry after a pause."""


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """Paces of a link, in seconds, and its most unsent reports."""

    pace_s: float = 0.1
    """Interval at which progress is sent while no query waits for it."""
    retry_most_s: float = 2.0
    """Longest pause between attempts."""
    capacity: int = 10_000
    """Most reports kept while the server is unavailable."""


_LIMITS = LinkLimits()


class ServerLink:
    """Keeps this engine registered at the server, and reconnects after failures of either.

    `on_command` is called from one thread, in the order of the stream, and must return quickly; its exceptions are
    logged. `report` and `answer` may be called from any thread.
    """

    def __init__(
        self,
        url: str,
        token: str,
        registration: Registration,
        on_command: Callable[[Command], None],
        limits: LinkLimits = _LIMITS,
    ) -> None:
        self._registration = registration
        self._on_command = on_command
        self._limits = limits
        base = httpx.URL(url)
        self._http = httpx.Client(
            base_url=base.join("/api/v1/"),
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(10.0, read=30.0),
            # Below the five seconds after which the server closes an idle connection.
            limits=httpx.Limits(keepalive_expiry=4.0),
            trust_env=base.host not in {"127.0.0.1", "::1", "localhost"},
        )
        self._state = threading.Condition()
        self._outgoing = Outgoing(limits.capacity)
        self._demanded: dict[str, Lsn] = {}
        self._stream_name = ""
        self._sent: dict[str, Lsn] = {}
        self._logged_dropped = 0
        self._registered: Registered | None = None
        self._sequence = 0
        self._hurried = 0
        self._in_flight = False
        self._overtaken: int | None = None
        """Sequence number of the bundle in flight, if awaited positions may overtake it."""
        self._early: dict[str, Lsn] = {}
        """Positions that overtook the bundle in flight, by subscription."""
        self._tried: dict[str, Lsn] = {}
        """The last position of each subscription that was sent to overtake a bundle, and not refused."""
        self._connected = False
        self._registering = threading.Lock()
        self._stopping = threading.Event()
        self._socket: socket.socket | None = None
        self._threads = [
            threading.Thread(target=self._listen, name="link-commands", daemon=True),
            threading.Thread(target=self._send, name="link-reports", daemon=True),
            threading.Thread(target=self._send_positions, name="link-positions", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @property
    def connected(self) -> bool:
        """True while the command stream is open."""
        return self._connected

    @property
    def epochs(self) -> dict[str, int]:
        """The epoch of each subscription as the server knew it at the last registration."""
        return dict(self._registered.epochs) if self._registered else {}

    def report(self, report: Report) -> None:
        """Queue a report, without waiting. Order is kept: report a table's change of state before the progress that caused it.

        Progress carries the name of the current command stream, so that the server recognises a position from before an interruption.
        """
        with self._state:
            if isinstance(report, Progress):
                report = report.model_copy(update={"stream": self._stream_name})
            self._outgoing.put(report)
            self._state.notify_all()

    def answer(self, answer: Answer) -> None:
        """Send the answer to a request at once, from the caller's thread. Abandoned after the time for which the server waits for it."""
        self._deliver("POST", "answers", encode(answer), _JSON)

    def refuse(self, request_id: str, problem: Problem) -> None:
        """Answer a request with a problem."""
        self.answer(Answer(request_id=request_id, ok=False, problem=problem))

    def upload_result(
        self,
        request_id: str,
        position: Lsn,
        frames: Iterator[bytes],
        timeout_s: float,
        *,
        tables: Sequence[str] = (),
        not_following: Sequence[str] = (),
        ran_on: RanOn = "target",
        read_point: str | None = None,
    ) -> None:
        """Answer a `query` with its rows, read at `position`. Returns when the server has received them all, or has cancelled.

        `tables`: ids of the tables that the statement reads; `not_following`: those that do not follow their source now. A frame that
        cannot be sent within `timeout_s` ends the upload. An exception of `frames` aborts the answer, and is raised.
        """
        headers = _FRAMES | {
            "Penstock-Position": str(position),
            "Penstock-Tables": ",".join(tables),
            "Penstock-Not-Following": ",".join(not_following),
            "Penstock-Ran-On": ran_on,
            **({"Penstock-Read-Point": read_point} if read_point is not None else {}),
        }
        try:
            response = self._http.put(
                f"engines/{self._engine_id()}/results/{request_id}",
                content=frames,
                headers=headers,
                timeout=httpx.Timeout(10.0, read=_ANSWER_DEADLINE_S, write=timeout_s),
            )
        except (_AwayError, httpx.HTTPError, OSError) as error:
            log.info("answer_broke_off", error=type(error).__name__)
            return
        if response.is_error and response.status_code not in {_NOT_FOUND, _GONE}:
            log.error("answer_refused", status=response.status_code)

    def flush(self, timeout_s: float) -> bool:
        """Wait until the server has received every report queued so far; False at the timeout."""
        with self._state:
            self._hurried += 1
            self._state.notify_all()
            try:
                return self._state.wait_for(lambda: not len(self._outgoing) and not self._in_flight, timeout_s)
            finally:
                self._hurried -= 1

    def close(self) -> None:
        """End the threads. Queued reports are lost; the engine reports its state again at its next start."""
        self._stopping.set()
        with self._state:
            self._state.notify_all()
            self._hang_up()
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(timeout=5.0)
        self._http.close()

    def _hang_up(self) -> None:
        """Wake the reader thread by shutting down its socket: closing its response from another thread does not wake it."""
        if self._socket is not None:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                log.debug("link_already_down")

    # Commands

    def _listen(self) -> None:
        pause = _Pause(self._limits.retry_most_s)
        while not self._stopping.is_set():
            try:
                for command in self._stream():
                    pause.reset()
                    self._dispatch(command)
            except (_AwayError, httpx.HTTPError, OSError) as error:
                if not self._stopping.is_set():
                    log.info("server_away", error=type(error).__name__)
            self._connected = False
            self._stopping.wait(pause.next())

    def _stream(self) -> Iterator[Command]:
        engine_id = self._engine_id()
        # Three missed heartbeats: the server, or the network to it, is down.
        patience = httpx.Timeout(10.0, read=max(3 * self._heartbeat_s(), 5.0))
        with self._http.stream("GET", f"engines/{engine_id}/commands", timeout=patience) as response:
            self._check(response)
            with self._state:
                self._socket = _socket_of(response)
                if self._stopping.is_set():
                    return
            try:
                for line in _lines(response):
                    command = _parse(line)
                    if command is not None:
                        yield command
            finally:
                with self._state:
                    self._socket = None

    def _dispatch(self, command: Command) -> None:
        if isinstance(command, Heartbeat):
            return
        if isinstance(command, Sync):
            self._connected = True
            with self._state:
                self._demanded.clear()
                self._stream_name = command.stream
        elif isinstance(command, Demand):
            with self._state:
                known = self._demanded.get(command.subscription, ZERO)
                self._demanded[command.subscription] = max(known, command.position)
                self._state.notify_all()
        try:
            self._on_command(command)
        except Exception:
            log.exception("command_failed", kind=command.kind)

    # Reports

    def _send(self) -> None:
        while (reports := self._next_reports()) is not None:
            self._post_reports(reports)
            with self._state:
                for report in reports:
                    if isinstance(report, Progress):
                        self._sent[report.subscription] = report.applied
                self._sent |= self._early
                self._early.clear()
                self._in_flight, self._overtaken = False, None
                self._state.notify_all()

    def _next_reports(self) -> list[Report] | None:
        """Wait for reports that are due; None while closing."""
        due = monotonic() + self._limits.pace_s
        with self._state:
            while not self._stopping.is_set():
                if not len(self._outgoing):
                    self._state.wait()
                    if self._outgoing.only_batches:
                        due = monotonic() + self._limits.pace_s
                    continue
                left = due - monotonic()
                if left <= 0 or not self._outgoing.only_unhurried or self._hurried or self._awaited():
                    reports = self._outgoing.take_reports(_BUNDLE)
                    self._in_flight = True
                    self._let_overtake(self._sequence + 1, reports)
                    return reports
                self._state.wait(max(left, 0.001))
        return None

    def _awaited(self) -> list[Progress]:
        """Unsent progress that waits of the server need."""
        found = []
        for subscription, position in self._demanded.items():
            progress = self._outgoing.progress(subscription)
            sent = max(self._sent.get(subscription, ZERO), self._early.get(subscription, ZERO))
            if progress is not None and sent < position and sent < progress.applied:
                found.append(progress)
        return found

    def _post_reports(self, reports: list[Report]) -> None:
        """Send the bundle repeatedly until the server has received it. The server ignores a sequence number that it has received before,
        so a bundle whose response was lost is not processed twice."""
        pause = _Pause(self._limits.retry_most_s)
        while not self._stopping.is_set():
            try:
                engine_id = self._engine_id()
                sequence = self._sequence + 1
                body = encode(ReportBundle(sequence=sequence, reports=tuple(reports)))
                response = self._http.post(f"engines/{engine_id}/reports", content=body, headers=_JSON)
                if response.status_code in {400, 413, 422}:
                    log.error("reports_refused", status=response.status_code, kinds=[r.kind for r in reports])
                else:
                    self._check(response)
            except (_AwayError, httpx.HTTPError, OSError):
                self._stopping.wait(pause.next())
                continue
            self._sequence = sequence
            self._log_dropped()
            return

    # Positions

    def _let_overtake(self, sequence: int, reports: Sequence[Report]) -> None:
        """These are in flight. The server applies states only when they are written, so nothing may overtake those."""
        self._overtaken = sequence if all(map(is_unhurried, reports)) else None

    def _send_positions(self) -> None:
        """Send awaited positions while a bundle is in flight: the server writes it to its database before it answers, and the next bundle
        has to wait for that."""
        pause = _Pause(self._limits.retry_most_s)
        while (bundle := self._next_positions()) is not None:
            if self._post_positions(bundle):
                pause.reset()
                with self._state:
                    if self._in_flight:
                        self._early |= {one.subscription: one.applied for one in bundle.positions}
                continue
            # The bundle in flight may not have arrived yet, since it is on another connection.
            self._stopping.wait(pause.next())
            with self._state:
                for one in bundle.positions:
                    self._tried.pop(one.subscription, None)

    def _next_positions(self) -> PositionBundle | None:
        """Wait until awaited positions may overtake the bundle in flight; None while closing.

        Each position is sent until the server has applied it, or the bundle is no longer in flight: then it is in the next one.
        """
        with self._state:
            while not self._stopping.is_set():
                bundle = self._positions_ahead()
                if bundle is not None:
                    return bundle
                self._state.wait()
        return None

    def _positions_ahead(self) -> PositionBundle | None:
        """Awaited positions that may overtake the bundle in flight and were not sent before, or were refused."""
        if self._overtaken is None or not self._outgoing.only_unhurried:
            return None
        found = [one for one in self._awaited() if self._tried.get(one.subscription) != one.applied]
        self._tried |= {one.subscription: one.applied for one in found}
        return PositionBundle(after=self._overtaken, positions=tuple(found)) if found else None

    def _post_positions(self, bundle: PositionBundle) -> bool:
        """Whether the server applied them. It refuses them unless `after` is the last bundle that it applied."""
        try:
            path = f"engines/{self._engine_id()}/positions"
            response = self._http.post(path, content=encode(bundle), headers=_JSON, timeout=_POSITIONS_TIMEOUT_S)
        except (_AwayError, httpx.HTTPError, OSError):
            self._positions_failed(bundle)
            return False
        return response.is_success

    def _positions_failed(self, bundle: PositionBundle) -> None:
        """Let no others overtake this bundle: the server may still apply those, which must not be after later ones."""
        with self._state:
            if self._overtaken == bundle.after:
                self._overtaken = None

    def _log_dropped(self) -> None:
        lost = self._outgoing.dropped - self._logged_dropped
        if lost:
            self._logged_dropped += lost
            log.warning("reports_dropped", count=lost)

    def _deliver(self, method: str, what: str, content: bytes, headers: dict[str, str]) -> None:
        deadline = monotonic() + _ANSWER_DEADLINE_S
        pause = _Pause(self._limits.retry_most_s)
        while not self._stopping.is_set() and monotonic() < deadline:
            try:
                response = self._http.request(
                    method, f"engines/{self._engine_id()}/{what}", content=content, headers=headers
                )
            except (_AwayError, httpx.HTTPError, OSError):
                self._stopping.wait(pause.next())
                continue
            if response.status_code < 500:
                if response.is_error and response.status_code != _NOT_FOUND:
                    log.error("answer_refused", status=response.status_code)
                return
            self._stopping.wait(pause.next())

    # Registration

    def _engine_id(self) -> str:
        """This engine's id. Registers the engine if the server does not know it."""
        with self._registering:
            if self._registered is not None:
                return self._registered.engine_id
            try:
                response = self._http.post("engines", content=encode(self._registration), headers=_JSON)
                self._check(response)
                self._registered = Registered.model_validate_json(response.content)
            except (httpx.HTTPError, ValidationError) as error:
                raise _AwayError from error
            self._sequence = self._registered.report_sequence
            log.info("engine_registered", engine=self._registered.engine_id)
            return self._registered.engine_id

    def _heartbeat_s(self) -> float:
        return self._registered.heartbeat_seconds if self._registered else 5.0

    def _check(self, response: httpx.Response) -> None:
        if not response.is_error:
            return
        if response.status_code == _NOT_FOUND:
            self._registered = None
        elif response.status_code < 500:
            log.warning("server_refuses", status=response.status_code)
        raise _AwayError


class _Pause:
    """Growing pauses with jitter, so that many engines do not reconnect at the same time."""

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._next_s = 0.05

    def reset(self) -> None:
        self._next_s = 0.05

    def next(self) -> float:
        now = min(self._next_s, self._most_s)
        self._next_s = now * 2
        return now * random.uniform(0.5, 1.0)  # noqa: S311


def _socket_of(response: httpx.Response) -> socket.socket | None:
    stream = response.extensions.get("network_stream")
    found = stream.get_extra_info("socket") if stream is not None else None
    return found if isinstance(found, socket.socket) else None


def _lines(response: httpx.Response) -> Iterator[bytes]:
    """Lines split at line feeds only: httpx's own line splitting also splits at other characters, which a table name may contain."""
    rest = b""
    for piece in response.iter_raw():
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole


def _parse(line: bytes) -> Command | None:
    try:
        return COMMANDS.validate_json(line)
    except ValidationError as error:
        # Only the fields' paths are logged: the input may contain secrets.
        log.error("command_not_understood", errors=[".".join(map(str, e["loc"])) for e in error.errors()])
        return None
