"""Sets a server's data folder or a DuckDB file back to an older copy of itself, and keeps the engine from running meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import psutil
import psycopg

from server.demo.embedded import EmbeddedPostgres
from tests.chaos.wait_checks import Content, content
from tests.fixtures.rig import Rig

_WAITS = 'while [ -e "$0" ]; do sleep 0.05; done; exec "$@"'
_GONE_S = 20.0
_PIECE = 512 * 1024


class EngineGate:
    """While a file is there, the rig's engine does not start again. Holds from the engine's first restart on."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._file = rig.home / "engine.away"
        supervisor = rig.running.supervisor
        spec = supervisor.spec("engine")
        supervisor.replace(replace(spec, command=("/bin/sh", "-c", _WAITS, str(self._file), *spec.command)))

    @contextmanager
    def away(self) -> Iterator[None]:
        """The engine is killed, with all its processes, and restarts after the context."""
        self._file.touch()
        try:
            self._kill()
            yield
        finally:
            self._file.unlink()

    def _kill(self) -> None:
        pid = self._rig.running.supervisor.pid("engine")
        if pid is None:
            return
        with suppress(psutil.NoSuchProcess):
            family = psutil.Process(pid).children(recursive=True)
            os.kill(pid, signal.SIGKILL)
            _, left = psutil.wait_procs(family, timeout=3.0)
            for process in left:
                process.kill()
            _, left = psutil.wait_procs(left, timeout=_GONE_S)
            assert not [p for p in left if p.status() != psutil.STATUS_ZOMBIE], (
                f"the engine's processes do not end: {left}"
            )


def copy_folder(cluster: EmbeddedPostgres, place: Path) -> None:
    """A file-level copy of a server's data, which is stopped for it and started again."""
    cluster.stop("immediate")
    shutil.rmtree(place, ignore_errors=True)
    _copied(cluster.data, place)
    cluster.start()


def set_back(cluster: EmbeddedPostgres, place: Path) -> None:
    """Stop the server, put the copy into its place, and start it."""
    cluster.stop("immediate")
    shutil.rmtree(cluster.data)
    _copied(place, cluster.data)
    cluster.start()


def _copied(one: Path, other: Path) -> None:
    """With owners and modes, which shutil does not keep."""
    subprocess.run(["cp", "-a", str(one), str(other)], check=True)


def write_past(connect: Callable[[], psycopg.Connection[Any]], position: str) -> str:
    """Let the log of a restored server grow beyond its previous end. Returns its end."""
    with connect() as connection:
        while True:
            row = connection.execute(
                "SELECT pg_logical_emit_message(false, 'chaos', repeat('x', %s)), pg_current_wal_lsn() > %s::pg_lsn,"
                " pg_current_wal_lsn()::text",
                [_PIECE, position],
            ).fetchone()
            assert row is not None
            if row[1]:
                return str(row[2])


def file_parts(file: Path) -> list[Path]:
    """A DuckDB database, and its write-ahead log if there is one."""
    return [part for part in (file, file.with_name(f"{file.name}.wal")) if part.exists()]


def copy_file(file: Path, place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for part in file_parts(file):
        shutil.copy2(part, place / part.name)


def set_file_back(file: Path, place: Path) -> None:
    """While no engine has it open."""
    for part in file_parts(file):
        part.unlink()
    for part in place.iterdir():
        shutil.copy2(part, file.with_name(part.name))


def read_file(file: Path, table: str) -> Content:
    """Read a table of a DuckDB file that is not open. The file is not changed: a copy is read, which may replay the log."""
    place = file.with_name("read")
    copy_file(file, place)
    with duckdb.connect(str(place / file.name)) as connection:
        rows = connection.execute(f"SELECT * FROM public.{table}")
        return content([column[0] for column in rows.description], rows.fetchall())
