"""SQLite files that a driver of ADBC reads: rows as they are, snapshots, faults, and that nothing is written."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from typing import Any

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.sources.arrow_rows import place as places
from engine.sources.arrow_rows.process import DriverProcess
from engine.sources.duckdb.database import ReadDatabase
from tests.fixtures.compared_reads import errors, lines_of, whole
from tests.fixtures.replication import table
from tests.fixtures.waiting import wait_until
from tests.process.adbc_queries.conftest import Shop, connection, database
from tests.process.sqlite_triggers.conftest import Replicate

GOODS = "CREATE TABLE goods (id INTEGER PRIMARY KEY, name TEXT, price REAL, n NUMERIC(10, 2), raw BLOB);"
SECRET = "s3cr%t/word"


def rows(shop: Shop, name: str = "goods") -> list[bytes]:
    with closing(database(shop.connection)) as found, found.snapshot(1) as snapshot:
        return lines_of(found, whole(found, table(name, "main")), snapshot)


def fault_of(call: Any) -> EngineFault:
    with pytest.raises(EngineFault) as caught:
        call()
    return caught.value


def test_a_copy_follows_rows_and_structures_and_nothing_is_written(shop: Shop, replicate: Replicate) -> None:
    shop.execute(f"{GOODS} INSERT INTO goods VALUES (1, 'a', 1.5, 2.25, x'00ff'), (2, NULL, NULL, NULL, NULL);")
    before = shop.path.read_bytes()
    replica = replicate(shop, "goods")
    replica.assert_equal()
    assert shop.path.read_bytes() == before
    shop.execute("UPDATE goods SET name = '', price = 0.1 WHERE id = 2; DELETE FROM goods WHERE id = 1;")
    shop.execute("INSERT INTO goods VALUES (9007199254740993, 'é€😀', 1e300, 9007199254740993, x'');")
    replica.assert_equal()
    assert replica.query("SELECT id, name, n FROM goods ORDER BY id") == [
        (2, "", None),
        (9007199254740993, "é€😀", "9007199254740993"),
    ]
    shop.execute("ALTER TABLE goods ADD COLUMN stock INTEGER DEFAULT 5;")
    replica.assert_equal()
    assert replica.query("SELECT id, stock FROM goods ORDER BY id") == [(2, 5), (9007199254740993, 5)]


def test_types_are_those_that_were_declared_whatever_values_come_first(shop: Shop) -> None:
    shop.execute(GOODS)
    assert rows(shop) == []
    shop.execute(
        "WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 3000)"
        " INSERT INTO goods SELECT i, NULL, NULL, NULL, NULL FROM s;"
        "INSERT INTO goods VALUES (3001, 'late', 0.5, 1, x'01'), (3002, '7', -0.5e-300, 1.1, NULL);"
    )
    found = rows(shop)
    assert len(found) == 3002
    assert [line for line in found if line.startswith((b"3001\t", b"3002\t", b"17\t"))] == [
        rb"17" + rb"	\N" * 4,
        rb"3001	late	0.5	1	\\x01",
        b"3002\t7\t-5e-301\t1.1\t\\N",
    ]


def test_a_long_text_comes_whole(shop: Shop) -> None:
    shop.execute(f"{GOODS} INSERT INTO goods VALUES (1, printf('%.*c', 5000000, 'x') || 'é', 1, 1, zeroblob(70000));")
    (line,) = rows(shop)
    _, name, _, _, raw = line.split(b"\t")
    assert (name, raw) == (b"x" * 5_000_000 + "é".encode(), rb"\\x" + b"00" * 70_000)


@pytest.mark.parametrize(
    "values",
    ["1, x'00', 1, 1, NULL", "1, 'a', 'text', 1, NULL", "1, 'a', 1, x'00', NULL", "1, 'a', 1, 1, 'text'"],
    ids=["bytes-as-text", "text-as-number", "bytes-as-number", "text-as-bytes"],
)
def test_a_value_of_another_type_parks_its_table_only(shop: Shop, values: str) -> None:
    shop.execute(f"{GOODS} INSERT INTO goods VALUES ({values}); CREATE TABLE other (id INTEGER PRIMARY KEY);")
    shop.execute("INSERT INTO other VALUES (1);")
    with closing(database(shop.connection)) as found, found.snapshot(1) as snapshot:
        goods, other = (whole(found, table(name, "main")) for name in ("goods", "other"))
        assert fault_of(lambda: lines_of(found, goods, snapshot)).kind is FaultKind.INTERNAL
        assert lines_of(found, other, snapshot) == [b"1"]


def test_all_reads_of_a_table_in_one_snapshot_are_of_the_same_rows(shop: Shop) -> None:
    shop.execute(f"{GOODS} INSERT INTO goods (id) VALUES (1), (2);")
    with closing(database(shop.connection)) as found:
        split = whole(found, table("goods", "main"))
        with found.snapshot(1) as snapshot:
            first = lines_of(found, split, snapshot)
            shop.execute("INSERT INTO goods (id) VALUES (3);")
            assert lines_of(found, split, snapshot) == first
            assert len(first) == 2
        assert fault_of(lambda: lines_of(found, split, snapshot)).kind is FaultKind.COPY_LOST
        with found.snapshot(1) as snapshot:
            assert len(lines_of(found, split, snapshot)) == 3


def test_declared_keys_and_types_are_checked(shop: Shop) -> None:
    shop.execute("CREATE TABLE goods (k TEXT, n NUMERIC, r REAL); INSERT INTO goods VALUES ('a', 1.5, 1);")
    assert errors(database(shop.connection), table("goods", "main")) == ["table_no_identity"]
    shop.tables = {"main.goods": {"key": ["k"], "columns": {"n": "decimal(5,2)"}}}
    assert rows(shop) == [b"a\t1.50\t1"]
    shop.execute("INSERT INTO goods VALUES ('a', 2, 2);")
    assert fault_of(lambda: rows(shop)).kind is FaultKind.TABLE_KEY_NOT_UNIQUE
    for columns in ({"r": "bigint"}, {"n": "box"}, {"gone": "bigint"}):
        shop.tables = {"main.goods": {"key": ["k"], "columns": columns}}
        assert errors(database(shop.connection), table("goods", "main")) == ["table_not_logged"]


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"driver": "adbc_driver_nothing"}, "pip install adbc-driver-nothing"),
        ({"driver": "adbc_driver_manager"}, "no package of a driver"),
        ({"driver": "adbc_driver_sqlite", "uri": "file:/nowhere/shop.db?mode=ro"}, "open"),
        ({"driver": "adbc_driver_postgresql", "uri": "postgresql://u:{password}@127.0.0.1:1/x"}, "Connection refused"),
        ({"driver": "adbc_driver_sqlite", "options": "nonsense=x"}, "nonsense"),
    ],
    ids=["not-installed", "no-driver", "no-file", "no-server", "no-option"],
)
def test_a_connection_that_cannot_be_opened_is_found_before(settings: dict[str, Any], what: str) -> None:
    secrets = {"password": SECRET} if "{password}" in settings.get("uri", "") else {}
    with closing(database(connection(settings, secrets))) as found:
        assert errors(found, table("goods", "main")) == ["source_unreachable"]
        for call in (found.discover, found.server_version, lambda: found.snapshot(1).__enter__()):
            fault = fault_of(call)
            assert fault.kind is FaultKind.SOURCE_UNREACHABLE
            assert what in fault.detail


def test_no_message_has_a_secret_in_it() -> None:
    secrets = {"password": SECRET, "secret_options": "token={t0p;s3cret}"}
    for uri in ("postgresql://u:{password}@[bad/x", "postgresql://{password}@127.0.0.1:1/{password}", None):
        settings = {"driver": "adbc_driver_postgresql", **({} if uri is None else {"uri": uri})}
        detail = fault_of(database(connection(settings, secrets)).discover).detail
        assert detail
        assert not any(text in detail for text in (SECRET, "s3cr%25t%2Fword", "t0p;s3cret")), detail


def test_a_subscription_goes_on_when_a_lost_database_is_back(shop: Shop, replicate: Replicate) -> None:
    shop.execute(f"{GOODS} INSERT INTO goods (id) VALUES (1);")
    replica = replicate(shop, "goods")
    replica.assert_equal()
    away = shop.path.with_suffix(".away")
    shop.path.rename(away)
    assert fault_of(replica.now).kind is FaultKind.SOURCE_UNREACHABLE
    away.rename(shop.path)
    shop.execute("UPDATE goods SET name = 'back';")
    wait_until(lambda: replica.pipeline.run is not None, timeout_s=60, what="a run")
    replica.wait_live()
    replica.assert_equal()
    assert replica.query("SELECT name FROM goods") == [("back",)]


class _DyingProcess(DriverProcess):
    """A driver's process that is killed after its first batch of rows has begun."""

    wanted = True

    def _answer(self, subject: str) -> Any:
        found = super()._answer(subject)
        if subject and _DyingProcess.wanted:
            _DyingProcess.wanted = False
            os.kill(self._process.pid, signal.SIGKILL)
        return found


