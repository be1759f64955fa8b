"""Copies of tables that several nodes have: snapshots of one moment, and every row of each node once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId, TableName
from engine.model.source import Severity
from engine.model.subscription import FOLDER, CaptureSpec, ConnectionSpec, TableSpec
from engine.sources.postgres_logs.source import PartitionedSource
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database

pytestmark = pytest.mark.pg
READER = "copies"
APPLICATION = "penstock-copies-1"
SMALL = 8 * 1024
"""A size of splits that cuts the tables into several."""


def run(database: Database, *statements: str) -> None:
    for statement in statements:
        database.execute(statement)


def spec_of(name: str, **options: object) -> TableSpec:
    source = TableName("public", name)
    return TableSpec(TableId(name), source, source, **options)  # type: ignore[arg-type]


@contextmanager
def source_of(databases: list[Database], folder: Path) -> Iterator[PartitionedSource]:
    nodes = [{"name": f"n{number}", "settings": dict(one.settings)} for number, one in enumerate(databases)]
    capture = CaptureSpec("postgres_logs", {FOLDER: str(folder)})
    source = PartitionedSource(ConnectionSpec("nodes", "partitioned", {"nodes": json.dumps(nodes)}, capture=capture))
    try:
        yield source
    finally:
        source.close()


@contextmanager
def read(source: PartitionedSource, tables: list[TableSpec]) -> Iterator[None]:
    """A reader of the merged log, which gives snapshots their position."""
    source.sent_tables.prepare(tables, READER)
    with source.reader.create(READER) as made:
        stream = source.log.open_stream(READER, made.position, APPLICATION)
    over = threading.Event()

    def follow() -> None:
        while not over.is_set():
            stream.read(0.05)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        stream.close()
        source.reader.end_other(READER, APPLICATION)
        assert source.reader.remove(READER) == []


def copied(source: PartitionedSource, spec: TableSpec, snapshot: str, size: int = SMALL) -> list[bytes]:
    """The lines of a table's copy, of all nodes."""
    schema = source.describe([spec])[spec.source]
    splits = source.copies.splits(schema, spec, size)
    assert {split.node for split in splits} == {"n0", "n1"}
    return sorted(
        line for split in splits for piece in source.copies.read_split(split, snapshot) for line in piece.splitlines()
    )


def test_columns_that_have_other_numbers_on_a_node_are_read_by_name(
    pg18: EmbeddedPostgres, database_on: Callable[..., Database], tmp_path: Path
) -> None:
    """Of the rows that the filter wants, and also if keys are looked up."""
    databases = [database_on(pg18) for _ in range(2)]
    databases[0].execute("CREATE TABLE goods (id int PRIMARY KEY, name bigint, price int)")
    databases[1].execute("CREATE TABLE goods (old int, id int PRIMARY KEY, gone text, name bigint, price int)")
    databases[1].execute("ALTER TABLE goods DROP COLUMN old, DROP COLUMN gone")
    for number, database in enumerate(databases):
        rows = f"SELECT n, 7 * n, mod(n, 10) FROM generate_series({number * 1000}, {number * 1000 + 999}) AS n"
        run(database, f"INSERT INTO goods {rows}", "ANALYZE goods")
    spec = spec_of("goods", where="id > 700")
    with source_of(databases, tmp_path / "reader") as source, read(source, [spec]):
        schema = source.describe([spec])[spec.source]
        with source.copies.snapshot(30.0) as snapshot:
            databases[1].execute("DELETE FROM goods")
            expected = sorted(f"{n}\t{7 * n}\t{n % 10}".encode() for n in range(701, 2000))
            assert copied(source, spec, snapshot.name) == expected
            keyed = source.copies.key_splits(schema, spec, [("708",), ("1009",)])
            found = b"".join(piece for split in keyed for piece in source.copies.read_split(split, snapshot.name))
            assert {b"708\t4956\t8", b"1009\t7063\t9"} <= set(found.splitlines())


def test_snapshots_of_an_ended_copy_are_lost(
    pg18: EmbeddedPostgres, database_on: Callable[..., Database], tmp_path: Path
) -> None:
    databases = [database_on(pg18) for _ in range(2)]
    for database in databases:
        run(database, "CREATE TABLE notes (id int PRIMARY KEY)", "INSERT INTO notes VALUES (1)")
    spec = spec_of("notes")
    with source_of(databases, tmp_path / "reader") as source, read(source, [spec]):
        with source.copies.snapshot(30.0) as snapshot:
            pass
        with pytest.raises(EngineFault) as caught:
            copied(source, spec, snapshot.name)
        assert caught.value.kind is FaultKind.COPY_LOST


def test_a_table_that_is_not_one_on_all_nodes_is_refused_with_the_difference(
    pg18: EmbeddedPostgres, database_on: Callable[..., Database], tmp_path: Path
) -> None:
    databases = [database_on(pg18) for _ in range(2)]
    for number, database in enumerate(databases):
        run(
            database,
            f"CREATE TABLE typed (id {('int', 'bigint')[number]} PRIMARY KEY)",
            f"CREATE TABLE wide (id int PRIMARY KEY{', more int' * number})",
            f"CREATE TABLE keyed (id int NOT NULL UNIQUE, other int NOT NULL, PRIMARY KEY ({('id', 'other')[number]}))",
            f"CREATE TYPE mood AS ENUM ({', '.join(repr(label) for label in 'abc'[: 2 + number])})",
            "CREATE TABLE moods (id int PRIMARY KEY, felt mood)",
            "CREATE TABLE alike (id int PRIMARY KEY, at timestamptz DEFAULT now(), price numeric(8, 2))",
        )
    databases[0].execute("CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    names = ("typed", "wide", "keyed", "moods", "parted", "alike")
    with source_of(databases, tmp_path / "reader") as source:
        specs = [spec_of(name) for name in names]
        assert {name.name for name in source.describe(specs)} == {"alike"}
        found = {
            finding.what
            for finding in source.preflight(specs, None)
            if finding.severity is Severity.ERROR and finding.code == FaultKind.TABLE_NODES_DIFFER.value
        }
        assert {what.split(":")[0] for what in found} == {f"public.{name}" for name in names[:-1]}
        assert any("nodes n0 and n1 have it with another types of columns: (int4) and (int8)" in what for what in found)
        problems = {table.name.name: [p.code for p in table.problems] for table in source.discover()}
        assert FaultKind.TABLE_NODES_DIFFER.value in problems["wide"]
        assert problems["alike"] == []
