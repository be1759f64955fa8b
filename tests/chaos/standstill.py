"""What threads of this process and sessions of the servers were waiting for at a failure."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Iterator

from tests.fixtures.postgres import Database

_SESSIONS = """
SELECT pid, datname, application_name, state, wait_event_type, wait_event, pg_blocking_pids(pid), left(query, 200)
FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type IN ('client backend', 'walsender') ORDER BY pid
"""


def standstill(*databases: Database) -> list[str]:
    """Lines to read."""
    lines = [*_threads()]
    for database in databases:
        lines += [f"session: {row}" for row in database.execute(_SESSIONS)]
    return lines


def _threads() -> Iterator[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        yield f"thread {names.get(ident, ident)}:"
        yield from (f"    {line.strip()}" for line in traceback.format_stack(frame)[-6:])
