"""Positions in the source's log, and the log volume between two positions."""

from __future__ import annotations

import re
import subprocess
import threading
from dataclasses import dataclass

from bench.errors import BenchError
from bench.workload import DATABASE
from engine.model.position import Lsn
from server.demo.embedded import EmbeddedPostgres

_TOTAL = re.compile(r"^Total\s+\d+\s+(?P<record>\d+)\s+\[[^\]]*\]\s+(?P<image>\d+)\s+\[[^\]]*\]\s+(?P<all>\d+)", re.M)


@dataclass(frozen=True, slots=True)
class LogVolume:
    """Bytes of log between two positions, and how many of them are full-page images."""

    total: int
    images: int

    @property
    def changes(self) -> int:
        return self.total - self.images


def position(postgres: EmbeddedPostgres) -> str:
    """The current end of the source's log."""
    return str(postgres.execute("SELECT pg_current_wal_lsn()::text", database=DATABASE)[0][0])


_BEING_MADE = "(0 bytes)"
"""What pg_waldump says of a segment that the server is creating ahead: it reads the size of the first file that it finds."""
_TRIES, _PAUSE_S = 50, 0.1


def volume(postgres: EmbeddedPostgres, after: str, end: str) -> LogVolume:
    """The volume by pg_waldump, which reads every record between the two. They must still be on the source's disk."""
    total = Lsn.parse(end).value - Lsn.parse(after).value
    command = [postgres.program("pg_waldump"), "--stats", "-p", str(postgres.data / "pg_wal"), "-s", after, "-e", end]
    for _ in range(_TRIES):
        answer = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - the server's own program
        if answer.returncode == 0 or _BEING_MADE not in answer.stderr:
            break
        threading.Event().wait(_PAUSE_S)
    if answer.returncode != 0:
        raise BenchError(f"pg_waldump: {answer.stderr.strip()[-300:]}")
    return LogVolume(total, image_bytes(answer.stdout))


def image_bytes(statistics: str) -> int:
    """The total size of full-page images in the output of `pg_waldump --stats`."""
    found = _TOTAL.search(statistics)
    if found is None:
        raise BenchError("pg_waldump printed no totals")
    return int(found["image"])
