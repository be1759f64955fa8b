"""Verifications with repair: errors planted on the target are found and put right under load, and nothing else is touched."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from engine.link.verifications import RowCounts
from engine.model.soft_delete import DeleteMode
from engine.model.subscription import ApplyMode, ApplyPolicy, ConnectionSpec, QueueMode
from engine.model.verification import VerificationMethod
from engine.pipeline import cuts
from engine.platform.failpoints import Failpoint
from tests.fixtures.load import Load
from tests.fixtures.postgres import Database, Session
from tests.fixtures.replication import Replica, table
from tests.pg.bad_days.conftest import BadDay
from tests.pg.engine.killed_engines import arm, engine, subscribed
from tests.pg.engine.repairing import kept, plant, repaired

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]

TABLES = """
CREATE TABLE items (id int PRIMARY KEY, price float8, note text, seen timestamptz, amount numeric(12, 2), large text);
INSERT INTO items SELECT i, i + 0.1, 'note ' || i, '2026-03-01 12:00:00+00'::timestamptz + i * interval '1 hour', i, repeat('x', 20000)
FROM generate_series(1, 300) i;
CREATE TABLE pairs (a int, b text, value int, PRIMARY KEY (a, b));
INSERT INTO pairs SELECT i % 10, 'b"\\,{' || i, i FROM generate_series(1, 200) i;
CREATE TABLE bag (id int, value int);
ALTER TABLE bag REPLICA IDENTITY FULL;
INSERT INTO bag SELECT i, i FROM generate_series(1, 20) i;
"""
PLANTED = [
    "DELETE FROM public.items WHERE id = 7",
    "INSERT INTO public.items VALUES (1001, 1, 'extra', NULL, 1, NULL)",
    "UPDATE public.items SET note = 'wrong' WHERE id = 8",
    "UPDATE public.items SET price = 9.100000000000001 WHERE id = 9",
    "UPDATE public.items SET note = '' WHERE id = 10",
    "UPDATE public.items SET seen = seen + interval '1 hour' WHERE id = 11",
    "UPDATE public.items SET large = large || 'y', amount = 0.01 WHERE id = 12",
    "UPDATE public.pairs SET value = -1 WHERE a = 3 AND value = 3",
    "DELETE FROM public.pairs WHERE a = 4 AND value = 4",
]
LISTED = {
    ("7", "missing", ()),
    ("1001", "extra", ()),
    ("8", "different", ("note",)),
    ("9", "different", ("price",)),
    ("10", "different", ("note",)),
    ("11", "different", ("seen",)),
    ("12", "different", ("amount", "large")),
}


class ItemLoad(Load):
    """Small transactions over rows in which no error is planted."""

    def transact(self, connection: Session) -> None:
        with connection.transaction():
            chosen = self.rng.randrange(100, 301)
            connection.execute("UPDATE items SET price = price + 1 WHERE id = %s", [chosen])
            connection.execute("UPDATE pairs SET value = value + 1 WHERE a = 9")


@pytest.fixture(params=["duckdb", "postgres"])
def target_kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


def test_planted_errors_are_repaired_under_load_and_nothing_else_is_touched(
    database: Database, replicate: Replicate, target_kind: str
) -> None:
    database.execute(TABLES)
    replica = replicate(database, [table("items"), table("pairs"), table("bag")])
    replica.catch_up()
    version = "xmin::text, " if target_kind == "postgres" else ""
    untouched = f"SELECT {version}* FROM public.items WHERE id BETWEEN 13 AND 99 ORDER BY id"
    before = replica.look(untouched)
    plant(replica, [*PLANTED, "DELETE FROM public.bag WHERE id = 3"])
    with ItemLoad(database.connect, 1) as load:
        load.more(5)
        preview = repaired(replica, apply=False)
        load.more(5)
        found = repaired(replica, method=VerificationMethod.CHECKSUM)
        load.more(5)
        assert replica.satisfied()
    items = preview["items"]
    assert {(d.key[0], d.kind, d.columns) for d in items.differing} == LISTED
    assert (items.equal, items.would_repair, items.repaired) == (
        False,
        RowCounts(inserted=1, updated=5, deleted=1),
        None,
    )
    assert preview["pairs"].would_repair == RowCounts(inserted=1, updated=1)
    assert "no key" in (preview["bag"].not_repaired or "")
    items = found["items"]
    assert (items.equal, items.repaired) == (True, RowCounts(inserted=1, updated=5, deleted=1))
    assert items.repaired_at is not None
    assert items.position is not None
    assert items.repaired_at < items.position
    assert (preview["items"].method, items.method, items.by_rows_because) == (
        VerificationMethod.ROWS,
        VerificationMethod.CHECKSUM,
        None,
    )
    assert {(d.key[0], d.kind, d.columns) for d in items.differing} == LISTED
    assert (found["pairs"].equal, found["pairs"].repaired) == (True, RowCounts(inserted=1, updated=1))
    assert (found["bag"].equal, found["bag"].repaired) == (False, None)
    assert replica.look(untouched) == before
    replica.catch_up()
    assert {v.source.name: v.equal for v in replica.verify()} == {"items": True, "pairs": True, "bag": False}
    rows = {(kind, json.loads(key)[0]): (old, new) for kind, key, old, new in kept(replica)}
    assert len(rows) == 9
    assert rows["inserted", "7"][0] is None
    old, new = rows["updated", "10"]
    assert (json.loads(old)["note"], json.loads(new)["note"]) == ("", "note 10")
    assert json.loads(rows["deleted", "1001"][0])["seen"] is None
    assert {event.severity for event in replica.events_of("rows_repaired")} == {"warning"}
    assert len(replica.events_of("rows_repaired")) == 2
    assert not any("wrong" in event.detail for event in replica.events_of("rows_repaired"))


def test_rows_that_change_on_the_source_meanwhile_are_repaired_to_what_they_are_then(
    database: Database, replicate: Replicate, target_kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute(TABLES)
    ordered = ApplyPolicy(ApplyMode.TRANSACTIONAL, lanes=2) if target_kind == "postgres" else ApplyPolicy()
    replica = replicate(database, [table("items"), table("pairs")], queue_mode=QueueMode.PERSIST, apply=ordered)
    replica.catch_up()

    def meddle() -> None:
        database.execute("UPDATE items SET note = 'late' WHERE id = 8")
        database.execute("DELETE FROM items WHERE id = 9")
        database.execute("UPDATE items SET id = 2010 WHERE id = 10")
        database.execute("TRUNCATE pairs; INSERT INTO pairs VALUES (3, 'new', 1)")

    wrong = [f"UPDATE public.items SET note = 'wrong' WHERE id IN ({', '.join(map(str, range(8, 30)))})"]
    plant(replica, [*wrong, "UPDATE public.pairs SET value = -1 WHERE a = 3"])
    found = repaired(replica, before=meddle)
    assert (found["items"].equal, found["items"].repaired) == (True, RowCounts(updated=19))
    assert (found["pairs"].equal, found["pairs"].repaired) == (True, RowCounts())
    assert not any(json.loads(key)[0] in {"8", "9", "10"} for _, key, _, _ in kept(replica))

    plant(replica, ["UPDATE public.pairs SET value = -1 WHERE a = 3", "DELETE FROM public.items WHERE id = 20"])
    database.execute("INSERT INTO pairs SELECT 3, 'n' || i, i FROM generate_series(1, 20) i")
    replica.catch_up()
    again = repaired(replica, within=lambda: _run(database, "TRUNCATE pairs; INSERT INTO pairs VALUES (3, 'new', 2)"))
    assert (again["pairs"].equal, again["pairs"].not_repaired) == (True, None)
    assert (again["items"].equal, again["items"].repaired) == (True, RowCounts(inserted=1))

    plant(replica, ["UPDATE public.items SET note = 'wrong' WHERE id = 21"])
    structure = "ALTER TABLE items ADD COLUMN more int; UPDATE items SET more = 1 WHERE id = 30"
    changed = repaired(replica, before=lambda: _run(database, structure))
    assert (changed["items"].equal, changed["items"].repaired) == (False, None)
    assert "columns changed" in (changed["items"].not_repaired or "")
    assert (repaired(replica)["items"].equal, repaired(replica)["items"].repaired) == (True, None)
    replica.assert_equal()

    def slow() -> None:
        database.execute("UPDATE items SET note = 'later' WHERE id = 31")
        replica.catch_up()  # Only a target that has gone on without the rows gets there.

    monkeypatch.setattr(cuts, "WRITE_WAIT_S", 0.2)
    plant(replica, ["UPDATE public.items SET note = 'wrong' WHERE id = 21"])
    late = repaired(replica, within=slow)["items"]
    assert (late.equal, late.repaired) == (False, None)
    assert "did not return the rows" in (late.not_repaired or "")


def _run(database: Database, statements: str) -> None:
    database.execute(statements)


@pytest.fixture
def dying(database: Database, mart: ConnectionSpec, tmp_path: Path) -> Iterator[BadDay]:
    database.execute(TABLES)
    with subscribed(database, mart, ["items", "pairs"], tmp_path) as made:
        yield made


DEATHS = {Failpoint.REPAIR_BEFORE: 0, Failpoint.REPAIR_AFTER: 9}
"""By failpoint the number of rows that are repaired after it."""


def die_in_a_repair(replica: BadDay, armed: Path, at: tuple[Failpoint, int], mode: QueueMode) -> str:
    """What an engine printed that verified with repair until it died at a failpoint."""
    arm(armed, *at)
    with engine(replica, mode, armed) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("repair\n")
        process.stdin.flush()
        output = process.stdout.read()
    assert not (armed / at[0].value).exists(), output
    return output


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("points", "mode"), [([Failpoint.REPAIR_AFTER], QueueMode.MEMORY), ([*DEATHS], QueueMode.PERSIST)]
)
def test_an_engine_that_dies_leaves_all_of_a_repair_or_nothing(
    dying: BadDay, armed: Path, points: Sequence[Failpoint], mode: QueueMode
) -> None:
    dying.wait_live()
    dying.catch_up()
    plant(dying, PLANTED)
    with ItemLoad(dying.database.connect, 2):
        for point in points:
            dying.close()
            assert "rows_repaired" not in die_in_a_repair(dying, armed, (point, 1), mode)
            dying.again()
            dying.wait_live()
            dying.catch_up()
            assert {verdict.equal for verdict in dying.verify()} == {DEATHS[point] > 0}
            tables = "SELECT count(*) FROM information_schema.tables WHERE table_name = 'repaired_rows'"
            assert dying.look(tables) == [(int(DEATHS[point] > 0),)]
    assert len(kept(dying)) == 9
    assert {found.repaired for found in repaired(dying).values()} == {None}


ROWS = 20_000
DRILL = f"""
CREATE TABLE items (id int PRIMARY KEY, price float8, note text);
INSERT INTO items SELECT i, i / 7.0, 'note ' || i FROM generate_series(1, {ROWS}) i;
CREATE TABLE pairs (a int, b text, value int, PRIMARY KEY (a, b));
"""
KILLS = [
    (Failpoint.REPAIR_BEFORE, 1),
    (Failpoint.COMMIT_AFTER, 10),
    (Failpoint.REPAIR_AFTER, 1),
    (Failpoint.COMMIT_BEFORE, 4),
    (Failpoint.REPORT_BEFORE, 30),
]


def damage(rng: random.Random) -> list[str]:
    """200 rows changed, deleted and added that no load touches: a change of a row that is not there parks its table."""
    chosen = rng.sample(range(1000, ROWS), 140)
    changed, deleted = ", ".join(map(str, chosen[:70])), ", ".join(map(str, chosen[70:]))
    added = ", ".join(f"({id_}, {rng.random()}, '')" for id_ in rng.sample(range(ROWS + 1, 1_000_000_000), 60))
    return [
        f"UPDATE public.items SET price = -price, note = NULL WHERE id IN ({changed})",
        f"DELETE FROM public.items WHERE id IN ({deleted})",
        f"INSERT INTO public.items VALUES {added}",
    ]


@pytest.mark.chaos
@pytest.mark.parametrize("seed", [1])
def test_damage_is_repaired_whatever_dies_meanwhile(
    database: Database, mart: ConnectionSpec, tmp_path: Path, armed: Path, seed: int
) -> None:
    rng = random.Random(seed)
    database.execute(DRILL)
    with subscribed(database, mart, ["items", "pairs"], tmp_path) as dying, ItemLoad(database.connect, seed):
        dying.wait_live()
        for point, passing in KILLS:
            dying.catch_up()
            plant(dying, damage(rng))
            dying.close()
            die_in_a_repair(dying, armed, (point, passing), QueueMode.MEMORY)
            dying.again()
            dying.wait_live()
        found = repaired(dying)["items"]
        assert (found.equal, found.not_repaired) == (True, None)
        dying.catch_up()
        assert {verdict.equal for verdict in dying.verify()} == {True}


def test_changes_continue_deleted_rows_and_versions_of_a_repair(
    database: Database, replicate: Replicate, target_kind: str
) -> None:
    database.execute(
        "CREATE TABLE told (id int PRIMARY KEY, note text); INSERT INTO told SELECT i, 'note ' || i FROM generate_series(1, 9) i"
    )
    replica = replicate(database, [table("told", deletes=DeleteMode.MARK, history=True)])
    replica.catch_up()
    plant(
        replica,
        [
            "UPDATE public.told SET note = 'wrong' WHERE id IN (1, 2)",
            "DELETE FROM public.told WHERE id IN (3, 4)",
            "DELETE FROM public.told__history WHERE id IN (2, 4)",
            "INSERT INTO public.told (id, note) VALUES (20, 'extra'), (21, 'extra')",
        ],
    )
    found = repaired(replica)["told"]
    assert (found.equal, found.repaired) == (True, RowCounts(inserted=2, updated=2, deleted=2))
    # Each change ends a version, which has to be there.
    database.execute("UPDATE told SET note = 'later' WHERE id <= 4; DELETE FROM told WHERE id IN (2, 4, 5)")
    database.execute("INSERT INTO told VALUES (20, 'new')")
    replica.catch_up()
    rows = database.execute("SELECT id, note FROM told ORDER BY id")
    assert replica.look("SELECT id, note FROM public.told WHERE _deleted_at IS NULL ORDER BY id") == rows
    current = "SELECT id, note FROM public.told__history WHERE _valid_to IS NULL ORDER BY id"
    assert replica.look(current) == rows
    marked = "SELECT id, note FROM public.told WHERE _deleted_at IS NOT NULL ORDER BY id"
    assert replica.look(marked) == [(2, "later"), (4, "later"), (5, "note 5"), (21, "extra")]
    assert repaired(replica, apply=False)["told"].equal
