"""One replication session: reads raw records and positions, and confirms positions to the source."""

from __future__ import annotations

import struct
import threading
import time

import numpy as np
import psycopg

from engine.model.control import ControlKind
from engine.model.fault import EngineFault, FaultKind
from engine.model.last_commit import LastCommit
from engine.model.position import ZERO, Lsn
from engine.model.source import RecordChunk
from engine.model.subscription import OriginFilter
from engine.platform.compiled import Array
from engine.postgres.sessions import describe_state
from engine.records.change_counts import ChangeCounter
from engine.records.encode import CLOCK_ZERO_US
from engine.records.history import HistoryCheck, SessionCommits
from engine.records.scan import find_controls
from engine.sources.postgres.connect import SOURCE, Connector
from engine.sources.postgres.frames import MALFORMED, Frames, cut, error_fields
from engine.sources.postgres.transport import Inbox, Transport, open_transport
from engine.sources.postgres_log import slots
from engine.sources.postgres_log.keep_alive import KeepAlive, period_s
from engine.sources.postgres_log.own_messages import own_records
from engine.sources.postgres_log.terms import POSTGRES_LOG_TERMS

CHUNK_BYTES = 8 * 1024 * 1024
"""Most bytes of records in one chunk: as `transport.RECEIVE_BUFFER_BYTES`. A larger record is a chunk of its own. Not measured."""
_INBOX_BYTES = CHUNK_BYTES + 256 * 1024

_FIRST_NAP_S = 0.001
"""Pause in seconds after the read that ends a silence: the rest of a commit follows at once, and a longer pause would delay its batch. Not
measured."""
_TRICKLE_NAP_S = 0.005
"""Pause in seconds after a small read. Wakeups cost the source and this process; waits for a commit get this later at most. Not
measured."""
_POUR_NAP_S = 0.010
"""Pause in seconds after a read of _POUR_BYTES. A backlog of 61 MB took 2.7 s with pauses of 10 ms and a buffer of 8 MB, and 7.8 s if read
eagerly."""
_POUR_BYTES = 16 * 1024
"""A read of at least this size: a steady flow of changes; the next read waits a little. The source sends, and wakes its reader, once per
change, so fewer reads make it faster and give fewer chunks. The first change after a pause is read at once."""
_FLOOD_NAP_S = 0.020
"""Pause in seconds after a read of _FLOOD_BYTES: longer than _POUR_NAP_S, as the latency of a backlog does not matter. Not measured."""
_FLOOD_BYTES = 192 * 1024
"""A read of at least this size: the source sends as fast as it can, for example a backlog."""
_NAPS = ((_FLOOD_BYTES, _FLOOD_NAP_S), (_POUR_BYTES, _POUR_NAP_S), (0, _TRICKLE_NAP_S))
_STEADY_READS = 20
"""Consecutive reads with data after which _STEADY_NAP_S holds: a burst of some commits shall not wait for it. Not measured."""
_STEADY_NAP_S = 0.015
"""Pause between reads after many consecutive reads with data: a steady flow of small transactions. The cost of a read, here and in
the stages that process the chunk, hardly depends on its size, so fewer and larger reads are made."""

_MOVED_STATUS_S = 1.0
"""Longest time in seconds until the source learns of a later confirmed position, which lets it remove log. Not measured."""
_IDLE_STATUS_S = 5.0
"""Interval of status messages in seconds if nothing was confirmed: far below the default `wal_sender_timeout`, 60 s; `keep_alive` follows
shorter ones."""
_START_TIMEOUT_S = 60.0
"""Seconds for the source to confirm the start. It reads the log from the slot's restart position after that, so the log's size does not
count. Not measured."""
_SILENCE_S = 300.0
"""A source that sent nothing for this long is asked for a keepalive, and has the same time to answer: it may be decoding a large
transaction."""

_STATUS = struct.Struct(">cQQQQB")

_KNOWN_TYPES = np.zeros(256, np.bool_)
_KNOWN_TYPES[list(b"BCORYIUDTMSEcA")] = True
_TWO_PHASE_TYPES = np.zeros(256, np.bool_)
_TWO_PHASE_TYPES[list(b"BCORYIUDTMbPKr")] = True

