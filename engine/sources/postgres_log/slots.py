"""Replication slots: create with an exported snapshot, check, drop, and end the session of an older log reader of the engine."""

from __future__ import annotations

import contextlib
import secrets
import select
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import psycopg
from psycopg import pq, sql

from engine.model.fault import EngineFault, FaultKind
from engine.model.position import ZERO, Lsn
from engine.model.sender import Sender, SenderState
from engine.model.source import ExportedSnapshot, ReaderStatus
from engine.postgres.sessions import PostgresConnection, describe_state
from engine.sources.postgres.connect import SOURCE, Connector
from engine.sources.postgres.open_transactions import FREE_TIMEOUT_S, end_own_session, oldest_open

CREATE_TIMEOUT_S = 600.0
"""Seconds to create a slot, which waits for all transactions that are open at its beginning: longer than most of them. Not measured."""
_POLL_S = 0.05
"""Interval in seconds between two checks whether the slot is free; each is one short query. Not measured."""
_CANCEL_TIMEOUT_S = 5.0
"""Seconds for a cancelled command to end, before its connection is given up. A server that answers needs milliseconds. Not measured."""

_KINDS = {
    "55000": FaultKind.SOURCE_WAL_LEVEL,
    "42710": FaultKind.SLOT_IN_USE,
    "53300": FaultKind.SOURCE_NO_SENDERS,
    "40001": FaultKind.SOURCE_SNAPSHOT_TOO_LARGE,
}
"""Fault kinds of SQLSTATEs while a slot is created. Creation raises serialization_failure in one case only."""

_STATUS = """
SELECT s.confirmed_flush_lsn::text, s.restart_lsn::text, s.active_pid, s.wal_status, s.safe_wal_size,
       coalesce(pg_wal_lsn_diff(
           CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END, s.restart_lsn
       ), 0)::bigint,
       to_jsonb(s) ->> 'invalidation_reason', coalesce((to_jsonb(s) ->> 'conflicting')::boolean, false),
       coalesce(t.spill_bytes, 0), coalesce(t.stream_bytes, 0),
       (SELECT ARRAY[coalesce(a.wait_event_type, ''), coalesce(a.wait_event, '')]
        FROM pg_stat_get_activity(s.active_pid) AS a WHERE s.active_pid IS NOT NULL AND a.backend_type IS NOT NULL)
FROM pg_replication_slots s LEFT JOIN pg_stat_replication_slots t ON t.slot_name = s.slot_name
WHERE s.slot_name = %s
"""
"""A sender of another role, for which `backend_type` is null, is not shown."""
_BLOCKED = frozenset({"walsenderwritedata", "clientwrite"})
_IDLE = frozenset({"walsendermain", "walsenderwaitforwal"})
"""Wait events of a walsender in lower case, because versions write them differently."""
_RETAINED = """
SELECT greatest(0, coalesce(max(pg_wal_lsn_diff(
    CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END, restart_lsn
)), 0))::bigint
FROM pg_replication_slots WHERE slot_name = ANY(%s)
"""
_READER = """
SELECT s.active_pid, a.application_name, a.usename = current_user
FROM pg_replication_slots s LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid
WHERE s.slot_name = %s AND s.active_pid IS NOT NULL
"""
_UNSTREAMED = """
SELECT pg_catalog.set_config(name, 'immediate', false) FROM pg_catalog.pg_settings
WHERE name = 'debug_logical_replication_streaming' AND pg_catalog.current_setting('server_version_num')::int >= 180000
"""
"""Avoids a crash of PostgreSQL 18 (seen with 18.4) during slot creation. Nothing is streamed then, but the server treats a subtransaction
as streamed if its transaction was rolled back before it was decoded and exceeds `logical_decoding_work_mem`; pgoutput then ends with a
segmentation fault and the server restarts. With this setting every change is spilled to disk at once, and the server does not check
whether a transaction was rolled back. Measured cost: about 3 microseconds for each row, and 10 for each transaction, that others wrote
while the slot waited for older transactions."""
_STANDS = """
SELECT confirmed_flush_lsn::text, coalesce((to_jsonb(s) ->> 'two_phase')::boolean, false)
FROM pg_replication_slots s WHERE slot_name = %s
"""


