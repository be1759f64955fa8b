"""What a workload is: tables to follow, a backlog to write into them, and how many changes that makes."""

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
"""Runs one read in the target's SQL; returns its rows."""


class Mode(StrEnum):
    """What is measured of a workload."""

    BACKLOG = "backlog"
    """Written beforehand, then drained as fast as it goes."""
    SUSTAINED = "sustained"
    """Written at a steady rate, with waits for commits of a client's own beside it."""
    LIVE = "live"
    """Followed while it is written; the clock runs from the last commit."""
    OPEN = "open"
    """Very many transactions stay open, and are then decided, while small ones go on."""
    TABLE_LIFE = "table-life"
    """One table comes, is copied anew, breaks and goes, while others are written at a steady rate."""
    IDLE = "idle"
    """Nothing is written at all."""
    CAPTURE = "capture"
    """A backlog is read and landed, and nothing applied."""
    TECHNIQUES = "techniques"
    """The target alone takes the same changes in different ways."""
    LANES = "lanes"
    """Source transactions are written as such to a PostgreSQL target that is far away: over one connection and over two."""
    SCALING = "scaling"
    """A landed backlog is worked on by Spark alone, on one core and on two."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table to follow. One without a key can be followed for its inserts only."""

    name: str
    insert_only: bool = False
    schema: str = "public"


@dataclass(frozen=True, slots=True)
class Made:
    """What a load wrote: transactions, and the row changes the log has of them (an update counts once)."""

    transactions: int
    row_changes: int


@dataclass(frozen=True, slots=True)
class Size:
    """How much of a workload is run where nothing else is said. `amount` is per round, in the workload's unit."""

    amount: int
    scale: int
    rounds: int = 3
    seconds: float = 60.0
    rate: float = 500.0


class Workload(ABC):
    """One kind of load. Instances hold no state of a run: the same one serves every round."""

    name: ClassVar[str]
    description: ClassVar[str]
    unit: ClassVar[str] = "transactions"
    modes: ClassVar[tuple[Mode, ...]] = (Mode.BACKLOG,)
    """What can be measured of it; the first one is measured where nothing else is said."""
    limits_ms: ClassVar[Mapping[str, float]] = {}
    """Percentiles of waits that may not be longer, such as `p50_ms`."""
    source_settings: ClassVar[Mapping[str, str]] = {}
    """What the source's configuration says beside what it says for all workloads."""
    full: ClassVar[Size]
    quick: ClassVar[Size]

    @abstractmethod
    def tables(self) -> tuple[Table, ...]:
        """The tables to follow."""

    def followed(self, scale: int) -> tuple[Table, ...]:
        """The tables to follow where the workload was created at this scale."""
        return self.tables()

    @abstractmethod
    def create(self, connection: Connection, scale: int) -> None:
        """Make the tables in an empty database and fill them."""

    @abstractmethod
    def generate(self, postgres: EmbeddedPostgres, amount: int) -> Made:
        """Write a backlog as fast as the source takes it; returns when all of it is committed."""

    def load_command(self, postgres: EmbeddedPostgres, rate: float) -> list[str]:
        """A program that begins `rate` transactions a second until SIGINT. Only for workloads with the sustained mode."""
        raise NotImplementedError

    def row_changes_per_transaction(self) -> float:
        """For the sustained mode: what one transaction of `load_command` changes."""
        raise NotImplementedError

    def check(self, source: Connection, query: Query) -> list[str]:
        """Compare a target that has everything with the source, beyond row by row. Returns what is wrong, in words."""
        return []
