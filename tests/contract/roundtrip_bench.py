"""One table with one column of a type, taken to DuckDB on both ways: by the copy, and by the log."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa

from engine.model.batch import BlockRef, LogRange, TableChanges, TablePart, TaskDescriptor
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import BatchId, Epoch, Ordinal, SubscriptionName, TableId, TableName
from engine.model.position import ZERO, Lsn
from engine.model.schema import TableSchema
from engine.model.subscription import ConnectionSpec, TableSpec
from engine.model.target import BatchCommit, LogStart, TableCommit
from engine.model.values import value_type
from engine.net import decode_copy_text, run_task
from engine.records.scan import RecordScanner
from engine.sources.postgres_log.source import PostgresSource
from engine.targets.duckdb.target import DuckDbTarget
from tests.contract.value_cases import Case
from tests.contract.value_render import Held, selected
from tests.fixtures.answers import answered
from tests.fixtures.postgres import Database

SUBSCRIPTION = SubscriptionName("roundtrip")
SLOT = "roundtrip"
PINNED = {
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "lc_monetary": "C",
}
Printed = str | list[str | None] | None
"""What PostgreSQL prints of a value; of an array, what it prints of each element."""


@dataclass(frozen=True)
class Loaded:
    """The same rows as PostgreSQL prints them and as DuckDB holds them, by both ways, in the order of their ids."""

    printed: list[Printed]
    copied: list[Any]
    logged: list[Any]


class RoundTrip:
    """A source database and a DuckDB file. Every case gets its own table on both."""

    def __init__(self, database: Database, folder: Path) -> None:
        options = " ".join(f"-c {name}={value}" for name, value in PINNED.items())
        self.source: psycopg.Connection[Any] = database.connect(options=options)
        self.engine_source = PostgresSource(ConnectionSpec("oracle", "postgres", database.settings))
        self.target = DuckDbTarget(folder / "target.duckdb")
        self.target.claim(SUBSCRIPTION, Epoch(1), LogStart("source", 1, SLOT, ZERO))
        self.source.execute("CREATE PUBLICATION roundtrip FOR ALL TABLES")
        self.source.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [SLOT])
        self._batches = itertools.count(1)

    def close(self) -> None:
        self.source.execute("SELECT pg_drop_replication_slot(%s)", [SLOT])
        self.source.close()
        self.engine_source.close()
        self.target.close()

    def table(self, case: Case, number: int) -> TableSchema:
        """Create the case's table; its structure."""
        name = f"case_{number}"
        mapped = {"v": case.map_as} if case.map_as else {}
        self.source.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v {case.type})")
        spec = TableSpec(TableId("t0"), TableName("public", name), TableName("copied", name), map_as=mapped)
        schema = self.engine_source.describe([spec])[spec.source]
        for way in ("copied", "logged"):
            self.target.adopt(SUBSCRIPTION, _id(schema, way), TableName(way, name))
        return schema

    def load(self, schema: TableSchema, values: Sequence[str | None]) -> Loaded:
        """Write these values at the source, take them over both ways, read both back. Raises what the engine raises."""
        name = schema.name.name
        self.source.execute(f"TRUNCATE {name}")
        self._records()
        self.insert(schema, values)
        self._commit(schema, "copied", [self.decode_copy(schema)], None)
        self._commit(schema, "logged", [], self.decode_log(schema))
        return Loaded(self._printed(schema), *self._held(schema))

    def insert(self, schema: TableSchema, values: Sequence[str | None]) -> None:
        type_name = self._one(
            "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = %s::regclass AND attname = 'v'",
            [schema.name.name],
        )[0]
        # An assignment of an unknown literal, as users do it: char(n) and numeric(p, s) round and pad, nothing is cut.
        with self.source.transaction(), self.source.cursor() as cursor:
            statement = f"INSERT INTO {schema.name.name} SELECT %s, CAST(%s::text AS {type_name})"
            cursor.executemany(statement, list(enumerate(values)))

    def decode_copy(self, schema: TableSchema) -> Any:
        with (
            self.source.cursor() as cursor,
            cursor.copy(f"COPY (SELECT id, v FROM {schema.name.name}) TO STDOUT") as copy,
        ):
            text = b"".join(bytes(piece) for piece in copy)
        return decode_copy_text(text, schema)

    def decode_log(self, schema: TableSchema) -> TableChanges:
        records = self._records()
        seen = sum(record[:1] == b"R" for record in records)
        part = TablePart(_id(schema, "logged"), (schema,) * (1 + seen), ZERO)
        whole = LogRange(Ordinal(0), Ordinal(len(records)), Lsn(1))
        block = BlockRef("memory", 0, sum(map(len, records)), 0, Ordinal(0), len(records))
        task = TaskDescriptor(
            SUBSCRIPTION, Epoch(1), BatchId(1), 1, 0, 1, (whole,), (block,), (part,), staging="unused"
        )
        borders = np.cumsum([0, *(len(record) for record in records)]).astype(np.int32)
        data = np.frombuffer(b"".join(records), np.uint8)
        (changes,) = run_task(task, lambda refs: ((data, borders) for _ in refs), RecordScanner()).tables
        if changes.fault is not None:
            raise EngineFault(FaultKind(changes.fault.code), str(schema.name), changes.fault.detail)
        return changes

    def _records(self) -> list[bytes]:
        """What the log has for us since the last call."""
        rows = self.source.execute(
            "SELECT data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL,"
            " 'proto_version', '1', 'publication_names', 'roundtrip')",
            [SLOT],
            binary=True,
        )
        return [bytes(data) for (data,) in rows]

    def _commit(self, schema: TableSchema, way: str, copies: list[Any], changes: TableChanges | None) -> None:
        table, target = _id(schema, way), TableName(way, schema.name.name)
        self.target.begin_copy(SUBSCRIPTION, table, target, schema)
        for batch in copies:
            assert self.target.append_copy(table, pa.Table.from_batches([batch])) == batch.num_rows
        number = BatchId(next(self._batches))
        commit = TableCommit(table, schema, target, () if changes is None else (changes,), handover=True)
        self.target.commit(BatchCommit(SUBSCRIPTION, Epoch(1), number, Lsn(int(number)), (commit,)))

    def _printed(self, schema: TableSchema) -> list[Printed]:
        """By the type's own output function: a cast to text would strip the blanks of char(n)."""
        element = value_type(schema.column("v")).element is not None
        # IS DISTINCT FROM, because a row of NULLs "is null" without being NULL.
        shown = "CASE WHEN {0} IS DISTINCT FROM NULL THEN format('%%s', {0}) END"
        expression = shown.format("v")
        if element:
            inner = f"ARRAY(SELECT {shown.format('v[n]')} FROM generate_subscripts(v, 1) AS n ORDER BY n)"
            expression = f"CASE WHEN v IS NOT NULL THEN {inner} END"
        rows = self.source.execute(f"SELECT {expression} FROM {schema.name.name} ORDER BY id", [])
        return [row[0] for row in rows]

    def _held(self, schema: TableSchema) -> tuple[list[Held | list[Held]], list[Held | list[Held]]]:
        """Of both ways, read by one query: it costs more than all else here."""
        expression = selected("v", value_type(schema.column("v")))
        name = f'"{schema.name.name}"'
        ways = " UNION ALL ".join(
            f"SELECT '{way}' AS way, id, {expression} AS v FROM {way}.{name}" for way in ("copied", "logged")
        )
        sql = f"SELECT way, v FROM ({ways}) ORDER BY way, id"
        rows = answered(self.target, sql, 1_000_000, 60.0, SUBSCRIPTION).table.to_pylist()
        copied, logged = ([row["v"] for row in rows if row["way"] == way] for way in ("copied", "logged"))
        return copied, logged

    def _one(self, statement: str, parameters: list[Any]) -> tuple[Any, ...]:
        row = self.source.execute(statement, parameters).fetchone()
        assert row is not None
        return tuple(row)


def _id(schema: TableSchema, way: str) -> TableId:
    return TableId(f"t{schema.relation:x}{'c' if way == 'copied' else 'd'}")