_FITNESS = """
SELECT s.slot_type, s.plugin, s.database = current_database(), s.temporary,
       coalesce((to_jsonb(s) ->> 'two_phase')::boolean, false), coalesce((to_jsonb(s) ->> 'synced')::boolean, false),
       s.confirmed_flush_lsn IS NOT NULL, to_jsonb(s) ->> 'invalidation_reason', s.wal_status
FROM pg_replication_slots s WHERE s.slot_name = %s
"""


TWO_PHASE_VERSION = 150000
"""PostgreSQL 15, the first version with the `two_phase` option of pgoutput."""
_TWO_PHASE_FAILOVER_VERSION = 180000
"""PostgreSQL 18 creates slots with both TWO_PHASE and FAILOVER (seen with 18.4). On 17, not tried, they are created without FAILOVER."""


def require_two_phase(slot: str, server_version: int) -> None:
    """Raise EngineFault(TWO_PHASE_UNSUPPORTED) if the server cannot send prepared transactions before they are committed."""
    if server_version < TWO_PHASE_VERSION:
        what = "which sends prepared transactions only when they are committed; 15 and newer send them before"
        detail = f"the source is PostgreSQL {server_version // 10000}, {what}"
        raise EngineFault(FaultKind.TWO_PHASE_UNSUPPORTED, slot, detail)


@contextmanager
def lasting(connector: Connector, slot: str, *, two_phase: bool = False) -> Iterator[ExportedSnapshot]:
    """Create a permanent slot. Its exported snapshot ends with the block.

    `two_phase`: it decodes transactions when they are prepared. Those that are prepared already have to end first, as all that are open;
    one that is prepared meanwhile is sent when it is committed.

    Raises TWO_PHASE_UNSUPPORTED, SLOT_IN_USE, SOURCE_*.
    """
    with connector.open(replication=True) as connection:
        if two_phase:
            require_two_phase(slot, connection.info.server_version)
        yield _create(connector, connection, slot, temporary=False, timeout_s=CREATE_TIMEOUT_S, two_phase=two_phase)


@contextmanager
def temporary(connector: Connector, timeout_s: float, open_slots: set[str]) -> Iterator[ExportedSnapshot]:
    """A temporary slot for its snapshot; both end with the block. `open_slots` contains the slot's name during the block.

    Raises SOURCE_TIMEOUT if open transactions delay it, SOURCE_SNAPSHOT_TOO_LARGE if there are more of them than a snapshot can hold.
    """
    with connector.open(replication=True) as connection:
        slot = f"penstock_tmp_{secrets.token_hex(8)}"
        open_slots.add(slot)
        try:
            yield _create(connector, connection, slot, temporary=True, timeout_s=timeout_s)
        finally:
            open_slots.discard(slot)


def status(connector: Connector, slot: str) -> ReaderStatus:
    """The slot as the source reports it."""
    with connector.session() as connection:
        row = connection.execute(_STATUS, [slot]).fetchone()
    if row is None:
        return ReaderStatus(exists=False)
    confirmed, restart, pid, wal_status, safe, retained, reason, conflicting, spilled, streamed, waits = row
    invalid = reason or ("conflict" if conflicting else "wal_removed" if wal_status == "lost" else None)
    return ReaderStatus(
        exists=True,
        confirmed=Lsn.parse(confirmed) if confirmed else None,
        restart=Lsn.parse(restart) if restart else None,
        active_pid=pid,
        retained_bytes=max(0, retained),
        safe_wal_bytes=safe,
        lost=f"the source invalidated the replication slot ({invalid})" if invalid else None,
        spill_bytes=spilled,
        stream_bytes=streamed,
        sender=_sender(pid, *waits) if waits is not None else None,
    )


def _sender(pid: int, kind: str, event: str) -> Sender:
    name = event.lower()
    state = SenderState.BLOCKED if name in _BLOCKED else SenderState.IDLE if name in _IDLE else SenderState.WORKING
    return Sender(state, pid, f"{kind} {event}".strip())


