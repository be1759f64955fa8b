"""Paths of cascades over foreign keys, and the triggers that record them: without a server."""

from __future__ import annotations

import pytest

from engine.model.identity import TableName
from engine.sources.mariadb.catalog import Index, Structure
from engine.sources.mariadb.types import ColumnFacts
from engine.sources.mariadb_triggers.cascade_triggers import cascade_triggers, underived
from engine.sources.mariadb_triggers.cascades import LEVELS, Cause, ForeignKey, above, paths_to
from engine.sources.mariadb_triggers.catalog import TriggeredTable


def name(text: str) -> TableName:
    return TableName("shop", text)


def key(text: str, deletes: str = "", updates: str = "") -> ForeignKey:
    """`lines.order>orders.id`: a foreign key, with its actions."""
    child, parent = text.split(">")
    (table, columns), (other, referenced) = child.split("."), parent.split(".")
    return ForeignKey(
        text, name(table), tuple(columns.split(",")), name(other), tuple(referenced.split(",")), deletes, updates
    )


def found(keys: list[ForeignKey], table: str, first: str, cause: Cause) -> list[str] | None:
    paths = paths_to(name(table), keys, name(first), cause)
    return paths and sorted(
        " ".join([*(one.name for one in path.keys), *(f"{k}={v}" for k, v in path.moved.items())]) for path in paths
    )


@pytest.mark.parametrize(
    ("keys", "cause", "paths"),
    [
        ([key("c.a>a.id", "CASCADE")], Cause.DELETE, ["c.a>a.id"]),
        ([key("c.a>a.id", "CASCADE")], Cause.UPDATE, []),
        ([key("c.a>a.id", "", "CASCADE")], Cause.UPDATE, ["c.a>a.id a=id"]),
        ([key("c.a>a.id", "", "SET NULL")], Cause.UPDATE, ["c.a>a.id"]),
        # A row of b loses its reference; its key stays, so rows of c stay.
        ([key("b.a>a.id", "SET NULL"), key("c.b>b.id", "CASCADE", "CASCADE")], Cause.DELETE, []),
        # NULL comes to rows of c where they refer to the column that loses its value.
        ([key("b.a>a.id", "SET NULL"), key("c.b>b.a", "", "CASCADE")], Cause.DELETE, ["b.a>a.id c.b>b.a"]),
        (
            [key("b.a>a.id", "CASCADE"), key("c.b>b.id", "SET NULL"), key("c.a>a.id", "CASCADE")],
            Cause.DELETE,
            ["b.a>a.id c.b>b.id", "c.a>a.id"],
        ),
        (
            [key("b.x,y>a.x,y", "", "CASCADE"), key("c.p,q>b.y,z", "", "CASCADE")],
            Cause.UPDATE,
            ["b.x,y>a.x,y c.p,q>b.y,z p=y"],
        ),
    ],
)
def test_rows_are_reached_by_what_a_cascade_does_to_those_before(
    keys: list[ForeignKey], cause: Cause, paths: list[str]
) -> None:
    assert found(keys, "c", "a", cause) == paths


def test_a_table_that_refers_to_itself_is_followed_as_far_as_the_server_goes() -> None:
    paths = paths_to(name("c"), [key("c.up>c.id", "CASCADE")], name("c"), Cause.DELETE)
    assert paths is not None
    assert [len(path.keys) for path in paths] == list(range(1, LEVELS + 1))


def test_too_many_paths_are_refused() -> None:
    keys = [key("c.up>d.id", "CASCADE"), key("d.up>c.id", "CASCADE"), key("c.up>c.id", "CASCADE")]
    assert paths_to(name("c"), keys, name("c"), Cause.DELETE) is None
    table = lines(tuple(key(f"lines.f{n}>orders.id", "SET NULL") for n in range(41)))
    assert "too many paths" in (underived(table) or "")
    table.indexes = []
    assert underived(table) is None


def test_only_foreign_keys_on_the_way_matter() -> None:
    keys = [
        key("c.b>b.id", "CASCADE"),
        key("b.a>a.id", "CASCADE"),
        key("x.c>c.id", "CASCADE"),
        key("a.b>b.id", "CASCADE"),
    ]
    assert above(keys, name("c")) == (keys[0], keys[1], keys[3])


def lines(cascades: tuple[ForeignKey, ...]) -> TriggeredTable:
    table = TriggeredTable(name("lines"), "InnoDB", "BASE TABLE", False, "2026-01-01 00:00:00", 1, 1, relation=7)
    table.columns = [ColumnFacts(column, "int", "int", 10, 0, None, False) for column in ("order", "no")]
    table.indexes = [Index("PRIMARY", True, ("order", "no"), False, True)]
    table.cascades = cascades
    return table


def test_a_structure_with_parents_is_read_back_and_changes_with_their_foreign_keys() -> None:
    table, plain = lines((key("lines.order>orders.id", "CASCADE", "CASCADE"),)), lines(())
    structure = table.structure()
    assert structure.parents == (name("orders"),)
    assert Structure.from_text(structure.to_text()) == structure
    assert Structure.from_text(plain.structure().to_text()) == plain.structure()
    assert plain.mark != table.mark


def test_a_moved_key_is_looked_for_where_the_path_leads() -> None:
    table = lines((key("lines.order>orders.id", "CASCADE", "CASCADE"),))
    triggers = {trigger.name: trigger for trigger in cascade_triggers(table, 12, 13)}
    assert list(triggers) == [
        f"penstock_cascade_12_0_{timing}_{cause}" for cause in ("delete", "update") for timing in ("before", "after")
    ]
    after = triggers["penstock_cascade_12_0_after_update"].body
    assert "t.`order` = CASE WHEN r.paths & 1 THEN NEW.`id` ELSE r.k0 END AND t.`no` = r.k1" in after
    assert "VALUES (13, 'S')" in after
    gone = triggers["penstock_cascade_12_0_after_delete"].body
    assert "VALUES (12, 'D', r.old)" in gone
    assert "NEW." not in gone
    created = triggers["penstock_cascade_12_0_after_delete"].created("audit")
    assert created.startswith(
        "CREATE TRIGGER `shop`.`penstock_cascade_12_0_after_delete` AFTER DELETE ON `shop`.`orders`"
    )
    assert " FOR EACH ROW PRECEDES `audit` BEGIN " in created
