"""Which changes of a table's structure the target follows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.model.identity import RelationId, TableName
from engine.model.schema import Column, KeyMode, ReplicaIdentity, SourceType, TableSchema
from engine.tables.schema_change import (
    InPlace,
    RecopyRequired,
    Unchanged,
    differences,
    held,
    judge,
    newer,
    seen_in_catalog,
    with_definitions,
)

INT = SourceType("int4")
BASE = TableSchema(
    name=TableName("public", "t"),
    relation=RelationId(16400),
    columns=(Column("id", INT, 1), Column("a", INT, 2), Column("b", INT, 3)),
    key=("id",),
    mode=KeyMode.KEYED,
    identity=ReplicaIdentity.DEFAULT,
)


def with_columns(*columns: Column) -> TableSchema:
    return replace(BASE, columns=columns)


def test_nothing_changed() -> None:
    assert judge(BASE, BASE) == Unchanged()


def test_columns_added_and_dropped_are_followed() -> None:
    after = with_columns(BASE.columns[0], BASE.columns[2], Column("c", INT, 4))
    assert judge(BASE, after) == InPlace(("column a was dropped", "column c was added"))


def test_dropped_and_added_again_under_the_same_name() -> None:
    after = with_columns(*BASE.columns[:2], Column("b", INT, 4))
    assert judge(BASE, after) == InPlace(("column b was dropped", "column b was added"))


def test_a_rename_is_followed_also_of_the_key_and_of_the_table() -> None:
    after = with_columns(Column("number", INT, 1), *BASE.columns[1:])
    assert judge(BASE, replace(after, key=("number",))) == InPlace(("column id was renamed to number",))
    assert judge(BASE, replace(BASE, name=TableName("public", "other"))) == Unchanged()


def test_a_table_that_is_on_several_nodes_now_is_copied_again() -> None:
    several = replace(BASE, scattered=True)
    assert judge(BASE, several) == judge(several, BASE) == RecopyRequired("the nodes that have it changed")
    assert judge(several, several) == Unchanged()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (SourceType("varchar", 14), SourceType("varchar", 24)),
        (SourceType("varchar", 14), SourceType("text")),
        (SourceType("numeric", (8 << 16 | 2) + 4), SourceType("numeric", (12 << 16 | 2) + 4)),
        (SourceType("numeric", (8 << 16 | 2) + 4), SourceType("numeric")),
        (SourceType("timestamptz", 0), SourceType("timestamptz")),
    ],
)
def test_a_wider_type_is_followed_where_no_row_was_written_anew(old: SourceType, new: SourceType) -> None:
    known = replace(with_columns(*BASE.columns[:2], Column("b", old, 3)), relfilenode=5)
    after = replace(with_columns(*BASE.columns[:2], Column("b", new, 3)), relfilenode=5)
    assert judge(known, after) == InPlace(("column b got a wider type",))
    assert isinstance(judge(known, replace(after, relfilenode=6)), RecopyRequired)
    assert isinstance(judge(after, known), RecopyRequired)
    assert isinstance(judge(replace(known, relfilenode=0), replace(after, relfilenode=0)), RecopyRequired)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (SourceType("int4"), SourceType("int8")),
        (SourceType("numeric", (8 << 16 | 2) + 4), SourceType("numeric", (12 << 16 | 3) + 4)),
        (SourceType("varchar", 14, element=INT), SourceType("text", element=INT)),
        (SourceType("mood", category="e"), SourceType("text")),
    ],
)
def test_another_type_needs_a_new_copy(old: SourceType, new: SourceType) -> None:
    known = replace(with_columns(Column("id", INT, 1), Column("b", old, 3)), relfilenode=5)
    after = replace(with_columns(Column("id", INT, 1), Column("b", new, 3)), relfilenode=5)
    assert isinstance(judge(known, after), RecopyRequired)


def test_rows_written_anew_are_the_same_unless_a_column_was_redefined() -> None:
    known = replace(with_columns(*(replace(c, edition=7) for c in BASE.columns)), relfilenode=5)
    moved = replace(known, relfilenode=6)
    redefined = replace(known, columns=(*known.columns[:2], replace(known.columns[2], edition=8)))
    assert judge(known, moved) == Unchanged()
    assert judge(known, redefined) == Unchanged()
    verdict = judge(known, replace(redefined, relfilenode=6))
    assert isinstance(verdict, RecopyRequired)
    assert "column b" in verdict.reason


def test_key_change_and_new_relation_need_a_new_copy() -> None:
    assert isinstance(judge(BASE, replace(BASE, key=("id", "a"))), RecopyRequired)
    assert isinstance(judge(BASE, replace(BASE, relation=RelationId(1))), RecopyRequired)


def test_differences_are_for_people() -> None:
    after = replace(
        with_columns(BASE.columns[0], replace(BASE.columns[1], nullable=False), Column("d", INT, 4)),
        identity=ReplicaIdentity.FULL,
        name=TableName("public", "other"),
    )
    assert differences(BASE, after) == (
        "the table is public.other now",
        "column b was dropped",
        "column a may not be NULL now",
        "column d was added",
        "its replica identity is full now",
    )
    assert differences(BASE, replace(BASE, relfilenode=9)) == ()


def test_a_generated_column_is_new_with_values_that_nobody_told() -> None:
    made = with_columns(*BASE.columns, Column("c", INT, 4, generated=True))
    for known in (BASE, replace(BASE, unsent=(4,))):
        assert isinstance(seen_in_catalog(known, made), RecopyRequired)
    ordinary = with_columns(*BASE.columns, Column("c", INT, 4))
    assert isinstance(seen_in_catalog(replace(BASE, unsent=(4,)), ordinary), RecopyRequired)
    assert (seen_in_catalog(made, made), seen_in_catalog(made, ordinary)) == (Unchanged(), Unchanged())
    assert differences(made, ordinary) == ("column c is not generated any more",)
    assert differences(ordinary, made) == ("column c is generated now",)


def test_a_target_that_does_not_follow_keeps_its_columns() -> None:
    after = with_columns(BASE.columns[0], replace(BASE.columns[1], name="alpha"), Column("d", INT, 4))
    kept = held(with_columns(*BASE.columns[:2], replace(BASE.columns[2], fill="5")), after)
    assert [(c.name, c.attnum, c.fill) for c in kept.columns] == [("id", 1, None), ("a", 2, None), ("b", 3, None)]


def test_a_column_that_comes_back_under_a_dropped_number_needs_a_new_copy() -> None:
    """The source uses no number twice: what was believed of the drop was wrong, and the values are gone."""
    whole = replace(BASE, last_number=max(c.attnum for c in BASE.columns))
    lacking = replace(whole, columns=whole.columns[:-1])
    verdict = judge(lacking, whole)
    assert isinstance(verdict, RecopyRequired)
    assert "is there again" in verdict.reason
    later = replace(BASE.columns[-1], name="later", attnum=whole.last_number + 1)
    assert isinstance(judge(lacking, replace(lacking, columns=(*lacking.columns, later))), InPlace)
    assert isinstance(judge(replace(lacking, last_number=0), whole), InPlace)


def test_newer_by_attribute_numbers() -> None:
    added = with_columns(*BASE.columns, Column("c", INT, 4))
    dropped = with_columns(*BASE.columns[:2])
    middle_dropped = with_columns(BASE.columns[0], BASE.columns[2])
    assert newer(added, BASE)
    assert not newer(BASE, added)
    assert newer(middle_dropped, BASE)
    assert not newer(BASE, BASE)
    assert not newer(BASE, middle_dropped)
    assert not newer(dropped, added)


MOOD = SourceType("shop.mood", category="e", oid=99)
LOOK = SourceType("shop.look", category="c", oid=77)


def labelled(kind: SourceType, *labels: str) -> TableSchema:
    return with_columns(BASE.columns[0], Column("a", kind, 2, labels=labels))


@pytest.mark.parametrize(
    ("kind", "before", "after", "same"),
    [
        (MOOD, ["sad"], ["sad", "calm"], True),
        (MOOD, ["sad", "happy"], ["down", "happy"], False),
        (MOOD, ["sad", "happy"], ["sad"], False),
        (MOOD, ["1= a", "2= b"], ["2= b", "1= a"], False),
        (SourceType("shop._mood", element=MOOD), ["1= a", "2= b"], ["2= b", "1= a"], False),
        (MOOD, [], ["sad"], True),
        (LOOK, ["77: 1 2"], ["77: 1 2", "88= red", "99= sad"], True),
        (LOOK, ["77: 1 2", "88= red", "99= sad"], ["77: 1 2", "88= red", "88= blue", "99= sad"], True),
        (LOOK, ["77: 1 2", "88= red", "99= sad"], ["77: 1 2", "88= green", "99= sad"], False),
        (LOOK, ["77: 1 2", "88= red"], ["77: 1 2 3", "88= red"], False),
        (LOOK, ["77: 1 2", "88= a\n1= b"], ["77: 1 2", "88= a\n1= c"], False),
    ],
)
def test_values_look_different_where_a_type_in_their_columns_lost_what_it_had(
    kind: SourceType, before: list[str], after: list[str], same: bool
) -> None:
    verdict = judge(labelled(kind, *before), labelled(kind, *after))
    assert verdict == (
        Unchanged() if same else RecopyRequired("values of the type of column a are now written in another form")
    )


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ([5, 5], [5, 5, 8], True),
        ([5, 5], [5, 8, 8], False),
        ([], [5, 5, 8], True),
        ([5], [5, 7, 8], True),
        ([5, 5], [], True),
    ],
)
def test_a_label_that_was_named_again_looked_different_for_a_while(
    before: list[int], after: list[int], same: bool
) -> None:
    known, new = labelled(MOOD, "sad", "happy"), labelled(MOOD, "sad", "happy", "calm")
    known, new = (
        replace(one, columns=tuple(replace(c, label_editions=tuple(editions)) for c in one.columns))
        for one, editions in ((known, before), (new, after))
    )
    verdict = judge(known, new)
    assert verdict == (
        Unchanged() if same else RecopyRequired("values of the type of column a are now written in another form")
    )


def test_what_the_catalog_says_of_the_same_columns_is_what_later_changes_are_measured_by() -> None:
    known = replace(labelled(MOOD, "sad"), relfilenode=5)
    settled = replace(labelled(MOOD, "sad", "calm"), relfilenode=5)
    settled = replace(settled, columns=tuple(replace(c, edition=8) for c in settled.columns))
    assert with_definitions(known, replace(settled, name=TableName("public", "other"))) == settled
    again = replace(known, columns=(replace(known.columns[0], fill="x"), *known.columns[1:]))
    assert [c.fill for c in with_definitions(again, settled).columns] == ["x", None]
