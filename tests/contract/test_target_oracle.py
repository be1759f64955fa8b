"""Random histories of net changes against a model held in plain dictionaries: target and model never differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.batch import TableChanges
from engine.model.identity import TableId, TableName
from engine.model.schema import KeyMode, TableSchema
from engine.model.target import BatchCommit
from tests.contract.target_material import (
    SUBSCRIPTION,
    Pipeline,
    Row,
    changes,
    images,
    inserts,
    keys,
    partials,
    structure,
)
from tests.contract.targets import target_opener

pytestmark = pytest.mark.pg
K, B = TableId("t1"), TableId("t2")
keyed = structure(TableName("public", "k"), {"id": "int4", "a": "text", "b": "float8"}, ["id"])
bag = structure(TableName("public", "b"), {"a": "text", "b": "float8"}, mode=KeyMode.BAG)

texts = st.none() | st.sampled_from(["", "x", "long" * 50])
floats = st.none() | st.sampled_from([0.0, -0.0, 1.5, float("inf")])
new_rows = st.dictionaries(st.integers(0, 12), st.tuples(texts, floats), max_size=8)
moves = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), texts, st.sets(st.sampled_from([1, 2]))), max_size=6)
batches = st.lists(
    st.tuples(st.booleans(), st.sets(st.integers(0, 12)), moves, new_rows, st.integers(1, 3)), min_size=1, max_size=6
)


class InParts(Pipeline):
    """Every batch that can be is written in three parts."""

    def write(self, batch: BatchCommit) -> None:
        target = self.target.in_parts()
        assert target is not None
        target.commit_in_parts(batch, 3)


WAYS = [
    ("duckdb", Pipeline),
    pytest.param(("postgres16", Pipeline), marks=pytest.mark.chaos),
    ("postgres18", Pipeline),
    ("postgres18", InParts),
]


@pytest.fixture(scope="module", params=WAYS, ids=lambda way: f"{way[0]}-{way[1].__name__}")
def pipeline(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """One target for all histories; each begins by loading its table again, empty. In parts, two rows are many."""
    kind, way = request.param
    few = None if way is Pipeline else 1
    with target_opener(kind, request, tmp_path_factory.mktemp("target"), few=few) as opened:
        made: Pipeline = way(opened()).claim()
        yield made
        made.target.close()


def net(model: dict[int, Row], batch: Any) -> tuple[list[TableChanges], dict[int, Row]]:
    """The buckets that turn `model` into the second value: deletes, moves that keep unset columns, new rows."""
    truncated, dropped, moved, added, buckets = batch
    after = {} if truncated else {k: row for k, row in model.items() if k not in dropped}
    gone = set() if truncated else set(model) & set(dropped)
    partial = []
    sources = set(after)
    for source, to, text, unset in moved:
        if source not in sources or source not in after or (to in after and to != source):
            continue
        old = after.pop(source)
        sources.discard(source)
        sources.discard(to)
        gone.add(source)
        row = (to, old[1] if 1 in unset else text, old[2] if 2 in unset else 1.5)
        after[to] = row
        shown = (to, None if 1 in unset else text, None if 2 in unset else 1.5)
        partial.append(((source,), shown, frozenset(unset)))
    complete = []
    for key, (text, number) in added.items():
        if key in after:
            continue
        after[key] = (key, text, number)
        complete.append(after[key])
    return [_bucket(i, buckets, truncated, sorted(gone), partial, complete) for i in range(buckets)], after


def _bucket(i: int, of: int, truncated: bool, gone: list[int], partial: list[Any], complete: list[Row]) -> TableChanges:
    return changes(
        K,
        truncated=truncated,
        delete=keys(keyed, [(k,) for k in gone[i::of]]) if gone[i::of] else None,
        partial=partials(keyed, partial[i::of]) if partial[i::of] else None,
        insert=inserts(keyed, complete[i::of]),
    )


def shown(rows: Any) -> Counter[tuple[str, ...]]:
    return Counter(tuple(map(str, row)) for row in rows)


def check(pipeline: Pipeline, table: TableId, schema: TableSchema, rows: list[Row]) -> None:
    assert shown(pipeline.rows(schema)) == shown(rows)
    progress = pipeline.target.progress(SUBSCRIPTION)
    assert progress is not None
    with pipeline.target.pin(SUBSCRIPTION) as reader:
        verdict = reader.compare(progress.tables[table], inserts(schema, rows).to_batches(), 5)
    assert verdict == (len(rows), len(rows), [])


@settings(max_examples=20, deadline=None)
@given(history=batches)
def test_keyed_histories(pipeline: Pipeline, history: list[Any]) -> None:
    pipeline.load(K, keyed, [])
    model: dict[int, Row] = {}
    for batch in history:
        buckets, model = net(model, batch)
        pipeline.change(K, keyed, *buckets)
        check(pipeline, K, keyed, list(model.values()))


image_counts = st.dictionaries(st.tuples(texts, floats), st.integers(1, 3), max_size=5)


@settings(max_examples=20, deadline=None)
@given(history=st.lists(st.tuples(image_counts, image_counts), min_size=1, max_size=5))
def test_histories_of_equal_rows(pipeline: Pipeline, history: list[Any]) -> None:
    pipeline.load(B, bag, [])
    held: Counter[tuple[str, ...]] = Counter()
    rows: dict[tuple[str, ...], Row] = {}
    for less, more in history:
        gone = {row: min(n, held[tuple(map(str, row))]) for row, n in less.items()}
        gone = {row: n for row, n in gone.items() if n}
        made = [row for row, n in more.items() for _ in range(n)]
        rows |= {tuple(map(str, row)): row for row in made}
        held = held - Counter({tuple(map(str, row)): n for row, n in gone.items()}) + shown(made)
        pipeline.change(B, bag, changes(B, delete=images(bag, gone) if gone else None, insert=inserts(bag, made)))
        check(pipeline, B, bag, [rows[key] for key in held.elements()])
