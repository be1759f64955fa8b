"""Records of prepared transactions in a two-phase stream of pgoutput: BEGIN PREPARE, PREPARE, COMMIT PREPARED, ROLLBACK PREPARED."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from engine.model.control import ControlKind
from engine.model.fault import EngineFault, FaultKind
from engine.model.position import Lsn
from engine.records.encode import CLOCK_ZERO_US


@dataclass(frozen=True, slots=True)
class TwoPhase:
    """One record of a prepared transaction. `xid` and `gid` are the same in all of its records.

    A session may send BEGIN PREPARE to PREPARE again that an earlier one has sent, and COMMIT PREPARED or ROLLBACK PREPARED without
    them, if the slot was confirmed past the start of the PREPARE record.
    """

    kind: ControlKind
    xid: int
    lsn: Lsn
    """Start of the PREPARE record (BEGIN_PREPARE, PREPARE), of the COMMIT PREPARED record, or end of the PREPARE record
    (ROLLBACK_PREPARED)."""
    end: Lsn
    """End of the PREPARE record (BEGIN_PREPARE, PREPARE), else of the record itself."""
    time_us: int
    """Time of the PREPARE, the commit or the rollback by the source's clock, microseconds since 1970 UTC."""
    gid: str
    """Bytes that are not UTF-8 are surrogate escapes. PostgreSQL 16 and 18 send none: their session ends there with SQLSTATE 22021."""


_FORMS = {
    ord("b"): (ControlKind.BEGIN_PREPARE, struct.Struct(">xQQqI")),
    ord("P"): (ControlKind.PREPARE, struct.Struct(">xBQQqI")),
    ord("K"): (ControlKind.COMMIT_PREPARED, struct.Struct(">xBQQqI")),
    ord("r"): (ControlKind.ROLLBACK_PREPARED, struct.Struct(">xBQQqqI")),
}
"""Kind and fixed part by type: flags (not in BEGIN PREPARE), two positions, one or two times, transaction id. The gid follows."""


def two_phase_of(record: bytes) -> TwoPhase:
    """Parse a record of one of these types.

    Raises EngineFault(LOG_UNREADABLE) if it has another type or form, or flags, which PostgreSQL does not use so far.
    """
    kind, form = _FORMS.get(record[0] if record else 0, (None, None))
    if kind is None or form is None or len(record) <= form.size or record.find(b"\0", form.size) != len(record) - 1:
        raise _unreadable(record)
    fields = list(form.unpack_from(record))
    flags = 0 if kind is ControlKind.BEGIN_PREPARE else fields.pop(0)
    if flags:
        raise _unreadable(record)
    gid = record[form.size : -1].decode("utf-8", "surrogateescape")
    return TwoPhase(kind, fields[-1], Lsn(fields[0]), Lsn(fields[1]), fields[-2] + CLOCK_ZERO_US, gid)


def _unreadable(record: bytes) -> EngineFault:
    detail = f"a record of {len(record)} bytes is not one of a prepared transaction"
    return EngineFault(FaultKind.LOG_UNREADABLE, "log", detail)
