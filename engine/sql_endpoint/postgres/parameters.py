"""Run-time parameters of a session: SET, SHOW and RESET, those of PostgreSQL that clients use and those of Penstock. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.model.run_time_parameters import DEFAULTS
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
FRESHNESS, TIMEOUT_MS = "penstock.freshness", "penstock.timeout_ms"
ON_TIMEOUT, ON_UNAVAILABLE = "penstock.on_timeout", "penstock.on_unavailable"
READ_POINT = "penstock.read_point"
POSITION, RECEIPT, ANSWERED_BY = "penstock.position", "penstock.receipt", "penstock.answered_by"

_DEFAULTS = {
    **DEFAULTS,
    "scram_iterations": "4096",
    "session_authorization": "",
    FRESHNESS: "any",
    TIMEOUT_MS: "30000",
    ON_TIMEOUT: "error",
    ON_UNAVAILABLE: "error",
    READ_POINT: "",
    POSITION: "",
    RECEIPT: "",
    ANSWERED_BY: "",
}
_NAMES = {name.lower(): name for name in _DEFAULTS} | {
    "timezone": "TimeZone",
    "isolation_level": "transaction_isolation",
}
_WITHOUT_EFFECT = frozenset(
    {
        "constraint_exclusion", "enable_seqscan", "geqo", "gin_fuzzy_search_limit", "idle_session_timeout",
        "max_parallel_workers_per_gather", "quote_all_identifiers", "session_replication_role", "statement_mem", "synchronize_seqscans",
        "tcp_keepalives_count", "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_user_timeout", "transaction_timeout", "work_mem",
    }
)  # fmt: skip
"""Parameters of PostgreSQL that clients set, and that concern nothing here."""
_FIXED = frozenset(
    {
        "server_version", "server_version_num", "server_encoding", "in_hot_standby", "integer_datetimes", "is_superuser",
        "max_identifier_length", "max_index_keys", "lc_collate", "lc_ctype", "block_size", "max_connections", "ssl", POSITION, RECEIPT,
        ANSWERED_BY,
    }
)  # fmt: skip
_ONLY = {
    "client_encoding": ("utf8", "utf-8", "unicode"),
    "standard_conforming_strings": ("on", "true", "1", "yes"),
    "bytea_output": ("hex",),
    "IntervalStyle": ("postgres",),
    "transaction_isolation": ("read committed", "read uncommitted"),
    "default_transaction_isolation": ("read committed", "read uncommitted"),
    "transaction_read_only": ("on", "true", "1", "yes"),
    "default_transaction_read_only": ("on", "true", "1", "yes"),
    ON_TIMEOUT: ("error", "stale", "source"),
    ON_UNAVAILABLE: ("error", "include", "source"),
}
"""Values that a parameter may have, in lower case."""
_POINT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_DURATION = re.compile(r"(\d+)\s*(us|ms|s|min|h|d)?")
_UNITS_MS = {"us": 0.001, "ms": 1, None: 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_ASSIGNMENT = re.compile(r"([A-Za-z_][\w.$]*|\"[^\"]+\")\s*(?:=|\bTO\b)\s*(.+)", re.IGNORECASE | re.DOTALL)
_ISOLATION = re.compile(
    r"ISOLATION\s+LEVEL\s+(READ\s+UNCOMMITTED|READ\s+COMMITTED|REPEATABLE\s+READ|SERIALIZABLE)", re.IGNORECASE
)
_WRITES = re.compile(r"\bREAD\s+WRITE\b", re.IGNORECASE)


@dataclass(slots=True)
class SessionParameters:
    """The parameters of one session."""

    values: dict[str, str] = field(default_factory=lambda: dict(_DEFAULTS))
    startup: dict[str, str] = field(default_factory=dict)
    """Values from the startup packet, to which RESET returns."""
    _undo: list[tuple[str, str | None]] | None = None
    _local: list[tuple[str, str | None]] = field(default_factory=list)

    def start(self, given: Mapping[str, str]) -> None:
        """Take the parameters of a startup packet, and those in its `options` (`-c name=value`). Raises SqlError."""
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
        known = _known(name)
        if known in _FIXED:
            raise SqlError("55P02", f'parameter "{known}" cannot be changed')
        value = _checked(known, value)
        if self._undo is not None:
            (self._local if local else self._undo).append((known, self.values.get(known)))
        self.values[known] = value

    def reset(self, name: str) -> None:
        """RESET name, or ALL."""
        if name.upper() == "ALL":
            for known in list(self.values):
                if known not in _FIXED:
                    self.reset(known)
            return
        known = _known(unquoted(name))
        default = self.startup.get(known, _DEFAULTS.get(known))
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
        known = _NAMES.get(name.lower(), name.lower())
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
            if name not in known and _DEFAULTS.get(name) != value
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
        zone = unquoted(value).upper()
        if zone in {"UTC", "GMT", "ETC/UTC", "0", "Z", "DEFAULT", "LOCAL"}:
            return None
        return "times are returned in UTC; clients convert them"


def check_transaction(text: str) -> None:
    """Check the options of BEGIN or SET TRANSACTION. Raises SqlError."""
    level = _ISOLATION.search(text)
    if level is not None and not level[1].upper().startswith("READ"):
        raise SqlError(
            "0A000",
            "each statement sees a batch boundary of its own; REPEATABLE READ and SERIALIZABLE are not available",
            hint="Use READ COMMITTED, and one statement for rows that have to agree.",
        )
    if _WRITES.search(text):
        raise SqlError("25006", "the copies are read-only", hint="Write to the source.")


def milliseconds(text: str) -> int:
    """A duration as PostgreSQL's parameters have it: milliseconds, or with a unit. Raises SqlError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise SqlError(
            "22023", f'"{text}" is not a duration', hint="Write milliseconds, or a number with ms, s, min, h or d."
        )
    return int(float(match[1]) * _UNITS_MS[match[2]])


