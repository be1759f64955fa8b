"""DuckDB: whatever happens to the file between two steps of a cycle, nothing wrong is found, and the next cycle finds all."""

from __future__ import annotations

import fcntl
import os
import random
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import duckdb
import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.sources.duckdb_queries import locked_file, place
from engine.sources.query_diff.database import Method
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
    interrupted,
)
from tests.fixtures.waiting import wait_until
from tests.process.duckdb_queries.conftest import Shop
from tests.process.sqlite_triggers.conftest import Replicate

_LOCK = "hhqqi4x"
_GOODS = "id INTEGER PRIMARY KEY, v VARCHAR, n DOUBLE DEFAULT 0.5"
_TEXTS = "id INTEGER PRIMARY KEY, v VARCHAR, n VARCHAR"
_UNKEYED = "id INTEGER, v VARCHAR, n DOUBLE"
_HOOKED = (
    (place, "stamp_of"),
    (place, "_opened"),
    (place, "_read_catalog"),
    (locked_file, "stamp_of"),
    (locked_file, "_is_locked"),
    (locked_file, "_copy"),
)
"""Steps of reading the file's catalog, and of copying it."""


def _made(least: int) -> list[str]:
    return [
        f"CREATE TABLE goods ({_GOODS})",
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, v VARCHAR)",
        f"INSERT INTO goods SELECT 2 * i, 'n', i / 2 FROM range({least}, 40) AS t(i)",
        "INSERT INTO orders SELECT i, 'n' FROM range(12) AS t(i)",
    ]


def _rebuilt(columns: str, name: str = "goods", former: str = "goods") -> list[str]:
    """Statements that create a table again, with its rows."""
    return [
        f"CREATE TEMP TABLE held AS SELECT * FROM {former}",
        f"DROP TABLE {former}",
        f"CREATE TABLE {name} ({columns})",
        f"INSERT INTO {name} SELECT * FROM held",
        "DROP TABLE held",
    ]


_TABLES = {
    "index": (_rebuilt(_UNKEYED), _rebuilt(_GOODS)),
    "renamed": (_rebuilt(_GOODS, "away"), _rebuilt(_GOODS, "goods", "away")),
    "dropped": (["DROP TABLE goods"], [f"CREATE TABLE goods ({_GOODS})", "INSERT INTO goods VALUES (4, 'back', 2.5)"]),
    "column": (["ALTER TABLE goods DROP COLUMN n"], ["ALTER TABLE goods ADD COLUMN n DOUBLE DEFAULT 0.5"]),
    "added": (["ALTER TABLE goods ADD COLUMN more INTEGER DEFAULT 7"], ["ALTER TABLE goods DROP COLUMN more"]),
    "type": (_rebuilt(_TEXTS), _rebuilt(_GOODS)),
    "emptied": (["DELETE FROM goods"], ["INSERT INTO goods VALUES (5, 'back', 0.1)"]),
}
"""What happens to the table, and how it is repaired."""
_GONE = frozenset({FaultKind.TABLE_MISSING, FaultKind.TABLE_STRUCTURE_CHANGED})
LOSSES = (*_TABLES, "replaced", "overwritten", "removed", "locked")


class Source:
    """A file, and what is done to it."""

    def __init__(self, shop: Shop, stack: ExitStack) -> None:
        self.shop = shop
        self._stack = stack
        self._rng = random.Random(5)
        shop.run(*_made(1))

    def change(self) -> None:
        number, key = self._rng.randint(0, 10), self._rng.randint(1, 60)
        self.shop.run(
            "UPDATE goods SET n = n + 0.25 WHERE id % 7 < 3",
            f"DELETE FROM goods WHERE id % 11 = {number}",
            f"INSERT INTO goods (id, v) SELECT {key}, 'new' WHERE {key} NOT IN (SELECT id FROM goods)",
            f"UPDATE orders SET v = '{number}' || id",
        )

    def require_free(self) -> None:
        """Raises ImpossibleError while programs cannot open the file for writing."""
        with self.shop.path.open("rb+") as file:
            wanted = struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            found = fcntl.fcntl(file, fcntl.F_OFD_GETLK, wanted)
        if struct.unpack(_LOCK, found)[0] != fcntl.F_UNLCK:
            raise ImpossibleError

    def at_once(self, *statements: str) -> Callable[[], None]:
        def act() -> None:
            self.require_free()
            self.shop.run(*statements)

        return act

    def lock(self) -> None:
        self.require_free()
        session = self._stack.enter_context(self.shop.program.session())
        session.execute("UPDATE goods SET v = 'open'")

    def another(self) -> Path:
        """Another file with the same tables."""
        other = self.shop.path.with_suffix(".other")
        with duckdb.connect(str(other)) as connection:
            for statement in _made(20):
                connection.execute(statement).fetchall()
        return other

    def replace(self) -> None:
        other = self.another()
        Path(f"{self.shop.path}.wal").unlink(missing_ok=True)
        other.replace(self.shop.path)

    def overwrite(self) -> None:
        """By a program that asks for no lock."""
        other = self.another()
        self.shop.path.write_bytes(other.read_bytes())
        other.unlink()

    def loss(self, name: str) -> Loss:
        if name in _TABLES:
            begin, repair = _TABLES[name]
            return Loss(self.at_once(*begin), lambda: self.shop.run(*repair), _GONE)
        path, away = self.shop.path, self.shop.path.with_suffix(".away")
        lost = frozenset({FaultKind.SOURCE_UNREACHABLE, FaultKind.COPY_LOST})
        timeout = frozenset({FaultKind.SOURCE_TIMEOUT})
        return {
            "replaced": Loss(self.replace, faults=lost | _GONE, is_of_all=True),
            "overwritten": Loss(self.overwrite, faults=lost | _GONE, is_of_all=True),
            "removed": Loss(lambda: path.rename(away), lambda: away.rename(path), lost, is_of_all=True),
            "locked": Loss(self.lock, self._stack.close, timeout, is_of_all=True),
        }[name]


