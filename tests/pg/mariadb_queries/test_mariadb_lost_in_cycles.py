"""MariaDB: whatever is lost between two statements of a cycle, other tables are read, nothing wrong is found, and the next finds all."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pymysql
import pytest
from pymysql.connections import Connection
from pymysql.constants import COMMAND

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.subscription import CaptureSpec, ConnectionSpec
from engine.sources.mariadb.connect import Connector
from engine.sources.mariadb_queries.database import MariaDbDatabase as ComparedMariaDb
from engine.sources.query_diff import table_walk
from engine.sources.query_diff.database import ComparedTable, Method
from engine.sources.query_diff.key_ranges import KeyRange, Page
from tests.fixtures.compared_reads import whole
from tests.fixtures.cut_reads import make_steps_small
from tests.fixtures.lossy_cycles import (
    IN_PARTS,
    NEVER_S,
    ONE_SNAPSHOT,
    ImpossibleError,
    Loss,
    LossyCycles,
    assert_continues_with_the_next_cycle,
    assert_parked,
    followed,
    hurry,
)
from tests.fixtures.mariadb import MariaDbDatabase
from tests.fixtures.replication import Replica, duckdb_target, subscription_spec, table
from tests.fixtures.waiting import wait_until
from tests.pg.mariadb_queries.conftest import Replicate
from tests.pg.mariadb_queries.test_mariadb_by_queries import in_the_next_second

pytestmark = pytest.mark.pg

READER = "lost"
_WAITED = 1205
"""Number of the error of a statement that would wait for a lock."""
_METHODS = sorted(table_walk.WALKED)
_NUMBER = "n decimal(8, 2) DEFAULT 0"
_SESSIONS = f"SELECT id FROM information_schema.processlist WHERE user = '{READER}'"
_CHANGES = (
    "UPDATE goods SET v = IF(v = 'n', 'm', 'n') WHERE id % 7 < 3;\nDELETE FROM goods WHERE id % 11 = {0};\n"
    "INSERT IGNORE INTO goods (id, v) SELECT seq, 'new' FROM seq_{1}_to_60;\nUPDATE orders SET v = CONCAT('{0}', id)"
)


def connection_of(mariadb: MariaDbDatabase, user: str, password: str) -> ConnectionSpec:
    settings = {**mariadb.settings, "user": user}
    capture = CaptureSpec("query_diff", {"every_seconds": 3600})
    return ConnectionSpec("shop", "mariadb", settings, {"password": password}, capture)


class Source:
    """A database whose reader has the right to read single tables, and what is done to it."""

    def __init__(self, mariadb: MariaDbDatabase) -> None:
        self.mariadb = mariadb
        self._rng = random.Random(5)
        mariadb.execute(
            f"CREATE TABLE goods (id bigint PRIMARY KEY, v varchar(20), {_NUMBER});\n"
            "CREATE TABLE orders (id int PRIMARY KEY, v varchar(20));\n"
            "INSERT INTO goods (id, v) SELECT 2 * seq, 'n' FROM seq_1_to_30;\nINSERT INTO orders SELECT seq, 'n' FROM seq_1_to_12;\n"
            "CREATE TABLE others LIKE goods;\nINSERT INTO others SELECT id, 'other', 9 FROM goods WHERE id % 3 = 0"
        )
        mariadb.server.execute(f"CREATE OR REPLACE USER {READER}@'%' IDENTIFIED BY 'secret'")
        for name in ("goods", "orders"):
            self.grant(name)

    @property
    def connection(self) -> ConnectionSpec:
        return connection_of(self.mariadb, READER, "secret")

    def grant(self, name: str = "goods") -> None:
        self.mariadb.server.execute(f"GRANT SELECT ON {self.mariadb.name}.{name} TO {READER}@'%'")

    def revoke(self) -> None:
        self.mariadb.server.execute(f"REVOKE SELECT ON {self.mariadb.name}.goods FROM {READER}@'%'")

    def change(self) -> None:
        self.mariadb.execute(_CHANGES.format(self._rng.randint(0, 10), self._rng.randint(1, 60)))

    def at_once(self, statements: str) -> Callable[[], None]:
        """Executes statements that do not wait for locks."""

        def act() -> None:
            try:
                self.mariadb.execute(f"SET lock_wait_timeout = 0;\n{statements}")
            except pymysql.err.OperationalError as error:
                if error.args[0] != _WAITED:
                    raise
                raise ImpossibleError from error

        return act

    def end_sessions(self) -> None:
        for (session,) in self.mariadb.execute(_SESSIONS):
            with suppress(pymysql.MySQLError):  # It may have ended.
                self.mariadb.execute(f"KILL {session}")
        wait_until(lambda: not self.mariadb.execute(_SESSIONS))

    def restart(self) -> None:
        self.mariadb.server.stop()
        self.mariadb.server.start()

    def loss(self, name: str) -> Loss:
        gone = frozenset({FaultKind.TABLE_MISSING, FaultKind.TABLE_STRUCTURE_CHANGED, FaultKind.SOURCE_PRIVILEGE})
        lost = frozenset({FaultKind.SOURCE_UNREACHABLE, FaultKind.COPY_LOST})
        statements = {
            "index": ("ALTER TABLE goods DROP PRIMARY KEY", "ALTER TABLE goods ADD PRIMARY KEY (id)"),
            "renamed": ("RENAME TABLE goods TO away", "RENAME TABLE away TO goods"),
            "dropped": (
                "CREATE OR REPLACE TABLE kept LIKE goods;\nINSERT INTO kept SELECT * FROM goods;\nDROP TABLE goods",
                "RENAME TABLE kept TO goods",
            ),
            "column": ("ALTER TABLE goods DROP COLUMN n", f"ALTER TABLE goods ADD COLUMN {_NUMBER}"),
            "added": ("ALTER TABLE goods ADD COLUMN more int DEFAULT 7", "ALTER TABLE goods DROP COLUMN more"),
            "type": ("ALTER TABLE goods MODIFY n varchar(12)", f"ALTER TABLE goods MODIFY {_NUMBER}"),
            "truncated": ("TRUNCATE TABLE goods", "INSERT INTO goods (id, v) VALUES (1, 'back')"),
        }
        swap = "RENAME TABLE goods TO away, others TO goods, away TO others"
        if name in statements:
            begin, repair = statements[name]
            return Loss(self.at_once(begin), lambda: self.mariadb.execute(repair), gone)
        return {
            "connection": Loss(self.end_sessions, faults=lost, is_of_all=True),
            "server": Loss(self.restart, faults=lost, is_of_all=True),
            "rights": Loss(self.revoke, self.grant, gone),
            "another": Loss(self.at_once(swap), lambda: self.mariadb.execute(swap), gone, mixes=True),
        }[name]


LOSSES = (
    "connection",
    "rights",
    "index",
    "renamed",
    "dropped",
    "column",
    "added",
    "type",
    "truncated",
    "another",
)


@pytest.fixture
def source(mariadb: MariaDbDatabase) -> Source:
    return Source(mariadb)


class _Hook:
    """Calls the one that is set before each statement of the reader's sessions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.before: Callable[[], None] = lambda: None
        self.statement = ""
        execute = Connection._execute_command

        def hooked(connection: Any, command: int, sql: Any) -> None:
            user = connection.user.decode() if isinstance(connection.user, bytes) else connection.user
            if command == COMMAND.COM_QUERY and user == READER:
                self.statement = sql if isinstance(sql, str) else bytes(sql).decode()
                self.before()
            execute(connection, command, sql)

        monkeypatch.setattr(Connection, "_execute_command", hooked)


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> _Hook:
    hurry(monkeypatch)
    make_steps_small(monkeypatch)
    return _Hook(monkeypatch)


