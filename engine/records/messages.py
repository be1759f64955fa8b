"""Records other than row changes: messages, including ticket markers and messages about merged logs, and truncates."""

from __future__ import annotations

import re
import struct

from engine.model.batch import LogsSeen, MessageSeen, TicketSeen
from engine.model.control import ControlKind
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import Ordinal, TicketId
from engine.model.merged_logs import PREFIX as LOGS_PREFIX
from engine.model.merged_logs import LogsMessage
from engine.model.position import Lsn
from engine.model.source import Landed
from engine.model.ticket import PREFIX, TicketMarker

XID_BYTES = 4
"""Width of the transaction id that records of a streamed transaction carry after their type byte."""
_RECORD = re.compile(
    rb"M\x01(.{8})" + re.escape(PREFIX.encode()) + rb"\x00.{4}([0-9a-z]{1,40}) ([0-9]{1,18})", re.DOTALL
)
_LOGS_HEAD = LOGS_PREFIX.encode() + b"\0"
_LOGS_AT = 10
"""Offset of the prefix in a message record: type (1), flags (1), position (8)."""

OwnMessage = MessageSeen | TicketSeen | LogsSeen
"""A message of the engine's own: a DDL message, a ticket marker, or one about merged logs."""


def unstreamed(record: bytes) -> bytes:
    """A record of a streamed transaction in the form that it has outside one: without the transaction id."""
    return record[:1] + record[1 + XID_BYTES :]


def read_marker(record: bytes) -> TicketMarker | None:
    """The marker that a message record is, in the form that it has outside streamed transactions; None where it is something else."""
    found = _RECORD.fullmatch(record)
    if found is None:
        return None
    position, ticket, written = found.groups()
    return TicketMarker(TicketId(ticket.decode()), Lsn(int.from_bytes(position, "big")), int(written))


def marker_record(marker: TicketMarker) -> bytes:
    """The message record that `read_marker` reads."""
    content = f"{marker.ticket} {marker.written_us}".encode()
    return (
        struct.pack(">cBQ", b"M", 1, marker.position.value)
        + PREFIX.encode()
        + struct.pack(">xI", len(content))
        + content
    )


def logs_record(message: LogsMessage) -> bytes:
    """The transactional message record whose content is `message`."""
    content = message.content
    return struct.pack(">cBQ", b"M", 1, 0) + _LOGS_HEAD + struct.pack(">I", len(content)) + content


def message_at(ordinal: int, record: bytes) -> OwnMessage:
    """The DDL message, ticket marker or message about merged logs that a message record is, in the form that it has outside streamed
    transactions.

    Raises EngineFault(LOG_UNREADABLE) if a message about merged logs is cut off.
    """
    if record.startswith(_LOGS_HEAD, _LOGS_AT):
        return LogsSeen(Ordinal(ordinal), _logs_content(record))
    marker = read_marker(record)
    return MessageSeen(Ordinal(ordinal), record) if marker is None else TicketSeen(Ordinal(ordinal), marker)


def _logs_content(record: bytes) -> bytes:
    at = _LOGS_AT + len(_LOGS_HEAD)
    length, content = record[at : at + 4], record[at + 4 :]
    if length != struct.pack(">I", len(content)):
        raise EngineFault(FaultKind.LOG_UNREADABLE, "log", "a message about the merged logs is cut off")
    return content


def messages_in(landed: Landed) -> list[OwnMessage]:
    """The engine's own messages in a landing, in order, also those of transactions that may roll back."""
    if not landed.relations:
        return []
    controls = landed.controls[landed.controls["kind"] == ControlKind.MESSAGE]
    found = []
    for ordinal, xid in zip(controls["ordinal"].tolist(), controls["xid"].tolist(), strict=True):
        record = landed.relations.get(ordinal)
        if record is not None:
            found.append(message_at(ordinal, unstreamed(record) if xid else record))
    return found


def parse_truncate(record: bytes, *, streamed: bool) -> tuple[int, tuple[int, ...]]:
    """Parse a TRUNCATE record: the (sub)transaction id that it carries in a streamed transaction (else 0), and the truncated OIDs.

    Raises EngineFault(LOG_UNREADABLE) if it is not a TRUNCATE record.
    """
    at = 5 if streamed else 1
    try:
        xid = struct.unpack_from(">I", record, 1)[0] if streamed else 0
        (count,) = struct.unpack_from(">I", record, at)
        if record[:1] != b"T" or len(record) != at + 5 + 4 * count:
            raise _not_a_truncate()
        return xid, struct.unpack_from(f">{count}I", record, at + 5)
    except struct.error as error:
        raise _not_a_truncate() from error


def _not_a_truncate() -> EngineFault:
    return EngineFault(FaultKind.LOG_UNREADABLE, "truncate record", "it has an unexpected form")