@pytest.fixture
def source(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    hurry(monkeypatch)
    monkeypatch.setattr(locked_file, "_WAIT_S", 0.05)
    with ExitStack() as stack:
        yield Source(shop, stack)


def _hooked(call: Callable[..., Any], cycles: LossyCycles) -> Callable[..., Any]:
    def hooked(*given: Any) -> Any:
        cycles.before_statement()
        return call(*given)

    return hooked


def cycles_of(source: Source, folder: Path, monkeypatch: pytest.MonkeyPatch) -> LossyCycles:
    cycles = LossyCycles(folder / "reader", followed("main"), Method.INCREMENTAL, source.shop.database, source.change)
    for module, name in _HOOKED:
        monkeypatch.setattr(module, name, _hooked(getattr(module, name), cycles))
    cycles.database = interrupted(source.shop.database, cycles.before_statement)
    cycles.begin()
    return cycles


def _cases() -> Iterator[Any]:
    """Each loss runs always with one kind of cycle, at some steps."""
    for place_of_loss, loss in enumerate(LOSSES):
        for parts in (False, True):
            marks = [] if place_of_loss % 2 == parts else [pytest.mark.chaos]
            yield pytest.param(loss, parts, marks=marks, id=f"{loss}-{'parts' if parts else 'one'}")


@pytest.mark.parametrize(("loss", "parts"), list(_cases()))
def test_what_happens_to_the_file_between_two_steps_does_no_harm(
    source: Source,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    loss: str,
    parts: bool,
) -> None:
    cycles = cycles_of(source, tmp_path, monkeypatch)
    step = 1 if request.node.get_closest_marker("chaos") else 5
    happened = cycles.assert_found_wherever(
        source.loss(loss), IN_PARTS if parts else ONE_SNAPSHOT, first=1 + LOSSES.index(loss) % step, step=step
    )
    assert happened >= 12 // step
    assert not list(tmp_path.glob("penstock-*"))


def test_a_statement_for_other_types_than_those_of_the_snapshot_is_not_made(source: Source) -> None:
    database, name = source.shop.database, TableName("main", "goods")
    with database.snapshot(1):
        goods = database.tables({name: None})[name]
        source.shop.run(*_rebuilt(_TEXTS))
        with pytest.raises(EngineFault) as refused:
            database.cycle_reads.splits(goods.schema, goods.spec, 1 << 40)
    assert refused.value.kind is FaultKind.TABLE_STRUCTURE_CHANGED


def test_a_file_that_is_away_is_waited_for(shop: Shop, replicate: Replicate) -> None:
    shop.run(*_made(30))
    replica = replicate(shop, "goods", "orders")
    away = shop.path.with_suffix(".away")
    shop.path.rename(away)
    replica.reports.wait(lambda reports: "source_unreachable" in repr(reports), "the fault")
    away.rename(shop.path)
    shop.run("UPDATE goods SET v = 'again'", "DELETE FROM orders")
    wait_until(lambda: replica.pipeline.run is not None, timeout_s=60, what="a run")
    replica.wait_live()
    replica.assert_equal()
    assert replica.query("SELECT DISTINCT v FROM goods") == [("again",)]


def test_a_table_that_is_away_parks_and_the_others_go_on(shop: Shop, replicate: Replicate) -> None:
    shop.run(*_made(30))
    replica = replicate(shop, "goods", "orders", guard_interval_s=NEVER_S)
    replica.satisfied()  # The first check has ended.
    shop.run(*_rebuilt(_GOODS, "away"), "UPDATE away SET v = 'changed'", "UPDATE orders SET v = 'changed'")
    replica.catch_up()
    assert_parked(replica, FaultKind.TABLE_NOT_READ)
    assert replica.query("SELECT DISTINCT v FROM orders") == [("changed",)]
    assert replica.query("SELECT DISTINCT v FROM goods") == [("n",)]
    assert_continues_with_the_next_cycle(replica, lambda: shop.run(*_rebuilt(_GOODS, "goods", "away")))
    assert replica.query("SELECT DISTINCT v FROM goods") == [("changed",)]
