"""The ledger of a batch: from the source's bytes to a DuckDB file, with each stage corrupted in turn. No corrupted batch is committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.model.batch import SealedBatch, TableChanges, TablePart, TaskDescriptor
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import BatchId, Epoch, SubscriptionName, TableId
from engine.model.ledger import LedgerEntry
from engine.model.position import Lsn
from engine.model.schema import KeyMode, ReplicaIdentity
from engine.model.subscription import BatchPolicy
from engine.model.target import TableCommit
from engine.net import change_kernels, run_task, spill_result, staging
from engine.net import table as netting
from engine.pipeline.batch_slices import BatchSlice, Sizes, compute
from engine.pipeline.compute import Computed, Scans
from engine.pipeline.ledger import Decided, balanced, with_quarantined, with_refused
from engine.records.scan import RecordScanner
from engine.sort import sorter
from engine.sort.batcher import Batcher
from engine.sort.capture_tally import CaptureTally
from engine.sort.sorter import TransactionSorter
from engine.tables.planner import PlannedBatch
from engine.targets.duckdb import changes as duckdb_changes
from engine.targets.duckdb.target import DuckDbTarget
from tests.contract.target_material import Pipeline
from tests.property.raw_log import RawLog, relation_record
from tests.unit.net import pgoutput_encoder as pgoutput
from tests.unit.net.batch_builder import column, part, table

COLUMNS = (column("id", "int4"), column("a"), column("big"))
KEYED = table(COLUMNS, ["id"], oid=7)
BAG = table(COLUMNS, mode=KeyMode.BAG, identity=ReplicaIdentity.FULL, oid=8)
END = 900
BEFORE = [(1, "one", "x"), (2, "two", "y"), (3, "three", "z")]
RECORDS = [
    pgoutput.begin(100, 5),
    relation_record(7),
    relation_record(8),
    pgoutput.insert(7, ["4", "four", "x"]),
    pgoutput.update(7, ["1", "uno", "x"]),
    pgoutput.insert(8, ["4", "four", "x"]),
    pgoutput.commit(100, 150),
    pgoutput.begin(200, 6),
    pgoutput.update(7, ["1", "eins", "x"]),
    pgoutput.delete(7, ["2", None, None], "K"),
    pgoutput.update(8, ["1", "uno", "x"], ["1", "one", "x"]),
    pgoutput.insert(9, ["1", "of another table", "x"]),
    pgoutput.commit(200, 250),
    pgoutput.stream_start(7),
    pgoutput.insert(7, ["5", "five", "x"], xid=7),
    pgoutput.insert(7, ["6", "six", "x"], xid=8),
    pgoutput.insert(8, ["5", "five", "x"], xid=8),
    pgoutput.stream_stop(),
    pgoutput.stream_abort(7, 8),
    pgoutput.stream_commit(7, 300, 350),
]


class Line:
    """All stages over tables of a DuckDB file, in this thread."""

    def __init__(self, folder: Path, target: DuckDbTarget) -> None:
        self.folder = folder
        self.pipeline = Pipeline(target).claim()
        self.parts = [part(KEYED), part(BAG)]
        for one in self.parts:
            self.pipeline.load(one.table, one.versions[0], BEFORE)
        self.log, self.sorter, self.batcher = RawLog(), TransactionSorter(Lsn(0)), Batcher(BatchPolicy(), Lsn(0))
        self.tally = CaptureTally(Lsn(0))
        self.scans = Scans()

    def sealed(self, records: Sequence[bytes]) -> SealedBatch:
        for record in records:
            self.log.append(record)
        controls, relations = self.log.flush()
        self.tally.feed(controls)
        self.sorter.feed(controls, relations)
        self.batcher.add(self.sorter.drain(), 0)
        self.batcher.advance(Lsn(END))
        batch = self.batcher.seal(10_000, self.log.bytes_of)
        assert batch is not None
        return replace(batch, captured=self.tally.take(batch.end))

    def run(self, records: Sequence[bytes] = RECORDS, *, buckets: int = 1, most_bytes: int = 1 << 30) -> dict[str, Any]:
        """The entries of the ledger by table, after the commit."""
        batch = self.sealed(records)
        parts = tuple(
            replace(
                one, versions=one.versions * (1 + sum(r.relation == one.versions[0].relation for r in batch.relations))
            )
            for one in self.parts
        )
        self.scans = Scans()
        sizes = Sizes(self.log.bytes_of, most_bytes, buckets)
        found = compute(batch.ranges, batch.relations, parts, sizes, self._tasks)
        commits = {
            one.table: TableCommit(one.table, one.versions[-1], one.versions[-1].name, changes)
            for one in parts
            if (changes := tuple(c for c in found if c.table == one.table and not c.is_empty))
        }
        ledger = balanced(self.computed(batch, parts, found), self.decided(commits, parts))
        self.pipeline.commit(*commits.values())
        assert ledger.captured == sum(entry.captured for entry in ledger.tables.values()) + ledger.left_out
        return {str(name): entry for name, entry in ledger.tables.items()}

    def computed(self, batch: SealedBatch, parts: tuple[TablePart, ...], found: Sequence[TableChanges]) -> Computed:
        planned = PlannedBatch(BatchId(1), batch, batch.ranges, parts, frozenset(), captured=batch.captured)
        return Computed(planned, tuple(found), 0, "driver", 0.0, 0, 0.0, scans=self.scans)

    def decided(self, commits: dict[TableId, TableCommit], parts: Sequence[TablePart]) -> Decided:
        return Decided(commits, (), {one.table for one in parts}, ())

    def _tasks(self, pieces: Sequence[tuple[int, BatchSlice]], buckets: int, attempt: int) -> tuple[TableChanges, ...]:
        found: list[TableChanges] = []
        for number, piece in pieces:
            results = [
                spill_result(
                    run_task(
                        TaskDescriptor(
                            SubscriptionName("s"), Epoch(1), BatchId(1), attempt, bucket, buckets, piece.ranges,
                            self.log.blocks_of(piece.ranges), piece.parts, "", number,
                        ),
                        self.log.read,
                        RecordScanner(),
                    ),
                    self.folder,
                    f"p{number}",
                )
                for bucket in range(buckets)
            ]  # fmt: skip
            self.scans.add([result.tally for result in results], apart=attempt > 0)
            found += [replace(change, piece=number) for result in results for change in result.tables]
        return tuple(found)


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    with closing(DuckDbTarget(tmp_path / "mart.duckdb")) as target:
        yield Line(tmp_path / "staging", target)


@pytest.mark.parametrize(("buckets", "most_bytes"), [(1, 1 << 30), (3, 1 << 30), (2, 60)])
def test_every_change_is_accounted_for(line: Line, buckets: int, most_bytes: int) -> None:
    entries = line.run(buckets=buckets, most_bytes=most_bytes)
    keyed, bag = entries["t7"], entries["t8"]
    assert (keyed.captured, keyed.rolled_back, keyed.applied + keyed.netted) == (6, 1, 5)
    assert (bag.captured, bag.rolled_back, bag.applied + bag.netted) == (3, 1, 2)
    if most_bytes > 60:
        assert keyed == LedgerEntry(captured=6, applied=4, netted=1, rolled_back=1)
    assert len(line.pipeline.rows(KEYED)) == 4


def test_changes_before_a_truncate_are_netted(line: Line) -> None:
    records = [
        *RECORDS[:5], pgoutput.truncate([7, 8, 9]), pgoutput.insert(7, ["9", "n", "n"]), pgoutput.commit(100, 150)
    ]  # fmt: skip
    entries = line.run(records)
    assert entries["t7"] == LedgerEntry(captured=4, applied=2, netted=2)
    assert entries["t8"] == LedgerEntry(captured=1, applied=1)


def test_changes_that_the_table_has_are_known(line: Line) -> None:
    line.parts[0] = replace(line.parts[0], after=Lsn(150))
    entries = line.run([*RECORDS[:3], *RECORDS[5:13]])
    assert entries["t7"] == LedgerEntry(captured=2, applied=2)
    line.parts[0] = replace(line.parts[0], after=Lsn(1000))
    again = [pgoutput.begin(950, 9), pgoutput.update(7, ["1", "un", "x"]), pgoutput.commit(950, 960)]
    assert line.run(again)["t7"] == LedgerEntry(captured=1, known=1)


# --- each stage corrupted -------------------------------------------------------------------------------------------


def _drop_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    drain = TransactionSorter.drain
    monkeypatch.setattr(TransactionSorter, "drain", lambda self: drain(self)[:-1])


def _drop_from_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sorter loses the first of two plain transactions."""
    made = sorter.TransactionRun

    def run(starts: Any, stops: Any, ends: Any, times: Any, *more: Any) -> Any:
        return made(starts[1:], stops[1:], ends[1:], times[1:], *more)

    monkeypatch.setattr(sorter, "TransactionRun", run)


