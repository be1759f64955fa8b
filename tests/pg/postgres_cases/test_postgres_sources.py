"""What PostgreSQL's own tests do that one standing source cannot: another encoding, an engine that ends, a table that is added."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database, drop_database
from tests.fixtures.replication import Replica, table

pytestmark = pytest.mark.pg


@pytest.fixture
def latin1(pg18: EmbeddedPostgres) -> Iterator[Database]:
    database = Database(pg18, "in_latin1")
    pg18.execute("CREATE DATABASE in_latin1 TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'")
    yield database
    drop_database(database)


def test_texts_and_names_of_a_source_in_another_encoding(latin1: Database, replicate: Callable[..., Replica]) -> None:
    with latin1.connect(client_encoding="utf8") as session:
        session.execute('CREATE TABLE "größe" (id int PRIMARY KEY, "maß" text)')
        session.execute("INSERT INTO \"größe\" VALUES (1, 'kopiert: öäüß ÿ')")
        replica = replicate(latin1, [table("größe")])
        session.execute("INSERT INTO \"größe\" VALUES (2, 'Motörhead'), (3, repeat('é', 9000))")
        session.execute('UPDATE "größe" SET id = 4 WHERE id = 3')
    replica.assert_equal()
    assert replica.query('SELECT id, "maß"[:9] FROM "größe" ORDER BY id') == [
        (1, "kopiert: "),
        (2, "Motörhead"),
        (4, "é" * 9),
    ]


def test_a_prepared_transaction_ends_under_another_engine(
    database: Database, replicate: Callable[..., Replica]
) -> None:
    database.execute(f"ALTER DATABASE \"{database.name}\" SET logical_decoding_work_mem = '64kB'")
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    database.execute("INSERT INTO t VALUES (1, 'one'), (2, 'two')")
    replica = replicate(database, [table("t")])
    with database.connect() as session:
        for name, first in (("kept", 1_000), ("undone", 10_000)):
            session.execute("BEGIN")
            session.execute(f"INSERT INTO t SELECT g, md5(g::text) FROM generate_series({first}, {first + 1_500}) g")
            session.execute("UPDATE t SET v = md5(v) WHERE id >= %s AND id %% 2 = 0", [first])
            session.execute(f"DELETE FROM t WHERE id = {1 if name == 'kept' else 2}")
            session.execute(f"PREPARE TRANSACTION '{name}'")
    database.execute("INSERT INTO t VALUES (3, 'beside')")
    replica.catch_up()
    assert replica.query("SELECT count(*) FROM t") == [(3,)]
    replica.restart()
    replica.catch_up()
    assert replica.query("SELECT count(*) FROM t") == [(3,)]
    database.execute("COMMIT PREPARED 'kept'")
    database.execute("ROLLBACK PREPARED 'undone'")
    replica.assert_equal()
    assert replica.query("SELECT count(*), min(id), max(id) FROM t") == [(1_503, 2, 2_500)]


def test_a_table_is_added_while_transactions_are_open_that_wrote_to_it(
    database: Database, replicate: Callable[..., Replica]
) -> None:
    database.execute("CREATE TABLE before (id int PRIMARY KEY)")
    database.execute("CREATE TABLE added (id int PRIMARY KEY)")
    replica = replicate(database, [table("before")])
    added = table("added")
    with database.connect() as first, database.connect() as second:
        first.execute("BEGIN; INSERT INTO added VALUES (1); INSERT INTO before VALUES (1)")
        second.execute("BEGIN; INSERT INTO added VALUES (2)")
        replica.spec = replace(replica.spec, tables=(*replica.spec.tables, added))
        replica.pipeline.update(replace(replica.pipeline.spec, tables=replica.spec.tables))
        replica.wait_table("added", "registered")
        database.execute("INSERT INTO added VALUES (3)")
        first.execute("INSERT INTO added VALUES (4)")
        first.execute("COMMIT")
        second.execute("INSERT INTO before VALUES (2); INSERT INTO added VALUES (5); COMMIT")
    replica.wait_live()
    database.execute("UPDATE added SET id = -id")
    replica.assert_equal()
    assert replica.query("SELECT count(*), sum(id) FROM added") == [(5, -15)]
