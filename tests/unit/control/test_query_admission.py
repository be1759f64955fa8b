"""Queries run at once up to a limit, against a real DuckDB: the next waits its turn, for as long as it may take at all."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.connectors import is_unyielding
from engine.control.query_admission import QueryAdmission, QueryTurn
from engine.control.request_handlers import RequestHandler
from engine.control.supervisor import SubscriptionSupervisor
from engine.link.answer_frames import AnswerEnd, FrameReader, RowsFrame
from engine.link.client import ServerLink
from engine.link.message import Problem
from engine.link.queries import Query
from engine.model.position import Lsn
from engine.model.subscription import ConnectionSpec
from engine.model.target import QueryAnswer
from engine.platform.clock import SystemClock
from engine.platform.settings import EngineSettings
from engine.targets.duckdb.settings import DuckDbSettings
from engine.targets.duckdb.target import DuckDbTarget
from tests.contract.target_material import SUBSCRIPTION
from tests.contract.target_material import Pipeline as Filled

DEADLINE_S = 20.0
ENDLESS = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b"


class Answers:
    """In place of the link to a server: keeps how each request ended."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ended: dict[str, Problem | list[Any]] = {}

    def upload_result(self, request: str, position: Lsn, frames: Iterator[bytes], timeout_s: float, **_: Any) -> None:
        found = list(FrameReader().feed(b"".join(frames)))
        assert found.pop() == AnswerEnd()
        self._put(request, [row for frame in found if isinstance(frame, RowsFrame) for row in frame.read().to_pylist()])

    def refuse(self, request: str, problem: Problem) -> None:
        self._put(request, problem)

    def _put(self, request: str, ended: Problem | list[Any]) -> None:
        with self._changed:
            self._ended[request] = ended
            self._changed.notify_all()

    def of(self, request: str) -> Problem | list[Any]:
        with self._changed:
            assert self._changed.wait_for(lambda: request in self._ended, DEADLINE_S), request
            return self._ended[request]

    def ended(self, request: str) -> bool:
        return request in self._ended


class HeldTarget:
    """A real target whose queries that contain "held" wait for `let_go` first, and count in `running`."""

    def __init__(self, target: DuckDbTarget) -> None:
        self._target = target
        self.let_go = threading.Event()
        self.running = threading.Semaphore(0)

    @contextmanager
    def query(self, sql: str, *rest: Any) -> Iterator[QueryAnswer]:
        if "held" in sql:
            self.running.release()
            assert self.let_go.wait(DEADLINE_S)
        with self._target.query(sql, *rest) as answer:
            yield answer


@pytest.fixture
def target(tmp_path: Path) -> Iterator[HeldTarget]:
    real = DuckDbTarget(tmp_path / "mart.duckdb", DuckDbSettings(memory_limit="100MB", threads=1))
    Filled(real).claim()
    held = HeldTarget(real)
    yield held
    held.let_go.set()
    real.close()


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def desk(tmp_path: Path, target: HeldTarget, answers: Answers) -> Iterator[RequestHandler]:
    spec = SimpleNamespace(name=SUBSCRIPTION, target=ConnectionSpec("mart", "duckdb", {}))
    pipeline = SimpleNamespace(target=target, run=None, spec=spec)
    settings = EngineSettings(home=tmp_path, queries_at_once=2)
    made = RequestHandler(settings, lambda _: cast("SubscriptionSupervisor", pipeline), SystemClock())
    made.connect(cast("ServerLink", answers))
    yield made
    made.close()


def _query(request: str, sql: str = "SELECT 1 AS one", timeout_ms: int = 60_000) -> Query:
    return Query(request_id=request, subscription=str(SUBSCRIPTION), sql=sql, max_rows=10, timeout_ms=timeout_ms)


def _hold_all(desk: RequestHandler, target: HeldTarget) -> None:
    for number in range(2):
        desk.handle_command(_query(f"held-{number}", "SELECT 'held' AS v"))
    for _ in range(2):
        assert target.running.acquire(timeout=DEADLINE_S)


def test_one_above_waits_for_a_place_and_is_answered_then(
    desk: RequestHandler, target: HeldTarget, answers: Answers
) -> None:
    _hold_all(desk, target)
    desk.handle_command(_query("third"))
    assert not answers.ended("third")
    target.let_go.set()
    assert answers.of("third") == [{"one": 1}]
    assert answers.of("held-0") == answers.of("held-1") == [{"v": "held"}]


def test_without_a_place_in_its_time_it_is_refused_with_a_remedy(
    desk: RequestHandler, target: HeldTarget, answers: Answers
) -> None:
    _hold_all(desk, target)
    desk.handle_command(_query("patient"))
    desk.handle_command(_query("hasty", timeout_ms=50))
    problem = answers.of("hasty")
    assert isinstance(problem, Problem)
    assert (problem.status, problem.code) == (503, "query_unavailable")
    assert "2 queries" in problem.detail
    assert "PENSTOCK_QUERIES_AT_ONCE" in str(problem.remedy)
    assert not answers.ended("patient")
    target.let_go.set()
    assert answers.of("patient") == [{"one": 1}]