ORIGIN_VERSION = 160000
"""PostgreSQL 16, the first version with the `origin` option of pgoutput."""

DECODING_MEMORY_KB = 16 * 1024
"""`logical_decoding_work_mem` of the session: open transactions above it are streamed. A low value saves memory on the source, and leaves
less to send when a transaction commits."""
_HOLD_LESS = (
    f"SELECT pg_catalog.set_config(name, '{DECODING_MEMORY_KB}kB', false) FROM pg_catalog.pg_settings"
    f" WHERE name = 'logical_decoding_work_mem' AND setting::bigint > {DECODING_MEMORY_KB}"
)

_START_KINDS = {
    "42704": FaultKind.LOG_GAP,
    "55000": FaultKind.LOG_GAP,
    "58P01": FaultKind.LOG_GAP,
    "55006": FaultKind.SLOT_IN_USE,
}
_STREAM_KINDS = {
    "42704": FaultKind.PUBLICATION_CHANGED,
    "55000": FaultKind.PUBLICATION_CHANGED,
    "58P01": FaultKind.LOG_GAP,
}
_HARMLESS_SEVERITIES = frozenset({"DEBUG", "LOG", "INFO", "NOTICE"})
_HARMLESS_CLASSES = frozenset({"00", "01"})


def start_command(
    slot: str,
    start: Lsn,
    publications: tuple[str, ...],
    server_version: int,
    origin: OriginFilter = OriginFilter.ANY,
    *,
    two_phase: bool = False,
) -> str:
    """START_REPLICATION with the server's highest protocol version, streaming of in-progress transactions, and logical messages.

    `two_phase`: transactions are sent when they are prepared, and not streamed.

    Raises EngineFault: ORIGIN_UNSUPPORTED if the server cannot filter by origin, TWO_PHASE_UNSUPPORTED.
    """
    if two_phase:
        slots.require_two_phase(slot, server_version)
    if origin is OriginFilter.NONE and server_version < ORIGIN_VERSION:
        raise EngineFault(FaultKind.ORIGIN_UNSUPPORTED, slot, origin_refusal(server_version))
    protocol = 4 if server_version >= 160000 else 3 if server_version >= 150000 else 2
    listed = ",".join('"' + name.replace('"', '""') + '"' for name in publications)
    quoted = listed.replace("'", "''")
    name = '"' + slot.replace('"', '""') + '"'
    left_out = ", origin 'none'" if origin is OriginFilter.NONE else ""
    sent = "streaming 'off', two_phase 'on'" if two_phase else "streaming 'on'"
    return (
        f"START_REPLICATION SLOT {name} LOGICAL {start} (proto_version '{protocol}', {sent}, messages 'true',"
        f" publication_names '{quoted}'{left_out})"
    )


def origin_refusal(server_version: int) -> str:
    """The reason, as text, why a server below ORIGIN_VERSION cannot filter by origin."""
    return f"the source is PostgreSQL {server_version // 10000}, which cannot filter changes by their origin; 16 and newer can"


