"""Limits how fast copies read the source: by rows per second, and by the share of the time in which they read.

The limits are in a file that every task reads again while it works, so that a change is effective at once, wherever tasks run.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from engine.model.subscription import CopyPolicy

T = TypeVar("T")

LOOK_S = 0.25
"""Seconds between two reads of the limits by a task that waits."""
PIECE_ROWS = 122_880
"""Rows that a limited copy writes to the target at a time. DuckDB writes this number of rows (a row group) to its file as a whole."""
LOWER_BY = 10
"""Increase of the nice value. Each step reduces the share of a busy processor by a fifth, so ten of them leave about a tenth."""
UNLIMITED = CopyPolicy()


def write_pace(file: Path, policy: CopyPolicy) -> None:
    """Write the limits for all tasks that read this file. The file is replaced atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".new")
    said = {"rows": policy.max_rows_per_second, "share": policy.max_time_share, "gives_way": policy.give_way}
    draft.write_text(json.dumps(said))
    draft.replace(file)


def read_pace(file: Path | None) -> CopyPolicy:
    """The limits in the file; unlimited if there is no file."""
    if file is None:
        return UNLIMITED
    try:
        found = json.loads(file.read_text())
    except FileNotFoundError:
        return UNLIMITED
    return CopyPolicy(found["rows"], found["share"], found.get("gives_way", True))


def at_lower_priority(work: Callable[[], T]) -> T:
    """Returns the result of `work`, or raises its exception. On busy processors other threads get about nine tenths of the time.

    `work` runs in a thread of its own, because an unprivileged thread can lower its priority, but not raise it again.
    """
    with ThreadPoolExecutor(1, "behind-others", _lower_priority) as pool:
        return pool.submit(work).result()


def _lower_priority() -> None:
    if sys.platform == "linux":  # Elsewhere the priority is that of the whole process.
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, min(os.getpriority(os.PRIO_PROCESS, 0) + LOWER_BY, 19))


class Pauses(Protocol):
    """Measures time and waits, both in seconds."""

    def monotonic(self) -> float:
        """Seconds of a clock that never runs back."""
        ...

    def pause(self, seconds: float) -> object:
        """Wait for this time."""
        ...


class RealTime:
    """The process's clock."""

    def monotonic(self) -> float:
        return time.monotonic()

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)


REAL_TIME = RealTime()


class RateLimiter:
    """Limits the rate of one of `readers` tasks that read concurrently."""

    def __init__(self, pace: Callable[[], CopyPolicy], readers: int = 1, clock: Pauses = REAL_TIME) -> None:
        self._pace = pace
        self._readers = max(1, readers)
        self._monotonic = clock.monotonic
        self._pause = clock.pause

    def paced(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yields the pieces, each of whole lines; the next one is requested from `pieces` when the limits permit."""
        began = self._monotonic()
        for piece in pieces:
            yield piece
            self._wait(began, self._monotonic() - began, piece.count(b"\n"))
            began = self._monotonic()

    def _wait(self, began: float, busy: float, rows: int) -> None:
        while True:
            pace = self._pace()
            due = busy / pace.max_time_share
            if pace.max_rows_per_second is not None:
                due = max(due, rows * self._readers / pace.max_rows_per_second)
            left = began + due - self._monotonic()
            if left <= 0:
                return
            self._pause(min(left, LOOK_S))


def in_pieces(
    files: Iterable[Any],
    pace: Callable[[], CopyPolicy],
    over: Callable[[], bool] = lambda: False,
    clock: Pauses = REAL_TIME,
) -> Iterator[Any]:
    """The rows of these pyarrow.Tables in the pieces in which the target writes them: each table at once, or PIECE_ROWS rows if copies are
    limited. Between limited pieces there are pauses, in which batches are committed; one precedes the first piece. The caller must have
    written a piece when it requests the next. A pause ends when `over` returns True."""

    def rest(began: float, took: float) -> None:
        while not over() and (left := began + took / pace().max_time_share - clock.monotonic()) > 0:
            clock.pause(min(left, LOOK_S))

    if pace().limited:
        clock.pause(LOOK_S)
    began: float | None = None
    for rows in files:
        offset = 0
        while offset < rows.num_rows:
            if began is not None:
                rest(began, clock.monotonic() - began)
            began = clock.monotonic()
            size = PIECE_ROWS if pace().limited else rows.num_rows - offset
            yield rows.slice(offset, size)
            offset += size
