"""Verifications of a sample, with both kinds of target: what the chosen ranges of keys hold is found, and nothing else is read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.link.verifications import RowCounts
from engine.model.verification import VerificationMethod
from engine.targets.duckdb import range_rows
from engine.verify.pace import Pace
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table
from tests.pg.engine.repairing import plant, repaired

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]

TABLES = """
CREATE TABLE items (id int PRIMARY KEY, price float8, note text);
INSERT INTO items SELECT i, i + 0.1, 'note ' || i FROM generate_series(1, 20000) i;
CREATE TABLE events (day date, tenant bigint, value int, PRIMARY KEY (day, tenant));
INSERT INTO events SELECT '2026-01-01'::date + i / 100, i % 100, i FROM generate_series(1, 8000) i;
CREATE TABLE bag (id int, value int);
ALTER TABLE bag REPLICA IDENTITY FULL;
INSERT INTO bag SELECT i, i FROM generate_series(1, 500) i;
CREATE TABLE few (id int PRIMARY KEY);
INSERT INTO few VALUES (1);
ANALYZE items, events;
"""
AT_THE_ENDS = [
    "INSERT INTO public.items VALUES (-5, 1, 'before the first key'), (99999, 1, 'after the last key')",
    "DELETE FROM public.items WHERE id IN (1, 20000)",
    "INSERT INTO public.events VALUES ('2025-06-01', 7, 1), ('2030-01-01', 1, 1)",
    "DELETE FROM public.events WHERE day = '2026-01-01' AND tenant = 1",
]
IN_ALL_ROWS = ["UPDATE public.items SET note = '' WHERE id BETWEEN 5000 AND 15000"]
SHARE = 0.1


@pytest.fixture(params=["duckdb", "postgres"])
def target_kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


def test_a_sample_finds_what_its_ranges_hold_and_repairs_it(
    database: Database, replicate: Replicate, monkeypatch: pytest.MonkeyPatch, target_kind: str
) -> None:
    monkeypatch.setattr(range_rows, "_SCATTERED", 1000)  # The tables are large for it.
    database.execute(TABLES)
    replica = replicate(database, [table(name) for name in ("items", "events", "bag", "few")])
    replica.catch_up()
    for method in VerificationMethod:
        found = repaired(replica, apply=False, method=method, sample=SHARE)
        assert {name: (one.equal, one.sample, one.whole_because) for name, one in found.items()} == {
            "items": (True, SHARE, None),
            "events": (True, SHARE, None),
            "bag": (True, 1.0, "a table whose key cannot be walked"),
            "few": (True, 1.0, "few rows"),
        }
        for name, rows in (("items", 20_000), ("events", 8000)):
            one = found[name]
            assert (one.method, one.by_rows_because) == (method, None)
            assert one.source_rows == one.target_rows == pytest.approx(rows * SHARE, rel=0.5)
    plant(replica, [*AT_THE_ENDS, *IN_ALL_ROWS])
    preview = repaired(replica, apply=False, sample=SHARE)
    found = repaired(replica, method=VerificationMethod.CHECKSUM, sample=SHARE)
    for name in ("items", "events"):
        # A verification with the same id chooses the same ranges, and compares them again after the repair.
        assert (preview[name].equal, found[name].equal, found[name].sample) == (False, True, SHARE)
        assert preview[name].would_repair == found[name].repaired
    assert found["events"].repaired == RowCounts(inserted=1, deleted=2)
    repair = found["items"].repaired
    assert repair is not None
    assert (repair.inserted, repair.deleted) == (2, 2)
    assert 250 < repair.updated < 2500
    assert replica.look("SELECT count(*) FROM public.items WHERE note = ''") == [(10_001 - repair.updated,)]


@pytest.mark.parametrize("method", VerificationMethod)
def test_a_budget_rests_between_parts_and_finds_the_same(
    database: Database,
    replicate: Replicate,
    monkeypatch: pytest.MonkeyPatch,
    target_kind: str,
    method: VerificationMethod,
) -> None:
    rests: list[float] = []
    rest = Pace.rest

    def counted(self: Pace) -> None:
        rests.append(self.budget)
        rest(self)

    monkeypatch.setattr(Pace, "rest", counted)
    database.execute(TABLES)
    replica = replicate(database, [table("items"), table("events")])
    replica.catch_up()
    plant(replica, IN_ALL_ROWS)
    found = repaired(replica, apply=False, method=method, budget=0.5)
    assert (found["items"].equal, found["events"].equal) == (False, True)
    assert len(rests) >= 2
    assert set(rests) == {0.5}