def test_a_query_that_reaches_its_limit_frees_its_place(desk: RequestHandler, answers: Answers) -> None:
    for number in range(2):
        desk.handle_command(_query(f"endless-{number}", ENDLESS, timeout_ms=200))
    desk.handle_command(_query("next"))
    assert answers.of("next") == [{"one": 1}]
    for number in range(2):
        problem = answers.of(f"endless-{number}")
        assert isinstance(problem, Problem)
        assert problem.code == "query_timeout"
        assert "timeout_ms" in str(problem.remedy)


def test_a_turn_that_raises_frees_its_place_too() -> None:
    places = QueryAdmission(1)
    done = threading.Event()

    def broken(_left_s: float) -> None:
        raise RuntimeError

    places.submit_query(QueryTurn(60, broken, lambda: None))
    places.submit_query(QueryTurn(60, lambda _: done.set(), lambda: None))
    assert done.wait(DEADLINE_S)
    places.close()


def held(began: queue.SimpleQueue[str], name: str, until: threading.Event, *, unyielding: bool) -> QueryTurn:
    """A query that says when it has begun, and runs `until` then."""

    def run(_left_s: float) -> None:
        began.put(name)
        assert until.wait(DEADLINE_S)

    return QueryTurn(60, run, lambda: None, unyielding)


def test_queries_that_do_not_yield_leave_places_to_those_that_do() -> None:
    places = QueryAdmission(3, unyielding=1)
    free = threading.Event()
    began: queue.SimpleQueue[str] = queue.SimpleQueue()
    places.submit_query(held(began, "first", free, unyielding=True))
    assert began.get(timeout=DEADLINE_S) == "first"
    places.submit_query(held(began, "second", free, unyielding=True))
    places.submit_query(held(began, "third", free, unyielding=False))
    assert began.get(timeout=DEADLINE_S) == "third"
    assert places.waiting == 1
    free.set()
    assert began.get(timeout=DEADLINE_S) == "second"
    places.close()


def test_a_query_that_yields_passes_those_that_wait_for_one_that_does_not() -> None:
    places = QueryAdmission(2, unyielding=1)
    one, other = threading.Event(), threading.Event()
    began: queue.SimpleQueue[str] = queue.SimpleQueue()
    places.submit_query(held(began, "server", one, unyielding=True))
    places.submit_query(held(began, "process", other, unyielding=False))
    assert {began.get(timeout=DEADLINE_S) for _ in range(2)} == {"server", "process"}
    places.submit_query(held(began, "next of the server", one, unyielding=True))
    places.submit_query(held(began, "next process", other, unyielding=False))
    other.set()
    assert began.get(timeout=DEADLINE_S) == "next process"
    assert places.waiting == 1
    one.set()
    assert began.get(timeout=DEADLINE_S) == "next of the server"
    places.close()


def test_the_time_spent_waiting_counts() -> None:
    places = QueryAdmission(1)
    free, began, done = threading.Event(), threading.Event(), threading.Event()
    left: list[float] = []

    def first(_left_s: float) -> None:
        began.set()
        assert free.wait(DEADLINE_S)

    def second(left_s: float) -> None:
        left.append(left_s)
        done.set()

    places.submit_query(QueryTurn(60, first, lambda: None))
    assert began.wait(DEADLINE_S)
    places.submit_query(QueryTurn(60, second, lambda: None))
    assert places.waiting == 1
    assert not done.wait(0.05)
    free.set()
    assert done.wait(DEADLINE_S)
    assert 0 < left[0] <= 59.95
    places.close()


def test_after_the_end_nothing_begins() -> None:
    places = QueryAdmission(1)
    places.close()
    began = threading.Event()
    places.submit_query(QueryTurn(60, lambda _: began.set(), began.set))
    assert not began.is_set()
    assert places.waiting == 0


def test_as_many_run_at_once_as_there_are_processors_and_two_at_least(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for processors, places, unyielding in ((None, 2, 1), (1, 2, 1), (2, 2, 1), (16, 16, 15)):
        monkeypatch.setattr("os.cpu_count", lambda found=processors: found)
        settings = EngineSettings(home=tmp_path)
        assert (settings.query_places, settings.unyielding_places) == (places, unyielding)
    settings = EngineSettings(home=tmp_path, queries_at_once=3)
    assert (settings.query_places, settings.unyielding_places) == (3, 3)


@pytest.mark.parametrize(
    ("kind", "settings", "unyielding"),
    [
        ("postgres", {"host": "localhost"}, True),
        ("postgres", {"host": "127.0.0.2"}, True),
        ("postgres", {"host": "::1"}, True),
        ("postgres", {"host": "/run/postgresql"}, True),
        ("postgres", {}, True),
        ("postgres", {"host": "10.0.0.7"}, False),
        ("postgres", {"host": "db.example.org"}, False),
        ("duckdb", {"path": "mart.duckdb"}, False),
    ],
)
def test_a_server_on_this_machine_does_not_yield(kind: str, settings: dict[str, str], *, unyielding: bool) -> None:
    assert is_unyielding(ConnectionSpec("mart", kind, dict(settings))) is unyielding
