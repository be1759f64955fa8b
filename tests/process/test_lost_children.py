"""Processes of a running engine are killed: messages for users name the one that died, and replication continues."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psutil
import pytest

from server.cli.client import ProblemError
from tests.fixtures.rig import SUBSCRIPTION, Rig

pytestmark = [pytest.mark.pg, pytest.mark.spark, pytest.mark.xdist_group("spark")]

_OURS = ("internal", "TypeError", "EOFError", "ConnectionRefusedError", "BrokenPipeError", "Py4J")
"""What users can do nothing with."""
_FORK_SERVER = "multiprocessing.forkserver"
_JAVA = "org.apache.spark.deploy.SparkSubmit"
_WAIT_S = 60.0
_LONG_S = 0.5


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig(durable=False) as made:
        with made.connect() as connection:
            connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY)")
            connection.execute("INSERT INTO orders SELECT i FROM generate_series(1, 5000) i")
        made.declare([{"schema": "public", "name": "orders"}])
        made.wait_live(1)
        yield made


@pytest.fixture(autouse=True)
def check_it_continues(rig: Rig) -> Iterator[None]:
    """After each test, new rows arrive, and no message to users reports an internal error."""
    yield
    with rig.connect() as connection:
        connection.execute("INSERT INTO orders SELECT max(id) + 1 FROM orders")
        rows = connection.execute("SELECT count(*) FROM orders").fetchall()
    rig.wait_until(lambda: _rows(rig) == [list(row) for row in rows], _WAIT_S, "the rows had arrived")
    assert [event for event in _events(rig) if any(word in event for word in _OURS)] == []


def test_a_log_reader(rig: Rig) -> None:
    reader = _named(rig, "penstock-reader")
    reader.kill()
    assert _wait_event(rig, f"log_reader_died: log reader (pid {reader.pid}): was ended by SIGKILL")


def test_what_they_are_forked_from(rig: Rig) -> None:
    """Also where it dies again just when the next reader is forked, and a reader asks meanwhile."""
    for _ in range(3):
        server = _wait_child(rig, _FORK_SERVER)
        reader = _named(rig, "penstock-reader")
        server.kill()
        died = f"ended: the parent process (pid {server.pid}) was ended by SIGKILL"
        assert _wait_event(rig, f"log_reader_died: log reader (pid {reader.pid}): {died}")
        _wait_child(rig, _FORK_SERVER, other_than=server).kill()
        assert _rows(rig)


def test_a_query_process(rig: Rig) -> None:
    problems: list[ProblemError] = []

    def ask() -> None:
        try:
            rig.query("SELECT count(*) FROM orders a, orders b, orders c WHERE a.id + b.id * c.id = 7")
        except ProblemError as problem:
            problems.append(problem)

    thread = threading.Thread(target=ask)
    thread.start()
    rig.wait_until(lambda: bool(_busy(rig)), _WAIT_S, "the query ran")
    (busy,) = _busy(rig)
    busy.kill()
    thread.join(_WAIT_S)
    assert [(problem.status, problem.code) for problem in problems] == [(503, "query_unavailable")]
    assert f"the query process (pid {busy.pid}) was ended by SIGKILL" in str(problems[0])


def test_query_processes_that_wait(rig: Rig) -> None:
    """The next statement takes none of them, however soon it comes."""
    for _ in range(10):
        _rows(rig)
        for process in _queries(rig):
            process.kill()
            process.wait(_WAIT_S)
        assert _rows(rig)


@pytest.mark.chaos
def test_sparks_java_process(rig: Rig) -> None:
    """And its successor, while it starts."""
    for ending in ("", " while Spark started"):
        java = _wait_child(rig, _JAVA)
        java.kill()
        assert _wait_event(
            rig, f"spark_failed: spark: Spark's Java process (pid {java.pid}) was ended by SIGKILL{ending}"
        )
    (table,) = rig.api.items(f"{rig.path}/tables")
    rig.api.post(f"{rig.path}/tables/{table['id']}/reloads")
    reloaded = f"{rig.path}/reloads"
    rig.wait_until(
        lambda: [one["state"] for one in rig.api.items(reloaded)] == ["succeeded"], _WAIT_S, "the table was reloaded"
    )


def _rows(rig: Rig) -> list[list[int]]:
    return rig.query("SELECT count(*) FROM orders")


def _events(rig: Rig) -> list[str]:
    found = rig.api.items("/events", subscription=SUBSCRIPTION)
    return [f"{event['kind']}: {event['subject']}: {event['detail']}" for event in found]


def _wait_event(rig: Rig, what: str) -> bool:
    """Whether an event says so, or soon does."""
    try:
        rig.wait_until(lambda: any(what in event for event in _events(rig)), _WAIT_S, what)
    except AssertionError as error:
        error.add_note("\n".join(_events(rig)))
        raise
    return True


def _family(rig: Rig) -> list[psutil.Process]:
    return psutil.Process(rig.running.supervisor.pid("engine")).children(recursive=True)


def _queries(rig: Rig) -> list[psutil.Process]:
    return [process for process in _family(rig) if _is(process, "penstock-query")]


def _busy(rig: Rig) -> list[psutil.Process]:
    """Query processes that have computed for longer than any short statement takes."""
    return [process for process in _queries(rig) if process.cpu_times().user > _LONG_S]


def _named(rig: Rig, name: str) -> psutil.Process:
    found: list[psutil.Process] = []

    def seen() -> bool:
        found[:] = [process for process in _family(rig) if _is(process, name)]
        return len(found) == 1

    rig.wait_until(seen, _WAIT_S, f"{name} was there")
    return found[0]


def _wait_child(rig: Rig, what: str, *, other_than: psutil.Process | None = None) -> psutil.Process:
    """The child of the engine with this in its command."""
    found: list[psutil.Process] = []
    engine = psutil.Process(rig.running.supervisor.pid("engine"))

    def seen() -> bool:
        found[:] = [one for one in engine.children() if one != other_than and what in _command(one)]
        return len(found) == 1

    rig.wait_until(seen, _WAIT_S, f"{what} was there")
    return found[0]


def _is(process: psutil.Process, name: str) -> bool:
    try:
        return process.name() == name and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
