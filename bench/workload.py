"""A workload: the tables to follow, the load to write into them, and the number of changes that it makes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

import psycopg

from server.demo.embedded import EmbeddedPostgres

DATABASE = "bench"

Connection = psycopg.Connection[Any]
Query = Callable[[str], list[list[Any]]]
"""Runs one read in the target's SQL dialect; returns its rows."""


class Mode(StrEnum):
    """Modes of measurement."""

    BACKLOG = "backlog"
    """A backlog is written beforehand, then drained at full speed."""
    SUSTAINED = "sustained"
    """Load at a steady rate; a separate client commits rows and waits for them."""
    LIVE = "live"
    """Rows are followed while they are written; timed from the last commit."""
    OPEN = "open"
    """Very many transactions stay open during a load of small ones, and then end."""
    TABLE_LIFE = "table-life"
    """One table is added, reloaded, broken and removed while others are written at a steady rate."""
    IDLE = "idle"
    """No load."""
    CAPTURE = "capture"
    """A backlog is captured but not applied."""
    TECHNIQUES = "techniques"
    """The same changes are applied to the target by different techniques, without a source."""
    LANES = "lanes"
    """Source transactions are preserved on a remote PostgreSQL target: over one connection and over two."""
    CAPTURES = "captures"
    """The same load without capture, with the log, and with triggers: what each costs writers, and how fast it is read."""
    NODES = "nodes"
    """The logs of several nodes are merged into one: how fast, and how long waits over them take."""
    COPY = "copy"
    """Whole tables are copied for the first time, without a load."""
    SCALING = "scaling"
    """A captured backlog is processed by the Spark stages alone, on one core and on two."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table to follow. A table without a key can be followed for inserts only."""

    name: str
    insert_only: bool = False
    schema: str = "public"


@dataclass(frozen=True, slots=True)
class Made:
    """What a load wrote: transactions, and the row changes in the log (an update counts once)."""

    transactions: int
    row_changes: int


@dataclass(frozen=True, slots=True)
class Size:
    """The default size of a run. `amount` is per round, in the unit of the workload."""

    amount: int
    scale: int
    rounds: int = 3
    seconds: float = 60.0
    rate: float = 500.0


class Workload(ABC):
    """One kind of load. Instances have no state of a run: one instance serves all rounds."""

    name: ClassVar[str]
    description: ClassVar[str]
    unit: ClassVar[str] = "transactions"
    modes: ClassVar[tuple[Mode, ...]] = (Mode.BACKLOG,)
    """Supported modes; the first is the default."""
    limits_ms: ClassVar[Mapping[str, float]] = {}
    """Limits in milliseconds for percentiles of waits, by names such as `p50_ms`."""
    source_settings: ClassVar[Mapping[str, str]] = {}
    """Settings of the source in addition to those of all workloads."""
    full: ClassVar[Size]
    quick: ClassVar[Size]

    @abstractmethod
    def tables(self) -> tuple[Table, ...]:
        """The tables to follow."""

    def followed(self, scale: int) -> tuple[Table, ...]:
        """The tables to follow if the workload was created at this scale."""
        return self.tables()

    @abstractmethod
    def create(self, connection: Connection, scale: int) -> None:
        """Create the tables in an empty database and fill them."""

    @abstractmethod
    def generate(self, postgres: EmbeddedPostgres, amount: int) -> Made:
        """Write a backlog as fast as the source accepts it; returns when all of it is committed."""

    def load_command(self, postgres: EmbeddedPostgres, rate: float) -> list[str]:
        """A program that begins `rate` transactions a second until SIGINT. Only for workloads with the sustained mode."""
        raise NotImplementedError

    def row_changes_per_transaction(self) -> float:
        """For the sustained mode: the row changes of one transaction of `load_command`."""
        raise NotImplementedError

    def check(self, source: Connection, query: Query) -> list[str]:
        """Checks of a complete target against the source beyond the row comparison. Returns descriptions of the defects."""
        return []


def query_number(connection: Connection, sql: str) -> int:
    """The number in the first column of the first row. AssertionError if there is no row."""
    row = connection.execute(sql.encode()).fetchone()
    if row is None:
        raise AssertionError("the statement returns a row")
    return int(row[0])
