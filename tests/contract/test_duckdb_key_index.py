"""Changes of rows that DuckDB finds by their numbers: the table is as if it had searched for their keys, whatever happens to numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.batch import TableChanges
from engine.model.fault import FaultKind
from engine.model.identity import TableId, TableName
from engine.model.schema import TableSchema
from engine.model.target import ReadRows, TableCommit
from engine.platform.compiled import Array
from engine.targets.duckdb import key_index, row_numbers
from engine.targets.duckdb.target import DuckDbTarget
from tests.contract.target_material import Pipeline, Row, changes, fault_of, inserts, keys, partials, structure

T = TableId("t0a")
KEYS: dict[str, tuple[tuple[str, ...], Callable[[int], Row]]] = {
    "integer": (("int4",), lambda n: (n - 20,)),
    "far apart": (("int8",), lambda n: (n * 10**15,)),
    "text": (("text",), lambda n: (("", "é", "x" * 20, "'")[n % 4] + str(n),)),
    "uuid": (("uuid",), lambda n: (str(UUID(int=n * 2**90 + 7)),)),
    "numeric": (("numeric(20,4)",), lambda n: (Decimal(n - 20).scaleb(-4),)),
    "bytes": (("bytea",), lambda n: (bytes([0, n]),)),
    "moment": (("timestamptz",), lambda n: (datetime(1969, 12, 31, 23, 59, n, tzinfo=UTC),)),
    "plain moment": (("timestamp",), lambda n: (datetime(2024, 2, 29, 1, 2, n),)),  # noqa: DTZ001
    "date": (("date",), lambda n: (date(1970, 1, n + 1) if n < 31 else date(1970, 2, n - 30),)),
    "time": (("time",), lambda n: (time(23, 59, n),)),
    "float": (("float8",), lambda n: ((float("nan"), float("inf"), -0.0)[n] if n < 3 else n / 3,)),
    "boolean": (("bool", "int2"), lambda n: (n % 2 == 0, n // 2)),
    "two columns": (("int4", "int4"), lambda n: (n // 5, n % 5)),
    "three columns": (("text", "uuid", "int4"), lambda n: (str(n % 3), str(UUID(int=n // 3 % 4)), n // 12)),
}
ROWS = 40
picked = st.sets(st.integers(0, ROWS - 1), max_size=12)
steps = st.lists(
    st.tuples(st.just("delete"), picked)
    | st.tuples(st.just("update"), picked)
    | st.tuples(st.just("complete"), picked)
    | st.tuples(st.just("insert"), picked)
    | st.tuples(st.sampled_from(["checkpoint", "restart", "failure"]), st.just(set[int]())),
    min_size=3,
    max_size=14,
)


@pytest.fixture(autouse=True)
def _always_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every search is too slow, and files are used as for large tables."""
    monkeypatch.setattr(key_index, "_QUICK_SECONDS", 0.0)
    monkeypatch.setattr(key_index, "_KEY_SECONDS", 0.0)
    monkeypatch.setattr(key_index, "_SAMPLE", 2)
    monkeypatch.setattr(row_numbers, "_IN_MEMORY", 8)
    monkeypatch.setattr(row_numbers, "_SLICE", 5)
    monkeypatch.setattr(row_numbers, "_SMALL", 2)


def schema_of(types: tuple[str, ...]) -> TableSchema:
    columns = {f"k{i}": kind for i, kind in enumerate(types)} | {"note": "text", "n": "int4"}
    return structure(TableName("public", "items"), columns, [f"k{i}" for i in range(len(types))])


