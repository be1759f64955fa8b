"""Engines connected to this process: their command streams, and requests that wait for an answer.

In memory only; state that must survive a restart is in the control database. Used on the event loop, except `connected_s`.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from engine.link.answer_frames import Frame
from engine.link.message import Problem, encode
from engine.link.messages import Answer, Cancel, Command
from engine.link.queries import RanOn
from engine.model.position import Lsn

log = structlog.get_logger(__name__)

_MOST_LINES = 20_000
_MOST_FRAMES = 4


class AnswerStream:
    """A bounded queue of an answer's frames: `put` waits while it is full, `next_frame` while it is empty."""

    def __init__(self) -> None:
        self._frames: asyncio.Queue[Frame | None] = asyncio.Queue(_MOST_FRAMES)
        self._closed = False

    async def put(self, frame: Frame | None) -> bool:
        """Add a frame; None ends the stream. False if the reader has closed it."""
        if not self._closed:
            await self._frames.put(frame)
        return not self._closed

    async def next_frame(self) -> Frame | None:
        """The next frame. None: the end; without an AnswerEnd before it, the answer is incomplete."""
        return await self._frames.get()

    def close(self) -> None:
        """Called by the reader: discard queued frames and refuse further ones."""
        self._closed = True
        while not self._frames.empty():
            self._frames.get_nowait()


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Rows of a query, read at `position`. The caller must close the stream; it is empty if an SQL endpoint receives the rows."""

    position: Lsn
    frames: AnswerStream
    tables: frozenset[str] = frozenset()
    """Ids of the subscription's tables that the statement reads."""
    not_following: frozenset[str] = frozenset()
    """Those of `tables` that did not follow their source at that time."""
    ran_on: RanOn = "target"
    request_id: str = ""
    """The request that it answers, if an SQL endpoint receives the rows."""
    read_point: str | None = None
    """The read point that the rows show; None: the present state."""


Reply = Answer | QueryResult


class EngineAwayError(Exception):
    """No engine that could answer is connected, or it disconnected before answering."""


class EngineSilentError(Exception):
    """The engine did not answer in time."""


