"""The text form of whole logs: what arrives, as raw records, and the net changes of each batch that comes of it.

table orders id* name:text     a table's name, then the table, as net-change cases write it
begin 7 120 / commit           a plain transaction and the end of its commit
start 7 / stop                 a chunk of an open transaction
stream-commit 7 120            its commit; `abort 7` its end, `abort 7 8` that of a savepoint
orders insert 1 ann            a change, as net-change cases write it; `8: orders …` inside a chunk is a savepoint's
session                        a new connection
seal 200                       what was read so far lands, and batches are sealed at that time
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.model.batch import SealedBatch, TableChanges, TaskDescriptor
from engine.model.identity import BatchId, Epoch, SubscriptionName
from engine.model.position import ZERO
from engine.model.schema import TableSchema
from engine.model.subscription import BatchPolicy
from engine.net import run_task
from engine.records.scan import RecordScanner
from engine.sort.batcher import Batcher
from engine.sort.sorter import TransactionSorter
from tests.property.raw_log import RawLog
from tests.unit.net import pgoutput_encoder as pgoutput
from tests.unit.net.batch_builder import part
from tests.unit.net.net_change_text import parse_record, parse_table, show_changes
from tests.unit.sort.log_script import show_batch, show_closed


def run_log(lines: Sequence[str], policy: BatchPolicy, buckets: int) -> list[str]:
    """Run the log; one line per closed transaction, batch and net change."""
    return _Run(policy, buckets).run(lines)


class _Run:
    def __init__(self, policy: BatchPolicy, buckets: int) -> None:
        self.sorter, self.batcher = TransactionSorter(ZERO), Batcher(policy, ZERO)
        self.log, self.buckets = RawLog(), buckets
        self.tables: dict[str, TableSchema] = {}
        self.stream = self.end = 0
        self.out: list[str] = []

    def run(self, lines: Sequence[str]) -> list[str]:
        for line in lines:
            word, _, rest = line.split("#")[0].strip().partition(" ")
            if word == "table":
                name, _, columns = rest.partition(" ")
                self.tables[name] = parse_table(columns, [], 100 + len(self.tables))
            elif word == "session":
                self.log.begin_session()
            elif word == "seal":
                self._seal(int(rest))
            elif word.endswith(":"):
                self._change(*rest.split(" ", 2), xid=int(word[:-1]))
            elif word in self.tables:
                self._change(word, *rest.split(" ", 1), xid=self.stream)
            else:
                self._control(word, [int(number) for number in rest.split()])
        return self.out

    def _change(self, name: str, verb: str, rest: str = "", *, xid: int) -> None:
        self.log.append(parse_record(verb, rest, self.tables[name], xid))

    def _control(self, word: str, numbers: list[int]) -> None:
        if word == "begin":
            xid, self.end = numbers
            self.log.append(pgoutput.begin(self.end - 1, xid))
        elif word == "commit":
            self.log.append(pgoutput.commit(self.end - 1, self.end))
        elif word == "start":
            self.stream = numbers[0]
            self.log.append(pgoutput.stream_start(self.stream))
        elif word == "stop":
            self.stream = 0
            self.log.append(pgoutput.stream_stop())
        elif word == "stream-commit":
            self.log.append(pgoutput.stream_commit(numbers[0], numbers[1] - 1, numbers[1]))
        elif word == "abort":
            self.log.append(pgoutput.stream_abort(numbers[0], numbers[-1]))
        else:
            raise ValueError(word)

    def _seal(self, now: int) -> None:
        self.sorter.feed(*self.log.flush())
        closed = self.sorter.drain()
        self.out.extend(show_closed(one) for one in closed)
        self.batcher.add(closed, now - 1000)
        while (batch := self.batcher.seal(now, self.log.bytes_of)) is not None:
            self.out.append(show_batch(batch))
            self.out.extend(self._net(batch))

    def _net(self, batch: SealedBatch) -> list[str]:
        parts = tuple(part(schema) for schema in self.tables.values())
        shares: dict[str, list[TableChanges]] = {one.table: [] for one in parts}
        for bucket in range(self.buckets):
            descriptor = TaskDescriptor(
                SubscriptionName("s"), Epoch(1), BatchId(1), 0, bucket, self.buckets,
                batch.ranges, self.log.blocks_of(batch.ranges), parts, "",
            )  # fmt: skip
            for changes in run_task(descriptor, self.log.read, RecordScanner()).tables:
                shares[changes.table].append(changes)
        return [
            f"  {name}: {line}"
            for name, of_table in zip(self.tables, shares.values(), strict=True)
            if of_table
            for line in show_changes(of_table)
        ]
