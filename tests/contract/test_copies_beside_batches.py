"""Rows of a copy are appended while batches are committed, and are discarded with their hidden table."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import pytest

from engine.model.copies import KeyBound, StandingCopy
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId, TableName
from engine.model.target import BatchCommit, TableCommit
from engine.targets.batch_writer import BatchWriter
from engine.targets.duckdb import loading
from engine.targets.postgres import target as postgres_target
from tests.contract.target_material import SUBSCRIPTION, Pipeline, changes, inserts, structure
from tests.contract.targets import OpenTarget

pytestmark = pytest.mark.pg

ORDERS, LINES = TableId("t0a"), TableId("t0b")
orders = structure(TableName("public", "orders"), {"id": "int4", "note": "text"}, ["id"])
lines = structure(TableName("public", "lines"), {"id": "int4", "note": "text"}, ["id"])


class Held:
    """Inserts into copies, each of which stops after its statement until `let_go`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.free = threading.Event(), threading.Event()
        monkeypatch.setattr(loading, "insert_rows", self._wrapped(loading.insert_rows))
        monkeypatch.setattr(postgres_target, "insert_rows", self._wrapped(postgres_target.insert_rows))

    def _wrapped(self, insert: Callable[..., int]) -> Callable[..., int]:
        def held(*arguments: Any) -> int:
            taken = insert(*arguments)
            self.reached.set()
            assert self.free.wait(30)
            return taken

        return held

    def let_go(self) -> None:
        self.free.set()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    monkeypatch.setattr(loading, "ROW_GROUP", 2)
    held = Held(monkeypatch)
    yield held
    held.let_go()


@pytest.fixture
def pipeline(opened: OpenTarget) -> Iterator[Pipeline]:
    target = opened()
    yield Pipeline(target).claim()
    target.close()


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def begin(pipeline: Pipeline) -> None:
    pipeline.target.adopt(SUBSCRIPTION, ORDERS, orders.name)
    pipeline.target.begin_copy(SUBSCRIPTION, ORDERS, orders.name, orders, keyed=True)


def appending(pipeline: Pipeline, thread: ThreadPoolExecutor, held: Held, *ids: int) -> Future[int]:
    """The rows are inserted, and their transaction is open."""
    found = thread.submit(pipeline.target.append_copy, ORDERS, inserts(orders, [(n, "copied") for n in ids]))
    assert held.reached.wait(30)
    return found


def test_a_batch_is_committed_while_rows_of_a_copy_are_inserted(
    pipeline: Pipeline, thread: ThreadPoolExecutor, held: Held
) -> None:
    held.let_go()
    pipeline.load(LINES, lines, [(1, "a"), (2, "b")])
    held.free.clear()
    held.reached.clear()
    begin(pipeline)
    appended = appending(pipeline, thread, held, 1, 2)
    pipeline.change(LINES, lines, changes(LINES, insert=inserts(lines, [(3, "c")])))
    assert pipeline.rows(lines) == [(1, "a"), (2, "b"), (3, "c")]
    assert not appended.done()
    held.let_go()
    assert appended.result(30) == 2
    pipeline.target.finish_copy(ORDERS)
    pipeline.commit(TableCommit(ORDERS, orders, orders.name, handover=True))
    assert pipeline.rows(orders) == [(1, "copied"), (2, "copied")]


