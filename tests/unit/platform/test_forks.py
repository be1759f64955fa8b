"""Children are started one at a time, also where the fork server ends meanwhile, and the end of a child is described in words."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from multiprocessing import forkserver, spawn

import pytest

from engine.platform import forks
from engine.platform.child_processes import how_it_ended
from tests.fixtures.waiting import wait_until
from tests.unit.platform.forked import exit_as_sent


def _server() -> int | None:
    """What children are forked from."""
    pid: int | None = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]  # noqa: SLF001, RUF100
    return pid


def _kill_running_server() -> None:
    """Waits while a start replaces the server: there is none then, or the one that is known has ended."""

    def killed() -> bool:
        pid = _server()
        if pid is None:
            return False
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    wait_until(killed, 20.0)


def _asked() -> bool:
    """Whether a start is under way: it holds the lock while it waits for the answer."""
    return forks._STARTING.locked()  # noqa: SLF001, RUF100


Start = Callable[[], forks.Child]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[forks.Child] = []

    def one() -> forks.Child:
        child = forks.start("helper", exit_as_sent)
        started.append(child)
        return child

    yield one
    for child in started:
        child.connection.close()
        child.kill()
        assert child.wait(10.0)


def test_an_end_is_put_into_words(start: Start) -> None:
    left, killed = start(), start()
    left.connection.send(3)
    os.kill(killed.pid, signal.SIGKILL)
    assert left.wait(10.0)
    assert killed.wait(10.0)
    assert (left.name, left.death) == (f"helper (pid {left.pid})", "ended with exit code 3")
    assert (killed.exit_code, killed.death) == (-signal.SIGKILL, "was ended by SIGKILL")
    assert [how_it_ended(code) for code in (None, 0, -40)] == [
        "ended",
        "ended with exit code 0",
        "was ended by signal 40",
    ]


def test_a_child_that_ends_with_what_it_was_forked_from_names_both(start: Start) -> None:
    child = start()
    assert child.connection.recv() == "here"
    server = _server()
    os.kill(server, signal.SIGKILL)
    assert child.wait(10.0)
    assert child.death == f"ended: the parent process (pid {server}) was ended by SIGKILL"
    assert start().connection.recv() == "here"
    # Also where another one is started in its place before the reason is read.
    assert child.death == f"ended: the parent process (pid {server}) was ended by SIGKILL"


def test_a_start_under_way_when_the_fork_server_ends_is_made_again(start: Start) -> None:
    start()
    stopped = _server()
    os.kill(stopped, signal.SIGSTOP)
    children: list[forks.Child] = []
    thread = threading.Thread(target=lambda: children.append(start()))
    thread.start()
    wait_until(_asked, 5.0)
    os.kill(stopped, signal.SIGKILL)
    thread.join(20.0)
    assert [child.connection.recv() for child in children] == ["here"]
    assert _server() != stopped


def test_threads_start_children_while_one_fork_server_after_another_ends(start: Start) -> None:
    start()
    children: list[forks.Child] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            children.extend(start() for _ in range(6))
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(4):
        seen = len(children)
        wait_until(lambda seen=seen: len(children) > seen, 20.0)  # type: ignore[misc]
        _kill_running_server()
    for thread in threads:
        thread.join(30.0)
    assert failures == []
    assert len({child.pid for child in children}) == 24


def test_tries_are_bounded_and_name_what_ended(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    start()
    before = _server()
    monkeypatch.setattr(spawn, "_python_exe", os.fsencode("/bin/false"))
    os.kill(before, signal.SIGKILL)
    with pytest.raises(forks.NotStartedError, match=r"helper: .*\(pid \d+\) ended with exit code 1"):
        start()
    monkeypatch.undo()
    assert start().connection.recv() == "here"