def why_unfit(connector: Connector, slot: str) -> str | None:
    """Why an existing slot cannot be read from its confirmed position on, as text; None if it can. Whether it is in use does not count."""
    with connector.session(slot) as connection:
        row = connection.execute(_FITNESS, [slot]).fetchone()
    if row is None:
        return f"replication slot {slot} does not exist"
    kind, plugin, here, temporary, two_phase, synced, confirmed, reason, wal_status = row
    wrong = [
        (kind != "logical", f"is {kind}, and must be logical"),
        (plugin != "pgoutput", f"has the plugin {plugin}, and must have pgoutput"),
        (not here, "belongs to another database"),
        (temporary, "is temporary, and ends with the session that made it"),
        (two_phase, "decodes prepared transactions (two_phase), and must not"),
        (synced, "is synchronised from a primary, and cannot be read here"),
        (reason is not None or wal_status == "lost", f"was invalidated by the source ({reason or 'wal_removed'})"),
        (not confirmed, "has no confirmed position"),
    ]
    return next((f"replication slot {slot} {what}" for is_wrong, what in wrong if is_wrong), None)


def check_two_phase(connector: Connector, slot: str) -> None:
    """Check that the slot decodes transactions when they are prepared. Call it before a session with two-phase decoding starts: the start
    turns it on for a slot that has it off, so that a later check cannot see it.

    Raises EngineFault(LOG_GAP).
    """
    _position(connector, slot, two_phase=True)


def check_position(connector: Connector, slot: str, start: Lsn, *, two_phase: bool = False) -> Lsn:
    """Check that a session that reads this slot from `start` gets every transaction that ends after it. Returns the slot's confirmed
    position: transactions that end at or before it are not sent.

    Call it while a session of the engine holds the slot: only that session can then move the confirmed position. The check also finds a
    slot that was dropped and created again, because its position is the end of the log at its creation.

    `two_phase`: the slot must decode transactions when they are prepared; otherwise it must not.

    Raises EngineFault(LOG_GAP).
    """
    position = _position(connector, slot, two_phase=two_phase)
    if position > start:
        detail = f"the slot was confirmed up to {position}, read was only up to {start}: changes between are gone"
        raise EngineFault(FaultKind.LOG_GAP, slot, detail)
    return position


def _position(connector: Connector, slot: str, *, two_phase: bool) -> Lsn:
    """The confirmed position of a slot that decodes transactions when they are prepared, or does not. Raises EngineFault(LOG_GAP)."""
    with connector.session(slot) as connection:
        row = connection.execute(_STANDS, [slot]).fetchone()
    if row is None:
        raise EngineFault(FaultKind.LOG_GAP, slot, "the replication slot is gone")
    confirmed, prepared_sent = row
    if prepared_sent and not two_phase:
        detail = "the replication slot was changed to decode prepared transactions: rows of those prepared before are missing"
        raise EngineFault(FaultKind.LOG_GAP, slot, detail)
    if two_phase and not prepared_sent:
        what = "it was changed, or another one was created in its place"
        detail = f"the replication slot does not decode prepared transactions (two_phase is off): {what}"
        raise EngineFault(FaultKind.LOG_GAP, slot, detail)
    return Lsn.parse(confirmed) if confirmed is not None else ZERO


def retained_by(connector: Connector, slots: Collection[str]) -> int:
    """The largest retained WAL of these slots in bytes; 0 if none of them exists."""
    if not slots:
        return 0
    with connector.session() as connection:
        row = connection.execute(_RETAINED, [list(slots)]).fetchone()
    return int(row[0]) if row is not None else 0


def drop(connector: Connector, slot: str) -> list[str]:
    """Drop the slot, after a short wait for a reader that is about to end. Returns what could not be dropped, as text."""
    deadline = time.monotonic() + FREE_TIMEOUT_S
    with connector.session(slot) as connection:
        while True:
            try:
                connection.execute("SELECT pg_drop_replication_slot(%s)", [slot])
            except psycopg.errors.UndefinedObject:
                return []
            except psycopg.errors.ObjectInUse:
                if time.monotonic() >= deadline:
                    return [f"replication slot {slot}: another process still reads it"]
                time.sleep(_POLL_S)
            except psycopg.errors.InsufficientPrivilege:
                return [f"replication slot {slot}: the user may not drop it"]
            else:
                return []


