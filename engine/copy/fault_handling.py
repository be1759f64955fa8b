"""Maps faults to their consequences for a running copy: for one chunk, one table, or the whole copy."""

from __future__ import annotations

from enum import StrEnum

from engine.model.fault import FaultKind


class Consequence(StrEnum):
    """Consequence of a chunk's fault."""

    READ_AGAIN = "read_again"
    """The chunk is read again under the same snapshot, as a new attempt. After the last attempt `last_consequence` applies."""
    START_TABLE_AGAIN = "start_table_again"
    START_ALL_AGAIN = "start_all_again"
    FAIL_TABLE = "fail_table"
    STOP = "stop"
    """Nothing more can be copied; the fault is raised to the caller."""


_CONSEQUENCES: dict[FaultKind, Consequence] = {
    FaultKind.SOURCE_UNREACHABLE: Consequence.READ_AGAIN,
    FaultKind.SOURCE_TIMEOUT: Consequence.READ_AGAIN,
    FaultKind.SPARK_FAILED: Consequence.READ_AGAIN,
    # The schema changed under the snapshot: a new copy starts with the new schema.
    FaultKind.TABLE_STRUCTURE_CHANGED: Consequence.START_TABLE_AGAIN,
    FaultKind.COPY_LOST: Consequence.START_ALL_AGAIN,
    FaultKind.SOURCE_PRIVILEGE: Consequence.FAIL_TABLE,
    FaultKind.TABLE_MISSING: Consequence.FAIL_TABLE,
    FaultKind.TABLE_NO_IDENTITY: Consequence.FAIL_TABLE,
    FaultKind.TABLE_NOT_LOGGED: Consequence.FAIL_TABLE,
    FaultKind.TABLE_COLUMNS_UNFIT: Consequence.FAIL_TABLE,
    FaultKind.TABLE_KEY_NOT_UNIQUE: Consequence.FAIL_TABLE,
    FaultKind.TABLE_NAME_COLLISION: Consequence.FAIL_TABLE,
    FaultKind.TABLE_UNFIT: Consequence.FAIL_TABLE,
    FaultKind.TABLE_PARTITIONS_CHANGED: Consequence.FAIL_TABLE,
    FaultKind.VALUE_OUT_OF_DOMAIN: Consequence.FAIL_TABLE,
    FaultKind.ROW_REFUSED: Consequence.FAIL_TABLE,
    FaultKind.TOO_MANY_SET_ASIDE: Consequence.FAIL_TABLE,
    FaultKind.NET_CHANGE_ANOMALY: Consequence.FAIL_TABLE,
    FaultKind.COPY_FAILED: Consequence.FAIL_TABLE,
    FaultKind.INTERNAL: Consequence.FAIL_TABLE,
}


def consequence(kind: FaultKind) -> Consequence:
    """The consequence of a fault; STOP for every kind that concerns more than one table or one read."""
    return _CONSEQUENCES.get(kind, Consequence.STOP)


def last_consequence(kind: FaultKind) -> Consequence:
    """The consequence if the chunk has no attempt left, or another attempt would not help. Never READ_AGAIN."""
    decision = consequence(kind)
    if decision is not Consequence.READ_AGAIN:
        return decision
    return _WITHOUT_ATTEMPTS[kind]


_WITHOUT_ATTEMPTS: dict[FaultKind, Consequence] = {
    # The session that holds the snapshot is on the same server and is very likely lost too.
    FaultKind.SOURCE_UNREACHABLE: Consequence.START_ALL_AGAIN,
    FaultKind.SOURCE_TIMEOUT: Consequence.START_TABLE_AGAIN,
    FaultKind.SPARK_FAILED: Consequence.STOP,
}