@pytest.fixture
def lossy(source: Source, hook: _Hook, tmp_path: Path) -> Iterator[Callable[[Method], LossyCycles]]:
    mariadb = source.mariadb
    everything = connection_of(mariadb, "root", "")
    with (
        closing(ComparedMariaDb(Connector(source.connection))) as database,
        closing(ComparedMariaDb(Connector(everything))) as observer,
    ):

        def begin(method: Method) -> LossyCycles:
            cycles = LossyCycles(tmp_path / "reader", followed(mariadb.name), method, observer, source.change)
            cycles.database, hook.before = database, cycles.before_statement
            cycles.begin()
            return cycles

        yield begin


def _cases() -> Iterator[Any]:
    """Each loss runs always with one method and one kind of cycle, at some statements."""
    for place, loss in enumerate(LOSSES):
        for at, method in enumerate(_METHODS):
            for parts in (False, True):
                always = (at, parts) == (place % len(_METHODS), place % 2 == 0)
                marks = [] if always else [pytest.mark.chaos]
                yield pytest.param(
                    loss, method, parts, marks=marks, id=f"{loss}-{method}-{'parts' if parts else 'one'}"
                )


@pytest.mark.parametrize(("loss", "method", "parts"), list(_cases()))
def test_what_is_lost_between_two_statements_stops_no_other_table_and_is_found_afterwards(
    source: Source,
    lossy: Callable[[Method], LossyCycles],
    request: pytest.FixtureRequest,
    loss: str,
    method: Method,
    parts: bool,
) -> None:
    cycles = lossy(method)
    step = 1 if request.node.get_closest_marker("chaos") else 19
    first = 1 + LOSSES.index(loss) % step
    happened = cycles.assert_found_wherever(
        source.loss(loss), IN_PARTS if parts else ONE_SNAPSHOT, first=first, step=step
    )
    assert happened >= 20 // step