def test_rows_of_a_process_that_was_killed_are_never_taken_for_all(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.execute(
        f"{GOODS} WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 20000)"
        " INSERT INTO goods SELECT i, printf('%.*c', 100, 'x'), 1, 1, NULL FROM s;"
    )
    monkeypatch.setattr(places, "DriverProcess", _DyingProcess)
    _DyingProcess.wanted = True
    with closing(database(shop.connection)) as found, found.snapshot(1) as snapshot:
        split = whole(found, table("goods", "main"))
        fault = fault_of(lambda: lines_of(found, split, snapshot))
        assert "SIGKILL" in fault.detail
        assert len(lines_of(found, split, snapshot)) == 20_000


def test_a_statement_that_takes_too_long_is_ended(shop: Shop) -> None:
    shop.execute(
        f"{GOODS} CREATE VIEW slow AS WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 1e12)"
        " SELECT CAST(max(i) AS INTEGER) AS id FROM s;"
    )
    shop.tables = {"main.slow": {"key": ["id"]}}
    spec = shop.connection
    place = database(spec)._place
    assert isinstance(place, places.DriverPlace)
    place.statement_s = 1
    with place.hold() as held:
        process = held._session(table("slow", "main").source)
        fault = fault_of(lambda: process.rows(table("slow", "main").source, [], 0.5).__enter__())
        assert fault.kind is FaultKind.SOURCE_TIMEOUT
    place.close()


def test_a_database_is_one_of_those_that_are_read_by_queries(shop: Shop) -> None:
    shop.execute(GOODS)
    found = database(shop.connection)
    assert isinstance(found, ReadDatabase)
    assert [(each.name.name, each.key) for each in found.discover()] == [("goods", ("id",))]
    found.close()
