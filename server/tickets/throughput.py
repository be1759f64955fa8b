"""The throughput between two tickets. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from engine.model.position import Lsn
from engine.model.positions import PositionForm

SECONDS_AN_HOUR = 3600
BYTES_IN_GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of an applied ticket; fields as in `engine.link.messages.TicketReport`."""

    position: Lsn
    captured_at: datetime
    applied_at: datetime
    transactions: int
    commands: int
    counted_since: datetime


@dataclass(frozen=True, slots=True)
class Throughput:
    """Volume and duration between two tickets.

    `seconds`: from the capture of the earlier ticket to the commit of the later one on the target. Transactions and
    commands are None if different runs counted them; `log_bytes` is None if positions of the source do not count bytes; rates are None if
    they would have no meaning.
    """

    seconds: float
    log_bytes: int | None
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


def throughput_between(earlier: Figures, later: Figures, form: PositionForm) -> Throughput:
    """The throughput from `earlier` to `later`, whose position in the source's log must not be before that of `earlier`.

    `form`: of the positions of both.
    """
    same_run = earlier.counted_since == later.counted_since
    return Throughput(
        seconds=(later.applied_at - earlier.captured_at).total_seconds(),
        log_bytes=form.lag(later.position, earlier.position),
        transactions=later.transactions - earlier.transactions if same_run else None,
        commands=later.commands - earlier.commands if same_run else None,
    )