class AnswerError(Exception):
    """The engine answered with a problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.code)
        self.problem = problem


@dataclass(eq=False, slots=True)
class CommandStream:
    """Lines to be sent to one engine; None ends the stream. Until `greet`, other lines are held back."""

    engine_id: str
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    lines: asyncio.Queue[bytes | None] = field(default_factory=lambda: asyncio.Queue(_MOST_LINES))
    held: list[bytes] | None = field(default_factory=list)
    opened_s: float = field(default_factory=time.monotonic)

    def put(self, line: bytes | None) -> None:
        """Queue a line. Raises asyncio.QueueFull if the engine does not read."""
        if self.held is not None and line is not None:
            self.held.append(line)
        else:
            self.lines.put_nowait(line)

    def finish(self) -> None:
        """End the stream, discarding unsent lines."""
        if self.lines.full():
            self.lines.get_nowait()
        self.lines.put_nowait(None)

    def greet(self, commands: Sequence[Command]) -> None:
        """Begin the stream with `commands`, followed by the lines that were held back."""
        held, self.held = self.held or [], None
        for line in [*(encode(command) + b"\n" for command in commands), *held]:
            self.put(line)


class Hub:
    """Connected engines, the subscriptions they run, and outstanding requests to them."""

    def __init__(self) -> None:
        self.shutting = False
        self._streams: dict[str, CommandStream] = {}
        self._owners: dict[str, str] = {}
        self._pending: dict[str, tuple[str, asyncio.Future[Reply]]] = {}
        self._began_s = time.monotonic()
        self._left_s: dict[str, float] = {}
        """Time at which the stream of each disconnected engine ended."""

    # Streams

    def open_stream(self, engine_id: str) -> CommandStream:
        """Open a stream for an engine; an older one of the same engine ends."""
        self.end_stream(engine_id)
        stream = self._streams[engine_id] = CommandStream(engine_id)
        self._left_s.pop(engine_id, None)
        return stream

    def end_stream(self, engine_id: str) -> None:
        """End an engine's stream from this side; the engine reconnects."""
        stream = self._streams.pop(engine_id, None)
        if stream is not None:
            self._left_s[engine_id] = time.monotonic()
            stream.finish()

    def close_all(self) -> None:
        """End all streams and refuse new ones: the server is stopping."""
        self.shutting = True
        for engine_id in list(self._streams):
            self.end_stream(engine_id)

    def close_stream(self, stream: CommandStream) -> bool:
        """The stream's connection has ended; False if a newer stream of the same engine has replaced it."""
        if self._streams.get(stream.engine_id) not in {stream, None}:
            return False
        if self._streams.pop(stream.engine_id, None) is not None:
            self._left_s[stream.engine_id] = time.monotonic()
        for request_id, (engine_id, future) in list(self._pending.items()):
            if engine_id == stream.engine_id and not future.done():
                self._pending.pop(request_id)
                future.set_exception(EngineAwayError())
        return True

    def is_connected(self, engine_id: str) -> bool:
        return engine_id in self._streams

    def connected_s(self, engine_id: str) -> float | None:
        """Seconds since the engine's stream began; None if there is none. Callable from any thread."""
        stream = self._streams.get(engine_id)
        return None if stream is None else time.monotonic() - stream.opened_s

    def away_s(self, subscription: str) -> float | None:
        """Seconds for which no engine that runs the subscription has been connected; None while one is connected."""
        engine_id = self._owners.get(subscription, "")
        if engine_id in self._streams:
            return None
        return time.monotonic() - self._left_s.get(engine_id, self._began_s)

    @property
    def engines(self) -> list[str]:
        """Ids of connected engines, the longest connected first."""
        return list(self._streams)

    # Ownership

    def assign_owner(self, subscription: str, engine_id: str) -> None:
        self._owners[subscription] = engine_id

    def clear_owner(self, subscription: str) -> None:
        self._owners.pop(subscription, None)

    def owner(self, subscription: str) -> str | None:
        """The connected engine that runs this subscription."""
        engine_id = self._owners.get(subscription)
        return engine_id if engine_id in self._streams else None

    def has_owner(self, subscription: str) -> bool:
        """Whether an engine has this subscription, connected or not."""
        return subscription in self._owners

    def stream_of(self, subscription: str) -> str | None:
        """The name of the open stream to the engine that runs this subscription."""
        stream = self._streams.get(self._owners.get(subscription, ""))
        return None if stream is None else stream.name

    def stream_to(self, engine_id: str) -> str:
        """The name of the open stream to this engine; empty if there is none."""
        stream = self._streams.get(engine_id)
        return "" if stream is None else stream.name

    def subscriptions_of(self, engine_id: str) -> frozenset[str]:
        """Subscriptions that this engine runs, connected or not."""
        return frozenset(name for name, owner in self._owners.items() if owner == engine_id)

    # Commands

    def send(self, engine_id: str, command: Command) -> bool:
        """Send a command to an engine; False if it is not connected."""
        stream = self._streams.get(engine_id)
        if stream is None:
            return False
        try:
            stream.put(encode(command) + b"\n")
        except asyncio.QueueFull:
            # It does not read. Ending the stream loses nothing, because a new one begins with the complete state.
            log.warning("command_stream_full", engine=engine_id)
            self.end_stream(engine_id)
            return False
        return True

    def send_to_subscription(self, subscription: str, command: Command) -> bool:
        """Send a command to the engine that runs the subscription."""
        engine_id = self.owner(subscription)
        return engine_id is not None and self.send(engine_id, command)

    async def request(self, engine_id: str, command: Callable[[str], Command], timeout_s: float) -> Reply:
        """Send a request and wait for its answer. `command` builds it from a request id.

        Raises EngineAwayError, EngineSilentError, or AnswerError with the engine's problem.
        """
        request_id = f"r{uuid.uuid4().hex}"
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._pending[request_id] = (engine_id, future)
        try:
            if not self.send(engine_id, command(request_id)):
                raise EngineAwayError
            reply = await asyncio.wait_for(future, timeout_s)
        except (TimeoutError, asyncio.CancelledError) as error:
            self.send(engine_id, Cancel(request_id=request_id))
            _close_unused_reply(future)
            if isinstance(error, asyncio.CancelledError):
                raise
            raise EngineSilentError from error
        finally:
            self._pending.pop(request_id, None)
        if isinstance(reply, Answer) and not reply.ok:
            raise AnswerError(reply.problem or _unnamed_problem())
        return reply

    def resolve_request(self, request_id: str, reply: Reply) -> bool:
        """Pass a reply to the request that waits for it; False if none does."""
        pending = self._pending.get(request_id)
        if pending is None or pending[1].done():
            return False
        pending[1].set_result(reply)
        return True


def _close_unused_reply(future: asyncio.Future[Reply]) -> None:
    """Close the stream of a reply that arrived too late to be returned."""
    if future.done() and not future.cancelled() and future.exception() is None:
        reply = future.result()
        if isinstance(reply, QueryResult):
            reply.frames.close()


def _unnamed_problem() -> Problem:
    return Problem(
        status=502,
        code="engine_failed",
        detail="The engine could not do it and did not say why.",
        remedy="Look at the engine's log.",
    )
