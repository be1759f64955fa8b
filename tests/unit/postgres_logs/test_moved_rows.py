"""Rows that a global transaction moves between nodes, against a model: the rows that are there at its end are there in the copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableName
from engine.model.schema import ReplicaIdentity
from engine.records.relation import Announced, AnnouncedColumn, relation_record
from engine.sources.postgres_logs.moved_rows import keys_of, may_remove, put_first
from engine.sources.postgres_logs.relations import ScatteredTables, View
from tests.unit.net import pgoutput_encoder as pgoutput

KEYS = ("a", "b", "c", "d")
_COLUMNS = (AnnouncedColumn("v", False, 25, -1), AnnouncedColumn("k", True, 25, -1))
VIEW = View(
    0,
    {
        oid: (
            number,
            relation_record(
                Announced(RelationId(number), TableName("public", name), ReplicaIdentity.DEFAULT, _COLUMNS)
            ),
        )
        for oid, number, name in ((7, 1007, "one"), (9, 1009, "two"))
    },
    ScatteredTables({1007: ("k",), 1009: ("k",)}),
)


@dataclass
class Change:
    """A change of the row with the key `before` to one with `after`; None: there is none."""

    table: int
    before: str | None
    after: str | None
    value: str

    @property
    def record(self) -> bytes:
        if self.before is None:
            return pgoutput.insert(self.table, [self.value, self.after])
        if self.after is None:
            return pgoutput.delete(self.table, [None, self.before], "K")
        old = None if self.before == self.after else [None, self.before]
        return pgoutput.update(self.table, [self.value, self.after], old, "K")


@dataclass
class Node:
    """A node within the transaction."""

    rows: dict[tuple[int, str], str] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    def change(self, table: int, before: str | None, after: str | None, value: str) -> None:
        """Make a change if it is possible."""
        gone = None if before is None else (table, before)
        come = None if after is None else (table, after)
        if (gone is None and come is None) or (gone is not None and gone not in self.rows):
            return
        if come is not None and come != gone and come in self.rows:
            return
        if gone is not None:
            del self.rows[gone]
        if come is not None:
            self.rows[come] = value
        self.changes.append(Change(table, before, after, value))


def in_order(parts: Sequence[Sequence[Change]]) -> list[Change]:
    """The changes in the order in which they are written."""
    packed = [pgoutput.pack([change.record for change in part]) for part in parts]
    firsts = put_first([keys_of(*each, VIEW) for each in packed])
    assert firsts is None or any(may_remove(*each) for each in packed)
    if firsts is None:
        return [change for part in parts for change in part]
    found = [
        change
        for part, first in zip(parts, firsts, strict=True)
        for change, is_first in zip(part, first, strict=True)
        if is_first
    ]
    return found + [
        change
        for part, first in zip(parts, firsts, strict=True)
        for change, is_first in zip(part, first, strict=True)
        if not is_first
    ]


def in_order_or_refused(nodes: Sequence[Node]) -> list[Change] | None:
    """As `in_order`; None if there is no such order."""
    try:
        return in_order([node.changes for node in nodes])
    except EngineFault as fault:
        if fault.kind is not FaultKind.LOG_UNREADABLE:
            raise
        return None


actions = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from((7, 9)),
        st.sampled_from((None, *KEYS)),
        st.sampled_from((None, *KEYS)),
    ),
    max_size=14,
)
homes = st.lists(st.integers(-1, 2), min_size=2 * len(KEYS), max_size=2 * len(KEYS))


@settings(max_examples=1500, deadline=None)
@given(homes, actions)
def test_rows_that_are_on_one_node_at_the_end_are_in_the_copy(
    at: list[int], taken: list[tuple[int, int, str | None, str | None]]
) -> None:
    nodes = [Node() for _ in range(3)]
    for place, node in zip([(table, key) for table in (7, 9) for key in KEYS], at, strict=True):
        if node >= 0:
            nodes[node].rows[place] = "before"
    copy = {place: value for node in nodes for place, value in node.rows.items()}
    for number, (node, table, before, after) in enumerate(taken):
        nodes[node].change(table, before, after, f"value {number}")
    ends = [place for node in nodes for place in node.rows]
    assume(len(ends) == len(set(ends)))
    for place in copy:
        # No node inserts and deletes a row again that another node has all the time: the nodes are parts of one table.
        touching = [
            node for node in nodes if any(place in ((c.table, c.before), (c.table, c.after)) for c in node.changes)
        ]
        assume(not touching or any(place in node.rows for node in touching) or place not in ends)
    written = in_order_or_refused(nodes)
    if written is None:
        # Nodes that give rows each other's keys at once: refused, and never written wrongly.
        changes = [change for node in nodes for change in node.changes]
        assert any(None not in (each.before, each.after) and each.before != each.after for each in changes)
        return
    for change in written:
        if change.before is not None:
            copy.pop((change.table, change.before), None)
        if change.after is not None:
            copy[change.table, change.after] = change.value
    assert copy == {place: value for node in nodes for place, value in node.rows.items()}


def test_two_rows_move_in_opposite_directions() -> None:
    parts = [
        [Change(7, "a", None, ""), Change(7, None, "b", "here")],
        [Change(7, "b", None, ""), Change(7, None, "a", "there")],
    ]
    written = [(change.before, change.after) for change in in_order(parts)]
    assert written == [("a", None), ("b", None), (None, "b"), (None, "a")]


def test_a_row_that_gets_another_key_before_it_moves_keeps_the_order_of_its_changes() -> None:
    parts = [
        [Change(7, None, "a", "there")],
        [Change(7, "a", "b", "x"), Change(7, "b", None, ""), Change(7, "c", "c", "kept")],
    ]
    written = [(change.before, change.after) for change in in_order(parts)]
    assert written == [("a", "b"), ("b", None), (None, "a"), ("c", "c")]


def test_nothing_is_put_first_where_no_row_moves() -> None:
    parts = [[Change(7, "a", "a", "x"), Change(7, "b", None, "")], [Change(9, "a", "a", "y"), Change(7, "c", None, "")]]
    assert put_first([keys_of(*pgoutput.pack([one.record for one in part]), VIEW) for part in parts]) is None


def test_records_of_other_kinds_and_tables_have_no_keys() -> None:
    found = keys_of(*pgoutput.pack([pgoutput.begin(1, 1), pgoutput.insert(8, ["v", "a"]), pgoutput.commit(1, 2)]), VIEW)
    assert not np.concatenate(found).any()


def test_a_column_of_the_key_that_is_unchanged_and_not_sent_again_is_that_of_the_old_row() -> None:
    """A large one: the log has its value in the old key only."""
    new, old = ["w", pgoutput.UNCHANGED], [None, "a"]
    records = [pgoutput.insert(7, ["v", "a"]), pgoutput.update(7, new, old, "K"), pgoutput.delete(7, [None, "a"], "K")]
    found = keys_of(*pgoutput.pack(records), VIEW)
    assert found.before.tolist()[1:] == found.after.tolist()[:2] == [found.after[0]] * 2
