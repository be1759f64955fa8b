"""Random source transactions, written in order over one lane or several, against a model: the outcome is the same each time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.identity import TableId, TableName
from engine.model.schema import KeyMode
from engine.model.subscription import LanePolicy
from engine.model.target import InOrderPlan
from tests.contract.in_order_material import DELETE, INSERT, TRUNCATE, UPDATE, Change, write_in_order
from tests.contract.target_material import SUBSCRIPTION, Pipeline, Row, structure
from tests.contract.targets import target_opener

pytestmark = pytest.mark.pg
K, J, L, B = TableId("t1"), TableId("t2"), TableId("t3"), TableId("t4")
SCHEMAS = {
    K: structure(TableName("public", "k"), {"id": "int4", "a": "text", "b": "float8"}, ["id"]),
    J: structure(TableName("public", "j"), {"v": "int4", "w": "text"}, ["w", "v"]),
    L: structure(TableName("public", "l"), {"note": "text"}, mode=KeyMode.APPEND),
    B: structure(TableName("public", "b"), {"v": "int4", "w": "text"}, mode=KeyMode.BAG),
}

texts = st.none() | st.sampled_from(["", "x", 'quote "\\', "long" * 50])
key = st.integers(0, 6)
acts = st.one_of(
    st.tuples(st.just("put"), key, texts, st.sets(st.sampled_from([1, 2]))),
    st.tuples(st.just("drop"), key),
    st.tuples(st.just("move"), key, key, texts),
    st.tuples(st.just("pair"), key, st.sampled_from(["p", "q"])),
    st.tuples(st.just("note"), texts),
    st.tuples(st.just("throw"), st.integers(0, 1), texts),
    st.tuples(st.just("draw"), st.integers(0, 3), st.none() | st.integers(0, 1)),
    st.tuples(st.sampled_from(["note", "note", "note", "clear"]), st.just("y")),
)
histories = st.lists(st.lists(acts, min_size=1, max_size=5), min_size=1, max_size=14)
ways = st.builds(
    InOrderPlan,
    policy=st.sampled_from(LanePolicy),
    lanes=st.sampled_from([1, 2, 3]),
    group=st.sampled_from([1, 1, 2, 100]),
)


@pytest.fixture(scope="module", params=[pytest.param("postgres16", marks=pytest.mark.chaos), "postgres18"])
def pipeline(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    with target_opener(str(request.param), request, tmp_path_factory.mktemp("target")) as opened:
        made = Pipeline(opened()).claim()
        yield made
        made.target.close()


class Model:
    """Rows of all tables, and the changes that a source would log for acts upon them."""

    def __init__(self) -> None:
        self.rows: dict[TableId, Any] = {K: {}, J: {}, L: [], B: []}

    def change(self, act: tuple[Any, ...]) -> Change | None:
        """None where the act changes nothing."""
        return getattr(self, f"_{act[0]}")(*act[1:])  # type: ignore[no-any-return]

    def _put(self, at: int, text: str | None, unset: set[int]) -> Change:
        old = self.rows[K].get(at)
        if old is None:
            self.rows[K][at] = (at, text, 1.5)
            return Change(K, INSERT, row=(at, text, 1.5))
        self.rows[K][at] = (at, old[1] if 1 in unset else text, old[2] if 2 in unset else 2.5)
        shown = (at, None if 1 in unset else text, None if 2 in unset else 2.5)
        return Change(K, UPDATE, key=(at,), row=shown, unset=frozenset(unset))

    def _drop(self, at: int) -> Change | None:
        return Change(K, DELETE, key=(at,)) if self.rows[K].pop(at, None) is not None else None

    def _move(self, at: int, to: int, text: str | None) -> Change | None:
        if at not in self.rows[K] or (to in self.rows[K] and to != at):
            return None
        del self.rows[K][at]
        self.rows[K][to] = (to, text, None)
        return Change(K, UPDATE, key=(at,), row=(to, text, None))

    def _pair(self, v: int, w: str) -> Change:
        there = (v, w) in self.rows[J]
        self.rows[J][v, w] = (v, w)
        return Change(J, UPDATE if there else INSERT, key=(w, v) if there else None, row=(v, w))

    def _note(self, text: str | None) -> Change:
        self.rows[L].append((text,))
        return Change(L, INSERT, row=(text,))

    def _throw(self, v: int, w: str | None) -> Change:
        self.rows[B].append((v, w))
        return Change(B, INSERT, row=(v, w))

    def _draw(self, at: int, v: int | None) -> Change | None:
        """Take a row out of the bag, or change it."""
        if at >= len(self.rows[B]):
            return None
        old = self.rows[B].pop(at)
        if v is None:
            return Change(B, DELETE, key=old)
        self.rows[B].append((v, old[1]))
        return Change(B, UPDATE, key=old, row=(v, old[1]))

    def _clear(self, _: str) -> Change:
        self.rows[K].clear()
        return Change(K, TRUNCATE)

    def held(self, table: TableId) -> list[Row]:
        rows = self.rows[table]
        return sorted(rows.values() if isinstance(rows, dict) else rows, key=lambda row: tuple(map(str, row)))


@settings(max_examples=30, deadline=None)
@given(history=histories, way=ways, pieces=st.sampled_from([1, 1, 3]))
def test_in_order_histories(pipeline: Pipeline, history: list[Any], way: InOrderPlan, pieces: int) -> None:
    for table, schema in SCHEMAS.items():
        pipeline.load(table, schema, [])
    model = Model()
    transactions = [[change for act in acts if (change := model.change(act)) is not None] for acts in history]
    write_in_order(pipeline, SCHEMAS, transactions, way, pieces)
    for table, schema in SCHEMAS.items():
        assert pipeline.rows(schema) == model.held(table)
    progress = pipeline.target.progress(SUBSCRIPTION)
    assert progress is not None
    assert (progress.end.value, progress.batch) == (pipeline.end, pipeline.batch)
