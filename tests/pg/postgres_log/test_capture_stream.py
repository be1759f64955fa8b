"""The replication stream against a real PostgreSQL: records, positions, open transactions, faults."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest

from engine.model.control import ControlKind
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId, TableName
from engine.model.position import Lsn
from engine.model.source import LogStream, RecordChunk
from engine.model.subscription import ConnectionSpec, TableSpec
from engine.sources.postgres_log.source import PostgresSource
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database

pytestmark = pytest.mark.pg

SLOT = "shop_1a2b"
DEADLINE_S = 20.0
K = ControlKind


@pytest.fixture
def db(pg: EmbeddedPostgres, database_on: Callable[[EmbeddedPostgres], Database]) -> Database:
    return database_on(pg)


def spec(name: str, schema: str = "public", **options: Any) -> TableSpec:
    table = TableName(schema, name)
    return TableSpec(TableId("t" + (name + schema).encode().hex()), table, table, **options)


@contextmanager
def source_of(database: Database, **settings: Any) -> Iterator[PostgresSource]:
    source = PostgresSource(ConnectionSpec("shop", "postgres", {**database.settings, **settings}))
    try:
        yield source
    finally:
        source.close()


def slot_of(database: Database) -> str:
    return f"{SLOT}_{database.name}"


class Reader:
    """A stream and everything it has delivered."""

    def __init__(self, stream: LogStream) -> None:
        self.stream = stream
        self.records: list[bytes] = []
        self.controls: list[tuple[int, int, int, int]] = []
        self.relations: list[bytes] = []
        self.wal_end = Lsn(0)

    def take(self, chunk: RecordChunk | None) -> None:
        if chunk is None:
            return
        first = len(self.records)
        data = chunk.data.tobytes()
        self.records += [data[a:b] for a, b in zip(chunk.offsets[:-1], chunk.offsets[1:], strict=True)]
        self.controls += [
            (int(c["kind"]), first + int(c["ordinal"]), int(c["xid"]), int(c["subxid"])) for c in chunk.controls
        ]
        self.relations += chunk.relations.values()
        assert chunk.wal_end >= self.wal_end
        self.wal_end = chunk.wal_end

    def read_until(self, done: Callable[[], bool], ask: bool = False) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not done():
            assert time.monotonic() < deadline, (len(self.records), self.wal_end)
            if ask:
                self.stream.ask_position()
            self.take(self.stream.read(0.05))

    def past(self, position: Lsn) -> None:
        self.read_until(lambda: self.wal_end >= position, ask=True)

    def kinds(self) -> str:
        return "".join(chr(r[0]) for r in self.records)


@contextmanager
def reading(database: Database, *tables: TableSpec, **settings: Any) -> Iterator[tuple[PostgresSource, Reader]]:
    """Publications, slot and an open stream."""
    with ExitStack() as stack:
        source = stack.enter_context(source_of(database, **settings))
        source.sent_tables.prepare(tables, slot_of(database))
        with source.reader.create(slot_of(database)) as snapshot:
            start = snapshot.position
        stream = source.log.open_stream(slot_of(database), start, "penstock-shop-1")
        stack.callback(stream.close)
        yield source, Reader(stream)


def test_changes_arrive_as_records_with_controls(db: Database) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    with reading(db, spec("t")) as (source, reader):
        with db.connect() as connection, connection.transaction():
            connection.execute("INSERT INTO t VALUES (1, 'one'), (2, 'two')")
            connection.execute("UPDATE t SET v = 'uno' WHERE id = 1")
            connection.execute("DELETE FROM t WHERE id = 2")
        now = source.log.now()
        reader.past(now)
        assert reader.kinds().startswith("BRIIUDC")
        kinds = [kind for kind, *_ in reader.controls]
        assert kinds[:3] == [K.BEGIN, K.RELATION, K.COMMIT]
        assert source.log.relation_name(reader.relations[0]) == TableName("public", "t")
        schema = source.log.resolve(reader.relations[0], spec("t"), None)
        assert schema == source.describe([spec("t")])[TableName("public", "t")]


def test_now_lies_behind_every_commit_so_far_and_ahead_of_none_read(db: Database) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with reading(db, spec("t")) as (source, reader), db.connect() as connection:
        connection.execute("SET synchronous_commit = off")
        for number in range(5):
            connection.execute("INSERT INTO t VALUES (%s)", [number])
            reader.past(source.log.now())
            assert reader.kinds().count("I") == number + 1


@pytest.mark.parametrize("version", [16, 18])
def test_open_transactions_are_streamed_with_their_rolled_back_savepoints(
    private_cluster: Callable[..., EmbeddedPostgres], version: int
) -> None:
    cluster = private_cluster(version, logical_decoding_work_mem="64kB")
    cluster.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    database = Database(cluster, "postgres")
    with reading(database, spec("t")) as (source, reader), database.connect() as connection:
        with connection.transaction():
            connection.execute("INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, 2000) i")
            with connection.transaction(force_rollback=True):
                connection.execute("INSERT INTO t SELECT i, repeat('y', 100) FROM generate_series(3001, 5000) i")
            reader.read_until(lambda: "S" in reader.kinds() and reader.kinds().count("I") >= 1000)
            assert "c" not in reader.kinds()
            top = connection.execute("SELECT pg_current_xact_id()::xid::text::bigint").fetchall()[0][0]
        with connection.transaction(force_rollback=True):
            connection.execute("INSERT INTO t SELECT i, repeat('z', 100) FROM generate_series(6001, 9000) i")
            reader.read_until(lambda: b"z" * 100 in b"".join(reader.records[-50:]))
        reader.past(source.log.now())
        ends = [
            (kind, xid, subxid) for kind, _, xid, subxid in reader.controls if kind in {K.STREAM_COMMIT, K.STREAM_ABORT}
        ]
        assert (K.STREAM_COMMIT, top, 0) in ends
        assert [1 for kind, xid, subxid in ends if kind == K.STREAM_ABORT and xid == top != subxid]
        assert [1 for kind, xid, subxid in ends if kind == K.STREAM_ABORT and xid == subxid != top]
        starts = sum(1 for kind, *_ in reader.controls if kind == K.STREAM_START)
        stops = sum(1 for kind, *_ in reader.controls if kind == K.STREAM_STOP)
        assert starts == stops > 1


def test_the_source_holds_less_of_an_open_transaction_than_it_is_set_to(db: Database) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    with reading(db, spec("t")) as (_, reader), db.connect() as connection:
        assert connection.execute("SHOW logical_decoding_work_mem").fetchone() == ("64MB",)
        # About 35 MB where it is decoded.
        connection.execute("BEGIN; INSERT INTO t SELECT n, repeat('v', 150) FROM generate_series(1, 120000) AS n")
        reader.read_until(lambda: "S" in reader.kinds())
        connection.execute("ROLLBACK")
        reader.read_until(lambda: reader.kinds().endswith("A"))


def test_a_row_larger_than_the_buffer_arrives_whole(db: Database) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    db.execute("ALTER TABLE t ALTER v SET STORAGE EXTERNAL")
    with reading(db, spec("t")) as (source, reader):
        db.execute("INSERT INTO t VALUES (0, 'small'), (1, repeat('x', 12000000)), (2, 'small')")
        reader.past(source.log.now())
        assert reader.kinds().startswith("BRIIIC")
        sizes = [len(r) for r in reader.records if r[:1] == b"I"]
        assert sizes[1] > 12_000_000 > max(sizes[0], sizes[2])
        assert reader.records[3].endswith(b"x" * 12_000_000)


def test_many_changes_come_in_bounded_chunks_and_complete(db: Database) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    with reading(db, spec("t")) as (source, reader):
        db.execute("INSERT INTO t SELECT i, repeat('v', 200) FROM generate_series(1, 100000) i")
        now = source.log.now()
        sizes = []
        deadline = time.monotonic() + DEADLINE_S
        while reader.wal_end < now:
            assert time.monotonic() < deadline
            reader.stream.ask_position()
            chunk = reader.stream.read(0.1)
            if chunk is not None:
                assert chunk.offsets.dtype == np.int32
                assert chunk.data.dtype == np.uint8
                sizes.append(len(chunk.data))
            reader.take(chunk)
        assert reader.kinds().count("I") == 100_000
        assert max(sizes) <= 8 * 1024 * 1024


def test_a_publication_dropped_while_streaming_is_noticed(db: Database) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with reading(db, spec("t")) as (source, reader):
        db.execute("INSERT INTO t VALUES (1)")
        reader.past(source.log.now())
        assert source.safety.check([spec("t")], slot_of(db)).sending_faults == ()
        db.execute(f"DROP PUBLICATION {slot_of(db)}")
        faults = source.safety.check([spec("t")], slot_of(db)).sending_faults
        assert len(faults) == 1
        assert "does not exist" in faults[0]
        db.execute("INSERT INTO t VALUES (2)")
        try:
            reader.past(source.log.now())
        except EngineFault as fault:
            assert fault.kind is FaultKind.PUBLICATION_CHANGED  # noqa: PT017 - 16 refuses, 18 continues without the table
        assert reader.kinds().count("I") == 1


def test_names_with_quotes_dots_and_other_letters(db: Database) -> None:
    names = ['we"ird', "do.t/s", "Größe 表", "a'b"]
    tables = []
    for name in names:
        quoted = name.replace('"', '""')
        db.execute(f'CREATE SCHEMA "{quoted}"')
        db.execute(f'CREATE TABLE "{quoted}"."{quoted}" ("{quoted}" int PRIMARY KEY, "x.{quoted}" text)')
        tables.append(spec(name, name))
    with reading(db, *tables) as (source, reader):
        for name in names:
            quoted = name.replace('"', '""')
            db.execute(f'INSERT INTO "{quoted}"."{quoted}" VALUES (1, \'v\')')
        reader.past(source.log.now())
        assert [source.log.relation_name(r) for r in reader.relations] == [TableName(n, n) for n in names]
        for record, table in zip(reader.relations, tables, strict=True):
            schema = source.log.resolve(record, table, None)
            assert schema.key == (table.source.name,)
            assert [c.name for c in schema.columns] == [table.source.name, f"x.{table.source.name}"]
