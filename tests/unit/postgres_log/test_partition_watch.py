"""What a watch reports from the catalogs that it reads, and from marks that an earlier watch left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.model.identity import RelationId, TableId, TableName
from engine.model.position import Lsn
from engine.model.source import PartitionRewrite
from engine.model.subscription import TableSpec
from engine.sources.postgres import partition_watch as guard
from engine.sources.postgres.partition_watch import PartitionWatch

ROOT = TableName("public", "root")
TABLES = [TableSpec(TableId("t1"), ROOT, ROOT)]


class Catalog:
    """A root and its members as the catalog has them: number → (name, storage, writer, created in place).

    `joined`: number → who made it a partition, where that is not 4.
    """

    def __init__(self) -> None:
        self.oid = 30
        self.moved = 30
        self.moved_to: str | None = None
        self.members: dict[int, tuple[str, int, int, bool]] = {31: ("root_1", 31, 5, True), 32: ("root_2", 0, 5, True)}
        self.joined: dict[int, int] = {}

    @contextmanager
    def session(self) -> Iterator[Any]:
        yield SimpleNamespace(execute=self._execute, transaction=nullcontext)

    def _execute(self, statement: str, _: Any = None) -> Any:
        rows: list[tuple[Any, ...]]
        if "WHERE c.oid = ANY" in statement:
            rows = [(self.moved, ROOT.schema, self.moved_to)] if self.moved_to else []
        elif "pg_partition_tree" not in statement:
            rows = [(*ROOT_KEY, self.oid, True)] if self.oid else []
        else:
            rows = [(*ROOT_KEY, oid, *member, self.joined.get(oid, 4)) for oid, member in self.members.items()]
        return SimpleNamespace(fetchall=lambda: rows)


ROOT_KEY = (ROOT.schema, ROOT.name)


@pytest.fixture
def catalog() -> Catalog:
    return Catalog()


def look(watch: PartitionWatch, catalog: Catalog) -> guard.TablesLook:
    return watch.examine(cast("Any", catalog), TABLES)


def mark_of(catalog: Catalog) -> str:
    return look(PartitionWatch(lambda _: Lsn(77)), catalog).marks[ROOT]


def remembering(mark: str) -> PartitionWatch:
    watch = PartitionWatch(lambda _: Lsn(77))
    watch.remember({ROOT: mark})
    return watch


def test_a_mark_is_the_same_while_nothing_changes(catalog: Catalog) -> None:
    mark = mark_of(catalog)
    catalog.members = dict(reversed(catalog.members.items()))
    watch = remembering(mark)
    for _ in range(2):
        found = look(watch, catalog)
        assert (dict(found.faults), found.marks) == ({}, {ROOT: mark})


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({31: ("root_1", 31, 5, True)}, "partition root_2 was detached or dropped"),
        ({}, "partition root_1 was detached or dropped"),
        ({33: ("root_3", 33, 6, False)}, "partition root_1 was detached or dropped"),
    ],
)
def test_what_is_gone_since_the_mark_is_told_once(
    catalog: Catalog, members: dict[int, tuple[str, int, int, bool]], told: str
) -> None:
    watch = remembering(mark_of(catalog))
    catalog.members = members
    found = look(watch, catalog)
    assert (found.faults, found.rewrites) == ({ROOT: told}, {})
    assert look(watch, catalog).faults == {}


def test_a_partition_that_only_the_log_named_is_told_when_it_is_gone(catalog: Catalog) -> None:
    seen = mark_of(catalog)
    below = {RelationId(31): TableName("public", "root_1"), RelationId(33): TableName("public", "root_3")}
    mark = guard.mark_told(seen, below)
    assert (guard.mark_told(seen, {RelationId(31): below[RelationId(31)]}), guard.mark_told(mark, below)) == (
        seen,
        mark,
    )
    watch = remembering(mark)
    found = look(watch, catalog)
    assert (found.faults, found.rewrites) == ({ROOT: "partition public.root_3 was detached or dropped"}, {})
    assert (look(watch, catalog).faults, found.marks) == ({}, {ROOT: seen})


@pytest.mark.parametrize(
    ("member", "told"),
    [
        (("root_3", 33, 6, True), None),
        (("root_3", 33, 6, False), "partition root_3 was attached"),
        (("root_3", 44, 6, True), "partition root_3 was truncated or rewritten"),
    ],
)
def test_a_partition_that_only_the_log_named_counts_as_new_when_it_is_there(
    catalog: Catalog, member: tuple[str, int, int, bool], told: str | None
) -> None:
    watch = remembering(guard.mark_told(mark_of(catalog), {RelationId(33): TableName("public", "root_3")}))
    catalog.members = {**catalog.members, 33: member}
    assert look(watch, catalog).faults == ({} if told is None else {ROOT: told})


def test_a_partition_that_was_away_and_is_back_is_told_once(catalog: Catalog) -> None:
    watch = remembering(mark_of(catalog))
    catalog.joined = {32: 9}
    found = look(watch, catalog)
    assert (found.faults, found.rewrites) == ({ROOT: "partition root_2 was detached and attached again"}, {})
    assert look(watch, catalog).faults == {}


def test_a_mark_of_before_it_told_who_joined_them_is_no_reason(catalog: Catalog) -> None:
    watch = remembering(json.dumps([30, [[31, "root_1", 31], [32, "root_2", 0]]]))
    assert look(watch, catalog).faults == {}
    catalog.joined = {32: 9}
    assert look(watch, catalog).faults.keys() == {ROOT}


def test_what_was_below_a_root_once_stays_known(catalog: Catalog) -> None:
    watch = PartitionWatch(lambda _: Lsn(77))
    assert look(watch, catalog).below == {ROOT: {31, 32}}
    catalog.members[33] = catalog.members.pop(32)
    found = look(watch, catalog)
    assert (found.below, found.left) == ({ROOT: {31, 33}}, {ROOT: {32: Lsn(77)}})
    catalog.oid, catalog.moved_to = 0, "elsewhere"
    assert look(watch, catalog).below == {}
    assert watch._left == {TableName("public", "elsewhere"): {32: Lsn(77)}}


def test_only_the_last_that_left_a_root_are_known(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "LEFT_KEPT", 2)
    watch = PartitionWatch(lambda _: Lsn(77))
    for number in range(40, 46):
        catalog.members = {number: ("root_1", number, 5, True)}
        found = look(watch, catalog)
    assert (found.below, found.left) == ({ROOT: {45}}, {ROOT: {43: Lsn(77), 44: Lsn(77)}})


@pytest.mark.parametrize("in_place", [False, True])
def test_only_a_partition_created_in_place_may_come(catalog: Catalog, *, in_place: bool) -> None:
    watch = remembering(mark_of(catalog))
    catalog.members[33] = ("root_3", 33, 6, in_place)
    found = look(watch, catalog)
    assert found.faults == ({} if in_place else {ROOT: "partition root_3 was attached"})
    assert found.marks == {ROOT: mark_of(catalog)}


@pytest.mark.parametrize("new", [False, True], ids=["known", "new"])
def test_new_storage_names_its_writer(catalog: Catalog, *, new: bool) -> None:
    watch = remembering(mark_of(catalog))
    catalog.members[33 if new else 31] = ("part", 40, 9, True)
    found = look(watch, catalog)
    assert found.faults == {ROOT: "partition part was truncated or rewritten"}
    rewrite = found.rewrites[ROOT]
    assert rewrite == PartitionRewrite(RelationId(30), frozenset({9}), Lsn(77))


def test_a_mark_wins_over_what_was_seen_before_it_was_handed_in(catalog: Catalog) -> None:
    mark = mark_of(catalog)
    del catalog.members[32]
    watch = PartitionWatch(lambda _: Lsn(77))
    look(watch, catalog)
    watch.remember({ROOT: mark})
    assert look(watch, catalog).faults.keys() == {ROOT}


def test_a_root_made_again_since_the_mark_is_told_as_replaced(catalog: Catalog) -> None:
    watch = remembering(mark_of(catalog))
    catalog.oid, catalog.members = 50, {51: ("root_1", 51, 6, True)}
    found = look(watch, catalog)
    assert (found.replaced, found.marks) == ({ROOT: 50}, {})
    watch.accept(ROOT, RelationId(50))
    assert watch.dropped_tables == frozenset()
    assert look(watch, catalog).marks == {ROOT: mark_of(catalog)}
    del catalog.members[51]
    assert look(watch, catalog).faults.keys() == {ROOT}


def test_accepting_what_was_settled_meanwhile_does_nothing(catalog: Catalog) -> None:
    watch = remembering(mark_of(catalog))
    catalog.oid = 50
    look(watch, catalog)
    watch.watch_again(TABLES, {ROOT: 50})
    watch.accept(ROOT, RelationId(49))
    assert watch.dropped_tables == frozenset()
    assert look(watch, catalog).faults == {}


def test_what_came_back_since_it_was_told_as_dropped_is_not_settled(catalog: Catalog) -> None:
    watch = remembering(mark_of(catalog))
    catalog.oid = 0
    look(watch, catalog)
    watch.watch_again(TABLES, {ROOT: 51})
    watch.watch_again(TABLES, {})
    catalog.oid = 51
    assert look(watch, catalog).replaced == {ROOT: RelationId(51)}


def test_a_table_under_another_name_goes_by_that_from_then_on(catalog: Catalog) -> None:
    watch = PartitionWatch(lambda _: Lsn(77))
    look(watch, catalog)
    catalog.oid, catalog.moved_to = 0, "elsewhere"
    found = look(watch, catalog)
    assert found.renamed == {ROOT: TableName("public", "elsewhere")}
    assert (found.faults, found.replaced, watch.dropped_tables) == ({}, {}, frozenset())
    assert look(watch, catalog).renamed == {}


def test_a_name_that_another_table_took_is_a_table_made_again(catalog: Catalog) -> None:
    watch = PartitionWatch(lambda _: Lsn(77))
    look(watch, catalog)
    catalog.oid, catalog.moved_to = 40, "elsewhere"
    found = look(watch, catalog)
    assert (found.renamed, found.replaced) == ({}, {ROOT: RelationId(40)})


def test_a_dropped_table_is_told_again_when_there_is_one_again(catalog: Catalog) -> None:
    watch = PartitionWatch(lambda _: Lsn(77))
    look(watch, catalog)
    catalog.oid = 0
    assert look(watch, catalog).replaced == {ROOT: RelationId(0)}
    assert look(watch, catalog).replaced == {}
    catalog.oid = 41
    found = look(watch, catalog)
    assert (found.faults, found.replaced) == ({ROOT: "the table was dropped and created again"}, {ROOT: RelationId(41)})
    assert look(watch, catalog).replaced == {}


def test_a_table_made_again_goes_by_its_new_name_too(catalog: Catalog) -> None:
    watch = PartitionWatch(lambda _: Lsn(77))
    look(watch, catalog)
    catalog.oid = 41
    assert look(watch, catalog).replaced == {ROOT: RelationId(41)}
    catalog.oid, catalog.moved, catalog.moved_to = 0, 41, "elsewhere"
    found = look(watch, catalog)
    assert (found.renamed, found.replaced) == ({ROOT: TableName("public", "elsewhere")}, {})
    assert watch.dropped_tables == {TableName("public", "elsewhere")}