class Model:
    """The rows by their number, and the changes that make them differ."""

    def __init__(self, schema: TableSchema, key: Callable[[int], Row]) -> None:
        self.schema, self.key = schema, key
        self.rows: dict[int, tuple[str, int]] = {}
        self.count = 0

    def row(self, n: int) -> Row:
        return (*self.key(n), *self.rows[n])

    def apply(self, what: str, which: set[int]) -> Any:
        self.count += 1
        there = sorted(which & self.rows.keys())
        new = sorted(which - self.rows.keys())
        if what == "insert":
            self.rows |= dict.fromkeys(new, ("new", self.count))
            return changes(T, insert=inserts(self.schema, [self.row(n) for n in new])) if new else None
        if not there:
            return None
        old = keys(self.schema, [self.key(n) for n in there])
        if what == "delete":
            for n in there:
                del self.rows[n]
            return changes(T, delete=old)
        note = "updated" if what == "update" else None
        self.rows |= {n: (note or self.rows[n][0], self.count) for n in there}
        if what == "update":
            return changes(T, delete=old, insert=inserts(self.schema, [self.row(n) for n in there]))
        unset = frozenset([len(self.schema.key)])
        kept = [(self.key(n), (*self.key(n), None, self.count), unset) for n in there]
        return changes(T, delete=old, partial=partials(self.schema, kept))


def target_of(pipeline: Pipeline) -> DuckDbTarget:
    assert isinstance(pipeline.target, DuckDbTarget)
    return pipeline.target


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    made = Pipeline(DuckDbTarget(tmp_path_factory.mktemp("target") / "mart.duckdb")).claim()
    yield made
    made.target.close()


def step(pipeline: Pipeline, model: Model, what: str, which: set[int]) -> None:
    target = target_of(pipeline)
    if what == "checkpoint":
        target._open().writer.execute("CHECKPOINT")
    elif what == "restart":
        target.close()
        pipeline.claim()
    elif what == "failure":
        absent = [n for n in range(ROWS) if n not in model.rows][:1]
        wrong = [model.key(n) for n in [*absent, *sorted(model.rows)]]
        if absent:
            fault = fault_of(lambda: pipeline.change(T, model.schema, changes(T, delete=keys(model.schema, wrong))))
            assert fault.kind is FaultKind.NET_CHANGE_ANOMALY
    elif (change := model.apply(what, which)) is not None:
        pipeline.change(T, model.schema, change)


@pytest.mark.parametrize("kind", KEYS)
def test_histories_with_restarts(pipeline: Pipeline, kind: str) -> None:
    types, key = KEYS[kind]
    schema = schema_of(types)

    @settings(max_examples=8, deadline=None)
    @given(history=steps)
    def run(history: list[tuple[str, set[int]]]) -> None:
        model = Model(schema, key)
        model.rows = dict.fromkeys(range(0, ROWS, 2), ("first", 0))
        pipeline.load(T, schema, [model.row(n) for n in model.rows])
        for what, which in history:
            step(pipeline, model, what, which)
        assert texts(pipeline.look("SELECT * FROM public.items")) == texts([model.row(n) for n in model.rows])

    run()


def texts(rows: list[Row]) -> list[str]:
    return sorted(str([str(value).removesuffix("+00:00") for value in row]) for row in rows)


MANY = 400_000
numbers = structure(TableName("public", "numbers"), {"id": "int8", "v": "int4"}, ["id"])
N = TableId("t0b")


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Pipeline]:
    """A table of four row groups whose keys are scattered over them."""
    made = Pipeline(DuckDbTarget(tmp_path / "mart.duckdb")).claim()
    made.load(N, numbers, [(scattered(i), 0) for i in range(MANY)])
    yield made
    made.target.close()


def scattered(i: int) -> int:
    return i * 7919 % MANY


def update(pipeline: Pipeline, ids: list[int], value: int) -> tuple[float, float]:
    """The numbers of keys that the batch found and searched for."""
    rows = [(n, value) for n in ids]
    pipeline.change(N, numbers, changes(N, delete=keys(numbers, rows), insert=inserts(numbers, rows)))
    tuning = pipeline.target.tuning()
    return tuning["keys_found"], tuning["keys_searched"]


def delete(pipeline: Pipeline, ids: list[int]) -> None:
    pipeline.change(N, numbers, changes(N, delete=keys(numbers, [(n,) for n in ids])))