def terminate_reader(connector: Connector, slot: str, application: str) -> bool:
    """End the engine's own walsender on this slot and wait until the slot is free; see `end_own_session`."""
    with connector.session(slot) as connection:
        return end_own_session(
            connection, slot, application, lambda session: session.execute(_READER, [slot]).fetchone()
        )


def _create(
    connector: Connector,
    connection: PostgresConnection,
    slot: str,
    *,
    temporary: bool,
    timeout_s: float,
    two_phase: bool = False,
) -> ExportedSnapshot:
    try:
        # Some hosted services do not let the user set this parameter.
        with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
            connection.execute(_UNSTREAMED)
        options = _options(connection, temporary=temporary, two_phase=two_phase)
    except psycopg.Error as error:
        raise SOURCE.fault(error, slot) from error
    kind = "TEMPORARY LOGICAL" if temporary else "LOGICAL"
    command = (
        sql.SQL("CREATE_REPLICATION_SLOT {} " + kind + " pgoutput " + options)
        .format(sql.Identifier(slot))
        .as_bytes(connection)
    )
    _, position, snapshot = _run(connector, connection.pgconn, command, slot, timeout_s)[:3]
    return ExportedSnapshot(snapshot, Lsn.parse(position))


def _options(connection: PostgresConnection, *, temporary: bool, two_phase: bool) -> str:
    if connection.info.server_version < 150000:
        return "EXPORT_SNAPSHOT"
    since = _TWO_PHASE_FAILOVER_VERSION if two_phase else 170000
    failover = connection.info.server_version >= since and not temporary and not _in_recovery(connection)
    return "(SNAPSHOT 'export'" + (", TWO_PHASE true" if two_phase else "") + (", FAILOVER true)" if failover else ")")


def _in_recovery(connection: PostgresConnection) -> bool:
    return bool(connection.execute("SELECT pg_is_in_recovery()").fetchall()[0][0])


def _run(connector: Connector, pgconn: pq.abc.PGconn, command: bytes, subject: str, timeout_s: float) -> list[str]:
    """Run a replication command that may wait for open transactions; it is cancelled after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    pgconn.send_query(command)
    timed_out = False
    while pgconn.is_busy():
        left = deadline - time.monotonic()
        if left <= 0 and not timed_out:
            timed_out = True
            deadline = time.monotonic() + _CANCEL_TIMEOUT_S
            _cancel(pgconn)
        elif left <= 0:
            raise EngineFault(FaultKind.SOURCE_TIMEOUT, subject, "the source does not answer")
        else:
            select.select([pgconn.socket], [], [], left)
            try:
                pgconn.consume_input()
            except psycopg.Error as error:
                raise SOURCE.fault(error, connector.name) from error
    return _first_row(connector, pgconn, subject, timed_out=timed_out)


def _first_row(connector: Connector, pgconn: pq.abc.PGconn, subject: str, *, timed_out: bool) -> list[str]:
    result = pgconn.get_result()
    if result is None:
        raise EngineFault(FaultKind.SOURCE_UNREACHABLE, connector.name, "the connection was lost")
    if result.status != pq.ExecStatus.TUPLES_OK:
        state = _text(result.error_field(pq.DiagnosticField.SQLSTATE)) or None
        if timed_out:
            raise EngineFault(FaultKind.SOURCE_TIMEOUT, subject, f"open transactions hold it up: {_who(connector)}")
        message = _text(result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY))
        kind = _KINDS.get(state or "") or SOURCE.fault_kind(state)
        if kind is FaultKind.SOURCE_SNAPSHOT_TOO_LARGE:
            raise EngineFault(kind, subject, f"the slot's snapshot is too large; oldest open: {_who(connector)}")
        raise EngineFault(kind, subject, describe_state(state, message))
    row = [_text(result.get_value(0, column)) for column in range(result.nfields)]
    while pgconn.get_result() is not None:
        pass
    return row


def _cancel(pgconn: pq.abc.PGconn) -> None:
    with contextlib.suppress(psycopg.Error):
        pgconn.get_cancel().cancel()


def _who(connector: Connector) -> str:
    with contextlib.suppress(EngineFault):
        found = oldest_open(connector)
        return found[0] if found else "none that can be seen"
    return "the source does not say which"


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")
