"""The comparison's orchestration, on a source and a reader in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.position import Lsn
from engine.model.source import ExportedSnapshot
from engine.model.target import TableRecord
from engine.platform.read_ahead import prefetched
from engine.verify.compare import VerifyLimits, VerifyTable, verify_tables
from engine.verify.verdict import TableVerdict, VerdictStatus, VerifyProgress
from tests.unit.copy.copy_fakes import POSITION, FakeSource, decode_lines, table_of

SNAPSHOT = ExportedSnapshot("snap", POSITION)


class FakeReader:
    """Target rows as sets of numbers."""

    def __init__(self, tables: dict[str, set[int]], position: Lsn = POSITION) -> None:
        self.tables = tables
        self.position = position

    def compare(
        self, record: TableRecord, source: Iterable[pa.RecordBatch], limit: int, rows_of: object = None
    ) -> tuple[int, int, list[dict[str, Any]]]:
        target = self.tables[record.schema.name.name]
        rows = {value for batch in source for value in batch.column(0).to_pylist()}
        missing = [{"key": [str(key)], "kind": "missing"} for key in sorted(rows - target)]
        extra = [{"key": [str(key)], "kind": "extra"} for key in sorted(target - rows)]
        return len(rows), len(target), (missing + extra)[:limit]


def verify_of(name: str) -> VerifyTable:
    table = table_of(name)
    record = TableRecord(table.spec.table, table.spec.target, table.schema, ready=True, applied=POSITION)
    return VerifyTable(table.spec, record)


def compare(source: FakeSource, reader: FakeReader, **options: Any) -> list[TableVerdict]:
    tables = [verify_of(name) for name in source.tables]
    return verify_tables(source, reader, SNAPSHOT, tables, decode_lines, **options)  # type: ignore[arg-type]


def test_equal_tables_are_equal_with_their_counts() -> None:
    source = FakeSource({"a": [[1, 2], [3]], "b": []})
    verdicts = compare(source, FakeReader({"a": {1, 2, 3}, "b": set()}))
    assert [(each.table, each.status, each.source_rows, each.target_rows) for each in verdicts] == [
        ("ta", VerdictStatus.EQUAL, 3, 3),
        ("tb", VerdictStatus.EQUAL, 0, 0),
    ]
    assert verdicts[0].position == POSITION


def test_differences_name_the_keys_up_to_the_limit() -> None:
    source = FakeSource({"a": [list(range(500))]})
    (verdict,) = compare(source, FakeReader({"a": {*range(10, 500), 1000}}), limits=VerifyLimits(differences=11))
    assert verdict.status is VerdictStatus.DIFFERENT
    assert (verdict.source_rows, verdict.target_rows) == (500, 491)
    assert [(each.key, each.kind) for each in verdict.differences] == [
        *[((str(key),), "missing") for key in range(10)],
        (("1000",), "extra"),
    ]


def test_one_tables_trouble_leaves_the_others_compared() -> None:
    source = FakeSource({"a": [[1, 2, -1, 4]], "b": [[5]]})
    bad, good = compare(source, FakeReader({"a": {1, 2}, "b": {5}}))
    assert (bad.status, bad.code) == (VerdictStatus.NOT_COMPARED, "value_out_of_domain")
    assert good.equal


def test_a_lost_snapshot_leaves_the_rest_uncompared_and_unread() -> None:
    lost = EngineFault(FaultKind.COPY_LOST, "public.b", "snapshot gone")
    source = FakeSource({"a": [[1]], "b": [[2]], "c": [[3]]}, {("b", 0): [lost]})
    verdicts = compare(source, FakeReader({"a": {1}, "b": {2}, "c": {3}}))
    assert [each.status for each in verdicts] == [
        VerdictStatus.EQUAL,
        VerdictStatus.NOT_COMPARED,
        VerdictStatus.NOT_COMPARED,
    ]
    assert {each.code for each in verdicts[1:]} == {"copy_lost"}
    assert ("c", 0) not in source.reads


def test_sides_of_different_positions_are_not_compared() -> None:
    with pytest.raises(EngineFault, match=f"target at {0x2000}, source snapshot at {POSITION.value}"):
        compare(FakeSource({"a": [[1]]}), FakeReader({"a": {1}}, Lsn(0x2000)))


def test_cancel_ends_it_between_pieces() -> None:
    cancelled = threading.Event()
    source = FakeSource({"a": [[1], [2]], "b": [[3]]}, before_read=lambda table, chunk: cancelled.set())
    verdicts = compare(source, FakeReader({"a": {1, 2}, "b": {3}}), cancelled=cancelled)
    assert [each.status for each in verdicts] == [VerdictStatus.NOT_COMPARED] * 2
    assert source.reads == [("a", 0)]


def test_progress_counts_rows_bytes_and_percent() -> None:
    seen: list[VerifyProgress] = []
    compare(FakeSource({"a": [[1, 2], [33, 44]]}), FakeReader({"a": {1, 2, 33, 44}}), on_progress=seen.append)
    assert [(each.rows, each.bytes, each.percent) for each in seen] == [(2, 4, 50.0), (4, 10, 100.0)]


def test_prefetch_hands_over_items_and_the_error_in_its_place() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise KeyError("third")

    reading = prefetched(items(), 1)
    assert [next(reading), next(reading)] == [1, 2]
    with pytest.raises(KeyError, match="third"):
        next(reading)


def test_a_closed_prefetch_closes_what_it_reads_and_ends_its_thread() -> None:
    closed = threading.Event()

    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    before = threading.active_count()
    reading = prefetched(endless(), 2)
    assert next(reading) == 1
    reading.close()
    assert closed.is_set()
    assert threading.active_count() == before