@pytest.mark.parametrize("at", [2, 40, *(pytest.param(n, marks=pytest.mark.chaos) for n in range(5, 100, 6))])
def test_a_server_that_restarts_in_a_cycle_is_waited_for(
    private_mariadb: Callable[[], MariaDbDatabase], hook: _Hook, tmp_path: Path, at: int
) -> None:
    source = Source(private_mariadb())
    everything = connection_of(source.mariadb, "root", "")
    with (
        closing(ComparedMariaDb(Connector(source.connection))) as database,
        closing(ComparedMariaDb(Connector(everything))) as observer,
    ):
        tables = followed(source.mariadb.name)
        cycles = LossyCycles(tmp_path / "reader", tables, Method.RANGE_CHECKSUM, observer, source.change)
        cycles.database, hook.before = database, cycles.before_statement
        cycles.begin()
        assert cycles.assert_found_at(at, source.loss("server"), IN_PARTS)


def test_a_table_that_is_changed_right_after_a_snapshot_is_refused(source: Source, hook: _Hook) -> None:
    """In a later second than that of the snapshot, and before whatever statement comes next."""
    goods, swaps = table("goods", source.mariadb.name), []
    with closing(ComparedMariaDb(Connector(source.connection))) as database:
        split = whole(database, goods)

        def before() -> None:
            if swaps == ["START"]:
                in_the_next_second(source.mariadb)
                source.mariadb.execute("RENAME TABLE goods TO away, others TO goods")
                in_the_next_second(source.mariadb)
                swaps.append("swapped")
            if hook.statement.startswith("START TRANSACTION"):
                swaps.append("START")

        hook.before = before
        with database.snapshot(1) as snapshot, pytest.raises(EngineFault) as refused:
            b"".join(database.reads.read_split(split, snapshot))
    assert (refused.value.kind, swaps) == (FaultKind.TABLE_STRUCTURE_CHANGED, ["START", "swapped"])


_READS: dict[str, Callable[[ComparedMariaDb, ComparedTable, str], object]] = {
    "digests": lambda database, goods, snapshot: database.range_digests(goods, snapshot, [("4",), ("9",)]),
    "ranges": lambda database, goods, snapshot: list(database.hashed_rows(goods, snapshot, [KeyRange(("2",), ("8",))])),
    "page": lambda database, goods, snapshot: list(database.page(goods, snapshot, Page(5, ("4",)), hashed=True)),
    "rows": lambda database, goods, snapshot: database.cycle_reads.splits(goods.schema, goods.spec, 1),
    "keys": lambda database, goods, snapshot: database.cycle_reads.key_splits(goods.schema, goods.spec, [("4",)]),
    "methods": lambda database, goods, snapshot: database.methods(goods),
}


