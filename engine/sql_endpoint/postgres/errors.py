"""Errors that SQL clients get: SQLSTATE, message, detail and hint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.sql_endpoint.server_api import wrong_parts

FRESHNESS_TIMEOUT = "PF001"
"""The deadline passed before the requested position was visible. A class of our own: PostgreSQL leaves those that begin with P to
implementations, except P0."""
FRESHNESS_UNREACHABLE = "PF002"
"""A table of the statement does not follow its source, or the subscription does not run."""
STALE_ROWS = "01P01"
"""Warning: the rows are older than requested, as `penstock.on_timeout` allows."""

_STATES = {
    "freshness_timeout": FRESHNESS_TIMEOUT,
    "freshness_refused_early": FRESHNESS_TIMEOUT,
    "freshness_unreachable": FRESHNESS_UNREACHABLE,
    "freshness_unavailable": FRESHNESS_UNREACHABLE,
    "table_not_ready": FRESHNESS_UNREACHABLE,
    "not_found": "3D000",
    "query_invalid": "42601",
    "query_not_translatable": "0A000",
    "query_not_of_source": "0A000",
    "source_query_unsupported": "0A000",
    "query_not_a_read": "25006",
    "query_refused": "42501",
    "query_role_missing": "55000",
    "query_role_unfit": "55000",
    "query_role_unusable": "55000",
    "query_timeout": "57014",
    "query_cancelled": "57014",
    "query_too_large": "54000",
    "query_unavailable": "57P03",
    "engine_unavailable": "57P03",
    "engine_timeout": "57P03",
    "server_unavailable": "57P03",
    "invalid_request": "22023",
    "not_supported_yet": "0A000",
    "unauthenticated": "28P01",
    "forbidden": "42501",
}
_WORDS = (
    ("Referenced column", "42703"),
    ("Table with name", "42P01"),
    ("Function with name", "42883"),
    ("Conversion Error", "22P02"),
    ("Out of Range Error", "22003"),
)
"""By words of the target's messages: DuckDB has no SQLSTATE."""


class SqlError(Exception):
    """An error of one statement; the session continues, unless `fatal`."""

    def __init__(
        self, state: str, message: str, *, detail: str | None = None, hint: str | None = None, fatal: bool = False
    ) -> None:
        super().__init__(message)
        self.state = state
        self.message = message
        self.detail = detail
        self.hint = hint
        self.fatal = fatal

    def fields(self) -> dict[str, str]:
        """As ErrorResponse has them."""
        severity = "FATAL" if self.fatal else "ERROR"
        found = {"S": severity, "V": severity, "C": self.state, "M": self.message}
        if self.detail:
            found["D"] = self.detail
        if self.hint:
            found["H"] = self.hint
        return found


def error_of(problem: Mapping[str, Any]) -> SqlError:
    """The error for a problem document of the server or the engine."""
    code = str(problem.get("code", ""))
    state = _STATES.get(code) or (code.removeprefix("sqlstate_") if code.startswith("sqlstate_") else "XX000")
    message = str(problem.get("detail") or code)
    if code == "query_invalid":
        state = next((found for text, found in _WORDS if text in message), state)
    known = {name: problem[name] for name in ("position", "applied", "waited_ms", "estimate_ms") if problem.get(name)}
    detail = ", ".join([*wrong_parts(problem), *(f"{name}={value}" for name, value in known.items())])
    remedy = problem.get("remedy")
    return SqlError(
        state, message, detail=f"{code}: {detail}" if detail else code, hint=str(remedy) if remedy else None
    )
