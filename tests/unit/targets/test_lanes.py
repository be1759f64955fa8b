"""How changes are dealt out to lanes, the text of what lanes run, and who waits for whom: no database needed."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.identity import TableId, TableName
from engine.model.position import Lsn
from engine.targets.postgres.changes import Place
from engine.targets.postgres.lanes.arrays import TextArray, int4_array
from engine.targets.postgres.lanes.assignment import Cut, calls
from engine.targets.postgres.lanes.deadlocks import circle_of
from engine.targets.postgres.lanes.procedure import DELETE, END, INSERT, TURN, UPDATE, Kind, procedure
from engine.targets.postgres.lanes.stream import OrderedTable, Stream, stream_of
from tests.contract.in_order_material import Change, staged
from tests.contract.target_material import structure

T = TableId("t1")
SCHEMA = structure(TableName("public", "t"), {"id": "int4", "a": "varchar", "b": "int4[]"}, ["id"])
PLACE = Place(T, '"public"."t"', SCHEMA)


def stream(transactions: Sequence[Sequence[int]], *, apart: bool = False) -> Stream:
    """Each transaction updates these keys; transaction t ends at 100 + t."""
    placed, n = [], 0
    for t, keys in enumerate(transactions):
        for key in keys:
            placed.append((n, 100 + t, Change(T, UPDATE, key=(key,), row=(key, str(n), None))))
            n += 1
    return stream_of([OrderedTable(PLACE, [staged(T, SCHEMA, placed)], apart)])


def marks(found: Stream, cut: Cut, lane: int) -> list[int]:
    return [int(mark) for call in calls(found, cut, lane, Lsn(90)) for mark in call.kind]


def turns(found: Stream, cut: Cut) -> list[tuple[int, int]]:
    """For each unit, in order: the numbers of changes before its turn and after it."""
    lanes, cut = [], replace(cut, together=False)
    for lane in range(cut.lanes):
        units: list[tuple[int, int]] = []
        early = late = 0
        waited = False
        for mark in marks(found, cut, lane):
            if mark == TURN:
                waited = True
            elif mark == END:
                units.append((early, late))
                early, late, waited = 0, 0, False
            else:
                early, late = (early, late + 1) if waited else (early + 1, late)
        lanes.append(units)
    return [lanes[u % cut.lanes][u // cut.lanes] for u in range(sum(map(len, lanes)))]


def test_shared_rows_come_behind_the_turn_and_others_before_it() -> None:
    found = stream([[1, 2], [2, 3], [4], [2]])
    assert turns(found, Cut(0, 4, lanes=2)) == [(2, 0), (1, 1), (1, 0), (1, 0)]
    assert turns(found, Cut(0, 4, lanes=3)) == [(2, 0), (1, 1), (1, 0), (0, 1)]
    assert turns(found, Cut(0, 4, lanes=3, related_last=False)) == [(2, 0), (2, 0), (1, 0), (1, 0)]


def test_a_tied_table_waits_with_everything() -> None:
    assert turns(stream([[1], [2], [3]], apart=True), Cut(0, 3, lanes=2)) == [(0, 1), (0, 1), (0, 1)]


def test_one_lane_has_no_turns_and_groups_end_where_they_are_full() -> None:
    found = stream([[1], [2], [3], [4], [5]])
    assert marks(found, Cut(0, 5, group=2), 0) == [1, 1, END, 1, 1, END, 1, END]
    assert marks(found, Cut(1, 3), 0) == [1, END, 1, END]


@given(
    st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), min_size=1, max_size=12),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_every_change_is_dealt_out_once_and_never_beside_one_of_the_same_row(
    transactions: list[list[int]], lanes: int, group: int
) -> None:
    found = stream(transactions)
    cut = Cut(0, len(transactions), group, lanes)
    units = [[key for t in transactions[u : u + group] for key in t] for u in range(0, len(transactions), group)]
    parts = turns(found, cut)
    assert [early + late for early, late in parts] == [len(unit) for unit in units]
    if lanes > 1:
        for u, unit in enumerate(units):
            beside = {key for other in units[max(0, u - lanes + 1) : u] for key in other}
            assert parts[u][1] == sum(key in beside for key in unit)


def test_calls_stay_small_and_begin_at_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.targets.postgres.lanes.assignment.CHANGES_AT_ONCE", 3)
    found = stream([[1], [2], [3, 4], [5, 6, 7, 8, 9], [10]])
    assert [(call.first, list(call.kind)) for call in calls(found, Cut(0, 5, together=False), 0, Lsn(90))] == [
        (0, [1, END, 1, END]),
        (2, [1, 1, END]),
        (3, [1, 1, 1, 1, 1, END]),
        (4, [1, END]),
    ]


def test_rows_that_change_once_in_a_unit_share_a_statement_and_the_last_of_several_updates_is_enough() -> None:
    found = stream([[1, 2, 1], [3, 1], [4, 5, 5]])
    (call,) = calls(found, Cut(0, 3, group=3), 0, Lsn(90))
    assert list(call.kind) == [2, END]
    assert call.counts == int4_array(np.array([5]))
    keys, texts = ["1", "2", "3", "4", "5"], ["4", "1", "3", "5", "7"]
    values = dict(zip(_values(call.values)[:5], _values(call.values)[5:10], strict=True))
    assert values == dict(zip(keys, texts, strict=True))
    assert _values(call.values)[10:] == [None] * 5


def test_where_order_matters_nothing_shares_a_statement() -> None:
    (call,) = calls(stream([[1, 2, 3, 4, 5, 6]], apart=True), Cut(0, 1), 0, Lsn(90))
    assert list(call.kind) == [1] * 6 + [END]


def _values(array: TextArray) -> list[str | None]:
    """Elements of an array in its binary form."""
    found: list[str | None] = []
    at = 20
    while at < len(array.body):
        (size,) = struct.unpack_from(">i", array.body, at)
        found.append(None if size < 0 else array.body[at + 4 : at + 4 + size].decode())
        at += 4 + max(size, 0)
    return found


def test_what_is_on_record_is_left_out() -> None:
    found = stream([[1], [2], [3]])
    assert [found.behind(Lsn(at)) for at in (99, 100, 101, 102, 200)] == [0, 1, 2, 3, 3]
    assert found.end(2) == Lsn(101)


def test_statements_name_what_they_change() -> None:
    unset = Kind(PLACE, UPDATE, unset=frozenset({2}))
    assert unset.statement().startswith(
        'UPDATE "public"."t" SET "a" = $2[__penstock_at + 2]::pg_catalog.varchar'
        ' WHERE "id" = $2[__penstock_at + 1]::pg_catalog.int4; IF NOT FOUND'
    )
    assert unset.reads == ["k0", "c1"]
    assert Kind(PLACE, UPDATE, moved=True).reads == ["k0", "c0", "c1", "c2"]
    assert Kind(PLACE, DELETE).reads == ["k0"]
    assert Kind(PLACE, INSERT).reads == ["c0", "c1", "c2"]


@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_failed_statement_is_found_by_its_line_in_any_language(count: int) -> None:
    kinds = [Kind(Place(T, f'"public"."t{n}"', SCHEMA), UPDATE) for n in range(count)]
    made = procedure(kinds)
    body = made.sql.split("$penstock$")[1].split("\n")
    for number, kind in enumerate(kinds):
        line = next(at for at, text in enumerate(body, 1) if kind.statement() in text)
        for words in (
            "function {}(integer[],text[]) line {} at SQL statement",
            "Funktion {}(integer[]) Zeile {} bei SQL",
        ):
            context = "SQL statement\nPL/pgSQL " + words.format("pg_temp_3.penstock_lane", line)
            assert made.kind_at(context) is kinds[number]
    assert made.kind_at(None) is None
    assert made.kind_at("PL/pgSQL function other(int) line 7 at RAISE") is None


def test_waits_in_a_circle() -> None:
    assert circle_of({1: [2], 2: [3], 3: [9]}) == []
    assert circle_of({}) == []
    assert set(circle_of({1: [2], 2: [3], 3: [2]})) == {2, 3}
    assert circle_of({1: [9], 4: [4]}) == [4]


@given(st.dictionaries(st.integers(0, 5), st.lists(st.integers(0, 7), max_size=3), max_size=6))
def test_a_circle_is_found_exactly_where_there_is_one(blockers: Mapping[int, Sequence[int]]) -> None:
    found = circle_of(blockers)
    for at, other in zip(found, [*found[1:], *found[:1]], strict=True):
        assert other in blockers[at]
    left = dict(blockers)
    while True:
        free = [at for at, waits in left.items() if not any(other in left for other in waits)]
        if not free:
            break
        for at in free:
            del left[at]
    assert bool(found) == bool(left)
