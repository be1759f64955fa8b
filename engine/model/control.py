"""Control records: the records that the log reader parses when it writes to the queue. All others stay unparsed."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from engine.model.subscription import OriginFilter


class ControlKind(IntEnum):
    """Kinds of control record. The numbers are part of the queue's on-disk index format."""

    BEGIN = 1
    COMMIT = 2
    STREAM_START = 3
    STREAM_STOP = 4
    STREAM_COMMIT = 5
    STREAM_ABORT = 6
    RELATION = 7
    TRUNCATE = 8
    MESSAGE = 9
    SESSION = 10
    """Written by the reader, not from the log: a new connection began, and open transactions of the previous one are void."""
    BEGIN_PREPARE = 11
    """This and the next three come from the two-phase stream of one node of a partitioned source, and never reach a queue."""
    PREPARE = 12
    COMMIT_PREPARED = 13
    ROLLBACK_PREPARED = 14


CONTROL_FIELDS: list[tuple[str, str]] = [
    ("kind", "u1"),
    ("ordinal", "<i8"),
    ("xid", "<u4"),
    ("subxid", "<u4"),
    ("end_lsn", "<u8"),
    ("time_us", "<i8"),
    ("commit_lsn", "<u8"),
]
"""Fields of a control record, as a numpy structured type.

`ordinal`: number of the record in the queue. `xid`: top-level transaction; 0 if the record does not carry it (COMMIT).
`subxid`: for STREAM_ABORT the aborted transaction (equal to `xid` when all of it aborted), for SESSION what it reads
(SESSION_ORIGINS), for STREAM_STOP 1 if the chunk has rows that the top-level transaction wrote itself, else 0. `end_lsn`: for COMMIT and
STREAM_COMMIT the end LSN, else 0. `time_us`: commit time, microseconds since 1970 UTC, for COMMIT and STREAM_COMMIT, else 0.
BEGIN_PREPARE and PREPARE have the end LSN and time of the PREPARE record, COMMIT_PREPARED and ROLLBACK_PREPARED those of their own.
For RELATION and TRUNCATE inside a streamed transaction `xid` is the streaming top-level transaction, else 0.
`subxid` of COMMIT and `xid` of STREAM_STOP: 1 + the number of row changes in the transaction or the chunk, a TRUNCATE counted once for each
relation that it names; 0 if they were not counted (by versions that did not count them).
`commit_lsn`: the field of COMMIT that PostgreSQL fills with the start of the commit record, else 0. A source of several logs puts the
commit's mark there (`engine.model.merged_logs`). 0 in records that an earlier version wrote to the queue.
"""

SESSION_ORIGINS: Mapping[OriginFilter, int] = {OriginFilter.ANY: 1, OriginFilter.NONE: 2}
"""Origin filter in a SESSION record. 0: written by a version that did not record it."""
