"""Records of prepared transactions in a two-phase stream of pgoutput: BEGIN PREPARE, PREPARE, COMMIT PREPARED, ROLLBACK PREPARED."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from engine.model.control import ControlKind
from engine.model.fault import EngineFault, FaultKind
from engine.model.position import Lsn
from engine.platform.compiled import Array, kernel
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


_T_PREPARE, _T_COMMIT, _T_ROLLBACK = (ord(letter) for letter in "PKr")
_FIXED, _FIXED_OF_ROLLBACK = _FORMS[_T_PREPARE][1].size, _FORMS[_T_ROLLBACK][1].size


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


def gids_of(data: Array, offsets: Array, ordinals: Array) -> tuple[list[int], list[str]]:
    """The first position and the gid of some of these records, of the types P, K and r, as `two_phase_of` reads them.

    Raises EngineFault(LOG_UNREADABLE) as it does.
    """
    lsns, starts, stops = (np.empty(len(ordinals), np.int64) for _ in range(3))
    read = _read_gids(data, offsets, ordinals, lsns, starts, stops)
    if read < len(ordinals):
        at = int(ordinals[read])
        raise _unreadable(data[offsets[at] : offsets[at + 1]].tobytes())
    low = int(starts[0]) if len(starts) else 0
    text = data[low : int(stops[-1])].tobytes() if len(stops) else b""
    borders = zip((starts - low).tolist(), (stops - low).tolist(), strict=True)
    return lsns.tolist(), [text[start:stop].decode("utf-8", "surrogateescape") for start, stop in borders]


@kernel
def _read_gids(data: Array, offsets: Array, ordinals: Array, lsns: Array, starts: Array, stops: Array) -> int:
    """Fill in the first position, and where the gid is in `data`; returns the number of records before one that has another form."""
    for k in range(ordinals.size):
        p, q = int(offsets[ordinals[k]]), int(offsets[ordinals[k] + 1])
        kind = data[p]
        size = _FIXED_OF_ROLLBACK if kind == _T_ROLLBACK else _FIXED
        if kind not in (_T_PREPARE, _T_COMMIT, _T_ROLLBACK) or q - p <= size or data[p + 1] != 0 or data[q - 1] != 0:
            return k
        for at in range(p + size, q - 1):
            if data[at] == 0:
                return k
        lsn = np.int64(0)
        for at in range(p + 2, p + 10):
            lsn = lsn << 8 | np.int64(data[at])
        lsns[k], starts[k], stops[k] = lsn, p + size, q - 1
    return ordinals.size


def warm() -> None:
    """Compile the kernel."""
    record = np.frombuffer(_FORMS[_T_PREPARE][1].pack(0, 1, 2, 0, 1).replace(b"\0", b"P", 1) + b"g\0", np.uint8)
    gids_of(record, np.array([0, len(record)], np.int32), np.zeros(1, np.int64))


def _unreadable(record: bytes) -> EngineFault:
    detail = f"a record of {len(record)} bytes is not one of a prepared transaction"
    return EngineFault(FaultKind.LOG_UNREADABLE, "log", detail)