def open_stream(
    connector: Connector,
    slot: str,
    start: Lsn,
    application: str,
    publications: tuple[str, ...],
    wake: int | None = None,
    origin: OriginFilter = OriginFilter.ANY,
    last: LastCommit | None = None,
    *,
    two_phase: bool = False,
    kept: Lsn | None = None,
) -> PostgresLogStream:
    """Start streaming after `start`. If the slot is already beyond `start`, the source skips transactions without an error, so the slot's
    position is checked once the session holds it.

    `last`: the last transaction up to `start`, with which the session begins (see `history`).
    `two_phase`: transactions are sent when they are prepared, by a slot that was created so. The session begins at the slot's confirmed
    position whatever `start` is, so that it sends again what was prepared since, and with it all transactions in between. `kept`: the slot
    must not be confirmed further, or rows of transactions that are prepared are lost; None: `start`.

    Raises EngineFault: SLOT_IN_USE, ORIGIN_UNSUPPORTED, TWO_PHASE_UNSUPPORTED, LOG_GAP (the slot is missing, invalid, not as it was
    created, or beyond `start`), LOG_NOT_DECODED, SOURCE_*.
    """
    history = HistoryCheck(slot, last or LastCommit.unknown(start), start, POSTGRES_LOG_TERMS)
    connection = connector.open(application, replication=True)
    try:
        connection.execute(_HOLD_LESS)
        period = period_s(connection)
        version = connection.info.server_version
        begin = ZERO if two_phase else history.begin
        command = start_command(slot, begin, publications, version, origin, two_phase=two_phase)
        if two_phase:
            slots.check_two_phase(connector, slot)
        transport = open_transport(connection)
        transport.start(command)
    except psycopg.Error as error:
        connection.close()
        raise SOURCE.fault(error, slot, _START_KINDS) from error
    except BaseException:
        connection.close()
        raise
    stream = PostgresLogStream(transport, slot, start, wake, history, two_phase=two_phase)
    try:
        stream.keep_alive(period)
        stream.await_start()
        history.confirmed(slots.check_position(connector, slot, kept or start, two_phase=two_phase))
    except BaseException:
        stream.close()
        raise
    return stream


