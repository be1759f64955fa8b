"""Parameters of a reader's statement have the meaning of untyped literals, and are never part of its text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pytest

from engine.model.identity import TableId, TableName
from engine.model.target import TARGET_TYPE, QueryRefused
from engine.postgres.array_literals import array_literal
from engine.targets.duckdb.target import DuckDbTarget
from tests.contract.target_material import SUBSCRIPTION, Pipeline, structure
from tests.contract.targets import OpenTarget
from tests.fixtures.answers import Whole, answered

pytestmark = pytest.mark.pg

TABLE = TableId("t0a")
NAME = TableName("public", "readings")
COLUMNS = {
    "id": "int4",
    "note": "text",
    "price": "numeric(10,2)",
    "seen": "timestamptz",
    "day": "date",
    "ok": "bool",
    "tags": "text[]",
    "raw": "bytea",
    "ratio": "float8",
    "big": "int8",
    "key": "uuid",
}
values = structure(NAME, COLUMNS, ["id"])
NASTY = "a\tb\\N\nc\r\\.\x08\x0b'; DROP TABLE public.readings; --\"é🐟$1 %s"
UUID = "ffffffff-0000-0000-0000-ffffffffffff"
ROWS = [
    (1, NASTY, Decimal("1.10"), 0, 0, True, ["", "NULL", None, 'a,b{}"\\\t'], b"\x00\xff\\", -0.0, 2**62, UUID),
    (2, "", Decimal("-2.00"), -1, 1, False, [], b"", float("nan"), -1, None),
    (42, None, None, None, None, None, None, None, None, None, None),
]


@pytest.fixture
def pipeline(opened: OpenTarget) -> Iterator[Pipeline]:
    target = opened()
    made = Pipeline(target).claim()
    made.load(TABLE, values, ROWS)
    yield made
    target.close()


def ask(pipeline: Pipeline, sql: str, parameters: Sequence[str | None], max_rows: int | None = None) -> Whole:
    return answered(pipeline.target, sql, max_rows, 30.0, SUBSCRIPTION, parameters=parameters)


def selected(pipeline: Pipeline, sql: str, *parameters: str | None) -> list[tuple[Any, ...]]:
    return list(zip(*ask(pipeline, sql, parameters).table.to_pydict().values(), strict=True))


COMPARED = [
    ("id = $1", ["42"], [42]),
    ("id = $1 AND id <> $2", ["1", "2"], [1]),
    ("id IN ($2, $1)", ["1", "2"], [1, 2]),
    ("id = $1 OR note = $2", ["2", NASTY], [1, 2]),
    ("price > $1", ["1.09"], [1]),
    ("seen = $1", ["1970-01-01 02:00:00+02"], [1]),
    ("day BETWEEN $1 AND $2", ["1970-01-02", "1970-02-01"], [2]),
    ("ok = $1", ["true"], [1]),
    ("key = $1", [UUID], [1]),
    ("note = $1", [""], [2]),
    ("id = $1", [None], []),
    ("note = $1", ["' OR '1' = '1"], []),
    ("note LIKE $1", ["%DROP TABLE%"], [1]),
    ("id + 1 = $1", ["43"], [42]),
    ("coalesce($1, id) = id", ["2"], [2]),
    ("id >= CAST($1 AS integer) AND $2 = $2", ["2", "x"], [2, 42]),
    ("id = ANY (CAST($1 AS integer[]))", ["{1,NULL, 42}"], [1, 42]),
    ("id = ANY (CAST($1 AS bigint[]))", ["{}"], []),
    ("id = ANY (CAST($1 AS integer[]))", [None], []),
    ("note = ANY ($1)", ['{"",NULL,x}'], [2]),
    ("note = ANY ($1)", [array_literal([NASTY])], [1]),
    ("key = ANY (CAST($1 AS uuid[]))", [f"{{{UUID}}}"], [1]),
    ("day = ANY (CAST($1 AS date[]))", ["{1970-01-01,1970-01-02}"], [1, 2]),
    ("seen = ANY (CAST($1 AS timestamptz[]))", ['{"1970-01-01 02:00:00+02"}'], [1]),
    ("ok = ANY (CAST($1 AS boolean[]))", ["{t,NULL}"], [1]),
    ("price = ANY (CAST($1 AS decimal(3, 2)[]))", ["{1.1,2}"], [1]),
    ("tags = CAST($1 AS text[])", [array_literal(["", "NULL", None, 'a,b{}"\\\t'])], [1]),
]


def test_a_value_has_the_type_that_its_place_requires(pipeline: Pipeline) -> None:
    for condition, parameters, ids in COMPARED:
        sql = f"SELECT id FROM public.readings WHERE {condition} ORDER BY id; -- a comment"
        if not isinstance(pipeline.target, DuckDbTarget):
            sql = sql.removesuffix("; -- a comment")
        assert [row[0] for row in selected(pipeline, sql, *parameters)] == ids, condition
    assert selected(pipeline, "SELECT id FROM public.readings ORDER BY id LIMIT $1 OFFSET $2", "1", "1") == [(2,)]
    assert selected(pipeline, "SELECT $1 AS a, $2 AS b, $1 || $2 AS c", NASTY, "2") == [(NASTY, "2", NASTY + "2")]


def test_an_answer_is_the_same_with_and_without_parameters(pipeline: Pipeline) -> None:
    plain = ask(pipeline, "SELECT * FROM public.readings ORDER BY id", ())
    bound = ask(pipeline, "SELECT * FROM public.readings WHERE id > $1 ORDER BY id", ["0"])
    assert bound.table.schema.equals(plain.table.schema, check_metadata=True)
    assert str(bound.table.to_pydict()) == str(plain.table.to_pydict())
    assert bound.table["note"].to_pylist() == [NASTY, "", None]
    assert bound.position == plain.position


def test_limits_of_rows_hold_with_parameters(pipeline: Pipeline) -> None:
    sql = "SELECT id FROM public.readings WHERE id > $1 ORDER BY id"
    for most, ids, more in ((2, [1, 2], True), (3, [1, 2, 42], False)):
        answer = ask(pipeline, sql, ["0"], most)
        assert (answer.table["id"].to_pylist(), answer.truncated) == (ids, more)
    many = ask(pipeline, "SELECT i FROM generate_series(1, 50000) g (i) WHERE i > $1", ["7"])
    assert many.table.num_rows == 49_993


REFUSED = [
    ("SELECT $1 AS a", [], "query_invalid"),
    ("SELECT $1 AS a", ["a", "b"], "query_invalid"),
    ("SELECT 1 AS a", ["a"], "query_invalid"),
    ("SELECT id FROM public.readings WHERE id = $1", ["x"], "query_invalid"),
    ("SELECT id FROM public.readings WHERE id = ANY (CAST($1 AS integer[]))", ["{1,x}"], "query_invalid"),
    ("SELECT id FROM public.readings WHERE id = ANY (CAST($1 AS integer[]))", ["{1,"], "query_invalid"),
    ("SELECT id FROM public.readings WHERE id = $1 AND price = $2", ["1"], "query_invalid"),
    ("SELECT $1 AS a; SELECT $1 AS a", ["1"], None),
    ("EXPLAIN SELECT $1 AS a", ["1"], None),
    ("DELETE FROM public.readings WHERE id = $1", ["1"], None),
    ("DELETE FROM public.readings WHERE id = $1 RETURNING id", ["1"], "query_not_a_read"),
]


def test_what_does_not_fit_is_refused(pipeline: Pipeline) -> None:
    for sql, parameters, code in REFUSED:
        with pytest.raises(QueryRefused) as refused:
            ask(pipeline, sql, parameters)
        assert refused.value.code in ({code} if code else {"query_invalid", "query_not_a_read"}), sql
    assert len(selected(pipeline, "SELECT id FROM public.readings")) == len(ROWS)


def test_a_name_or_a_nul_is_no_parameter(pipeline: Pipeline) -> None:
    duckdb = isinstance(pipeline.target, DuckDbTarget)
    sql, value = ("SELECT $name AS a", "1") if duckdb else ("SELECT $1 AS a", "a\0b")
    with pytest.raises(QueryRefused, match="has a name" if duckdb else "NUL") as refused:
        ask(pipeline, sql, [value])
    assert refused.value.code == "query_invalid"


def test_columns_have_the_types_that_the_target_names(pipeline: Pipeline) -> None:
    sql = "SELECT id, price, seen, tags, CAST($1 AS varchar(7)) AS n FROM public.readings"
    found = [field.metadata[TARGET_TYPE].decode() for field in ask(pipeline, sql, ["x"]).table.schema]
    if isinstance(pipeline.target, DuckDbTarget):
        assert found == ["INTEGER", "DECIMAL(10,2)", "TIMESTAMP WITH TIME ZONE", "VARCHAR[]", "VARCHAR"]
    else:
        assert found == ["integer", "numeric(10,2)", "timestamp with time zone", "text[]", "character varying(7)"]
