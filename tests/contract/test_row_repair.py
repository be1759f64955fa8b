"""Repairs as every target writes them: the rows of the keys are replaced and kept, all of them or none, and no other row is touched."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from engine.model.fault import FaultKind
from engine.model.identity import TableId, TableName
from engine.model.position import Lsn
from engine.model.repair import Repair, RepairedRows, RepairResult, TableRepair
from engine.model.target import TableCommit
from tests.contract.target_material import SUBSCRIPTION, Pipeline, fault_of, inserts, keys, structure
from tests.contract.targets import OpenTarget

pytestmark = pytest.mark.pg

ITEMS, NOTES = TableId("t0a"), TableId("t0b")
items = structure(TableName("public", "items"), {"id": "int4", "price": "float8", "note": "text"}, ["id"])
notes = structure(TableName("public", "notes"), {"id": "int4", "note": "text"}, ["id"])
ROWS = [(i, i + 0.1, f"note {i}") for i in range(1, 6)]


@pytest.fixture
def pipeline(opened: OpenTarget) -> Iterator[Pipeline]:
    target = opened()
    made = Pipeline(target).claim()
    made.load(ITEMS, items, ROWS)
    made.load(NOTES, notes, [(1, "a"), (2, "b")])
    yield made
    target.close()


def repair(table: TableId, schema: Any, wanted: Sequence[int], rows: Sequence[tuple[Any, ...]]) -> TableRepair:
    return TableRepair(table, schema, keys(schema, [(key,) for key in wanted]), inserts(schema, list(rows)))


def write(pipeline: Pipeline, *tables: TableRepair, end: int | None = None) -> RepairResult:
    position = Lsn(pipeline.end if end is None else end)
    return pipeline.target.repair(Repair(SUBSCRIPTION, "v1", position, tables))


def kept(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    columns = "table_id, kind, row_key, row_before, row_after"
    return pipeline.look(f"SELECT {columns} FROM penstock.repaired_rows ORDER BY table_id, row_key")


def test_rows_are_inserted_updated_deleted_and_kept(pipeline: Pipeline) -> None:
    before = pipeline.target.progress(SUBSCRIPTION)
    given = repair(
        ITEMS, items, [1, 2, 3, 4, 9, 10], [(1, 1.1, "note 1"), (2, -0.0, 'a"b'), (3, 3.1, None), (9, 9.1, "new")]
    )
    other = repair(NOTES, notes, [2], [(2, "right")])
    written = write(pipeline, given, other)
    assert written == RepairResult({ITEMS: RepairedRows(1, 2, 1), NOTES: RepairedRows(0, 1, 0)}, {})
    assert pipeline.rows(items) == [(1, 1.1, "note 1"), (2, -0.0, 'a"b'), (3, 3.1, None), ROWS[4], (9, 9.1, "new")]
    assert pipeline.rows(notes) == [(1, "a"), (2, "right")]
    assert pipeline.target.progress(SUBSCRIPTION) == before
    shown = [
        (table, kind, json.loads(key), old and json.loads(old), new and json.loads(new))
        for table, kind, key, old, new in kept(pipeline)
    ]
    assert [(kind, key) for _, kind, key, _, _ in shown] == [
        *[("updated", ["2"]), ("updated", ["3"]), ("deleted", ["4"]), ("inserted", ["9"])],
        ("updated", ["2"]),
    ]
    assert shown[0][3:] == ({"id": "2", "price": "2.1", "note": "note 2"}, {"id": "2", "price": "-0", "note": 'a"b'})
    assert shown[1][4] == {"id": "3", "price": "3.1", "note": None}
    assert (shown[2][4], shown[3][3]) == (None, None)
    assert pipeline.look(
        "SELECT DISTINCT subscription, verification, position, target_name FROM penstock.repaired_rows ORDER BY 4"
    ) == [(SUBSCRIPTION, "v1", str(Lsn(pipeline.end)), name) for name in ("items", "notes")]
    assert write(pipeline, given, other).written == {ITEMS: RepairedRows(), NOTES: RepairedRows()}
    assert len(kept(pipeline)) == 5


def test_a_table_that_is_not_as_it_was_compared_is_left_out(pipeline: Pipeline) -> None:
    given = repair(ITEMS, items, [1], [])
    assert fault_of(lambda: write(pipeline, given, end=pipeline.end - 1)).kind is FaultKind.INTERNAL
    another = replace(given, schema=replace(items, columns=items.columns[:2]))
    unknown = replace(given, table=TableId("t0z"))
    moved = replace(given, schema=replace(items, relfilenode=77))
    found = write(pipeline, another, unknown, repair(NOTES, notes, [1], [(1, "right")]))
    assert found.written == {NOTES: RepairedRows(0, 1, 0)}
    assert {table: reason.partition(";")[0] for table, reason in found.left.items()} == {
        ITEMS: "the table's columns changed since it was compared",
        TableId("t0z"): "the table is not live any more",
    }
    assert pipeline.rows(items) == ROWS
    assert write(pipeline, moved).written == {ITEMS: RepairedRows(0, 0, 1)}
    pipeline.commit(TableCommit(ITEMS, items, items.name, parked="row_refused"))
    assert write(pipeline, repair(ITEMS, items, [2], [])).left == {ITEMS: "the table is not live any more"}


def test_of_rows_with_one_key_one_is_left(pipeline: Pipeline) -> None:
    with pipeline.target.writing() as writer:  # type: ignore[attr-defined]  # of SqlTarget
        keyed = "table_name = 'items' AND constraint_type = 'PRIMARY KEY'"
        names = pipeline.look(f"SELECT constraint_name FROM information_schema.table_constraints WHERE {keyed}")
        for (name,) in names:
            writer.tables.execute(f'ALTER TABLE public.items DROP CONSTRAINT "{name}"')
        writer.tables.execute("INSERT INTO public.items SELECT * FROM public.items WHERE id IN (1, 2)")
        writer.tables.execute("UPDATE public.items SET note = 'wrong' WHERE id = 2")
    found = write(pipeline, repair(ITEMS, items, [1, 2], [(1, 1.1, "note 1"), (2, 2.1, "note 2")]))
    assert found.written == {ITEMS: RepairedRows(0, 1, 2)}
    assert pipeline.rows(items) == ROWS


def test_a_table_whose_rows_the_target_refuses_is_left_out_and_the_others_are_repaired(pipeline: Pipeline) -> None:
    with pipeline.target.writing() as writer:  # type: ignore[attr-defined]  # of SqlTarget
        if "Postgres" not in type(pipeline.target).__name__:
            pytest.skip("its tables have no constraints")
        writer.tables.execute("ALTER TABLE public.items ADD CHECK (price < 100)")
    found = write(pipeline, repair(NOTES, notes, [1], [(1, "right")]), repair(ITEMS, items, [1], [(1, 200.0, "x")]))
    assert found.written == {NOTES: RepairedRows(0, 1, 0)}
    assert "refused" in found.left[ITEMS]
    assert pipeline.rows(items) == ROWS
    assert pipeline.rows(notes) == [(1, "right"), (2, "b")]
    assert [row[0] for row in kept(pipeline)] == [NOTES]


def test_rows_of_older_repairs_are_deleted_beyond_the_limit(pipeline: Pipeline) -> None:
    for note in ("a1", "a2", "a3"):
        write(pipeline, repair(NOTES, notes, [1], [(1, note)]))
    with pipeline.target.writing() as writer:  # type: ignore[attr-defined]  # of SqlTarget
        writer.records.end_repair(SUBSCRIPTION, 1)
    assert [json.loads(row[4])["note"] for row in kept(pipeline)] in (["a2", "a3"], ["a3", "a2"])
