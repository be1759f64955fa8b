"""Rows that a target rejects: quarantined, kept for a parked table, and retried."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from engine.model.batch import TableChanges, TableFault
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId, TableName
from engine.model.quarantine import RefusedCause, RefusedState, SetAside
from engine.model.schema import KeyMode
from engine.model.subscription import ConnectionSpec
from engine.model.target import BatchCommit, TableCommit, Target
from engine.net.copy_text import decode_copy_text
from engine.targets.postgres.target import PostgresTarget
from tests.contract.target_material import (
    SUBSCRIPTION,
    Pipeline,
    Row,
    changes,
    images,
    inserts,
    keys,
    partials,
    structure,
)
from tests.contract.targets import target_opener
from tests.fixtures.postgres import Database

T = TableId("t1")
prices = structure(TableName("public", "prices"), {"id": "int4", "price": "numeric(6,2)", "note": "text"}, ["id"])
MOST = 3
CAUSE = "column price: a value cannot be represented exactly by a decimal column"


class Aside(Pipeline):
    """A pipeline whose batches set refused rows of the one table aside, and which knows what came of it."""

    found: SetAside | None = None

    def write(self, batch: BatchCommit) -> None:
        self.found = self.target.commit(batch).get(T)

    def put(self, *buckets: TableChanges, most: int = MOST, aside: bool = True) -> SetAside | None:
        self.commit(TableCommit(T, prices, prices.name, buckets, set_aside=most, aside=aside))
        return self.found

    @property
    def kept(self) -> list[tuple[RefusedState, str, Row, Row]]:
        rows = self.target.refused_rows(SUBSCRIPTION, T)
        return sorted((row.state, row.operation, row.key, row.values) for row in rows)


def refused(*rows: tuple[str | None, Row], unset: int | None = None, gone: bool = False) -> TableChanges:
    """Net rows (key before, texts) with a value that no column can hold."""
    columns = {"k0": pa.array([key for key, _ in rows], pa.string())}
    columns |= {f"c{i}": pa.array([values[i] for _, values in rows], pa.string()) for i in range(3)}
    if unset is not None:
        columns[f"u{unset}"] = pa.array([True] * len(rows))
    columns |= {"gone": pa.array([gone] * len(rows)), "cause": pa.array([CAUSE] * len(rows))}
    return TableChanges(T, False, None, None, None, refused=pa.table(columns))


@pytest.fixture(
    params=[pytest.param(k, marks=[] if k == "duckdb" else pytest.mark.pg) for k in ("duckdb", "postgres18")]
)
def aside(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Aside]:
    with target_opener(request.param, request, tmp_path) as opener:
        target: Target = opener()
        pipeline = Aside(target)
        pipeline.claim()
        pipeline.load(T, prices, _typed(("1", "1.00", "one"), ("2", "2.00", "two")))
        yield pipeline
        target.close()


def _typed(*rows: tuple[str, str, str]) -> list[Row]:
    return [(int(key), Decimal(price), note) for key, price, note in rows]


def ids(pipeline: Pipeline) -> list[int]:
    return [row[0] for row in pipeline.rows(prices)]


def test_a_row_stands_aside_until_a_later_change_ends_it(aside: Aside) -> None:
    found = aside.put(
        refused((None, ("7", "NaN", "seven"))), changes(T, insert=inserts(prices, _typed(("3", "3.00", "x"))))
    )
    assert found == SetAside(1, 1, RefusedCause("value_out_of_domain", CAUSE))
    assert ids(aside) == [1, 2, 3]
    assert aside.kept == [("set_aside", "insert", ("7",), ("7", "NaN", "seven"))]
    progress = aside.target.progress(SUBSCRIPTION)
    assert progress is not None
    assert progress.tables[T].set_aside == 1

    # An update without a value keeps the quarantined row's.
    assert aside.put(refused(("7", ("7", "NaN", None)), unset=2)) == SetAside(
        1, 1, RefusedCause("value_out_of_domain", CAUSE)
    )
    assert aside.kept == [("set_aside", "update", ("7",), ("7", "NaN", "seven"))]

    # One that makes it fit brings the whole row into the table.
    mended = partials(prices, [((7,), (7, _typed(("7", "7.50", ""))[0][1], None), frozenset({2}))])
    assert aside.put(changes(T, delete=keys(prices, [(7,)]), partial=mended)) == SetAside(0, 0)
    assert aside.rows(prices)[-1] == _typed(("7", "7.50", "seven"))[0]
    assert aside.kept == []


def test_a_row_of_the_table_leaves_it_when_it_is_refused(aside: Aside) -> None:
    change = replace(refused(("2", ("2", "NaN", None)), unset=2), deletes=keys(prices, [(2,)]))
    assert aside.put(change, aside=False) == SetAside(1, 1, RefusedCause("value_out_of_domain", CAUSE))
    assert (ids(aside), aside.kept) == ([1], [("set_aside", "update", ("2",), ("2", "NaN", "two"))])

    moved = replace(refused(("2", ("9", "NaN", None)), unset=2), deletes=keys(prices, [(2,)]))
    aside.put(moved)
    assert aside.kept == [("set_aside", "update", ("9",), ("9", "NaN", "two"))]
    assert aside.put(changes(T, delete=keys(prices, [(9,)]))) == SetAside(0, 0)
    assert (ids(aside), aside.kept) == ([1], [])


def test_a_truncate_and_a_new_copy_end_what_stands_aside(aside: Aside) -> None:
    aside.put(refused((None, ("7", "NaN", "x"))))
    assert aside.put(changes(T, truncated=True)) == SetAside(0, 0)
    assert aside.kept == []
    aside.put(refused((None, ("7", "NaN", "x"))))
    aside.target.begin_copy(SUBSCRIPTION, T, prices.name, prices)
    aside.target.set_aside_of_copy(T, [(("8", "NaN", "a\tb"), RefusedCause("value_out_of_domain", CAUSE))], MOST)
    assert [key for _, _, key, _ in aside.kept] == [("7",)]
    aside.commit(TableCommit(T, prices, prices.name, handover=True, set_aside=MOST))
    assert aside.kept == [("set_aside", "copy", ("8",), ("8", "NaN", "a\tb"))]
    aside.target.begin_copy(SUBSCRIPTION, T, prices.name, prices)
    aside.target.set_aside_of_copy(T, [(("9", "NaN", "x"), RefusedCause("value_out_of_domain", CAUSE))], MOST)
    aside.target.discard_copy(T)
    assert [key for _, _, key, _ in aside.kept] == [("8",)]


def test_more_than_may_stand_aside_are_a_fault_and_nothing_of_the_batch_stays(aside: Aside) -> None:
    aside.put(refused(*((None, (str(n), "NaN", "x")) for n in range(3, 3 + MOST))))
    with pytest.raises(EngineFault) as caught:
        aside.put(refused((None, ("99", "NaN", "x"))), changes(T, delete=keys(prices, [(1,)])))
    assert (caught.value.kind, caught.value.subject) == (FaultKind.TOO_MANY_SET_ASIDE, T)
    assert (ids(aside), len(aside.kept)) == ([1, 2], MOST)
    with pytest.raises(EngineFault) as caught:
        aside.put(refused((None, ("99", "NaN", "x"))), most=0)
    assert (caught.value.kind, caught.value.detail) == (FaultKind.VALUE_OUT_OF_DOMAIN, CAUSE)


def test_rows_over_which_a_table_parks_are_kept_beside_what_stands_aside(aside: Aside) -> None:
    aside.put(refused((None, ("7", "NaN", "x"))))
    for note in ("first", "again"):
        tried = TableCommit(T, prices, prices.name, (refused((None, ("8", "NaN", note))),))
        aside.commit(TableCommit(T, prices, prices.name, parked="value_out_of_domain", tried=tried))
    assert aside.kept == [
        ("parked", "insert", ("8",), ("8", "NaN", "again")),
        ("set_aside", "insert", ("7",), ("7", "NaN", "x")),
    ]


def test_rows_are_tried_again_or_skipped(aside: Aside) -> None:
    aside.put(refused((None, ("7", "NaN", "x")), (None, ("8", "8.25", "would fit by now"))))
    by_key = {row.key: row.row for row in aside.target.refused_rows(SUBSCRIPTION, T)}
    assert aside.target.skip_refused(SUBSCRIPTION, T, [by_key["7",]], "ann") == [by_key["7",]]
    assert aside.target.retry_refused(SUBSCRIPTION, T, None) == [by_key["8",]]
    assert ids(aside) == [1, 2, 8]
    (left,) = aside.target.refused_rows(SUBSCRIPTION, T)
    assert (left.state, left.ended_by) == ("skipped", "ann")
    assert datetime.fromisoformat(left.ended_at or "") >= datetime.fromisoformat(left.refused_at)
    assert aside.target.retry_refused(SUBSCRIPTION, T, [left.row]) == []
    assert [(row.state, row.ended_by) for row in aside.target.refused_rows(SUBSCRIPTION, T)] == [("set_aside", "ann")]
    progress = aside.target.progress(SUBSCRIPTION)
    assert progress is not None
    assert progress.tables[T].set_aside == 1
    aside.target.forget(SUBSCRIPTION)
    assert aside.kept == []


def test_a_fault_that_is_not_the_rows_own_is_left_as_it_is(aside: Aside) -> None:
    fault = TableFault("net_change_anomaly", "no such row")
    with pytest.raises(EngineFault) as caught:
        aside.put(replace(refused((None, ("7", "NaN", "x"))), fault=fault))
    assert caught.value.kind is FaultKind.NET_CHANGE_ANOMALY
    assert aside.kept == []


MADE = """
CREATE TABLE prices (id int PRIMARY KEY CHECK (id <> 13), price numeric(6,2) NOT NULL, note text UNIQUE);
CREATE FUNCTION no_fives() RETURNS trigger LANGUAGE plpgsql AS
  $$BEGIN IF NEW.id % 100 = 55 THEN RAISE EXCEPTION 'no fives: %', NEW.note; END IF; RETURN NEW; END$$;
