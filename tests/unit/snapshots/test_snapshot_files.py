"""What a snapshot's files hold: every value as it was, in bounded pieces, and nothing half under a final name."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.model.identity import BatchId, Epoch, RelationId, SubscriptionName, TableId, TableName
from engine.model.last_commit import LastCommit
from engine.model.position import Lsn
from engine.model.schema import Column, KeyMode, ReplicaIdentity, SourceType, TableSchema
from engine.model.snapshots import SnapshotFormat, SnapshotRefused
from engine.model.target import TARGET_TYPE, QueryAnswer, QueryLimits, QueryRefused, TableRecord, TargetProgress
from engine.platform.failpoints import Failpoint, arm_from_environment
from engine.snapshots.files import ROW_GROUP_ROWS, ParquetFiles
from engine.snapshots.place import MANIFEST, SnapshotPlace
from engine.snapshots.write import SnapshotRequest, WantedTable, schema_version, write_snapshot
from engine.sources.postgres_log.position_form import PostgresLogForm
from engine.targets.duckdb.snapshot_file import FILE, DuckDbSnapshotFile

FACTS = {"snapshot": "n1", "subscription": "shop", "position": "0/64"}
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "DECIMAL(38,10)": (pa.decimal128(38, 10), [Decimal("9999999999999999999999999999.9999999999"), None]),
    "BIGINT": (pa.int64(), [-(2**63), 2**63 - 1]),
    "UINTEGER": (pa.uint32(), [0, 2**32 - 1]),
    "DOUBLE": (pa.float64(), [float("inf"), 5e-324]),
    "TIMESTAMP": (
        pa.timestamp("us"),
        [datetime.fromisoformat("0001-01-01T00:00:00.000001"), datetime.fromisoformat("9999-12-31T23:59:59.999999")],
    ),
    "TIMESTAMP WITH TIME ZONE": (pa.timestamp("us", "UTC"), [datetime(2026, 1, 1, 12, 0, 0, 123456, UTC), None]),
    "DATE": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31)]),
    "TIME": (pa.time64("us"), [time(23, 59, 59, 999999), None]),
    "BLOB": (pa.binary(), [b"\0\xff", b""]),
    "VARCHAR": (pa.string(), ["", "naïve\n'\""]),
    "UUID": (pa.string(), ["6f0d2c1e-0000-4000-8000-000000000001", None]),
    "UUID[]": (pa.list_(pa.string()), [["6f0d2c1e-0000-4000-8000-000000000001", None], None]),
    "INTEGER[]": (pa.list_(pa.int32()), [[1, None], []]),
    "BOOLEAN": (pa.bool_(), [True, None]),
}


def answer(batches: list[Any], types: list[str] | None = None) -> QueryAnswer:
    schema = batches[0].schema
    if types is not None:
        marked = [f.with_metadata({TARGET_TYPE: t.encode()}) for f, t in zip(schema, types, strict=True)]
        schema = pa.schema(marked)
    return QueryAnswer(schema, Lsn(100), iter(batches))


def every_type() -> QueryAnswer:
    arrays = [pa.array(values, kind) for kind, values in VALUES.values()]
    batch = pa.RecordBatch.from_arrays(arrays, names=[f"c{i}" for i in range(len(VALUES))])
    return answer([batch], list(VALUES))


def test_parquet_holds_every_value_exactly(tmp_path: Path) -> None:
    file, rows = ParquetFiles(tmp_path, FACTS).write(TableName("public", "all"), every_type())
    assert (file, rows) == ("public.all.parquet", 2)
    found = pq.read_table(tmp_path / file)
    assert [field.type for field in found.schema] == [kind for kind, _ in VALUES.values()]
    assert [column.to_pylist() for column in found.columns] == [values for _, values in VALUES.values()]
    assert {key.decode(): value.decode() for key, value in found.schema.metadata.items()} == {
        f"penstock.{name}": value for name, value in FACTS.items()
    }
    assert all(not field.metadata for field in found.schema)


def test_a_duckdb_file_holds_every_value_in_the_type_of_the_target(tmp_path: Path) -> None:
    files = DuckDbSnapshotFile(tmp_path)
    assert files.write(TableName("odd schema", 'a"b'), every_type()) == (FILE, 2)
    files.close({**FACTS, "manifest": "{}"})
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    with duckdb.connect(str(tmp_path / FILE), read_only=True) as connection:
        described = connection.execute('DESCRIBE "odd schema"."a""b"').fetchall()
        assert [row[1] for row in described] == list(VALUES)
        texts = connection.sql('SELECT * FROM "odd schema"."a""b"').to_arrow_table()
        assert [column.to_pylist() for column in texts.columns] == [values for _, values in VALUES.values()]
        facts = connection.execute("SELECT snapshot, subscription, position FROM penstock.snapshot").fetchall()
    assert facts == [("n1", "shop", "0/64")]


def test_row_groups_are_bounded_by_rows_and_by_bytes(tmp_path: Path) -> None:
    narrow = pa.record_batch({"n": pa.array(range(50_000), pa.int32())})
    wide = pa.record_batch({"t": pa.array(["x" * (1 << 20)] * 9)})
    files = ParquetFiles(tmp_path, FACTS)
    assert files.write(TableName("s", "narrow"), answer([narrow] * 7)) == ("s.narrow.parquet", 350_000)
    assert files.write(TableName("s", "Narrow"), answer([narrow])) == ("s.Narrow.2.parquet", 50_000)
    assert files.write(TableName("s", "wide"), answer([wide] * 10)) == ("s.wide.parquet", 90)
    groups = pq.ParquetFile(tmp_path / "s.narrow.parquet").metadata
    assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [150_000, 150_000, 50_000]
    assert groups.row_group(0).num_rows < ROW_GROUP_ROWS + 50_000
    groups = pq.ParquetFile(tmp_path / "s.wide.parquet").metadata
    assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [36, 36, 18]


def test_an_empty_table_has_a_file_with_its_columns(tmp_path: Path) -> None:
    empty = pa.record_batch({"n": pa.array([], pa.int32())})
    assert ParquetFiles(tmp_path, FACTS).write(TableName("s", "t"), answer([empty])) == ("s.t.parquet", 0)
    assert pq.read_table(tmp_path / "s.t.parquet").schema.names == ["n"]


def test_names_that_duckdb_does_not_distinguish_are_refused(tmp_path: Path) -> None:
    files = DuckDbSnapshotFile(tmp_path)
    batch = pa.record_batch({"n": pa.array([1], pa.int32())})
    files.write(TableName("s", "t"), answer([batch]))
    with pytest.raises(SnapshotRefused) as refused:
        files.write(TableName("S", "T"), answer([batch]))
    files.give_up()
    assert refused.value.code == "snapshot_names_equal"


def test_a_full_disk_is_an_error_of_the_disk(tmp_path: Path) -> None:
    (tmp_path / "s.t.parquet").symlink_to("/dev/full")
    batch = pa.record_batch({"n": pa.array(range(100_000), pa.int64())})
    with pytest.raises(OSError, match="No space left") as error:
        ParquetFiles(tmp_path, FACTS).write(TableName("s", "t"), answer([batch] * 3))
    assert error.value.errno == 28


# Whole snapshots, of a target that is played

ORDERS, LINES = TableId("t1"), TableId("t2")


def record(table: TableId, name: str, *, ready: bool = True, parked: str | None = None) -> TableRecord:
    columns = (Column("id", SourceType("int4"), 1), Column("note", SourceType("text"), 2))
    relation = TableName("public", name)
    schema = TableSchema(relation, RelationId(7), columns, ("id",), KeyMode.KEYED, ReplicaIdentity.DEFAULT)
    return TableRecord(table, relation, schema, ready, Lsn(100), parked, set_aside=3 if name == "lines" else 0)


class Played:
    """A pinned target with two tables."""

    position = Lsn(100)

    def __init__(self, *records: TableRecord) -> None:
        self._records = records or (record(ORDERS, "orders"), record(LINES, "lines"))

    def progress(self, _: SubscriptionName) -> TargetProgress:
        tables = {one.table: one for one in self._records}
        last = LastCommit(Lsn(90), Lsn(100), 1_767_225_600_000_001)
        return TargetProgress(Epoch(1), BatchId(4), Lsn(100), "7", 1, "slot", tables, last=last)

    @contextmanager
    def rows(self, _: TableRecord, limits: QueryLimits) -> Iterator[QueryAnswer]:
        assert limits.timeout_s <= 60
        batch = pa.record_batch({"id": pa.array([1, 2], pa.int32()), "note": ["a", None]})
        yield answer([batch], ["INTEGER", "VARCHAR"])

    def compare(self, *_: object) -> Any:
        raise NotImplementedError


WANTED = [
    WantedTable(LINES, TableName("public", "lines"), insert_only=True),
    WantedTable(ORDERS, TableName("public", "orders")),
]


def take(
    root: Path,
    kind: SnapshotFormat = SnapshotFormat.PARQUET,
    reader: Played | None = None,
    wanted: list[WantedTable] | None = None,
    **asked: Any,
) -> tuple[str, dict[str, Any]]:
    request = SnapshotRequest("n1", SubscriptionName("shop"), PostgresLogForm(), kind, QueryLimits(60.0), **asked)
    place = SnapshotPlace(root, "shop")
    visible = lambda _: Lsn(101)  # noqa: E731
    return write_snapshot(place, reader or Played(), request, wanted or WANTED, visible, DuckDbSnapshotFile, 0)


@pytest.mark.parametrize("kind", list(SnapshotFormat))
def test_the_manifest_has_the_facts(tmp_path: Path, kind: SnapshotFormat) -> None:
    name, manifest = take(tmp_path, kind)
    folder = tmp_path / "shop" / name
    assert json.loads((folder / MANIFEST).read_text()) == manifest
    assert (tmp_path / "shop" / f"latest-{kind.value}" / MANIFEST).exists()
    assert {key: manifest[key] for key in ("format_version", "id", "subscription", "format", "position")} == {
        "format_version": 1,
        "id": "n1",
        "subscription": "shop",
        "format": kind.value,
        "position": "0/65",
    }
    assert (manifest["commit_time"], manifest["created_at"]) == ("2026-01-01T00:00:00.000001Z", "1970-01-01T00:00:00Z")
    assert manifest["source"] == {"system_id": "7"}
    lines, orders = manifest["tables"]
    assert (lines["name"], orders["name"], orders["rows"], orders["key"]) == ("lines", "orders", 2, ["id"])
    assert orders["columns"] == [
        {"name": "id", "type": "INTEGER", "arrow_type": "int32"},
        {"name": "note", "type": "VARCHAR", "arrow_type": "string"},
    ]
    assert (folder / orders["file"]).exists()
    assert manifest["exceptions"] == [
        {"schema": "public", "name": "lines", "kind": "insert_only", "rows": None},
        {"schema": "public", "name": "lines", "kind": "rows_set_aside", "rows": 3},
    ]


def test_a_schema_version_follows_columns_types_and_key() -> None:
    schema = record(ORDERS, "orders").schema
    other = [
        replace(schema, key=()),
        replace(schema, columns=schema.columns[:1]),
        replace(schema, columns=(replace(schema.columns[0], name="more"), schema.columns[1])),
        replace(schema, columns=(replace(schema.columns[0], type=SourceType("int8")), schema.columns[1])),
    ]
    assert schema_version(record(LINES, "lines").schema) == schema_version(schema)
    assert len({schema_version(each) for each in [schema, *other]}) == 5


@pytest.mark.parametrize(
    "orders",
    [record(ORDERS, "orders", ready=False), record(ORDERS, "orders", parked="row_refused"), None],
    ids=["not ready", "parked", "not copied"],
)
def test_rows_that_are_not_complete_are_refused_or_left_out(tmp_path: Path, orders: TableRecord | None) -> None:
    records = [record(LINES, "lines"), *([orders] if orders is not None else [])]
    with pytest.raises(SnapshotRefused, match=r"public\.orders is not complete"):
        take(tmp_path, reader=Played(*records))
    assert not (tmp_path / "shop").exists()
    _, manifest = take(tmp_path, reader=Played(*records), leave_out=True)
    assert [table["name"] for table in manifest["tables"]] == ["lines"]
    assert [table["name"] for table in manifest["left_out"]] == ["orders"]


def test_a_failure_while_a_table_is_read_leaves_nothing(tmp_path: Path) -> None:
    class Failing(Played):
        @contextmanager
        def rows(self, one: TableRecord, limits: QueryLimits) -> Iterator[QueryAnswer]:
            with super().rows(one, limits) as found:
                batches = list(found.batches)

                def broken() -> Iterator[Any]:
                    yield from batches
                    raise QueryRefused("query_unavailable", "gone")

                found.batches = broken()
                yield found

    for kind in SnapshotFormat:
        with pytest.raises(QueryRefused, match="gone"):
            take(tmp_path, kind, Failing())
        assert list((tmp_path / "shop").iterdir()) == []


@pytest.mark.parametrize("kind", list(SnapshotFormat))
@pytest.mark.parametrize("point", [Failpoint.SNAPSHOT_TABLE, Failpoint.SNAPSHOT_WRITTEN, Failpoint.SNAPSHOT_PUBLISHED])
def test_a_kill_leaves_no_half_snapshot_under_a_final_name(
    tmp_path: Path, kind: SnapshotFormat, point: Failpoint
) -> None:
    take(tmp_path, kind)
    place = SnapshotPlace(tmp_path, "shop")
    assert place.delete("n1")
    environment = {**os.environ, "PENSTOCK_FAILPOINTS": f"{point.value}=kill"}
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(tmp_path), kind.value], env=environment, check=False, timeout=60
    )
    assert done.returncode == -signal.SIGKILL
    found = place.find("n1")
    final = [path.name for path in place.folder.iterdir() if not path.name.startswith(".")]
    if point is Failpoint.SNAPSHOT_PUBLISHED:
        assert found is not None
        assert (final, len(found[1]["tables"])) == (["0-65"], 2)
    else:
        assert (found, final) == (None, [])
        assert [path.name for path in place.folder.iterdir()] == [".writing-n1"]
    place.clean(())
    assert [path.name for path in place.folder.iterdir()] == final


if __name__ == "__main__":
    arm_from_environment()
    take(Path(sys.argv[1]), SnapshotFormat(sys.argv[2]))
