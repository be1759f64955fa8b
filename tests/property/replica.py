"""Takes a case all the way: raw records, sorter, batcher, tasks by piece and bucket, net rows applied to a target in memory.

At every batch's end the target is compared with the source's rows at that position, and what was counted with what was done.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from engine.model.batch import SealedBatch, StagedRows, TableChanges, TablePart, TaskDescriptor, TaskResult
from engine.model.identity import BatchId, Epoch, Ordinal, SubscriptionName, TableId
from engine.model.ledger import LedgerEntry
from engine.model.position import Lsn
from engine.model.schema import KeyMode, ReplicaIdentity, TableSchema
from engine.model.subscription import BatchPolicy
from engine.model.target import TableCommit
from engine.net import run_task
from engine.pipeline.batch_slices import BatchSlice, Sizes, Staged, compute
from engine.pipeline.compute import Computed, Scans
from engine.pipeline.ledger import Decided, balanced
from engine.pipeline.speculative_insert import only_inserts, rest_of
from engine.records.scan import RecordScanner
from engine.tables.planner import PlannedBatch
from tests.property.raw_log import RawLog
from tests.property.source_history import Case, Sender, SourceHistory, Tape, make_history
from tests.unit.net.batch_builder import FIRST, column, part, table
from tests.unit.net.dictionary_target import apply_bag, apply_keyed
from tests.unit.net.history_model import Table
from tests.unit.sort.batcher_play import BatcherPlay
from tests.unit.sort.walsender import Walsender

_COLUMNS = (column("id", "int4"), column("a"), column("big"))


def schema_of(held: Table) -> TableSchema:
    if held.keyed:
        key = [_COLUMNS[c].name for c in held.key]
        return table(
            _COLUMNS, key, identity=ReplicaIdentity.FULL if held.full else ReplicaIdentity.DEFAULT, oid=held.oid
        )
    mode = KeyMode.APPEND if held.appended else KeyMode.BAG
    return table(_COLUMNS, mode=mode, identity=ReplicaIdentity.FULL, oid=held.oid)


class Follower:
    """One table on the target: in step with the source from `after` on, where its first copy was taken."""

    def __init__(self, source: Table, history: SourceHistory, after: int) -> None:
        self.source, self.history, self.after = source, history, after
        self.schema = schema_of(source)
        self.rows = list(history.rows_at(after, source))

    def part(self, batch: SealedBatch) -> TablePart:
        seen = sum(relation.relation == self.source.oid for relation in batch.relations)
        whole = self.source.keyed and self.source.full
        return replace(part(*[self.schema] * (1 + seen), after=self.after), whole=whole)

    def apply(self, shares: list[TableChanges], batch: SealedBatch) -> None:
        assert [share.fault for share in shares if share.fault] == []
        for piece in sorted({share.piece for share in shares}):
            those = [share for share in shares if share.piece == piece]
            self.rows = (
                apply_keyed(self.rows, those, self.source.key) if self.source.keyed else apply_bag(self.rows, those)
            )
        counts = Counter[str]()
        for share in shares:
            counts.update(share.counts)
        assert counts == self.history.counted(max(batch.after.value, self.after), batch.end.value, self.source)

    def check(self, end: int) -> None:
        assert Counter(self.rows) == Counter(self.history.rows_at(max(end, self.after), self.source))


class Replica:
    """One case under way."""

    def __init__(self, case: Case) -> None:
        self.rng: random.Random = Tape(case.tape)
        self.history = make_history(case, self.rng)
        self.log = RawLog()
        self.sender = Sender(self.rng, self.history, self.log)
        places = [0, *self.history.ends]
        self.followers = {
            part_id(t): Follower(t, self.history, self.rng.choice(places) if self.rng.random() < 0.3 else 0)
            for t in self.history.followed
        }
        self.applied = self.batches = self.early_batches = 0
        self.scans = Scans()
        self.policy = BatchPolicy(
            max_transactions=self.rng.choice((1000, 1000, 1, 2, 4)),
            max_bytes=self.rng.choice((100_000, 100_000, 1, 200, 600)),
            max_age_ms=50,
        )
        self._start_engine()

    def run(self) -> None:
        """All sessions; the last one comes to its end."""
        walsender = Walsender(self.rng, self.history.transactions)
        for left in reversed(range(self.rng.choice((1, 2, 3)))):
            steps = walsender.session(self._confirmed())
            self.sender.begin_session()
            for step in steps[: self.rng.randint(0, len(steps))] if left else steps:
                self.sender.play(step)
                if self.rng.random() < 0.25:
                    self.log.late = self.rng.choice((0, 0, 1, 2)) % (1 + len(self.log.records) - self.log.landed)
                    self.driven.disturb()
                    self._apply_sealed()
            if left:
                self._break()
        self.log.late = 0
        self.driven.finish(self.history.top)
        self._apply_sealed()
        assert self.applied == self.history.top
        assert self.driven.batcher.oldest_unsealed_ordinal() is None
        if all(t.ends for t in self.history.transactions):
            assert self.driven.sorter.oldest_open_ordinal() is None

    def _start_engine(self) -> None:
        self.driven = BatcherPlay(self.rng, self.policy, self.log, self.log.bytes_of, self.applied)
        self.done = 0

    def _confirmed(self) -> int:
        """A position that the engine confirmed to the source: at or before what is safe on our side."""
        safe = self.driven.sorter.last_closed_end.value
        known = [end for end in self.history.ends if end <= safe]
        return known[-1 - self.rng.choice((0, 1, 2, 4)) % len(known)]

    def _break(self) -> None:
        """The connection is lost, with what had not landed or without; the engine may be lost as well, with the queue or without."""
        if self.rng.random() < 0.5:
            self.log.late = 0
        self.driven.take()
        what_happens = self.rng.random()
        if what_happens < 0.3:
            self._start_engine()
        if what_happens < 0.15:
            self.log.empty()
        elif what_happens < 0.3:
            controls, relations = self.log.reread()
            self.driven.tally.feed(controls)
            self.driven.sorter.feed(controls, relations)
            self.driven.batcher.add(self.driven.sorter.drain(), 0)

    def _apply_sealed(self) -> None:
        for batch in self.driven.batches[self.done :]:
            assert batch.after.value == self.applied
            assert batch.transactions == self.history.committed(batch.after.value, batch.end.value)
            self._apply(batch)
            self.applied = batch.end.value
            for follower in self.followers.values():
                follower.check(self.applied)
        self.done = len(self.driven.batches)
        needed = [self.driven.sorter.oldest_open_ordinal(), self.driven.batcher.oldest_unsealed_ordinal()]
        self.log.forget(min((at for at in needed if at is not None), default=FIRST + self.log.landed))

    def _apply(self, batch: SealedBatch) -> None:
        self.batches += 1
        parts = tuple(follower.part(batch) for follower in self.followers.values())
        shares: dict[TableId, list[TableChanges]] = {one.table: [] for one in parts}
        if batch.ranges:
            most = self.rng.choice((1 << 30, 1 << 30, 300, 60, 1))
            buckets = self.rng.choice((1, 1, 2, 3))
            sizes = Sizes(self.log.bytes_of, most, buckets)
            staged, early = self._early(self._staged(batch, parts))
            self.scans = Scans()
            found = compute(
                batch.ranges, batch.relations, parts, sizes, self._run, staged,
                lambda one: self.scans.add([one.tally], apart=False),
            )  # fmt: skip
            self._check_ledger(batch, parts, found)
            for changes in self._committed_early(batch, parts, found, early) or _with_rows(found, early):
                shares[changes.table].append(changes)
        for table_id, those in shares.items():
            self.followers[table_id].apply(those, batch)

    def _staged(self, batch: SealedBatch, parts: tuple[TablePart, ...]) -> list[Staged]:
        """Some of the batch's streamed chunks, or parts of them, as if worked on before all savepoints had been decided."""
        staged = []
        for one in batch.ranges:
            if one.xid == 0 or self.rng.random() < 0.5:
                continue
            start = self.rng.randint(one.start, one.stop - 1)
            stop = self.rng.randint(start + 1, one.stop)
            aborted = frozenset(xid for xid in one.aborted if self.rng.random() < 0.7)
            early = replace(one, start=Ordinal(start), stop=Ordinal(stop), end=Lsn(2**64 - 1), aborted=aborted)
            announced = [seen.relation for seen in batch.relations if start <= seen.ordinal < stop]
            schemas = {p.table: p.versions[0] for p in parts if not p.whole}
            mine = [
                TablePart(p.table, (p.versions[0],) * (1 + announced.count(p.versions[0].relation)), Lsn(0))
                for p in parts
                if not p.whole
            ]
            result = self._task(BatchSlice((early,), tuple(mine)), 0, (0, 1), 0)
            staged.append(Staged((early,), result.xids, schemas, result.tables, result.tally))
        return staged

    def _early(self, staged: Sequence[Staged]) -> tuple[list[Staged], dict[StagedRows, TableChanges]]:
        """The same, with places in place of rows for some pieces that only insert: these are in the target before the commit."""
        named, early = [], {}
        for number, one in enumerate(staged):
            if self.rng.random() < 0.3 or not only_inserts(one.changes):
                named.append(one)
                continue
            places = [
                None if change.inserts is None else StagedRows(f"{number}-{change.table}", 0, 1)
                for change in one.changes
            ]
            early.update({at: change for at, change in zip(places, one.changes, strict=True) if at is not None})
            marked = (replace(change, inserts=at) for at, change in zip(places, one.changes, strict=True))
            named.append(replace(one, changes=tuple(marked)))
        return named, early

    def _committed_early(
        self,
        batch: SealedBatch,
        parts: Sequence[TablePart],
        found: Sequence[TableChanges],
        early: dict[StagedRows, TableChanges],
    ) -> list[TableChanges]:
        """The early rows, then what is left of the batch; empty where the batch must be applied as a whole."""
        if len({one.xid for one in batch.ranges}) != 1:
            return []
        commits = {
            part.table: TableCommit(
                part.table, part.versions[-1], part.versions[-1].name, tuple(c for c in found if c.table == part.table)
            )
            for part in parts
        }
        rest = rest_of(commits, frozenset(early))
        if rest is None:
            return []
        self.early_batches += 1
        counted = [c for c in found if isinstance(c.inserts, StagedRows)]
        before = [replace(c, inserts=early[c.inserts].inserts, piece=-1) for c in counted]
        return [*before, *(change for commit in rest for change in commit.changes)]

    def _run(self, pieces: Sequence[tuple[int, BatchSlice]], buckets: int, attempt: int) -> tuple[TableChanges, ...]:
        """The tasks of a batch, each with nothing but what its descriptor names."""
        found: list[TableChanges] = []
        for number, piece in pieces:
            results = [self._task(piece, number, (bucket, buckets), attempt) for bucket in range(buckets)]
            self.scans.add([result.tally for result in results], apart=attempt > 0)
            found += [replace(changes, piece=number) for result in results for changes in result.tables]
        return tuple(found)

    def _check_ledger(self, batch: SealedBatch, parts: Sequence[TablePart], found: Sequence[TableChanges]) -> None:
        """The ledger balances, and says of each table what the history counts."""
        mine = {one.table: tuple(c for c in found if c.table == one.table and not c.is_empty) for one in parts}
        commits = {
            one.table: TableCommit(one.table, one.versions[-1], one.versions[-1].name, mine[one.table])
            for one in parts
            if mine[one.table]
        }
        planned = PlannedBatch(
            BatchId(self.batches), batch, batch.ranges, tuple(parts), frozenset(), captured=batch.captured
        )
        computed = Computed(planned, tuple(found), 0, "driver", 0.0, 0, 0.0, scans=self.scans)
        ledger = balanced(computed, Decided(commits, (), mine.keys(), ()))
        assert batch.captured is not None
        assert ledger.captured == batch.captured
        assert sum(entry.captured for entry in ledger.tables.values()) + ledger.left_out == batch.captured
        for name, follower in self.followers.items():
            entry = ledger.tables.get(name, LedgerEntry())
            after = max(batch.after.value, follower.after)
            counted = follower.history.counted(after, batch.end.value, follower.source)
            assert entry.applied + entry.netted == counted.total()
            assert entry.captured == counted.total() + entry.known + entry.rolled_back
            assert min(entry.applied, entry.netted) >= 0

    def _task(self, piece: BatchSlice, number: int, bucket: tuple[int, int], attempt: int) -> TaskResult:
        descriptor = TaskDescriptor(
            SubscriptionName("s"), Epoch(1), BatchId(self.batches), attempt, *bucket,
            piece.ranges, self.log.blocks_of(piece.ranges), piece.parts, "", number,
        )  # fmt: skip
        return run_task(descriptor, self.log.read, RecordScanner())


def part_id(source: Table) -> TableId:
    return part(schema_of(source)).table


def _with_rows(found: Sequence[TableChanges], early: dict[StagedRows, TableChanges]) -> list[TableChanges]:
    return [replace(c, inserts=early[c.inserts].inserts) if isinstance(c.inserts, StagedRows) else c for c in found]
