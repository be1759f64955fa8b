"""A log reader never outlives its engine, however that ends, and sees the engine's environment as it is now."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from engine.pipeline.reader_process import ReaderProcess
from engine.platform import forks
from tests.fixtures.waiting import wait_until
from tests.unit.platform.forked import send_loaded

_ENGINE = """
import os, sys, threading
from pathlib import Path
from engine.model.identity import Ordinal
from engine.model.position import ZERO
from engine.model.subscription import ConnectionSpec
from engine.pipeline.log_reader import ReaderConfig
from engine.connectors import open_source
from engine.queue.durability_switch import KeepDurable
from engine.pipeline.reader_process import ReaderProcess, prepare

if __name__ == "__main__":
    prepare()
    settings = {"host": "127.0.0.1", "port": int(sys.argv[1]), "database": "none", "user": "nobody"}
    source = ConnectionSpec("silent", "postgres", settings)
    config = ReaderConfig(open_source, source, "slot", "reader", ZERO, Path(sys.argv[2]), Ordinal(0), KeepDurable(on=False, number=0))
    os.environ["PENSTOCK_FAILPOINTS"] = sys.argv[3]
    said = threading.Event()

    def print_event(_, event):
        said.wait()
        print(event, flush=True)

    reader = ReaderProcess(config, print_event)
    print(reader.pid, flush=True)
    said.set()
    sys.stdin.read()
"""


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A source that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def _engine(silent: socket.socket, folder: Path, failpoints: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _ENGINE, str(silent.getsockname()[1]), str(folder), failpoints]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _runs(process: psutil.Process) -> bool:
    """Whether the process runs; False for a zombie, whose parent has not waited for it yet."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_it_ends_with_a_killed_engine_and_so_does_what_it_was_forked_from(
    silent: socket.socket, tmp_path: Path
) -> None:
    with _engine(silent, tmp_path) as engine:
        assert engine.stdout is not None
        reader = psutil.Process(int(engine.stdout.readline()))
        session, _ = silent.accept()
        with session:
            assert reader.name() == "penstock-reader"
            family = psutil.Process(engine.pid).children(recursive=True)
            assert reader in family
            os.kill(engine.pid, signal.SIGKILL)
            # Sooner than the source would be given up.
            wait_until(lambda: not any(map(_runs, family)), 5.0)


def test_it_has_the_environment_of_its_start(silent: socket.socket, tmp_path: Path) -> None:
    with _engine(silent, tmp_path, failpoints="no.such=kill") as engine:
        assert engine.stdout is not None
        engine.stdout.readline()
        assert "ended with exit code 1" in engine.stdout.readline()
        engine.communicate("")


def test_its_compiled_code_is_loaded_in_what_it_is_forked_from() -> None:
    child = forks.start("helper", send_loaded)
    assert child.connection.recv() > 0
    assert child.wait(10.0)
    child.connection.close()


def test_the_connection_is_not_closed_during_a_send() -> None:
    """A send that is under way would fail with a TypeError, which ended the run."""
    reader, closed_within = ReaderProcess.__new__(ReaderProcess), list[bool]()

    def lost() -> None:
        raise EOFError

    reader._sending, reader._stopping = threading.Lock(), True
    reader._connection = cast(
        "Any", SimpleNamespace(recv=lost, close=lambda: closed_within.append(reader._sending.locked()))
    )
    reader._child = cast("Any", SimpleNamespace(wait=lambda: None))
    reader._listen()
    assert closed_within == [True]
