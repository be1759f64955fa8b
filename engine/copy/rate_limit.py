"""How fast copies read the source: at most so many rows a second, and for a share of the time.

The policy lies in a file that every task looks at while it reads, so that a change takes hold at once, wherever tasks run.
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
"""How often a task that waits looks whether it still has to."""
PIECE_ROWS = 122_880
"""So many rows of a copy that is slowed down occupy the target at a time: what DuckDB writes to its file as a whole."""
LOWER_BY = 10
"""Steps of the kernel's priority; each is a quarter more or less of a busy processor."""
UNLIMITED = CopyPolicy()


def write_pace(file: Path, policy: CopyPolicy) -> None:
    """Let tasks that read by this file go by `policy` from now on."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".new")
    said = {"rows": policy.max_rows_per_second, "share": policy.max_time_share, "gives_way": policy.give_way}
    draft.write_text(json.dumps(said))
    draft.replace(file)


def read_pace(file: Path | None) -> CopyPolicy:
    """What the file says; no limit where there is none."""
    if file is None:
        return UNLIMITED
    try:
        found = json.loads(file.read_text())
    except FileNotFoundError:
        return UNLIMITED
    return CopyPolicy(found["rows"], found["share"], found.get("gives_way", True))


def at_lower_priority(work: Callable[[], T]) -> T:
    """What `work` returns or raises. Where processors are busy, whoever else runs on them gets about nine tenths of them beside it.

    It runs in a thread of its own: a thread's priority can be lowered by everybody, and raised again by the privileged only.
    """
    with ThreadPoolExecutor(1, "behind-others", _lower_priority) as pool:
        return pool.submit(work).result()


def _lower_priority() -> None:
    if sys.platform == "linux":  # Elsewhere it is that of the whole process.
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, min(os.getpriority(os.PRIO_PROCESS, 0) + LOWER_BY, 19))


class Pauses(Protocol):
    """Measures time and waits, both in seconds."""

    def monotonic(self) -> float: ...

    def pause(self, seconds: float) -> object: ...


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
        """The same pieces, each of whole lines; the next one is asked for when it is time."""
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
    """The rows of some pyarrow.Tables as the target gets them: each all at once; where copies are slowed down, in pieces with rests in
    which others write, the first behind what made the target and the reader of the next rows ready. When the next piece is asked for, the
    one before is written. `over` ends a rest."""

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
