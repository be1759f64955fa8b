"""What the model of a random table knows after a change of the table."""

from __future__ import annotations

import random

import pytest

from tests.chaos.ddl_changes import add_label, drop_unique, swap_columns
from tests.chaos.ddl_model import WIDTH, Column, Identity, Leaf, Table
from tests.chaos.ddl_rows import update
from tests.chaos.ddl_tables import create, exchange, make_anew, rename
from tests.chaos.ddl_types import BIGINT, INT, TEXT, ColumnType, Kind, literal, others, some_type, wider

ENUM = "home.e"


def table(**more: object) -> Table:
    columns = [Column("id", INT, not_null=True, counts=True), Column("a", INT), Column("b", TEXT)]
    return Table("t", "home", "home", "t", columns, key=["id"], key_name="t_key", enum=ENUM, labels=("x",), **more)  # type: ignore[arg-type]


def test_a_renamed_column_stays_key_and_base() -> None:
    one = table()
    one.columns.append(Column("made", INT, base="a"))
    one.rename_column("a", "z")
    one.rename_column("id", "number")
    assert (one.key, one.column("made").base) == (["number"], "z")


def test_what_rests_on_a_dropped_column_goes_with_it() -> None:
    one = table(index="u", index_columns=["id"], identity=Identity.INDEX)
    one.columns.append(Column("made", INT, base="id"))
    one.drop_column("id")
    assert [column.name for column in one.columns] == ["a", "b"]
    assert (one.key, one.index, one.identity, one.followed) == ([], None, Identity.NOTHING, False)


@pytest.mark.parametrize(
    ("identity", "key", "followed"),
    [
        (Identity.DEFAULT, ["id"], True),
        (Identity.DEFAULT, [], False),
        (Identity.FULL, [], True),
        (Identity.INDEX, [], True),
        (Identity.NOTHING, ["id"], False),
    ],
)
def test_what_identifies_rows(identity: Identity, key: list[str], followed: bool) -> None:
    one = table(identity=identity)
    one.key = key
    assert one.followed is followed


def test_nothing_rests_on_free_columns() -> None:
    one = table()
    one.columns.append(Column("made", INT, base="a"))
    assert [column.name for column in one.free] == ["b"]


def test_exchanged_columns_keep_their_types() -> None:
    one = table()
    before = {column.name: column.type for column in one.columns}
    assert len(swap_columns(random.Random(3), one)) == 3
    after = {column.name: column.type for column in one.columns}
    assert after.keys() == before.keys()
    assert sorted(after.values(), key=str) == sorted(before.values(), key=str)


def test_numbers_are_given_once_in_each_range() -> None:
    one = table(partitioned=True)
    first, second = one.new_leaf(), one.new_leaf()
    rest = Leaf("rest", None)
    given = [one.number(leaf) for leaf in (first, second, rest, first)]
    assert len(set(given)) == len(given)
    assert (given[0] // WIDTH, given[1] // WIDTH) == (0, 1)
    assert given[2] > 2 * WIDTH


def test_exchanged_tables_stand_under_each_others_names() -> None:
    one, other = table(), Table("u", "home", "home", "u", [Column("n", BIGINT)])
    found = exchange(one, other)
    assert found is not None
    statements, first, second = found
    assert (first.name, first.label, [c.name for c in first.columns]) == ("t", "t", ["n"])
    assert (second.name, second.label, second.key) == ("u", "u", ["id"])
    assert len(statements) == 3
    assert exchange(first, second) is None
    assert rename(random.Random(1), first) == []


def test_a_table_goes_back_to_its_first_name() -> None:
    one = table()
    assert len(rename(random.Random(1), one)) == 1
    assert (one.name != "t", one.moved) == (True, True)
    assert make_anew(random.Random(1), one) == []
    rename(random.Random(1), one)
    assert one.name == "t"


@pytest.mark.parametrize("seed", range(20))
def test_a_table_made_anew_is_there_and_can_be_followed(seed: int) -> None:
    one = table()
    statements = make_anew(random.Random(seed), one)
    assert statements[0] == 'DROP TABLE "home"."t"'
    assert statements[1].startswith('CREATE TABLE "home"."t"')
    assert (one.exists, one.followed, one.fixed) == (True, True, True)
    assert one.partitioned == bool(one.leaves)
    assert create(random.Random(seed), one) == []


def test_values_of_an_enum_can_be_used_behind_the_commit() -> None:
    one = table()
    add_label(random.Random(1), one)
    assert one.labels == ("x",)
    assert len(one.committed().labels) == 2


def test_rows_without_identity_are_seldom_changed() -> None:
    one = table()
    one.key = []
    tried = sum(bool(update(random.Random(seed), one)) for seed in range(200))
    assert 0 < tried < 60


def test_an_identity_index_that_is_dropped_leaves_nothing() -> None:
    dropped = 0
    for seed in range(40):
        one = table(index="u", index_columns=["id"], identity=Identity.INDEX)
        if drop_unique(random.Random(seed), one):
            dropped += 1
            assert not one.followed
    assert 0 < dropped < 40


@pytest.mark.parametrize("kind", list(Kind))
def test_every_type_has_values_and_becomes_another(kind: Kind) -> None:
    of = ColumnType(kind, enum=ENUM if kind is Kind.ENUM else "")
    rng = random.Random(1)
    assert all(literal(rng, of, ("x",)) for _ in range(20))
    assert all(other != of and using for other, using in others(of, '"c"'))
    assert others(of, '"c"') or kind is Kind.TEXT


def test_wider_types_have_no_smaller_limits() -> None:
    rng = random.Random(1)
    for _ in range(200):
        of = some_type(rng, ENUM)
        for other in wider(of):
            assert other != of
            assert other.scale == of.scale or not other.size
            assert not other.size or other.size > of.size


@pytest.mark.parametrize("size", [5, 20])
def test_texts_fit_their_limit(size: int) -> None:
    rng = random.Random(1)
    texts = [literal(rng, ColumnType(Kind.VARCHAR, size), ()) for _ in range(200)]
    assert all(len(text[1:-1].replace("''", "'")) <= size for text in texts)
    assert all(text[1:-1].count("'") % 2 == 0 for text in texts)