@pytest.mark.parametrize("read", _READS)
def test_a_read_of_a_table_that_has_lost_its_key_is_refused(source: Source, read: str) -> None:
    name = TableName(source.mariadb.name, "goods")
    with closing(ComparedMariaDb(Connector(source.connection))) as database:
        goods = database.tables({name: None})[name]
        source.mariadb.execute("ALTER TABLE goods DROP PRIMARY KEY")
        with database.snapshot(1) as snapshot, pytest.raises(EngineFault) as refused:
            _READS[read](database, goods, snapshot)
    assert refused.value.kind is FaultKind.TABLE_STRUCTURE_CHANGED


TWO = """
CREATE TABLE goods (id int PRIMARY KEY, v varchar(9));
INSERT INTO goods VALUES (1, 'a'), (2, 'b');
CREATE TABLE orders (id int PRIMARY KEY, v varchar(9));
INSERT INTO orders VALUES (1, 'a'), (2, 'b');
"""


def lost(name: str) -> dict[str, tuple[str, str]]:
    """What loses the table `goods` of this database to the user `reader`, and what repairs it."""
    return {
        "rights": (
            f"GRANT SELECT ON {name}.orders TO reader@'%';\nREVOKE SELECT ON {name}.* FROM reader@'%'",
            f"GRANT SELECT ON {name}.* TO reader@'%'",
        ),
        "renamed": ("RENAME TABLE goods TO away", "RENAME TABLE away TO goods"),
        "index": ("ALTER TABLE goods DROP PRIMARY KEY", "ALTER TABLE goods ADD PRIMARY KEY (id)"),
    }


@pytest.mark.parametrize("loss", lost(""))
def test_a_table_that_cannot_be_compared_parks_and_the_others_go_on(
    mariadb: MariaDbDatabase, replicate: Replicate, loss: str
) -> None:
    mariadb.execute(TWO)
    replica, name = replicate("goods", "orders", guard_interval_s=NEVER_S), mariadb.name
    replica.satisfied()  # The first check has ended.
    lose, repair = lost(name)[loss]
    mariadb.execute(f"UPDATE goods SET v = 'changed';\nUPDATE orders SET v = 'changed';\n{lose}")
    replica.catch_up()
    assert_parked(replica, FaultKind.TABLE_NOT_READ)
    assert replica.query(f"SELECT DISTINCT v FROM {name}.orders") == [("changed",)]
    assert replica.query(f"SELECT v FROM {name}.goods") == [("a",), ("b",)]
    assert_continues_with_the_next_cycle(replica, lambda: mariadb.execute(repair))
    assert replica.query(f"SELECT DISTINCT v FROM {name}.goods") == [("changed",)]


@pytest.mark.parametrize("loss", lost(""))
def test_a_table_that_a_check_finds_away_is_copied_again_without_a_cycle_on_schedule(
    mariadb: MariaDbDatabase, replicate: Replicate, loss: str
) -> None:
    mariadb.execute(TWO)
    replica = replicate("goods", "orders")
    lose, repair = lost(mariadb.name)[loss]
    mariadb.execute(f"UPDATE goods SET v = 'changed';\n{lose}")
    assert_parked(replica, FaultKind.TABLE_MISSING, FaultKind.TABLE_NO_IDENTITY)
    mariadb.execute(repair)
    replica.wait_live()
    assert replica.query(f"SELECT DISTINCT v FROM {mariadb.name}.goods") == [("changed",)]
    replica.assert_equal()


def test_a_server_that_is_away_is_waited_for(private_mariadb: Callable[[], MariaDbDatabase], tmp_path: Path) -> None:
    mariadb = private_mariadb()
    mariadb.execute(TWO)
    source = connection_of(mariadb, "root", "")
    tables = [table(name, mariadb.name) for name in ("goods", "orders")]
    spec = subscription_spec(mariadb, duckdb_target(tmp_path), tables, source=source)  # type: ignore[arg-type]
    with closing(Replica(mariadb, tmp_path, spec)) as replica:  # type: ignore[arg-type]
        replica.wait_live()
        mariadb.server.stop()
        replica.reports.wait(lambda reports: "source_unreachable" in repr(reports), "the fault")
        mariadb.server.start()
        mariadb.execute("UPDATE goods SET v = 'again';\nDELETE FROM orders")
        wait_until(lambda: replica.pipeline.run is not None, timeout_s=60, what="a run")
        replica.wait_live()
        replica.assert_equal()
        assert replica.query(f"SELECT DISTINCT v FROM {mariadb.name}.goods") == [("again",)]
