"""Control records: what the log reader looks at while it lands raw records. Everything else stays unparsed."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from engine.model.subscription import OriginFilter


class ControlKind(IntEnum):
    """Kinds of control record; the numbers stand in the queue's index on disk."""

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
    """Not from the log: a new connection began; everything uncommitted of the one before is void."""


CONTROL_FIELDS: list[tuple[str, str]] = [
    ("kind", "u1"),
    ("ordinal", "<i8"),
    ("xid", "<u4"),
    ("subxid", "<u4"),
    ("end_lsn", "<u8"),
    ("time_us", "<i8"),
]
"""Fields of a control record, as a numpy structured type.

`ordinal`: number of the record in the queue. `xid`: top-level transaction; 0 where the record itself does not carry it (COMMIT).
`subxid`: for STREAM_ABORT the aborted transaction (equal to `xid` when all of it aborted), for SESSION what it reads
(SESSION_ORIGINS), for STREAM_STOP 1 where the chunk has rows that the top-level transaction wrote itself, else 0. `end_lsn`: for COMMIT and
STREAM_COMMIT the end LSN, else 0. `time_us`: commit time, microseconds since 1970 UTC, for COMMIT and STREAM_COMMIT, else 0.
For RELATION and TRUNCATE inside a streamed transaction `xid` is the streaming top-level transaction, else 0.
"""

SESSION_ORIGINS: Mapping[OriginFilter, int] = {OriginFilter.ANY: 1, OriginFilter.NONE: 2}
"""What the record of a session says that it reads. 0: a version wrote it that did not say."""
