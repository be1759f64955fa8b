"""Repairs as every target writes them: the rows of the keys are replaced and kept, all of them or none, and no other row is touched."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from engine.model.fault import FaultKind
from engine.model.history import FROM_POSITION, TO_POSITION, VALID_FROM, VALID_TO
from engine.model.identity import TableId, TableName
from engine.model.last_commit import LastCommit
from engine.model.position import Lsn
from engine.model.repair import Repair, RepairedRows, RepairResult, TableRepair
from engine.model.soft_delete import DELETED_AT
from engine.model.target import TableCommit
from tests.contract.target_material import SUBSCRIPTION, Pipeline, fault_of, inserts, keys, structure
from tests.contract.targets import OpenTarget

pytestmark = pytest.mark.pg

ITEMS, NOTES, SOFT, TOLD = TableId("t0a"), TableId("t0b"), TableId("t0c"), TableId("t0d")
_US = f"CAST(extract(epoch FROM {VALID_FROM}) * 1000000 AS bigint)"
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


def marks(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    """The rows of the table that keeps deleted rows, with whether they are marked, and whether just now."""
    now = f"{DELETED_AT} BETWEEN now() - interval '1 hour' AND now() + interval '1 hour'"
    return pipeline.look(f"SELECT id, price, note, {DELETED_AT} IS NOT NULL, {now} FROM public.soft ORDER BY id")


def test_with_soft_delete_extra_rows_are_marked_and_marked_ones_make_room(pipeline: Pipeline) -> None:
    soft = replace(items, name=TableName("public", "soft"), soft_delete=True)
    pipeline.load(SOFT, soft, ROWS)
    with pipeline.target.writing() as writer:  # type: ignore[attr-defined]  # of SqlTarget
        writer.tables.execute(
            f"UPDATE public.soft SET {DELETED_AT} = TIMESTAMPTZ '2020-01-01 00:00:00+00' WHERE id IN (1, 5)"
        )
        writer.tables.execute("UPDATE public.soft SET note = NULL, price = CAST('-0' AS float8) WHERE id = 4")
    # 1 was marked wrongly, 2 is wrong, 3 is right, 4 is extra, 5 was marked rightly, 9 is missing.
    given = repair(SOFT, soft, [1, 2, 3, 4, 5, 9], [(1, 1.1, "note 1"), (2, 0.0, "right"), ROWS[2], (9, 9.1, "new")])
    assert write(pipeline, given).written == {SOFT: RepairedRows(2, 1, 1)}
    assert marks(pipeline) == [
        (1, 1.1, "note 1", False, None),
        (2, 0.0, "right", False, None),
        (*ROWS[2], False, None),
        (4, -0.0, None, True, True),
        (*ROWS[4], True, False),
        (9, 9.1, "new", False, None),
    ]
    ((price,),) = pipeline.look("SELECT CAST(price AS varchar) FROM public.soft WHERE id = 4")
    assert price.startswith("-0")
    assert write(pipeline, given).written == {SOFT: RepairedRows()}
    assert len(kept(pipeline)) == 4


def test_of_marked_rows_with_one_key_one_is_left(pipeline: Pipeline) -> None:
    soft = replace(items, name=TableName("public", "soft"), soft_delete=True)
    pipeline.load(SOFT, soft, ROWS)
    with pipeline.target.writing() as writer:  # type: ignore[attr-defined]  # of SqlTarget
        keyed = "table_name = 'soft' AND constraint_type = 'PRIMARY KEY'"
        for (name,) in pipeline.look(f"SELECT constraint_name FROM information_schema.table_constraints WHERE {keyed}"):
            writer.tables.execute(f'ALTER TABLE public.soft DROP CONSTRAINT "{name}"')
        writer.tables.execute("INSERT INTO public.soft SELECT * FROM public.soft WHERE id = 1")
    assert write(pipeline, repair(SOFT, soft, [1], [])).written == {SOFT: RepairedRows(0, 0, 2)}
    assert marks(pipeline)[0] == (*ROWS[0], True, True)
    assert len(marks(pipeline)) == 5


@pytest.mark.parametrize("soft", [False, True])
def test_the_history_gets_the_versions_of_the_repair(pipeline: Pipeline, *, soft: bool) -> None:
    told = replace(items, name=TableName("public", "told"), history=True, soft_delete=soft)
    pipeline.load(TOLD, told, ROWS)
    first = str(Lsn(pipeline.end))
    with pipeline.target.writing() as writer:  # type: ignore[attr-defined]  # of SqlTarget
        # 1 and 2 are wrong in the table, 2 in the history too; 3 is extra, 4 is gone from the table only, 5 is right; 6 is missing.
        writer.tables.execute("UPDATE public.told SET note = 'wrong' WHERE id IN (1, 2)")
        writer.tables.execute("UPDATE public.told__history SET note = 'wrong' WHERE id = 2")
        writer.tables.execute("DELETE FROM public.told WHERE id = 4")
    last = LastCommit(Lsn(pipeline.end), Lsn(pipeline.end + 50), 1_700_000_000_000_000)
    at = str(pipeline.commit(last=last))
    given = repair(TOLD, told, [1, 2, 3, 4, 5, 6], [ROWS[0], ROWS[1], ROWS[3], ROWS[4], (6, -0.0, None)])
    assert write(pipeline, given).written == {TOLD: RepairedRows(2, 2, 1)}
    versions = f"SELECT id, note, {FROM_POSITION}, {TO_POSITION} FROM public.told__history ORDER BY id, 4 NULLS LAST"
    found = [
        (1, "note 1", first, None),
        (2, "wrong", first, at),
        (2, "note 2", at, None),
        (3, "note 3", first, at),
        (4, "note 4", first, None),
        (5, "note 5", first, None),
        (6, None, at, None),
    ]
    assert pipeline.look(versions) == found
    times = f"SELECT DISTINCT {VALID_FROM} FROM public.told__history WHERE {FROM_POSITION} = '{at}'"
    ends = f"SELECT DISTINCT {VALID_TO} FROM public.told__history WHERE {TO_POSITION} = '{at}'"
    assert pipeline.look(times) == pipeline.look(ends)
    assert pipeline.look(f"SELECT epoch_us FROM (SELECT {_US} AS epoch_us FROM ({times}) AS t) AS u") == [
        (last.time_us,)
    ]
    # Again at the same position, with other rows of the source: versions that would begin and end there leave no trace.
    assert write(pipeline, repair(TOLD, told, [2, 6], [(2, 2.1, "newer")])).written == {TOLD: RepairedRows(0, 1, 1)}
    assert pipeline.look(versions) == [*found[:2], (2, "newer", at, None), *found[3:6]]
    current = f"SELECT id, price, note FROM public.told__history WHERE {VALID_TO} IS NULL ORDER BY id"
    live = f" WHERE {DELETED_AT} IS NULL" if soft else ""
    assert pipeline.look(current) == pipeline.look(f"SELECT id, price, note FROM public.told{live} ORDER BY id")
