"""The settings of a capture by queries, as the engine got them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.subscription import FOLDER, ConnectionSpec
from engine.sources.query_diff.database import Method
from engine.sources.query_diff.declaration import (
    DEFAULT_EVERY_S,
    DEFAULT_METHOD,
    DEFAULT_SESSIONS,
    SHARE,
    STAMPED,
    TableDetection,
)
from engine.sources.query_diff.folder import Folder
from engine.sources.query_diff.hours import Hours
from engine.sources.query_diff.scan_group import ScanGroup, sweep_all

_SHARED = ".shared"
"""Folder next to those of the subscriptions, whose names begin with a letter."""
_TIMEOUT_S = 3_600.0
"""Seconds that a cycle waits for another one to end. Not measured."""


@dataclass(frozen=True, slots=True)
class Detection:
    """How the changes of a table are found. `stamp`: column by which cycles on schedule find inserts and updates; None: they compare all
    rows. `sweep_every`: one of so many cycles compares all rows in any case."""

    method: Method
    stamp: str | None = None
    sweep_every: int = 1


@dataclass(frozen=True, slots=True)
class Manners:
    """How cycles spare the source. `snapshot_s`: seconds after which a cycle continues in a new snapshot; None: it has one. `time_share`:
    share of the time in which cycles by schedule read. `hours`: in which these begin; None: at any. `only_within`: others wait for them
    too. `statement_s`: most seconds of a statement. `bytes_per_s`: most bytes that cycles by schedule read in a second; None: no limit.
    `give_way`: they rest longer while the source is slower than it was.
    """

    snapshot_s: float | None = None
    time_share: float = 1.0
    hours: Hours | None = None
    only_within: bool = False
    statement_s: int | None = None
    bytes_per_s: int | None = None
    give_way: bool = False


@dataclass(frozen=True, slots=True)
class Given:
    """`every_us`: microseconds from the beginning of one cycle to that of the next."""

    every_us: int
    method: Method
    timeout_s: float
    path: Path | None
    name: str
    tables: Mapping[str, TableDetection] = field(default_factory=dict)
    """By `schema.name`."""
    sessions: int = DEFAULT_SESSIONS
    manners: Manners = Manners()
    shared: Path | None = None
    """Folder of the connection for reads that its subscriptions share; None: this one shares none."""

    def sweep_shared(self, *, at_once: bool = False) -> None:
        """Remove reads of killed processes, of whatever connection; `at_once`: also those that have just ended."""
        if self.path is not None:
            sweep_all(self.path.parent / _SHARED, at_once=at_once)

    def group(self) -> ScanGroup | None:
        """A new one, for one thread."""
        return None if self.shared is None or self.path is None else ScanGroup(self.shared, self.path.name)

    def last_us(self) -> int | None:
        """When the last cycle began, since 1970; None before the first one. Cycles of copies and cuts count: they read every table too."""
        newest = self.folder.files.reports(1)
        return newest[0].at_us if newest else None

    def due_us(self, now_us: int) -> int | None:
        """When the next cycle is due by schedule, since 1970; None before the first one."""
        last, hours = self.last_us(), self.manners.hours
        if last is None:
            return None
        due = last + self.every_us
        return due if hours is None else hours.next_within(max(due, now_us))

    def is_due(self, last_us: int, now_us: int) -> bool:
        """Whether a cycle is due by schedule now. A last one in the future: the clock was set back."""
        hours = self.manners.hours
        return not last_us <= now_us < last_us + self.every_us and (hours is None or hours.hold(now_us))

    def may_begin(self, now_us: int) -> bool:
        """Whether a cycle that was requested may begin now."""
        hours = self.manners.hours
        return hours is None or not self.manners.only_within or hours.hold(now_us)

    def detection(self, table: TableName) -> Detection:
        chosen = self.tables.get(str(table), TableDetection())
        if chosen.method in STAMPED:
            # Rows that were found by their stamps have no place in ranges.
            hashed = Method.INCREMENTAL if self.method is Method.INCREMENTAL else Method.ROW_CHECKSUM
            return Detection(hashed, chosen.stamp_column, chosen.sweep_every)
        return Detection(self.method if chosen.method is None else Method(chosen.method))

    @property
    def folder(self) -> Folder:
        """Raises EngineFault(INTERNAL) for a source that was opened outside a subscription."""
        if self.path is None:
            raise EngineFault(FaultKind.INTERNAL, self.name, "cycles belong to a subscription")
        return Folder(self.path)


def given_by(spec: ConnectionSpec) -> Given:
    settings = spec.capture.settings if spec.capture is not None else {}
    folder = settings.get(FOLDER)
    return Given(
        int(settings.get("every_seconds", DEFAULT_EVERY_S)) * 1_000_000,
        Method(str(settings.get("method", DEFAULT_METHOD))),
        _TIMEOUT_S,
        None if folder is None else Path(str(folder)),
        spec.name,
        {
            name: TableDetection.model_validate(one)
            for name, one in json.loads(str(settings.get("tables", "{}"))).items()
        },
        int(settings.get("sessions", DEFAULT_SESSIONS)),
        _manners(settings),
        None if folder is None or settings.get(SHARE) == "no" else Path(str(folder)).parent / _SHARED / _place_of(spec),
    )


def _place_of(spec: ConnectionSpec) -> str:
    """A name of the database that is connected to, and of the user: others may see other rows."""
    facts = repr((spec.name, spec.kind, sorted(spec.settings.items()))).encode()
    # A driver's address may be among the secrets. The digest is slow, since its result is not secret.
    return _digest(facts, repr(sorted(spec.secrets.items())).encode() if spec.secrets else b"")


@cache
def _digest(facts: bytes, secrets: bytes) -> str:
    hidden = hashlib.scrypt(secrets, salt=facts, n=2**14, r=8, p=1) if secrets else b""
    return hashlib.sha256(facts + hidden).hexdigest()[:32]


def _manners(settings: Mapping[str, int | str]) -> Manners:
    names = ("snapshot_seconds", "between", "statement_seconds", "max_bytes_per_second")
    seconds, between, statement, bytes_per_s = (settings.get(name) for name in names)
    hours = None if between is None else Hours.of(*str(between).split(" "))
    return Manners(
        None if seconds is None else float(seconds),
        float(settings.get("max_time_share", 1.0)),
        hours,
        str(settings.get("only_between", "")) == "yes",
        None if statement is None else int(statement),
        None if bytes_per_s is None else int(bytes_per_s),
        str(settings.get("give_way", "")) == "yes",
    )
