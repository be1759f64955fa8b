"""What a fault means for a running copy: for one chunk, one table, or all of it."""

from __future__ import annotations

from enum import StrEnum

from engine.model.fault import FaultKind


class Consequence(StrEnum):
    """What the copy does about a fault of a chunk."""

    READ_AGAIN = "read_again"
    """The same chunk under the same snapshot, as a new attempt; after the last one the table starts again."""
    START_TABLE_AGAIN = "start_table_again"
    START_ALL_AGAIN = "start_all_again"
    FAIL_TABLE = "fail_table"
    STOP = "stop"
    """Nothing more can be copied; the fault goes to the caller."""


_CONSEQUENCES: dict[FaultKind, Consequence] = {
    FaultKind.SOURCE_UNREACHABLE: Consequence.READ_AGAIN,
    FaultKind.SOURCE_TIMEOUT: Consequence.READ_AGAIN,
    FaultKind.SPARK_FAILED: Consequence.READ_AGAIN,
    # The structure moved on under the snapshot: a new copy begins with the new one.
    FaultKind.TABLE_STRUCTURE_CHANGED: Consequence.START_TABLE_AGAIN,
    FaultKind.COPY_LOST: Consequence.START_ALL_AGAIN,
    FaultKind.SOURCE_PRIVILEGE: Consequence.FAIL_TABLE,
    FaultKind.TABLE_MISSING: Consequence.FAIL_TABLE,
    FaultKind.TABLE_NO_IDENTITY: Consequence.FAIL_TABLE,
    FaultKind.TABLE_NOT_LOGGED: Consequence.FAIL_TABLE,
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
    """What a fault of this kind does to the copy; STOP for every kind that is not about one table or one read."""
    return _CONSEQUENCES.get(kind, Consequence.STOP)


def last_consequence(kind: FaultKind) -> Consequence:
    """The same where the chunk has no attempt left, or where another attempt is of no use. Never READ_AGAIN."""
    decision = consequence(kind)
    if decision is not Consequence.READ_AGAIN:
        return decision
    return _WITHOUT_ATTEMPTS[kind]


_WITHOUT_ATTEMPTS: dict[FaultKind, Consequence] = {
    # The session that keeps the snapshot alive is on the same server; it will not have outlived this.
    FaultKind.SOURCE_UNREACHABLE: Consequence.START_ALL_AGAIN,
    FaultKind.SOURCE_TIMEOUT: Consequence.START_TABLE_AGAIN,
    FaultKind.SPARK_FAILED: Consequence.STOP,
}
