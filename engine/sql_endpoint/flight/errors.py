"""Errors that Flight clients get: a status of gRPC, a message, and the problem document as JSON in `extra_info`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyarrow import flight

from engine.sql_endpoint.server_api import wrong_parts

INTERNAL = "internal_error"
_STATUSES: dict[str, type[flight.FlightError]] = {
    "freshness_timeout": flight.FlightTimedOutError,
    "freshness_too_late": flight.FlightTimedOutError,
    "query_timeout": flight.FlightTimedOutError,
    "freshness_unreachable": flight.FlightUnavailableError,
    "freshness_unavailable": flight.FlightUnavailableError,
    "table_not_ready": flight.FlightUnavailableError,
    "query_unavailable": flight.FlightUnavailableError,
    "engine_unavailable": flight.FlightUnavailableError,
    "engine_timeout": flight.FlightUnavailableError,
    "server_unavailable": flight.FlightUnavailableError,
    INTERNAL: flight.FlightInternalError,
    "query_cancelled": flight.FlightCancelledError,
    "unauthenticated": flight.FlightUnauthenticatedError,
    "forbidden": flight.FlightUnauthorizedError,
    "query_not_a_read": flight.FlightUnauthorizedError,
    "read_only": flight.FlightUnauthorizedError,
}
"""Any other code is FlightServerError. pyarrow.flight has no class for INVALID_ARGUMENT or NOT_FOUND, and adds the server's traceback to
the message of any error that is not one of Flight."""
_MEASURES = ("position", "applied", "waited_ms", "estimate_ms")
"""What a problem document says of a wait."""


def error_of(problem: Mapping[str, Any]) -> flight.FlightError:
    """The error for a problem document of the server, the engine or this endpoint."""
    code = str(problem.get("code", ""))
    known = [f"{name}={problem[name]}" for name in _MEASURES if problem.get(name) is not None]
    message = f"{code}: {problem.get('detail') or code}"
    if parts := wrong_parts(problem):
        message += f" ({', '.join(parts)})"
    if known:
        message += f" ({', '.join(known)})"
    if problem.get("remedy"):
        message += f" {problem['remedy']}"
    return _STATUSES.get(code, flight.FlightServerError)(message, json.dumps(problem).encode())


def refused(code: str, detail: str, remedy: str | None = None) -> flight.FlightError:
    """An error of this endpoint."""
    return error_of({"code": code, "detail": detail} | ({"remedy": remedy} if remedy else {}))
