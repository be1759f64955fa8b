"""Converts a fault to the problem with which a request is answered."""

from __future__ import annotations

from engine.link.message import Problem
from engine.model.fault import EngineFault, FaultKind
from engine.platform.fault_policy import policy

_STATUS = {
    FaultKind.SOURCE_UNREACHABLE: 502,
    FaultKind.SOURCE_TIMEOUT: 504,
    FaultKind.TARGET_LOCKED: 503,
    FaultKind.CHANGE_TRIGGERS_IN_USE: 409,
    FaultKind.NOT_WITH_THIS_CAPTURE: 422,
}


def problem_of(fault: EngineFault) -> Problem:
    """HTTP status, code, detail and remedy of a fault. Status 504 for a timeout of the source, 502 for its other faults, else 503."""
    return Problem(
        status=_STATUS.get(fault.kind, 502 if fault.kind.value.startswith("source_") else 503),
        code=fault.kind.value,
        detail=f"{fault.subject}: {fault.detail}",
        remedy=policy(fault.kind).remedy,
    )
