"""From the source's bytes to the target's commit no line of Python runs for a row, nor for a transaction."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

from engine import net
from engine.model.batch import TablePart, TaskDescriptor
from engine.model.identity import BatchId, Epoch, Ordinal, SubscriptionName, TableId
from engine.model.position import Lsn
from engine.model.subscription import BatchPolicy
from engine.model.target import TableCommit
from engine.net import run_task, spill_result, staging_prefix
from engine.queue.block import read_blocks
from engine.queue.catalog import QueueCatalog
from engine.queue.writer import SegmentWriter
from engine.records import scan
from engine.records.scan import RecordScanner
from engine.sort.batcher import Batcher
from engine.sort.sorter import TransactionSorter
from engine.sources.postgres import frames
from engine.sources.postgres_log.stream import PostgresLogStream
from engine.targets.duckdb.target import DuckDbTarget
from tests.contract.target_material import Pipeline
from tests.unit.net import pgoutput_encoder as pgoutput
from tests.unit.net.batch_builder import column, table
from tests.unit.postgres_log.replication_wire import Pieces, xlog

ROWS = 400_000
"""In the target before the batch."""
CHANGES = 4
"""Of a transaction: three rows updated, one inserted."""
FEW, MANY = 1_000, 20_000
BALANCES = table([column("id", "int4"), column("balance", "int8"), column("note")], ["id"], oid=7)
NAME = TableId("t7")
START = 1_000


def plain(transactions: int) -> list[bytes]:
    """Small transactions, each sent as a whole when it has committed."""
    records = []
    for number in range(transactions):
        at = START + 100 * number
        records += [pgoutput.begin(at + 50, number + 1), *_changes(number, 0), pgoutput.commit(at + 50, at + 60)]
    return records


def streamed(transactions: int) -> list[bytes]:
    """One transaction, sent in pieces while it is open."""
    records = []
    for first in range(0, transactions, 5_000):
        records.append(pgoutput.stream_start(9, first == 0))
        records += [
            change for number in range(first, min(first + 5_000, transactions)) for change in _changes(number, 9)
        ]
        records.append(pgoutput.stream_stop())
    return [*records, pgoutput.stream_commit(9, START + 50, START + 60)]


def _changes(number: int, xid: int) -> Iterator[bytes]:
    for of in _updated(number):
        yield pgoutput.update(7, [str(of), str(number), "changed"], xid=xid)
    yield pgoutput.insert(7, [str(ROWS + number), "0", None], xid=xid)


def _updated(number: int) -> list[int]:
    return [(number * 7919 + turn * 104_729) % ROWS for turn in range(CHANGES - 1)]


class Lines:
    """Lines of Python that this thread ran, by stage and function. A loop counts at each turn, also one within a line."""

    def __init__(self) -> None:
        self.stages: dict[str, Counter[str]] = {}
        self._now: Counter[str] = Counter()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self._now = self.stages.setdefault(name, Counter())
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            self._now[f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_qualname}"] += 1
        return self._trace


def follow(records: list[bytes], folder: Path) -> Lines:
    """Take the log all the way, stage by stage, as one batch; what the target has at the end is checked."""
    with closing(DuckDbTarget(folder / "mart.duckdb")) as target:
        pipeline = _standing(target)
        lines = Lines()
        landed = []
        wire = b"".join(xlog(record, START + at) for at, record in enumerate(records))
        stream = PostgresLogStream(Pieces(wire), "slot", Lsn(START), None)
        writer = SegmentWriter(folder / "queue", Ordinal(1), False)
        more = True
        while more:
            with lines.stage("capture"):
                chunk = stream.read(0.0)
            more = chunk is not None
            if chunk is not None:
                with lines.stage("queue"):
                    landed.append(writer.append(chunk))
        writer.close()
        catalog = QueueCatalog(folder / "queue")
        sorter, batcher = TransactionSorter(Lsn(START)), Batcher(BatchPolicy(), Lsn(START))
        with lines.stage("sort"):
            for one in landed:
                assert one.block is not None
                catalog.add(one.block)
                sorter.feed(one.controls, one.relations)
                batcher.add(sorter.drain(), 0)
            batch = batcher.seal(10_000, catalog.bytes_between)
        assert batch is not None
        shares = []
        for bucket in range(2):
            blocks = catalog.blocks_for(batch.ranges)
            part = TablePart(NAME, (BALANCES,), Lsn(START))
            descriptor = TaskDescriptor(
                SubscriptionName("shop"), Epoch(1), BatchId(2), 0, bucket, 2, batch.ranges, blocks, (part,), str(folder)
            )
            with lines.stage("net"):
                result = run_task(descriptor, read_blocks, RecordScanner())
                spilled = spill_result(result, descriptor.staging, staging_prefix(descriptor))
            shares += spilled.tables
        with lines.stage("commit"):
            pipeline.commit(TableCommit(NAME, BALANCES, BALANCES.name, shares))
        inserted = sum(record.startswith(b"I") for record in records)
        assert pipeline.select("SELECT count(*) AS n FROM public.t7") == [(ROWS + inserted,)]
        changed = len({of for number in range(inserted) for of in _updated(number)})
        assert pipeline.select("SELECT count(*) AS n FROM public.t7 WHERE note = 'changed'") == [(changed,)]
        return lines


def _standing(target: DuckDbTarget) -> Pipeline:
    pipeline = Pipeline(target).claim()
    target.adopt(pipeline.subscription, NAME, BALANCES.name)
    target.begin_copy(pipeline.subscription, NAME, BALANCES.name, BALANCES)
    ids = pa.array(range(ROWS), pa.int32())
    rows = pa.table({"c0": ids, "c1": ids.cast(pa.int64()), "c2": pa.array(["before"] * ROWS)})
    assert target.append_copy(NAME, rows) == ROWS
    pipeline.commit(TableCommit(NAME, BALANCES, BALANCES.name, handover=True))
    return pipeline


@pytest.mark.parametrize("log", [plain, streamed])
def test_the_lines_that_run_do_not_grow_with_the_rows(log: Any, tmp_path: Path) -> None:
    """A twentieth of the rows goes first: it shows what a batch costs whatever is in it."""
    for module in (frames, scan, net):
        module.warm()
    runs = []
    for name, transactions in (("first", FEW), ("few", FEW), ("many", MANY)):
        (tmp_path / name / "queue").mkdir(parents=True)
        runs.append(follow(log(transactions), tmp_path / name))
    _, few, many = runs
    more_rows = (MANY - FEW) * CHANGES
    for stage, lines in many.stages.items():
        grown = lines - few.stages[stage]
        assert grown.total() < more_rows / 200, f"{stage}: {grown.most_common(5)} for {more_rows} more rows"


def test_a_loop_over_rows_would_be_seen() -> None:
    lines = Lines()
    with lines.stage("loop"):
        assert len([number + 1 for number in range(500)]) == 500
    assert lines.stages["loop"].total() >= 500