class PostgresLogStream:
    """LogStream over one replication session. Used by one thread; a second one sends status messages (`keep_alive`).

    With `two_phase` several streams can be read by one thread: `read(0.0)` then returns without a pause. Once it has returned None and
    `pause_s` is 0, all that has arrived was returned; `fileno` becomes readable when more arrives.
    """

    def __init__(
        self,
        transport: Transport,
        slot: str,
        start: Lsn,
        wake: int | None,
        history: HistoryCheck | None = None,
        *,
        two_phase: bool = False,
    ) -> None:
        self._transport = transport
        self._two_phase = two_phase
        self._wake = wake
        self._slot = slot
        self._inbox = Inbox(_INBOX_BYTES)
        # A two-phase session sends again what was prepared before `start`.
        self._wal_end = 0 if two_phase else start.value
        self._reported_end = self._wal_end
        # Nothing is confirmed before the first call of `confirm`: what was read before `start` may be in memory only.
        self._confirmed = 0
        self._acknowledged = 0
        self._acknowledged_at = time.monotonic()
        self._telling = threading.Lock()
        """Held while a status message is sent."""
        self._keeping: KeepAlive | None = None
        self._server_time = 0
        self._in_stream_xid = 0
        self._counter = ChangeCounter()
        self._last_read = 0.0
        self._nap = 0.0
        self._without_pause = 0
        self._leftover = False
        self._silent_since = time.monotonic()
        self._asked = False
        self._history = history
        self._commits = SessionCommits()

    @property
    def verified(self) -> bool:
        """See LogStream.verified."""
        return self._history is None or self._history.done

    @property
    def clock_us(self) -> int:
        """The server's clock when it sent the last record or keepalive that was read, microseconds since 1970 UTC; 0 before any.

        The server may have written transactions before that which it has not sent yet.
        """
        return self._server_time + CLOCK_ZERO_US if self._server_time else 0

    @property
    def read_to(self) -> Lsn:
        """The position that was read: what the session sends of the log up to it was returned. Before anything was read it is the
        session's start, and 0 with `two_phase`."""
        return Lsn(self._wal_end)

    @property
    def pause_s(self) -> float:
        """Seconds in which `read` does not receive, so that reads are few and large; 0 if it does."""
        return 0.0 if self._leftover else max(0.0, self._last_read + self._nap - time.monotonic())

    def fileno(self) -> int:
        """The descriptor that becomes readable when something arrives, for a wait for several streams."""
        return self._transport.fileno()

    def await_start(self) -> None:
        """Wait until the source has started streaming. Raises EngineFault if it refuses, or does not answer within a minute."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            frames = cut(self._inbox.buffer, self._inbox.filled, 0)
            if frames.other == ord("W"):
                self._inbox.take_message()
                self._status()
                # Bytes after CopyBothResponse may be in the buffer already. If they are an error, nothing more will arrive.
                self._leftover = self._inbox.filled > 0
                return
            if frames.other in {ord("N"), ord("S")}:
                self._inbox.take_message()
                continue
            if frames.other == ord("E"):
                raise self._server_fault(_START_KINDS)
            if frames.other or frames.consumed:
                raise EngineFault(FaultKind.LOG_UNREADABLE, self._slot, "the source answers in a way we do not know")
            left = deadline - time.monotonic()
            if left <= 0:
                raise EngineFault(FaultKind.SOURCE_TIMEOUT, self._slot, "the source does not start streaming")
            if self._transport.wait(left):
                self._inbox.fill(self._transport)

    def keep_alive(self, period_s: float) -> None:
        """Send a status message every `period_s` from now on, until `close`."""
        self._keeping = KeepAlive(period_s, self._status)

    def read(self, timeout_s: float) -> RecordChunk | None:
        """The next records; see LogStream.read."""
        deadline = time.monotonic() + timeout_s
        while True:
            self._tell_in_time()
            if not (self._leftover or self._receive(deadline)):
                self._judge_silence()
                return None
            self._silent_since, self._asked = self._last_read, False
            chunk = self._next_chunk()
            if chunk is not None:
                return chunk

    def confirm(self, durable: Lsn) -> None:
        """Set the position that may be released; it is sent with a later status message. See LogStream.confirm."""
        self._confirmed = max(self._confirmed, durable.value)
        self._tell_in_time()

    def ask_position(self) -> None:
        """Ask for a keepalive; see LogStream.ask_position."""
        self._status(ask=True)

    def close(self) -> None:
        """Send the last confirmed position and end the session. Idempotent."""
        if self._keeping is not None:
            self._keeping.end()
        try:
            if self._confirmed > self._acknowledged:
                self._status()
        except EngineFault:
            pass
        finally:
            self._transport.close()

    def _receive(self, deadline: float) -> bool:
        """Receive what arrives by the deadline, after the pause of paced reading."""
        now = time.monotonic()
        rest = self._last_read + self._nap - now
        if self._two_phase and rest > deadline - now:
            return False
        if rest > 0:
            time.sleep(rest)
        self._last_read = time.monotonic()
        count = self._inbox.fill(self._transport)
        self._nap = next(nap for least, nap in _NAPS if count >= least)
        self._without_pause += 1
        if self._without_pause > _STEADY_READS:
            self._nap = max(self._nap, _STEADY_NAP_S)
        if count == 0:
            # Nothing arrived: the next data is read without delay.
            self._nap, self._without_pause = 0.0, 0
            if self._transport.wait(min(deadline - self._last_read, self._status_due(self._last_read)), self._wake):
                self._last_read = time.monotonic()
                count = self._inbox.fill(self._transport)
                self._nap = _FIRST_NAP_S
        return count > 0

    def _next_chunk(self) -> RecordChunk | None:
        frames = cut(self._inbox.buffer, self._inbox.filled, CHUNK_BYTES)
        if frames.other and frames.consumed == 0:
            self._other_message(frames.other)
            self._leftover = True
            return None
        self._inbox.drop(frames.consumed)
        # The buffer may hold whole messages after a full chunk, or one of another type: process them before the next receive.
        self._leftover = frames.consumed > 0 and (frames.other != 0 or len(frames.data) > 0) and self._inbox.filled > 0
        self._server_time = frames.sent_us or self._server_time
        self._wal_end = max(self._wal_end, frames.wal_end)
        if frames.answer_asked:
            self._status()
        if len(frames.offsets) == 1 and self._wal_end == self._reported_end and self.verified:
            return None
        self._reported_end = self._wal_end
        return self._chunk(frames)

    def _chunk(self, frames: Frames) -> RecordChunk:
        data, offsets = frames.data, frames.offsets
        if len(offsets) > 1:
            self._check_types(data[offsets[:-1]])
        controls, self._in_stream_xid = find_controls(data, offsets, self._in_stream_xid, two_phase=self._two_phase)
        self._counter.count(data, offsets, controls)
        if self._history is not None and not self._history.done:
            self._history.check_commits(self._commits.commits_of(data, offsets, controls), Lsn(frames.wal_end))
        at = controls["ordinal"][controls["kind"] == ControlKind.RELATION]
        payloads = {int(i): data[offsets[i] : offsets[i + 1]].tobytes() for i in at}
        messages = controls[controls["kind"] == ControlKind.MESSAGE]
        if len(messages):
            payloads |= own_records(data, offsets, messages["ordinal"], messages["xid"] != 0)
        return RecordChunk(data, offsets, controls, payloads, Lsn(self._wal_end))

    def _check_types(self, types: Array) -> None:
        known = (_TWO_PHASE_TYPES if self._two_phase else _KNOWN_TYPES)[types]
        if not known.all():
            unknown = int(types[~known][0])
            raise EngineFault(FaultKind.LOG_UNREADABLE, self._slot, f"the log holds a record of unknown type {unknown}")

    def _other_message(self, kind: int) -> None:
        if kind == MALFORMED:
            raise EngineFault(FaultKind.LOG_UNREADABLE, self._slot, "the replication protocol is not as expected")
        if kind == ord("E"):
            raise self._server_fault(_STREAM_KINDS)
        if kind == ord("N"):
            self._judge_notice(error_fields(self._inbox.take_message()[1]))
        elif kind in {ord("S"), ord("A")}:
            self._inbox.take_message()
        else:
            raise EngineFault(FaultKind.SOURCE_UNREACHABLE, self._slot, "the source ended the stream")

    def _judge_notice(self, fields: dict[str, str]) -> None:
        """Raise PUBLICATION_CHANGED unless the notice is known to be harmless: others on this session concern what is published."""
        state = fields.get("C", "")
        if fields.get("V", "") in _HARMLESS_SEVERITIES or fields.get("V", "").startswith("DEBUG"):
            return
        if state[:2] in _HARMLESS_CLASSES:
            return
        raise EngineFault(FaultKind.PUBLICATION_CHANGED, self._slot, describe_state(state, fields.get("M", "")))

    def _server_fault(self, kinds: dict[str, FaultKind]) -> EngineFault:
        fields = error_fields(self._inbox.take_message()[1])
        state = fields.get("C")
        broken = FaultKind.LOG_NOT_DECODED if (state or "").startswith("XX") else SOURCE.fault_kind(state)
        kind = kinds.get(state or "") or broken
        return EngineFault(kind, self._slot, describe_state(state, fields.get("M", "")))

    def _judge_silence(self) -> None:
        """Request a keepalive after _SILENCE_S without data; raise EngineFault(SOURCE_TIMEOUT) if it does not arrive in the same time.

        The time counts from the request, so a caller that reads rarely does not cause a fault.
        """
        if time.monotonic() - self._silent_since < _SILENCE_S:
            return
        if self._asked:
            detail = f"nothing came from the source for {_SILENCE_S:.0f} s, though it was asked"
            raise EngineFault(FaultKind.SOURCE_TIMEOUT, self._slot, detail)
        self._silent_since, self._asked = time.monotonic(), True
        self._status(ask=True)

    def _status_due(self, now: float) -> float:
        every = _MOVED_STATUS_S if self._confirmed > self._acknowledged else _IDLE_STATUS_S
        return max(0.0, self._acknowledged_at + every - now)

    def _tell_in_time(self) -> None:
        if self._status_due(time.monotonic()) == 0.0:
            self._status()

    def _status(self, *, ask: bool = False) -> None:
        with self._telling:
            # The time, shown in pg_stat_replication only, is the one that the source sent last. Before the log is verified, nothing
            # is confirmed (0); the message still asks for the source's position.
            position = self._confirmed if self.verified else 0
            ask = ask or not self.verified
            self._transport.send(_STATUS.pack(b"r", position, position, position, self._server_time, ask))
            self._acknowledged = position
            self._acknowledged_at = time.monotonic()


__all__ = ["ORIGIN_VERSION", "PostgresLogStream", "open_stream", "origin_refusal", "start_command"]
