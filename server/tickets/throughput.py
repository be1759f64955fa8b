"""What a pipeline got through between two tickets: the throughput formulas, pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from engine.model.position import Lsn

SECONDS_AN_HOUR = 3600
BYTES_IN_GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Figures:
    """What is known of a ticket that was applied; fields as `engine.link.messages.TicketReport`."""

    position: Lsn
    captured_at: datetime
    applied_at: datetime
    transactions: int
    commands: int
    counted_since: datetime


@dataclass(frozen=True, slots=True)
class Throughput:
    """What came between two tickets, and in what time.

    `seconds` run from the capture of the earlier ticket to the commit of the later one on the target. Transactions and commands are
    None where the two were not counted by the same run; rates are None where they would have no meaning.
    """

    seconds: float
    log_bytes: int
    transactions: int | None
    commands: int | None

    @property
    def log_gib_per_hour(self) -> float | None:
        """Log size throughput (LOGT)."""
        rate = self._per_second(self.log_bytes)
        return None if rate is None else rate * SECONDS_AN_HOUR / BYTES_IN_GIB

    @property
    def commands_per_second(self) -> float | None:
        """CPS."""
        return self._per_second(self.commands)

    @property
    def transactions_per_second(self) -> float | None:
        """TPS."""
        return self._per_second(self.transactions)

    def _per_second(self, count: int | None) -> float | None:
        return None if count is None or self.seconds <= 0 else count / self.seconds


def throughput_between(earlier: Figures, later: Figures) -> Throughput:
    """What a pipeline got through from `earlier` to `later`, which stands at or behind it in the source's log."""
    same_run = earlier.counted_since == later.counted_since
    return Throughput(
        seconds=(later.applied_at - earlier.captured_at).total_seconds(),
        log_bytes=later.position.value - earlier.position.value,
        transactions=later.transactions - earlier.transactions if same_run else None,
        commands=later.commands - earlier.commands if same_run else None,
    )