def assert_rows(pipeline: Pipeline, count: int, total: int) -> None:
    assert pipeline.look("SELECT count(*), count(DISTINCT id), sum(v) FROM public.numbers") == [(count, count, total)]


def test_the_first_batch_searches_and_the_next_ones_find(large: Pipeline) -> None:
    assert update(large, [5, 9], 1) == (0, 2)
    assert update(large, [5, 7], 2) == (2, 0)
    assert update(large, [5, 399_999], 3) == (2, 0)
    assert large.target.tuning()["key_index_bytes"] >= 8 * MANY
    assert_rows(large, MANY, 1 + 2 + 3 + 3)


@pytest.mark.parametrize("groups", [(0, 2), (1, 3), (0, 4)])
def test_renumbered_rows_are_found_again(large: Pipeline, groups: tuple[int, int]) -> None:
    update(large, [1], 0)
    assert update(large, [1], 0) == (1, 0)
    first, end = (min(group * 122_880, MANY) for group in groups)
    gone = [scattered(i) for i in range(first, end) if i % 5 < 3]
    delete(large, gone)
    kept = sorted(set(range(MANY)) - set(gone))
    before = dict(large.look("SELECT id, rowid FROM public.numbers"))
    target_of(large)._open().writer.execute("CHECKPOINT")
    after = dict(large.look("SELECT id, rowid FROM public.numbers"))
    moved = [n for n in kept if before[n] != after[n]]
    assert len(moved) > 20_000

    entries = target_of(large)._open().index._tables.values()
    next(iter(entries)).search = 60.0  # as in a table where it takes longer to search than to read rows again
    few = sorted({*moved[:: len(moved) // 50], *kept[:: len(kept) // 50]})
    assert update(large, few, 1) == (len(few), 0)
    assert update(large, few, 2) == (len(few), 0)
    assert_rows(large, len(kept), 2 * len(few))


def test_a_wrong_index_costs_a_search_and_no_rows(large: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    update(large, [1], 0)
    assert update(large, [1], 0) == (1, 0)
    find = row_numbers.RowNumbers.find

    def wrong(self: row_numbers.RowNumbers, hashes: Array) -> tuple[Array, Array]:
        positions, rows = find(self, hashes)
        return positions, rows + 1

    monkeypatch.setattr(row_numbers.RowNumbers, "find", wrong)
    assert update(large, list(range(100)), 1) == (0, 100)
    assert_rows(large, MANY, 100)


def test_without_room_for_the_index_batches_search(large: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    update(large, [1], 1)
    monkeypatch.setattr(row_numbers.RowNumbers, "add", full)
    for value in (2, 3):
        assert update(large, [1, 2], value) == (0, 2)
    assert large.target.tuning()["key_index_bytes"] == 0
    assert_rows(large, MANY, 6)


def test_a_full_disk_is_left_to_duckdb(large: Pipeline) -> None:
    update(large, [1], 1)
    assert update(large, [1], 2) == (1, 0)
    target = target_of(large)
    fault = target._fault(duckdb.IOException("Could not write to file: No space left on device"), target._open())
    assert fault.kind is FaultKind.TARGET_DISK_FULL
    assert target.tuning()["key_index_bytes"] == 0
    for value in (3, 4):
        assert update(large, [1], value) == (0, 1)
    assert target.tuning()["key_index_bytes"] == 0


def test_rows_are_read_by_their_numbers(large: Pipeline) -> None:
    update(large, [3, 9], 7)
    update(large, [3, 9], 8)
    wanted, read = [9, scattered(MANY - 1), 3, 5], []

    def compute(share: Sequence[TableChanges], rows: ReadRows) -> Sequence[TableChanges]:
        read.extend(rows(keys(numbers, [(n,) for n in wanted]), [1, 0])["c0"].to_pylist())
        return share

    large.commit(replace(TableCommit(N, numbers, numbers.name, (changes(N),)), compute=compute))
    assert read == wanted
    assert large.target.tuning()["keys_found"] == 4


def test_rows_inserted_by_the_same_batch(large: Pipeline) -> None:
    update(large, [1], 1)
    update(large, [1], 2)
    pieces = []
    for piece, value in enumerate((3, 4, 5)):
        rows = [(1, value), (scattered(MANY - 1), value), (MANY + piece, 0)]
        old = keys(numbers, rows[:2])
        pieces.append(replace(changes(N, delete=old, insert=inserts(numbers, rows)), piece=piece))
    large.change(N, numbers, *pieces)
    assert large.target.tuning() | {"keys_found": 2, "keys_searched": 4} == large.target.tuning()
    assert_rows(large, MANY + 3, 10)


def test_a_column_that_hides_numbers_of_rows(pipeline: Pipeline) -> None:
    hiding = structure(TableName("public", "hiding"), {"id": "int4", "ROWID": "int4"}, ["id"])
    pipeline.load(T, hiding, [(n, n + 1) for n in range(10)])
    for value in range(3):
        rows = [(n, value) for n in range(5)]
        pipeline.change(T, hiding, changes(T, delete=keys(hiding, rows), insert=inserts(hiding, rows)))
    assert pipeline.look("SELECT * FROM public.hiding ORDER BY id") == [(n, 2 if n < 5 else n + 1) for n in range(10)]


def test_a_table_that_was_loaded_again(large: Pipeline) -> None:
    update(large, [1], 0)
    assert update(large, [1], 0) == (1, 0)
    large.load(N, numbers, [(n, 5) for n in range(20)])
    assert large.target.tuning()["key_index_bytes"] == 0
    assert update(large, [1, 19], 6)[0] == 0
    assert update(large, [1, 19], 7) == (2, 0)
    assert_rows(large, 20, 18 * 5 + 14)


def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time does not matter."""
    monkeypatch.setattr(key_index, "_QUICK_SECONDS", -1.0)
    monkeypatch.setattr(key_index, "perf_counter", lambda: 0.0)


def test_an_index_that_finds_nothing_is_left_out_more_and_more(
    large: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    always(monkeypatch)
    uses: list[int] = []

    def nothing(_: row_numbers.RowNumbers, hashes: Array) -> tuple[Array, Array]:
        uses.append(value)
        return np.empty(0, np.int64), np.empty(0, np.int64)

    with monkeypatch.context() as broken:
        broken.setattr(row_numbers.RowNumbers, "find", nothing)
        for value in range(20):
            assert update(large, [1, 2], value) == (0, 2)
    assert sorted(set(uses)) == [0, 2, 6, 14]
    assert [update(large, [1, 2], 0)[0] for _ in range(20, 34)] == [0] * 10 + [2] * 4
    assert_rows(large, MANY, 0)


def test_the_index_does_not_grow_with_the_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = Pipeline(DuckDbTarget(tmp_path / "mart.duckdb")).claim()
    always(monkeypatch)
    monkeypatch.setattr(key_index, "_MORE_ENTRIES", 100)
    moving = structure(TableName("public", "moving"), {"id": "int8", "v": "int4"}, ["id"])
    pipeline.load(T, moving, [(n, 0) for n in range(500)])
    found = 0
    for first in range(0, 8_000, 100):
        gone, fresh = keys(moving, [(n,) for n in range(first, first + 100)]), range(first + 500, first + 600)
        pipeline.change(T, moving, changes(T, delete=gone, insert=inserts(moving, [(n, 0) for n in fresh])))
        tuning = pipeline.target.tuning()
        assert tuning["key_index_bytes"] <= 8 * (4 * 500 + 100 + 100)
        found += int(tuning["keys_found"])
    assert found == 8_000
    assert pipeline.look("SELECT count(*), min(id), max(id) FROM public.moving") == [(500, 8_000, 8_499)]
    pipeline.target.close()
