"""Random histories of a DuckDB file whose rows are found by their numbers, from the first row on, against a model: whatever inserts rows
into a table, moves them or undoes that, no batch changes a wrong row, and none misses one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from engine.copy.partition_filter import partition_rows
from engine.model.batch import TableChanges
from engine.model.copies import KeyBound, StandingCopy
from engine.model.fault import FaultKind
from engine.model.identity import BatchId, SubscriptionName, TableId, TableName
from engine.model.partitions import LoadReason, RangeBound
from engine.model.position import Lsn
from engine.model.schema import Column, TableSchema
from engine.model.target import BatchCommit, PartitionSwap, TableCommit
from engine.net import decode_copy_text
from engine.platform.compiled import Array
from engine.targets.duckdb import key_index, row_numbers
from engine.targets.duckdb.key_index import KeyedTable, KeyIndex
from engine.targets.duckdb.target import DuckDbTarget
from tests.contract.target_material import Pipeline, changes, fault_of, source_type, sql_name, structure

MORE = Column("discount", source_type("int4"), 4, fill="7")
NOTHING = np.empty(0, np.int64)


@dataclass(frozen=True)
class Size:
    """Keys of a table, most keys that a slice changes, and steps of a history."""

    keys: int
    slice: int
    steps: int


SMALL = Size(60, 12, 90)
LARGE = Size(420_000, 300, 45)
"""Rows for three row groups of DuckDB at least, so that a checkpoint merges some."""


@dataclass
class Model:
    """The rows of a table by key. -1 is NULL."""

    there: Array
    quantity: Array
    note: Array
    discount: Array

    @classmethod
    def empty(cls, count: int) -> Model:
        return cls(np.zeros(count, np.bool_), *(np.full(count, -1, np.int64) for _ in range(3)))

    def copy(self) -> Model:
        return Model(self.there.copy(), self.quantity.copy(), self.note.copy(), self.discount.copy())

    def rows(self, which: Array, schema: TableSchema, names: Array | None = None) -> Any:
        """These rows as inserts; `names`: their keys, if they are others."""
        columns = {"c0": which if names is None else names, "c1": self.quantity[which]}
        table = pa.table({name: pa.array(values.astype(np.int64)) for name, values in columns.items()})
        table = table.set_column(1, "c1", table["c1"].cast(pa.int32()))
        table = table.append_column("c2", nullable(self.note[which]).cast(pa.string()))
        return table.append_column("c3", nullable(self.discount[which])) if len(schema.columns) == 4 else table


def nullable(values: Array) -> Any:
    return pa.array(values.astype(np.int32), mask=values < 0)


def keys_of(which: Array) -> Any:
    return pa.table({"k0": pa.array(which.astype(np.int64))})


@dataclass
class Table:
    """A table of a subscription, what it has to be, and a copy of it that is being made."""

    id: TableId
    schema: TableSchema
    model: Model
    copy: Model | None = None
    upto: int = 0
    chunks: int = 0

    def commit(self, *buckets: TableChanges, **share: Any) -> TableCommit:
        return TableCommit(self.id, self.schema, self.schema.name, buckets, **share)


class History:
    """Does what its generator of random numbers says, one step after another."""

    def __init__(self, path: Path, seed: int, size: Size) -> None:
        self.random = np.random.default_rng(seed)
        self.size = size
        self.target = DuckDbTarget(path)
        self.pipelines = [Pipeline(self.target, SubscriptionName(name)).claim() for name in ("shop", "depot")]
        self.tables = [
            [self.table("t0a", "orders"), self.table("t0b", "Lines")],
            [self.table("t1a", "stock", Size(60, 12, 0))],
        ]
        self.count = self.found = self.searched = 0
        self.log: list[str] = []
        self.target._open().writer.execute("CREATE TABLE unique_numbers (n INTEGER PRIMARY KEY)")
        for subscription, tables in enumerate(self.tables):
            for table in tables:
                self.load(subscription, table)

    def table(self, number: str, name: str, size: Size | None = None) -> Table:
        schema = structure(TableName("public", name), {"id": "int8", "quantity": "int4", "note": "text"}, ["id"])
        return Table(TableId(number), schema, Model.empty((size or self.size).keys))

    def run(self) -> None:
        steps: list[tuple[Callable[[int, Table], None], int]] = [
            (self.change, 10),
            (self.lose_many, 6),
            (self.fail, 2),
            (self.fail_commit, 2),
            (self.chunk, 6),
            (self.replace, 1),
            (self.exchange, 2),
            (self.evolve, 2),
            (self.insert_speculatively, 2),
            (self.load, 1),
            (self.checkpoint, 3),
            (self.reopen, 1),
        ]
        weights = np.array([weight for _, weight in steps])
        for _ in range(self.size.steps):
            step = steps[self.random.choice(len(steps), p=weights / weights.sum())][0]
            subscription = int(self.random.random() < 0.3)
            tables = self.tables[subscription]
            table = tables[self.random.integers(len(tables))]
            if table.copy is not None:  # other batches leave its rows alone
                step = self.chunk
            self.log.append(f"{step.__name__} {table.schema.name}")
            step(subscription, table)
            self.assert_equal()
        self.target.close()

    # Steps.

    def change(self, subscription: int, table: Table) -> None:
        """A batch of one table, or of all of the subscription's tables."""
        tables = self.tables[subscription] if self.random.random() < 0.4 else [table]
        ready = [one for one in tables if one.copy is None or one is table]
        after = {one.id: one.model.copy() for one in ready}
        self.commit(subscription, *(one.commit(*self.changes(one, after[one.id])) for one in ready))
        for one in ready:
            one.model = after[one.id]

    def lose_many(self, subscription: int, table: Table) -> None:
        """Most rows of a range of keys are deleted, and a checkpoint gives others new numbers."""
        gone = np.flatnonzero(table.model.there)
        gone = gone[int(len(gone) * self.random.uniform(0, 0.5)) : int(len(gone) * self.random.uniform(0.6, 1))]
        gone = gone[self.random.random(len(gone)) < 0.8]
        if len(gone):
            self.commit(subscription, table.commit(changes(table.id, delete=keys_of(gone))))
            table.model.there[gone] = False
        self.checkpoint(subscription, table)
        self.change(subscription, table)

    def fail(self, subscription: int, table: Table) -> None:
        """A batch fails after it has written, as a row that it changes is not there."""
        after = table.model.copy()
        own = self.changes(table, after) if self.random.random() < 0.5 else []
        absent = np.flatnonzero(~after.there)[:1]
        last = replace(changes(table.id, delete=keys_of(np.append(self.some(after.there), absent))), piece=9)
        if len(absent):
            fault = fault_of(lambda: self.commit(subscription, table.commit(*own, last)))
            assert fault.kind is FaultKind.NET_CHANGE_ANOMALY

    def fail_commit(self, subscription: int, table: Table) -> None:
        """DuckDB refuses the COMMIT, when rows of the batch may have got their numbers already."""
        self.refused(subscription, table.commit(*self.changes(table, table.model.copy())))

    def chunk(self, subscription: int, table: Table) -> None:
        """A copy begins, or gets its next chunk, while the chunks before change; or it takes the table's place, with changes."""
        pipeline = self.pipelines[subscription]
        if table.copy is None:
            self.target.begin_copy(pipeline.subscription, table.id, table.schema.name, table.schema, keyed=True)
            table.copy, table.upto, table.chunks = Model.empty(len(table.model.there)), 0, 0
        model, first = table.copy, table.upto
        if first == len(model.there):
            own = self.changes(table, model)
            self.commit(subscription, table.commit(*own, handover=True, check_key=True))
            table.model, table.copy = model, None
            return
        end = min(len(model.there), first + int(len(model.there) * self.random.uniform(0.3, 0.8)) + 1)
        which = np.arange(first, end)[self.random.random(end - first) < 0.7]
        model.there[which] = True
        self.fill(model, which, table)
        if len(which):
            self.target.append_copy(table.id, model.rows(self.random.permutation(which), table.schema))
        if table.chunks and self.random.random() < 0.5:
            # The rows of the next chunk are in, or held back, while a batch changes those before.
            self.change_copy(subscription, table, first)
        self.target.finish_copy(table.id)
        table.upto, table.chunks = end, table.chunks + 1
        self.change_copy(subscription, table, end)

    def change_copy(self, subscription: int, table: Table, upto: int) -> None:
        assert table.copy is not None
        bound = KeyBound((str(upto - 1),))
        standing = StandingCopy(table.id, table.schema, bound, 10, 100, table.chunks)
        own = self.changes(table, table.copy, upto=upto, clear=False)
        self.commit(subscription, table.commit(*own, copy=standing))

    def replace(self, subscription: int, table: Table) -> None:
        """The table is copied again as a whole, and changed in the transaction that puts the copy into its place."""
        pipeline, model = self.pipelines[subscription], table.model.copy()
        self.target.begin_copy(pipeline.subscription, table.id, table.schema.name, table.schema)
        which = self.random.permutation(np.flatnonzero(model.there))
        if len(which):
            self.target.append_copy(table.id, model.rows(which, table.schema))
        own = self.changes(table, model)
        self.commit(subscription, table.commit(*own, handover=True))
        table.model = model

    def exchange(self, subscription: int, table: Table) -> None:
        """Rows of partitions are exchanged for others, after changes of the table and of the others."""
        pipeline, count = self.pipelines[subscription], len(table.model.there)
        first, end = (int(n) for n in np.sort(self.random.integers(0, count, 2)))
        rows = partition_rows([(RangeBound(("id",), (str(first),), (str(end),)),)], table.schema, decode_copy_text)
        after, fresh = table.model.copy(), Model.empty(count)
        own = self.changes(table, after)
        which = np.arange(first, end)[self.random.random(end - first) < 0.6]
        fresh.there[which] = True
        self.fill(fresh, which, table)
        load = f"r{self.next()}"
        self.target.begin_copy(pipeline.subscription, table.id, table.schema.name, table.schema, keyed=True, load=load)
        if len(which):
            self.target.append_copy(table.id, fresh.rows(which, table.schema))
        missed = self.changes(table, fresh, clear=False, least=first, upto=end)
        swap = PartitionSwap(rows, tuple(missed), {"public.orders_1": LoadReason.ASKED}, "r", load)
        self.commit(subscription, table.commit(*own, swap=swap))
        for mine, other in zip(vars(after).values(), vars(fresh).values(), strict=True):
            mine[first:end] = other[first:end]
        table.model = after

    def evolve(self, subscription: int, table: Table) -> None:
        """The table gets a column or loses it, in a transaction that changes rows."""
        after = table.model.copy()
        if len(table.schema.columns) == 3:
            columns: tuple[Column, ...] = (*table.schema.columns, replace(MORE, attnum=MORE.attnum + self.next()))
            after.discount[:] = 7
        else:
            columns = table.schema.columns[:3]
            after.discount[:] = -1
        table.schema = replace(table.schema, columns=columns)
        own = self.changes(table, after) if self.random.random() < 0.8 else []
        self.commit(subscription, table.commit(*own))
        table.model = after

    def insert_speculatively(self, subscription: int, table: Table) -> None:
        """Rows are inserted by a transaction of their own while a batch of the other subscription changes rows."""
        absent = self.some(~table.model.there)
        if not len(absent):
            return
        pipeline = self.pipelines[subscription]
        rows = self.target.begin_speculative_insert(pipeline.subscription)
        assert rows is not None
        after = table.model.copy()
        after.there[absent] = True
        self.fill(after, absent, table)
        assert rows.insert(table.commit(changes(table.id, insert=after.rows(absent, table.schema))))
        other = 1 - subscription
        self.change(other, self.tables[other][0])
        if self.random.random() < 0.3:
            rows.roll_back()
            return
        end, number = Lsn(pipeline.end + 100), BatchId(pipeline.batch + 1)
        batch = BatchCommit(pipeline.subscription, pipeline.epoch, number, end, (table.commit(),))
        assert rows.commit(batch)
        pipeline.batch, pipeline.end = number, end.value
        table.model = after

    def load(self, subscription: int, table: Table) -> None:
        """The table is dropped, if it is there, and made again with other rows."""
        pipeline = self.pipelines[subscription]
        if pipeline.target.progress(pipeline.subscription).tables.get(table.id):  # type: ignore[union-attr]
            pipeline.commit(removed=[table.id], dropped=[table.id])
        table.model, table.copy = Model.empty(len(table.model.there)), None
        which = np.flatnonzero(self.random.random(len(table.model.there)) < 0.8)
        if self.random.random() < 0.5:
            which = self.random.permutation(which)
        table.model.there[which] = True
        self.fill(table.model, which, table)
        self.target.adopt(pipeline.subscription, table.id, table.schema.name)
        self.target.begin_copy(pipeline.subscription, table.id, table.schema.name, table.schema)
        self.target.append_copy(table.id, table.model.rows(which, table.schema))
        self.commit(subscription, table.commit(handover=True))

    def checkpoint(self, subscription: int, table: Table) -> None:
        del subscription, table
        self.target._open().writer.execute("CHECKPOINT")

    def reopen(self, subscription: int, table: Table) -> None:
        """The engine starts again. Copies that were begun but not recorded are gone."""
        del subscription, table
        self.target.close()
        for pipeline, tables in zip(self.pipelines, self.tables, strict=True):
            pipeline.claim()
            for table in tables:
                table.copy = table.copy if table.chunks else None

    # What steps consist of.

    def next(self) -> int:
        self.count += 1
        return self.count

    def some(self, which: Array, most: int | None = None) -> Array:
        """Some of these keys: in any order, far apart, or one after the other."""
        found = np.flatnonzero(which)
        count = min(len(found), int(self.random.integers(1, most or self.size.slice)))
        if self.random.random() < 0.3 and count:
            start = int(self.random.integers(0, len(found) - count + 1))
            return found[start : start + count]
        return self.random.choice(found, count, replace=False) if count else NOTHING

    def fill(self, model: Model, which: Array, table: Table) -> None:
        """New values, the same for all of these rows, except that some have no note."""
        model.quantity[which] = self.next()
        model.note[which] = np.where(self.random.random(len(which)) < 0.2, -1, self.next())
        model.discount[which] = self.next() if len(table.schema.columns) == 4 else -1

    def changes(
        self, table: Table, model: Model, *, clear: bool = True, least: int = 0, upto: int | None = None
    ) -> list[TableChanges]:
        """Slices of changes that are applied to the model as well, each in one or two buckets, all of keys in a range."""
        made: list[TableChanges] = []
        within = np.zeros(len(model.there), np.bool_)
        within[least:upto] = True
        for piece in range(int(self.random.integers(1, 4))):
            if clear and self.random.random() < 0.04:
                model.there[:] = False
                fresh = self.some(within)
                self.insert(model, fresh, table)
                insert = model.rows(fresh, table.schema)
                made.append(replace(changes(table.id, insert=insert, truncated=True), piece=piece))
                continue
            old, new = self.some(model.there & within), self.some(~model.there & within)
            parts = np.array_split(old, 2) if self.random.random() < 0.5 else [old]
            for n, part in enumerate(parts):
                bucket = self.bucket(table, model, part, np.array_split(new, len(parts))[n])
                made.append(replace(bucket, piece=piece))
        return made

    def insert(self, model: Model, fresh: Array, table: Table) -> None:
        model.there[fresh] = True
        self.fill(model, fresh, table)

    def bucket(self, table: Table, model: Model, old: Array, new: Array) -> TableChanges:
        """Some of the rows are deleted, some updated, some without their notes, and keys of some change; the others are inserted."""
        what = self.random.integers(0, 4, len(old))
        moved = min(int((what == 3).sum()), len(new) // 2)
        from_, to, new = old[what == 3][:moved], new[:moved], new[moved:]
        updated, unset, gone = old[what == 1], old[what == 2], old[what == 0]
        gone = np.concatenate([gone, old[what == 3][moved:]])
        with_note = self.random.random(moved) < 0.5
        notes = model.note.copy()
        model.there[np.concatenate([gone, from_])] = False
        self.insert(model, np.concatenate([updated, unset, to, new]), table)
        model.note[unset] = notes[unset]
        model.note[to[~with_note]] = notes[from_[~with_note]]
        inserted = np.concatenate([updated, to[with_note], new])
        partial_from = np.concatenate([unset, from_[~with_note]])
        partial_to = np.concatenate([unset, to[~with_note]])
        deleted = np.concatenate([gone, updated, unset, from_])
        return changes(
            table.id,
            delete=keys_of(deleted) if len(deleted) else None,
            insert=model.rows(inserted, table.schema) if len(inserted) else None,
            partial=self.partials(table, model, partial_from, partial_to) if len(partial_to) else None,
        )

    def partials(self, table: Table, model: Model, old: Array, new: Array) -> Any:
        rows = model.rows(new, table.schema)
        rows = rows.set_column(2, "c2", pa.nulls(len(new), pa.string()))
        rows = rows.append_column("k0", pa.array(old.astype(np.int64)))
        return rows.append_column("u2", pa.array([True] * len(new)))

    def refused(self, subscription: int, *tables: TableCommit) -> None:
        """A batch whose COMMIT fails."""
        database = self.target._open()
        writer = database.writer
        database.writer = Refused(writer, database.reader, self.next())  # type: ignore[assignment]
        try:
            fault = fault_of(lambda: self.commit(subscription, *tables))
        finally:
            database.writer = writer
        assert fault.kind is FaultKind.TARGET_UNAVAILABLE

    def commit(self, subscription: int, *tables: TableCommit) -> None:
        self.pipelines[subscription].commit(*tables)
        tuning = self.target.tuning()
        self.found += int(tuning["keys_found"])
        self.searched += int(tuning["keys_searched"])

    def assert_equal(self) -> None:
        for tables in self.tables:
            for table in tables:
                with self.target._open().reader() as connection:
                    read = connection.sql(f"SELECT * FROM {sql_name(table.schema.name)}").to_arrow_table()
                which = read.column(0).to_numpy()
                order = np.argsort(which)
                assert np.array_equal(which[order], np.flatnonzero(table.model.there)), self.log
                wanted = table.model.rows(which[order], table.schema)
                for i, name in enumerate(wanted.schema.names):
                    assert (
                        read.column(i)
                        .combine_chunks()
                        .take(pa.array(order))
                        .equals(wanted[name].combine_chunks().cast(read.column(i).type))
                    ), (self.log, i)


class Refused:
    """The connection of a writer whose COMMIT DuckDB refuses, as another transaction has committed the same unique number."""

    def __init__(self, inner: Any, other: Callable[[], Any], number: int) -> None:
        self._inner, self._other, self._number = inner, other, number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def commit(self) -> None:
        """Raises what DuckDB raises."""
        insert = f"INSERT INTO unique_numbers VALUES ({self._number})"
        self._inner.execute(insert)
        with self._other() as connection:
            connection.execute(insert)
        with pytest.raises(duckdb.TransactionException, match="violat") as refused:
            self._inner.commit()
        raise refused.value


@pytest.fixture(autouse=True)
def _always_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are found by their numbers whatever that costs, and files are used as for large tables. Numbers are not used in a transaction
    that has inserted rows into the table: those have greater ones until its end."""
    attempts = KeyIndex.attempts

    def checked(self: KeyIndex, table: KeyedTable, keys: Any) -> Iterator[Any]:
        sql = f"SELECT count_if(t.rowid + 0 >= {row_numbers.MOST_ROWS}) FROM {table.place} AS t"
        inserted = self._connection.execute(sql).fetchall()[0][0]
        for located in attempts(self, table, keys):
            assert not inserted
            yield located

    monkeypatch.setattr(KeyIndex, "attempts", checked)
    monkeypatch.setattr(key_index, "_QUICK_SECONDS", -1.0)
    monkeypatch.setattr(key_index, "_KEY_SECONDS", 0.0)
    monkeypatch.setattr(key_index, "perf_counter", lambda: 0.0)
    monkeypatch.setattr(key_index, "_SAMPLE", 2)
    monkeypatch.setattr(key_index, "_MORE_ENTRIES", 300)
    monkeypatch.setattr(key_index, "_MOST_LEFT_OUT", 1)
    monkeypatch.setattr(row_numbers, "_IN_MEMORY", 64)
    monkeypatch.setattr(row_numbers, "_SMALL", 4)


@pytest.mark.parametrize("seed", range(8))
def test_a_small_table(seed: int, tmp_path: Path) -> None:
    history = History(tmp_path / "mart.duckdb", seed, SMALL)
    history.run()
    assert history.found > 100
    assert list(tmp_path.glob("*")) == [tmp_path / "mart.duckdb"]


@pytest.mark.parametrize("seed", range(3))
def test_a_table_of_several_row_groups(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missed: list[int] = []
    forget = key_index._Entries.forget_around

    def noted(self: key_index._Entries, moved: Callable[[tuple[int, int]], bool | None]) -> bool:
        missed.append(sum(moved(sample) is not False for sample in self.samples))
        return forget(self, moved)

    monkeypatch.setattr(key_index._Entries, "forget_around", noted)
    history = History(tmp_path / "mart.duckdb", seed, LARGE)
    history.run()
    assert history.found > 1000
    assert any(missed), "no checkpoint has given rows other numbers"


def test_numbers_of_rows_whose_commit_failed(tmp_path: Path) -> None:
    """DuckDB gives them to the rows of later batches, and the index has them for those rows."""
    history = History(tmp_path / "mart.duckdb", 0, SMALL)
    table = history.tables[0][0]

    def last_number() -> int:
        with history.target._open().reader() as connection:
            return int(connection.execute("SELECT max(rowid) FROM public.orders").fetchall()[0][0])

    def update(count: int, *, fails: bool) -> None:
        which, after = np.flatnonzero(table.model.there)[:count], table.model.copy()
        history.fill(after, which, table)
        change = changes(table.id, delete=keys_of(which), insert=after.rows(which, table.schema))
        if fails:
            history.refused(0, table.commit(change))
        else:
            history.commit(0, table.commit(change))
            table.model = after
        history.assert_equal()

    update(5, fails=False)
    before, history.found, history.searched = last_number(), 0, 0
    for count in range(3, 9):
        update(20, fails=True)
        update(count, fails=False)
        before += count
        assert last_number() == before
    assert (history.found, history.searched) == (sum(range(3, 9)), 0)
    history.target.close()
