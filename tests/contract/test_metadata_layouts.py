"""The metadata tables on the target have one layout, and those of every older layout are read and brought to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.model.position import Lsn
from tests.contract.target_material import SUBSCRIPTION, Pipeline
from tests.contract.targets import EACH_KIND, builder, target_opener

pytestmark = pytest.mark.pg

NEWEST = {"duckdb": 7, "postgres16": 6, "postgres18": 6}
NAME = "subscription text!, table_id text!, target_schema text!"
SHOWN = "shared_schema text!, shared_name text!, source_column text!, source_value text!, structure text"
TABLES = {
    "copies": f"{NAME}, hidden_name text!, structure text!, standing text",
    "layout": "version integer!",
    "loads": "subscription text!, table_id text!, partition text!, generation bigint!, reason text!, position text!,"
    " loaded_us bigint!, request text",
    "progress": "subscription text!, epoch bigint!, batch bigint!, position text!, system_id text!, timeline bigint!,"
    " slot text!, publications text, last_commit text",
    "refused_rows": "subscription text!, table_id text!, row_id text!, of_copy boolean!, state text!, body text!",
    "shared": f"{NAME}, target_name text!, {SHOWN}",
    "tables": f"{NAME}, target_name text!, structure text, ready boolean!, applied text!, parked text,"
    " removed boolean!, mark text",
}
"""Columns of each table in their order; `!`: not NULL."""
ON_POSTGRES = {
    "progress": TABLES["progress"].replace(
        "publications text, last_commit text", "publications text!, last_commit text!"
    ),
    "shared": f"target_schema text!, target_name text!, subscription text!, table_id text!, {SHOWN}",
    "tables": TABLES["tables"] + ", generation bigint!, existing text",
}
KEYS = {
    "copies": "table_id",
    "loads": "subscription, table_id, partition",
    "progress": "subscription",
    "refused_rows": "subscription, table_id, of_copy, row_id",
    "shared": "target_schema, target_name",
    "tables": "subscription, table_id",
}
"""On PostgreSQL."""
OLDER = (
    ("ALTER TABLE penstock.progress DROP COLUMN last_commit",),
    ("ALTER TABLE penstock.progress DROP COLUMN publications",),
    ("DROP TABLE penstock.shared", "DROP TABLE penstock.refused_rows", "DROP TABLE penstock.loads"),
    ("ALTER TABLE penstock.copies DROP COLUMN standing",),
    (),
)
"""What makes the layout before of each layout, the newest first."""


@pytest.fixture(params=EACH_KIND)
def pipeline(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pipeline]:
    with target_opener(str(request.param), request, tmp_path) as opener:
        target = opener()
        made = Pipeline(target)
        made.claim()
        yield made
        target.close()


@pytest.fixture
def kind(request: pytest.FixtureRequest, pipeline: Pipeline) -> str:
    del pipeline
    return str(request.node.callspec.params["pipeline"])


def layout_of(pipeline: Pipeline) -> dict[str, str]:
    sql = (
        "SELECT table_name, column_name, lower(data_type), is_nullable FROM information_schema.columns"
        " WHERE table_schema = 'penstock' ORDER BY table_name, ordinal_position"
    )
    found: dict[str, list[str]] = {}
    for table, column, words, nullable in pipeline.look(sql):
        word = words.replace("varchar", "text")
        found.setdefault(table, []).append(f"{column} {word}{'' if nullable == 'YES' else '!'}")
    return {table: ", ".join(columns) for table, columns in found.items()}


def keys_of(pipeline: Pipeline, kind: str) -> dict[str, str]:
    if kind == "duckdb":
        sql = "SELECT table_name, constraint_text FROM duckdb_constraints() WHERE constraint_type <> 'NOT NULL'"
        return dict(pipeline.look(sql))
    sql = (
        "SELECT c.relname, pg_get_constraintdef(k.oid) FROM pg_constraint AS k JOIN pg_class AS c ON c.oid = k.conrelid"
        " WHERE k.connamespace = 'penstock'::regnamespace AND k.contype <> 'n'"
    )
    return {table: str(text).removeprefix("PRIMARY KEY (").removesuffix(")") for table, text in pipeline.look(sql)}


def expected(kind: str) -> tuple[dict[str, str], dict[str, str]]:
    return (TABLES, {}) if kind == "duckdb" else (TABLES | ON_POSTGRES, KEYS)


def test_the_layout_of_the_metadata_tables_is_this(pipeline: Pipeline, kind: str) -> None:
    assert (layout_of(pipeline), keys_of(pipeline, kind)) == expected(kind)
    assert pipeline.look("SELECT version FROM penstock.layout") == [(NEWEST[kind],)]


@pytest.mark.parametrize("back", range(1, len(OLDER) + 1))
def test_an_older_layout_is_read_and_brought_to_this_one(pipeline: Pipeline, kind: str, back: int) -> None:
    build = builder(pipeline.target)
    for statement in (statement for older in OLDER[:back] for statement in older):
        build(statement)
    if kind != "duckdb" and back == len(OLDER):
        build("ALTER TABLE penstock.tables DROP COLUMN existing")
    build(f"UPDATE penstock.layout SET version = {NEWEST[kind] - back}")
    progress = pipeline.target.progress(SUBSCRIPTION)
    assert progress is not None
    assert (progress.end, progress.last) == (Lsn(1000), None)
    pipeline.claim()
    assert (layout_of(pipeline), keys_of(pipeline, kind)) == expected(kind)
    assert pipeline.look("SELECT version FROM penstock.layout") == [(NEWEST[kind],)]
