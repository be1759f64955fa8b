"""What clients that check waits call a difference, and that an adversary has every act."""

from __future__ import annotations

from tests.chaos.adversary import ACT_KINDS, _all_acts
from tests.chaos.meddling import IDENTITY_WAYS, PUBLICATION_WAYS, SLOT_WAYS
from tests.chaos.wait_checks import content

COMMITTED = content(["id", "note"], [(1, "a"), (2, None), (2, None)])


def test_the_order_of_rows_is_no_difference() -> None:
    assert COMMITTED.difference(content(["id", "note"], [(2, None), (1, "a"), (2, None)])) is None


def test_numbers_and_their_text_are_the_same() -> None:
    assert COMMITTED.difference(content(["id", "note"], [("1", "a"), ("2", None), ("2", None)])) is None


def test_each_row_counts() -> None:
    fewer = COMMITTED.difference(content(["id", "note"], [(1, "a"), (2, None)]))
    assert fewer is not None
    assert fewer.startswith("1 rows missing")
    other = COMMITTED.difference(content(["id", "note"], [(1, "b"), (2, None), (2, None)]))
    assert other is not None
    assert "1 rows missing" in other
    assert "1 too many" in other


def test_columns_are_compared_by_name_and_order() -> None:
    other = COMMITTED.difference(content(["note", "id"], [("a", 1), (None, 2), (None, 2)]))
    assert other is not None
    assert other.startswith("columns")


def test_every_act_is_in_the_deck() -> None:
    for server in (False, True):
        acts = _all_acts(server=server)
        assert {act.kind for act in acts} == set(ACT_KINDS)
        for kind, ways in (("slot", SLOT_WAYS), ("publication", PUBLICATION_WAYS), ("identity", IDENTITY_WAYS)):
            assert {act.what for act in acts if act.kind == kind} == set(ways)
    assert "while running" in {act.what for act in _all_acts(server=True) if act.kind == "target"}