def _drop_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    made = sorter.StreamedTransaction
    monkeypatch.setattr(
        sorter, "StreamedTransaction", lambda xid, end, time, chunks, *more: made(xid, end, time, chunks[1:], *more)
    )


def _scan(monkeypatch: pytest.MonkeyPatch, chosen: Callable[[int], list[int]]) -> None:
    scan = RecordScanner.scan

    def corrupt(self: RecordScanner, *given: Any) -> Any:
        found = scan(self, *given)
        at = np.array(chosen(len(found.op)), np.int64)
        names = ("op", "relation", "version", "new", "old", "old_kind", "end", "time_us")
        return replace(found, **{name: getattr(found, name)[at] for name in names})

    monkeypatch.setattr(RecordScanner, "scan", corrupt)


def _scan_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    _scan(monkeypatch, lambda count: list(range(count - 1)))


def _scan_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    _scan(monkeypatch, lambda count: [*range(count), count - 1])


def _bucket_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change belongs to no bucket."""

    def own(_refs: Any, before: Any, *_more: Any) -> Any:
        return np.arange(len(before)) > 0

    monkeypatch.setattr(netting, "_own_keys", own)


def _netting(monkeypatch: pytest.MonkeyPatch, skipped: int) -> None:
    """The netting skips one change of those that it is given."""
    net_keyed = change_kernels.net_keyed

    def corrupt(*given: Any) -> Any:
        mine = given[6]
        return net_keyed(*given[:6], np.delete(mine, skipped), *given[7:])

    monkeypatch.setattr(change_kernels, "net_keyed", corrupt)


def _net_drops_insert(monkeypatch: pytest.MonkeyPatch) -> None:
    _netting(monkeypatch, 0)


def _net_drops_update(monkeypatch: pytest.MonkeyPatch) -> None:
    _netting(monkeypatch, 2)


def _net_drops_image(monkeypatch: pytest.MonkeyPatch) -> None:
    net_bag = change_kernels.net_bag
    monkeypatch.setattr(
        change_kernels, "net_bag", lambda data, refs, sign, mine, *more: net_bag(data, refs, sign, mine[1:], *more)
    )


def _decoder(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Any]) -> None:
    decode_rows = netting._decode_rows

    def corrupt(*given: Any) -> Any:
        rows = decode_rows(*given)
        return None if rows is None else change(rows)

    monkeypatch.setattr(netting, "_decode_rows", corrupt)


def _decoder_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    _decoder(monkeypatch, lambda rows: rows.slice(1) if rows.num_rows > 1 else rows)


def _decoder_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    _decoder(monkeypatch, lambda rows: rows.take([*range(rows.num_rows), 0]) if rows.num_rows > 1 else rows)


def _staging(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Any]) -> None:
    written = staging._written
    monkeypatch.setattr(staging, "_written", lambda path, sink, rows: written(path, sink, change(rows)))


def _staging_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    _staging(monkeypatch, lambda rows: rows.slice(1))


def _staging_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    _staging(monkeypatch, lambda rows: rows.take([*range(rows.num_rows), 0]) if "c0" in rows.column_names else rows)


def _target_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    insert_rows = duckdb_changes.insert_rows
    monkeypatch.setattr(
        duckdb_changes, "insert_rows", lambda connection, place, rows: insert_rows(connection, place, rows.slice(1))
    )


def _target_leaves_out_deletes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duckdb_changes, "_delete", lambda *_given: 0)


CORRUPTIONS = [
    _drop_transaction, _drop_from_run, _drop_chunk, _scan_drops, _scan_doubles, _bucket_drops, _net_drops_insert,
    _net_drops_update, _net_drops_image, _decoder_drops, _decoder_doubles, _staging_drops, _staging_doubles,
    _target_drops, _target_leaves_out_deletes,
]  # fmt: skip


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda one: one.__name__.strip("_"))
def test_a_corrupted_stage_is_caught_before_the_commit(
    line: Line, monkeypatch: pytest.MonkeyPatch, corrupt: Callable[[pytest.MonkeyPatch], None]
) -> None:
    before = line.pipeline.rows(KEYED), line.pipeline.rows(BAG), line.pipeline.end
    corrupt(monkeypatch)
    with pytest.raises(EngineFault) as raised:
        line.run(buckets=2 if corrupt is _bucket_drops else 1)
    assert raised.value.kind is FaultKind.LEDGER_UNBALANCED
    monkeypatch.undo()
    assert (line.pipeline.rows(KEYED), line.pipeline.rows(BAG), line.pipeline.end) == before


def test_a_table_that_the_commit_stage_leaves_out_is_caught(line: Line) -> None:
    batch = line.sealed(RECORDS)
    parts = tuple(replace(one, versions=one.versions * 2) for one in line.parts)
    found = compute(batch.ranges, batch.relations, parts, Sizes(line.log.bytes_of, 1 << 30), line._tasks)
    computed = line.computed(batch, parts, found)
    with pytest.raises(EngineFault, match="are not in the target transaction"):
        balanced(computed, line.decided({}, parts))
    ignored = balanced(computed, Decided({}, (), (), ()))
    assert ignored.tables[line.parts[0].table] == LedgerEntry(captured=6, held=5, rolled_back=1)
    parked = balanced(computed, Decided({}, [line.parts[0].table, line.parts[1].table], (), ()))
    assert parked.tables[line.parts[1].table] == LedgerEntry(captured=3, parked=2, rolled_back=1)


def test_a_batch_of_uncounted_transactions_is_not_compared(line: Line) -> None:
    batch = line.sealed(RECORDS)
    assert batch.captured == 10
    planned = PlannedBatch(BatchId(1), batch, batch.ranges, (), frozenset())
    ledger = balanced(Computed(planned, (), 0, "driver", 0.0, 0, 0.0), Decided({}, (), (), ()))
    assert ledger.tables == {}


def test_what_the_target_refuses_is_quarantined_or_parked(line: Line) -> None:
    batch = line.sealed(RECORDS)
    parts = tuple(replace(one, versions=one.versions * 2) for one in line.parts)
    found = compute(batch.ranges, batch.relations, parts, Sizes(line.log.bytes_of, 1 << 30), line._tasks)
    keyed = line.parts[0].table
    commits = {one.table: TableCommit(one.table, one.versions[-1], one.versions[-1].name,
                                      tuple(c for c in found if c.table == one.table)) for one in parts}  # fmt: skip
    ledger = balanced(line.computed(batch, parts, found), line.decided(commits, parts))
    quarantined = with_quarantined(ledger, {keyed: 1}).tables[keyed]
    assert (quarantined.applied, quarantined.quarantined) == (3, 1)
    parked = with_refused(ledger, keyed, parked=True).tables[keyed]
    assert (parked.applied, parked.netted, parked.parked) == (0, 0, 5)
    assert with_refused(ledger, keyed, parked=False).tables[keyed].held == 5
