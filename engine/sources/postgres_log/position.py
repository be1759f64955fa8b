"""Positions of the source: cluster identity, current end of the log, and "now"."""

from __future__ import annotations

import psycopg
from psycopg import errors

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TicketId
from engine.model.position import Lsn
from engine.model.source import SourceIdentity
from engine.model.ticket import PREFIX, TicketWritten
from engine.postgres.sessions import PostgresConnection
from engine.sources.postgres.connect import SOURCE, Connector

MESSAGE_PREFIX = "penstock"
_MARK = """
SELECT at_us, pg_logical_emit_message(true, %s, concat(%s::text, ' ', at_us))
FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS at_us) AS clock
"""
# PostgreSQL's WAL: page headers at the start of a segment (SizeOfXLogLongPHD) and of other pages (SizeOfXLogShortPHD).
_LONG_HEADER = 40
_SHORT_HEADER = 24

_END = """
SELECT pg_is_in_recovery(),
       CASE WHEN pg_is_in_recovery() THEN coalesce(pg_last_wal_replay_lsn(), '0/0') ELSE pg_current_wal_insert_lsn() END::text,
       (SELECT setting::bigint FROM pg_settings WHERE name = 'wal_segment_size'),
       current_setting('wal_block_size')::bigint
"""


def identify(connector: Connector) -> SourceIdentity:
    """System identifier, timeline and version, from IDENTIFY_SYSTEM."""
    with connector.open(replication=True) as connection:
        try:
            system_id, timeline, *_ = connection.execute("IDENTIFY_SYSTEM").fetchall()[0]
        except psycopg.Error as error:
            raise SOURCE.fault(error, connector.name) from error
        return SourceIdentity(str(system_id), int(timeline), connection.info.server_version)


def now(connector: Connector) -> Lsn:
    """A position after every commit so far, with the log flushed up to it; the log's end if the session may not write."""
    with connector.session() as connection:
        return written_now(connection)


def written_now(connection: PostgresConnection) -> Lsn:
    """As `now`, in this session."""
    try:
        row = connection.execute("SELECT pg_logical_emit_message(true, %s, '')::text", [MESSAGE_PREFIX]).fetchone()
    except (errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction, errors.ObjectNotInPrerequisiteState):
        return end_of_log(connection)
    return Lsn.parse(str(row[0])) if row is not None else end_of_log(connection)


def write_ticket(connector: Connector, ticket: TicketId) -> TicketWritten:
    """Commit a ticket's marker, with the log flushed up to it. Raises EngineFault(SOURCE_PRIVILEGE) if the session may not write."""
    with connector.session() as connection:
        try:
            row = connection.execute(_MARK, [PREFIX, ticket]).fetchone()
        except (
            errors.InsufficientPrivilege,
            errors.ReadOnlySqlTransaction,
            errors.ObjectNotInPrerequisiteState,
        ) as error:
            detail = "it takes no writes, or its user may not call pg_logical_emit_message"
            raise EngineFault(FaultKind.SOURCE_PRIVILEGE, connector.name, detail) from error
        return TicketWritten(int(row[0]) if row is not None else 0, end_of_log(connection))


def current(connector: Connector) -> Lsn:
    """The current end of the log."""
    with connector.session() as connection:
        return end_of_log(connection)


def end_of_log(connection: PostgresConnection) -> Lsn:
    """As `current`, in this session."""
    row = connection.execute(_END).fetchone()
    if row is None:
        return Lsn(0)
    in_recovery, text, segment, page = row
    position = Lsn.parse(text)
    return position if in_recovery else without_page_header(position, segment, page)


def without_page_header(position: Lsn, segment_bytes: int, page_bytes: int) -> Lsn:
    """The position without a WAL page header that it may include. No record ends right after a header, so a wait for it would not end."""
    if position.value % segment_bytes == _LONG_HEADER:
        return Lsn(position.value - _LONG_HEADER)
    if position.value % page_bytes == _SHORT_HEADER:
        return Lsn(position.value - _SHORT_HEADER)
    return position