def _known(name: str) -> str:
    """The parameter's proper name. Raises SqlError."""
    found = _NAMES.get(name.lower())
    if found is not None:
        return found
    if name.lower().startswith("penstock."):
        names = ", ".join(sorted(each for each in _DEFAULTS if each.startswith("penstock.")))
        raise SqlError("42704", f'there is no parameter "{name}"', hint=f"There are {names}.")
    if "." not in name and name.lower() not in _WITHOUT_EFFECT:
        raise SqlError("42704", f'unrecognized configuration parameter "{name}"')
    return name.lower()


def _checked(known: str, value: str) -> str:
    """Raises SqlError where the parameter cannot have the value."""
    allowed = _ONLY.get(known)
    if allowed is not None:
        plain = " ".join(value.lower().split())
        if plain not in allowed:
            if known.endswith("isolation"):
                check_transaction(f"ISOLATION LEVEL {value}")
            raise SqlError(
                "22023", f'parameter "{known}" cannot be "{value}"', hint=f"It can be {' or '.join(allowed)}."
            )
        return plain if known.startswith("penstock.") else {"client_encoding": "UTF8"}.get(known, plain)
    if known in {TIMEOUT_MS, "statement_timeout"}:
        milliseconds(value)
    if known == READ_POINT and value and _POINT_NAME.fullmatch(value) is None:
        raise SqlError("22023", f'parameter "{READ_POINT}" is the name of a read point, or empty')
    if known == "DateStyle" and not value.upper().startswith("ISO"):
        raise SqlError("22023", 'DateStyle cannot be other than "ISO, MDY"')
    if known == FRESHNESS and not value.strip():
        raise SqlError(
            "22023", f'parameter "{FRESHNESS}" cannot be empty', hint="It can be latest, any, or a position."
        )
    return "ISO, MDY" if known == "DateStyle" else value
