"""What children of tests run; a module of its own, since each of them imports it."""

from __future__ import annotations

import sys
from contextlib import suppress
from multiprocessing.connection import Connection

from engine.platform.child_processes import die_with_parent
from engine.sources.postgres import frames


def exit_as_sent(connection: Connection) -> None:
    """End with the exit code that the other end says, or with it."""
    die_with_parent()
    connection.send("here")
    with suppress(EOFError):
        sys.exit(connection.recv())


def send_loaded(connection: Connection) -> None:
    """Send how many forms of the first code that a log reader compiles this process has, without having called it."""
    connection.send(len(frames._copy.signatures))  # type: ignore[attr-defined]  # noqa: SLF001, RUF100
