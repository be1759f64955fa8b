"""Maps SQLSTATEs of a PostgreSQL target to faults."""

from __future__ import annotations

import psycopg

from engine.model.fault import EngineFault, FaultKind
from engine.model.quarantine import RefusedCause
from engine.postgres.sessions import StateKinds, describe_state

_K = FaultKind
TARGET = StateKinds(
    _K.TARGET_UNAVAILABLE,
    {
        "53100": _K.TARGET_DISK_FULL,
        "28000": _K.TARGET_UNAVAILABLE,
        "28P01": _K.TARGET_UNAVAILABLE,
        "3D000": _K.TARGET_UNAVAILABLE,
        "42501": _K.TARGET_UNAVAILABLE,
        "25006": _K.TARGET_UNAVAILABLE,
        "40001": _K.TARGET_UNAVAILABLE,
        "40P01": _K.TARGET_UNAVAILABLE,
        "55P03": _K.TARGET_UNAVAILABLE,
    },
)
_OF_A_TABLE = {"22": _K.VALUE_OUT_OF_DOMAIN, "23": _K.ROW_REFUSED, "44": _K.ROW_REFUSED}
"""Classes of SQLSTATEs about a value or a constraint: a fault of one table."""
_RAISED = "P0001"
"""Raised by a trigger."""
_WITHOUT_NAME = {"23514": "no partition takes the row"}
"""Description of a state if the error names neither constraint nor column."""
_REFUSED_TABLE = frozenset({"42P01", "42703", "42804", "55000"})
"""States that mean that someone changed a table; it is copied again."""
_IN_THE_WAY = frozenset({"0A000", "2BP01", "42809", "428C9"})
"""States that mean that other objects depend on a table or occupy its name; they must be removed first."""


def cause_of(error: psycopg.Error) -> RefusedCause | None:
    """Why the target rejected a row, without its values; None if the error has another reason."""
    state = error.sqlstate or ""
    kind = _K.ROW_REFUSED if state == _RAISED else _OF_A_TABLE.get(state[:2])
    if kind is None:
        return None
    name = error.diag.constraint_name or error.diag.column_name or _WITHOUT_NAME.get(state)
    what = "a value" if kind is _K.VALUE_OUT_OF_DOMAIN else "a row"
    return RefusedCause(kind.value, f"the target refused {what} (SQLSTATE {state}{f', {name}' if name else ''})", state)


def fault_of_table(error: psycopg.Error, table: str, *, of_owner: bool = False) -> EngineFault:
    """The fault for an error while a table's share of a batch was applied; the table's own if the state says so. Without row values.

    `of_owner`: the table belongs to the user.
    """
    state = error.sqlstate or ""
    if of_owner and state == "42501":
        detail = f"{error.diag.message_primary}: grant it to the user of the connection"
        return EngineFault(_K.TABLE_UNFIT, table, detail)
    cause = cause_of(error)
    if cause is not None:
        return EngineFault(_K(cause.code), table, cause.detail)
    if state in _REFUSED_TABLE:
        return EngineFault(_K.TABLE_STRUCTURE_CHANGED, table, describe_state(state, error.diag.message_primary or ""))
    if state in _IN_THE_WAY:
        words = [describe_state(state, error.diag.message_primary or ""), error.diag.message_detail or ""]
        return EngineFault(_K.TABLE_UNFIT, table, "; ".join(word for word in words if word))
    return TARGET.fault(error, table)