@pytest.mark.parametrize("opened", ["duckdb"], indirect=True)
def test_the_first_rows_of_a_copy_wait_for_no_batch(
    pipeline: Pipeline, thread: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.load(LINES, lines, [(1, "a")])
    begin(pipeline)
    apply, reached, free = BatchWriter.apply, threading.Event(), threading.Event()

    def held(writer: BatchWriter, batch: BatchCommit) -> None:
        reached.set()
        assert free.wait(30)
        apply(writer, batch)

    monkeypatch.setattr(BatchWriter, "apply", held)
    committed = thread.submit(pipeline.change, LINES, lines, changes(LINES, insert=inserts(lines, [(2, "b")])))
    try:
        assert reached.wait(30)
        with ThreadPoolExecutor(1) as other:
            appended = other.submit(pipeline.target.append_copy, ORDERS, inserts(orders, [(1, "copied")]))
            assert wait([appended], 10).done == {appended}
            free.set()
        assert appended.result() == 1
    finally:
        free.set()
    committed.result(30)
    pipeline.target.finish_copy(ORDERS)
    pipeline.commit(TableCommit(ORDERS, orders, orders.name, handover=True))
    assert (pipeline.rows(orders), pipeline.rows(lines)) == ([(1, "copied")], [(1, "a"), (2, "b")])


def test_a_batch_changes_what_a_copy_has_while_more_of_it_is_inserted(
    pipeline: Pipeline, thread: ThreadPoolExecutor, held: Held
) -> None:
    held.let_go()
    begin(pipeline)
    pipeline.target.append_copy(ORDERS, inserts(orders, [(1, "copied"), (2, "copied")]))
    pipeline.target.finish_copy(ORDERS)
    held.free.clear()
    held.reached.clear()
    appended = appending(pipeline, thread, held, 8, 9)
    copy = StandingCopy(ORDERS, orders, KeyBound(("2",)), 2, 20, 1)
    change = changes(ORDERS, insert=inserts(orders, [(0, "new")]))
    pipeline.commit(TableCommit(ORDERS, orders, orders.name, (change,), copy=copy))
    held.let_go()
    assert appended.result(30) == 2
    pipeline.target.append_copy(ORDERS, inserts(orders, [(7, "copied")]))
    pipeline.target.finish_copy(ORDERS)
    pipeline.commit(TableCommit(ORDERS, orders, orders.name, handover=True))
    assert [row[0] for row in pipeline.rows(orders)] == [0, 1, 2, 7, 8, 9]


@pytest.mark.parametrize("opened", ["duckdb"], indirect=True)
@pytest.mark.parametrize("end_it", ["remove", "discard", "claim", "begin"])
def test_rows_that_are_being_inserted_go_with_their_copy(
    pipeline: Pipeline, thread: ThreadPoolExecutor, held: Held, end_it: str
) -> None:
    """PostgreSQL makes the session that drops the hidden table wait."""
    begin(pipeline)
    appended = appending(pipeline, thread, held, 1, 2)
    ended = threading.Thread(target=ENDS[end_it], args=(pipeline,))
    ended.start()
    ended.join(0.3)
    held.let_go()
    ended.join(30)
    assert not ended.is_alive()
    appended.exception(30)
    if end_it != "begin":
        begin(pipeline)
    pipeline.target.append_copy(ORDERS, inserts(orders, [(7, "again")]))
    pipeline.target.finish_copy(ORDERS)
    pipeline.commit(TableCommit(ORDERS, orders, orders.name, handover=True))
    assert pipeline.rows(orders) == [(7, "again")]


ENDS: dict[str, Callable[[Pipeline], object]] = {
    "remove": lambda pipeline: pipeline.commit(removed=[ORDERS]),
    "discard": lambda pipeline: pipeline.target.discard_copy(ORDERS),
    "claim": lambda pipeline: pipeline.claim(),
    "begin": begin,
}


@pytest.mark.parametrize("opened", ["duckdb"], indirect=True)
def test_a_copy_that_a_batch_restructures_meanwhile_begins_again(
    pipeline: Pipeline, thread: ThreadPoolExecutor, held: Held
) -> None:
    held.let_go()
    begin(pipeline)
    pipeline.target.append_copy(ORDERS, inserts(orders, [(1, "copied"), (2, "copied")]))
    held.free.clear()
    held.reached.clear()
    appended = appending(pipeline, thread, held, 8, 9)
    wider = structure(orders.name, {"id": "int4", "note": "text", "more": "int4"}, ["id"])
    copy = StandingCopy(ORDERS, wider, KeyBound(("2",)), 2, 20, 1)
    pipeline.commit(TableCommit(ORDERS, wider, orders.name, copy=copy))
    held.let_go()
    refused = appended.exception(30)
    assert isinstance(refused, EngineFault)
    assert refused.kind is FaultKind.TABLE_STRUCTURE_CHANGED


@pytest.mark.parametrize("opened", ["duckdb"], indirect=True)
def test_rows_that_were_not_finished_are_gone_when_the_file_is_closed(opened: OpenTarget) -> None:
    target = opened()
    pipeline = Pipeline(target).claim()
    begin(pipeline)
    target.append_copy(ORDERS, inserts(orders, [(1, "held")]))
    target.close()
    target.append_copy(ORDERS, inserts(orders, [(2, "kept")]))
    pipeline.commit(TableCommit(ORDERS, orders, orders.name, handover=True))
    assert pipeline.rows(orders) == [(2, "kept")]
    target.close()
