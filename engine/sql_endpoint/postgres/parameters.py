"""Run-time parameters of a session: SET, SHOW and RESET, those of PostgreSQL that clients use and those of Penstock. Pure."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from engine.model import run_time_parameters
from engine.model.run_time_parameters import (
    ANSWERED_BY,
    FIXED,
    FRESHNESS,
    NAMES,
    ON_TIMEOUT,
    ON_UNAVAILABLE,
    POSITION,
    READ_POINT,
    RECEIPT,
    SESSION_DEFAULTS,
    TIMEOUT_MS,
    UTC_NAMES,
    ParameterError,
)
from engine.sql_endpoint.postgres.errors import SqlError
from engine.sql_endpoint.postgres.statements import unquoted

REPORTED = (
    "server_version",
    "server_encoding",
    "client_encoding",
    "application_name",
    "default_transaction_read_only",
    "in_hot_standby",
    "is_superuser",
    "session_authorization",
    "DateStyle",
    "IntervalStyle",
    "TimeZone",
    "integer_datetimes",
    "standard_conforming_strings",
    "scram_iterations",
)
"""Parameters whose values a server reports, as in PostgreSQL."""
Given = ParamSpec("Given")
Result = TypeVar("Result")

_ASSIGNMENT = re.compile(r"([A-Za-z_][\w.$]*|\"[^\"]+\")\s*(?:=|\bTO\b)\s*(.+)", re.IGNORECASE | re.DOTALL)


def _refusing(check: Callable[Given, Result]) -> Callable[Given, Result]:
    """`check`, whose errors are those of SQL then."""

    @functools.wraps(check)
    def refusing(*arguments: Given.args, **named: Given.kwargs) -> Result:
        try:
            return check(*arguments, **named)
        except ParameterError as error:
            raise SqlError(error.state, error.message, hint=error.hint) from None

    return refusing


check_transaction = _refusing(run_time_parameters.check_transaction)
milliseconds = _refusing(run_time_parameters.milliseconds)
_known = _refusing(run_time_parameters.known_parameter)
_checked = _refusing(run_time_parameters.checked_value)
_assigned = _refusing(run_time_parameters.assigned)


@dataclass(slots=True)
class SessionParameters:
    """The parameters of one session."""

    values: dict[str, str] = field(default_factory=lambda: dict(SESSION_DEFAULTS))
    startup: dict[str, str] = field(default_factory=dict)
    """Values at the session's start, to which RESET returns."""
    _undo: list[tuple[str, str | None]] | None = None
    _local: list[tuple[str, str | None]] = field(default_factory=list)

    def start(self, given: Mapping[str, str], role: Mapping[str, str] | None = None) -> None:
        """Take the settings of the role, then the parameters of a startup packet, and those in its `options` (`-c name=value`). Raises
        SqlError."""
        for name, value in (role or {}).items():
            self.assign(name, value)
        options = re.findall(r"(?:-c\s*|--)([\w.\-]+)=((?:\\.|\S)*)", given.get("options", ""))
        for name, value in [*given.items(), *((n.replace("-", "_"), re.sub(r"\\(.)", r"\1", v)) for n, v in options)]:
            if name in {"user", "database", "options", "replication"} or name.startswith("_pq_."):
                continue
            if name.lower() == "timezone":  # JDBC sends the zone of its machine; times are in UTC here
                continue
            self.assign(name, unquoted(value))
        self.startup = dict(self.values)

    def set(self, text: str, *, local: bool = False) -> str | None:
        """Execute what follows SET. Returns a warning, if there is one. Raises SqlError."""
        upper = " ".join(text.upper().split())
        if upper.startswith(("TRANSACTION ", "SESSION CHARACTERISTICS ")):
            check_transaction(text)
            return None
        if upper.startswith("TIME ZONE "):
            return self._zone(upper.removeprefix("TIME ZONE "))
        if upper.startswith("NAMES "):
            self.assign("client_encoding", unquoted(text[len("NAMES") :]) or "UTF8")
            return None
        if upper.startswith(("ROLE ", "SESSION AUTHORIZATION ")):
            if upper.split()[-1] in {"NONE", "DEFAULT"}:
                return None
            raise SqlError("0A000", "roles are not changed within a session", hint="Log in as another user.")
        match = _ASSIGNMENT.fullmatch(text.strip())
        if match is None:
            raise SqlError("42601", "SET is followed by a name, TO or =, and a value")
        name, value = unquoted(match[1]), match[2].strip()
        if name.lower() == "timezone":
            return self._zone(value)
        if value.upper() == "DEFAULT":
            self.reset(name)
        else:
            self.assign(
                name,
                ", ".join(unquoted(part) for part in value.split(",")) if "," in value else unquoted(value),
                local=local,
            )
        return None

    def assign(self, name: str, value: str, *, local: bool = False) -> None:
        """Raises SqlError where there is no such parameter, or it cannot have the value."""
        known, value = _assigned(name, value)
        if self._undo is not None:
            (self._local if local else self._undo).append((known, self.values.get(known)))
        self.values[known] = value

    def reset(self, name: str) -> None:
        """RESET name, or ALL."""
        if name.upper() == "ALL":
            for known in list(self.values):
                if known not in FIXED:
                    self.reset(known)
            return
        known = _known(unquoted(name))
        default = self.startup.get(known, SESSION_DEFAULTS.get(known))
        if self._undo is not None:
            self._undo.append((known, self.values.get(known)))
        if default is None:
            self.values.pop(known, None)
        else:
            self.values[known] = default

    def show(self, text: str) -> tuple[str, str] | None:
        """Name and value for SHOW; None if there is no such parameter."""
        name = " ".join(text.lower().split())
        name = {"time zone": "TimeZone", "transaction isolation level": "transaction_isolation"}.get(
            name, unquoted(name)
        )
        known = NAMES.get(name.lower(), name.lower())
        value = self.values.get(known)
        return None if value is None else (known, value)

    def note(self, name: str, value: str) -> None:
        """Set a parameter that only the endpoint changes."""
        self.values[name] = value

    def changed(self) -> dict[str, str]:
        """The parameters that differ from their defaults, by names in lower case; without what is known of the last read."""
        known = {POSITION, RECEIPT, ANSWERED_BY}
        return {
            name.lower(): value
            for name, value in self.values.items()
            if name not in known and SESSION_DEFAULTS.get(name) != value
        }

    def begin(self) -> None:
        """A transaction begins: what is set in it is undone if it is rolled back."""
        self._undo, self._local = [], []

    def end(self, *, committed: bool) -> None:
        """The transaction has ended."""
        undo = [*(self._undo or []), *self._local] if not committed else self._local
        for known, value in reversed(undo):
            if value is None:
                self.values.pop(known, None)
            else:
                self.values[known] = value
        self._undo, self._local = None, []

    def statement_timeout_ms(self) -> int | None:
        """Limit of a statement's run time; None: the default."""
        return milliseconds(self.values["statement_timeout"]) or None

    def requirement(self, hints: Mapping[str, str]) -> dict[str, Any]:
        """The `freshness` of a query request, and its `read_point` if there is one. `hints`: parameters of this statement only. Raises
        SqlError."""
        point = self._with(hints)[READ_POINT]
        return {"freshness": self.freshness(hints), **({"read_point": point} if point else {})}

    def freshness(self, hints: Mapping[str, str]) -> dict[str, Any]:
        """The `freshness` of a query request. `hints`: parameters of this statement only. Raises SqlError."""
        values = self._with(hints)
        asked = values[FRESHNESS]
        mode = asked.lower() if asked.lower() in {"any", "latest"} else "position"
        found: dict[str, Any] = {
            "mode": mode,
            "timeout_ms": milliseconds(values[TIMEOUT_MS]),
            "on_timeout": values[ON_TIMEOUT],
            "on_unavailable": values[ON_UNAVAILABLE],
        }
        return found | ({"position": asked} if mode == "position" else {})

    def _with(self, hints: Mapping[str, str]) -> dict[str, str]:
        return self.values | {_known(name): _checked(_known(name), value) for name, value in hints.items()}

    def _zone(self, value: str) -> str | None:
        if unquoted(value).lower() in {*UTC_NAMES, "default", "local"}:
            return None
        return "times are returned in UTC; clients convert them"