CREATE TRIGGER no_fives BEFORE INSERT OR UPDATE ON prices FOR EACH ROW EXECUTE FUNCTION no_fives();
ALTER TABLE prices ENABLE ALWAYS TRIGGER no_fives;
"""
held = replace(prices, columns=(prices.columns[0], replace(prices.columns[1], map_as="source"), prices.columns[2]))


@pytest.fixture
def owned(database: Database) -> Iterator[tuple[Aside, Database]]:
    mart = database
    mart.execute(MADE)
    target = PostgresTarget(ConnectionSpec("mart", "postgres", mart.settings), decode_copy_text)
    pipeline = Aside(target)
    pipeline.claim()
    yield pipeline, mart
    target.close()


def hand_over(pipeline: Aside, rows: list[Row], most: int = MOST) -> SetAside | None:
    pipeline.target.adopt(SUBSCRIPTION, T, held.name, into_existing=True)
    pipeline.target.begin_copy(SUBSCRIPTION, T, held.name, held)
    pipeline.target.append_copy(T, inserts(held, rows))
    pipeline.commit(TableCommit(T, held, held.name, handover=True, set_aside=most))
    return pipeline.found


def put(pipeline: Aside, *buckets: TableChanges, most: int = MOST) -> SetAside | None:
    aside = bool(pipeline.target.refused_rows(SUBSCRIPTION, T))
    pipeline.commit(TableCommit(T, held, held.name, buckets, set_aside=most, aside=aside))
    return pipeline.found


@pytest.mark.pg
def test_rows_that_an_owners_table_refuses_are_found_among_the_others(owned: tuple[Aside, Database]) -> None:
    pipeline, mart = owned
    # A page of the copy that holds such a row is gone through by rows.
    rows: list[Row] = [(n, "1.00", f"note {n}") for n in range(1, 2001)]
    found = hand_over(pipeline, [*rows, (2001, None, "null")], most=100)
    bad = {("13",), *((str(n),) for n in range(55, 2001, 100)), ("2001",)}
    assert found is not None
    assert (found.count, found.fresh) == (len(bad), len(bad))
    assert mart.execute("SELECT count(*), count(*) FILTER (WHERE id % 100 = 55 OR id = 13) FROM prices") == [
        (2001 - len(bad), 0)
    ]
    causes = {row.key: (row.operation, row.cause.sqlstate) for row in pipeline.target.refused_rows(SUBSCRIPTION, T)}
    assert causes.keys() == bad
    assert (causes["13",], causes["155",], causes["2001",]) == (("copy", "23514"), ("copy", "P0001"), ("copy", "23502"))


@pytest.mark.pg
def test_refused_rows_of_a_batch_and_what_ends_them(owned: tuple[Aside, Database]) -> None:
    pipeline, mart = owned
    assert hand_over(
        pipeline, [(1, "1.00", "a"), (2, "2.00", "b"), (13, "0.00", "bad"), (4, None, "null")]
    ) == SetAside(
        2, 2, RefusedCause("row_refused", "the target refused a row (SQLSTATE 23514, prices_id_check)", "23514")
    )
    assert mart.execute("SELECT id FROM prices ORDER BY 1") == [(1,), (2,)]

    # An update in place is refused by a trigger, and a new row collides with another key: both leave the table alone.
    bucket = changes(
        T,
        delete=keys(held, [(2,), (4,)]),
        insert=inserts(held, [(2, "2.50", "b"), (55, "1.00", "five"), (60, "1.00", "fits")]),
        partial=partials(held, [((4,), (4, "4.00", None), frozenset({2}))]),
        paired=1,
    )
    found = put(pipeline, bucket)
    assert found is not None
    assert (found.count, found.fresh) == (2, 1)
    assert mart.execute("SELECT id, price::text, note FROM prices ORDER BY 1") == [
        (1, "1.00", "a"),
        (2, "2.50", "b"),
        (4, "4.00", "null"),
        (60, "1.00", "fits"),
    ]
    causes = {row.key: row.cause for row in pipeline.target.refused_rows(SUBSCRIPTION, T)}
    assert causes["55",] == RefusedCause("row_refused", "the target refused a row (SQLSTATE P0001)", "P0001")

    twice = changes(T, delete=keys(held, [(1,)]), insert=inserts(held, [(1, "1.00", "fits")]), paired=1)
    assert (found := put(pipeline, twice)) is not None
    assert found.count == 3
    kept = {row.key: (row.operation, row.cause.sqlstate) for row in pipeline.target.refused_rows(SUBSCRIPTION, T)}
    assert kept["1",] == ("update", "23505")

    mart.execute("ALTER TABLE prices DROP CONSTRAINT prices_id_check, DROP CONSTRAINT prices_note_key")
    assert len(pipeline.target.retry_refused(SUBSCRIPTION, T, None)) == 2
    assert mart.execute("SELECT id FROM prices ORDER BY 1") == [(1,), (2,), (4,), (13,), (60,)]
    assert [row.key for row in pipeline.target.refused_rows(SUBSCRIPTION, T)] == [("55",)]


@pytest.mark.pg
def test_a_refused_row_parks_the_table_where_none_may_stand_aside_and_is_kept(owned: tuple[Aside, Database]) -> None:
    pipeline, mart = owned
    hand_over(pipeline, [(1, "1.00", "a")])
    bucket = changes(T, insert=inserts(held, [(2, "2.00", "b"), (13, "0.00", "bad"), (55, "1", "five")]))
    tried = TableCommit(T, held, held.name, (bucket,))
    with pytest.raises(EngineFault) as caught:
        pipeline.commit(tried)
    assert (caught.value.kind, caught.value.subject) == (FaultKind.ROW_REFUSED, T)
    pipeline.commit(TableCommit(T, held, held.name, parked="row_refused", tried=tried))
    assert pipeline.kept == [
        ("parked", "insert", ("13",), ("13", "0.00", "bad")),
        ("parked", "insert", ("55",), ("55", "1", "five")),
    ]
    assert mart.execute("SELECT id FROM prices") == [(1,)]


@pytest.mark.pg
def test_equal_rows_of_a_table_without_a_key_end_as_often_as_they_go(owned: tuple[Aside, Database]) -> None:
    pipeline, mart = owned
    bag = structure(TableName("public", "bag"), {"word": "text", "n": "int4"}, mode=KeyMode.BAG)
    mart.execute("CREATE TABLE bag (word text CHECK (word <> 'bad'), n int)")
    pipeline.target.adopt(SUBSCRIPTION, T, bag.name, into_existing=True)
    pipeline.target.begin_copy(SUBSCRIPTION, T, bag.name, bag)
    pipeline.target.append_copy(T, inserts(bag, [("bad", 1), ("bad", 1), ("bad", 2), ("fine", 1)]))
    pipeline.commit(TableCommit(T, bag, bag.name, handover=True, set_aside=MOST))
    assert pipeline.found is not None
    assert pipeline.found.count == 3
    gone = changes(T, delete=images(bag, {("bad", 1): 1, ("fine", 1): 1}))
    pipeline.commit(TableCommit(T, bag, bag.name, (gone,), set_aside=MOST, aside=True))
    assert sorted(values for _, _, _, values in pipeline.kept) == [("bad", "1"), ("bad", "2")]
    assert mart.execute("SELECT * FROM bag") == []


@pytest.mark.pg
def test_a_copy_that_is_refused_parks_with_its_rows_and_leaves_nothing_else(owned: tuple[Aside, Database]) -> None:
    pipeline, mart = owned
    with pytest.raises(EngineFault) as caught:
        hand_over(pipeline, [(1, "1.00", "a"), (13, "0.00", "bad")], most=0)
    assert (caught.value.kind, caught.value.subject) == (FaultKind.ROW_REFUSED, T)
    tried = TableCommit(T, held, held.name, handover=True)
    pipeline.commit(TableCommit(T, held, held.name, parked="row_refused", tried=tried))
    assert pipeline.kept == [("parked", "copy", ("13",), ("13", "0.00", "bad"))]
    assert mart.execute("SELECT id FROM prices") == []
