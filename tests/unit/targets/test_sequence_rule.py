"""When a sequence of the target is set to the source's value, and when it is left alone."""

from __future__ import annotations

import pytest

from engine.model.identity import TableName
from engine.model.sequences import SequenceGoal, SequenceValue, SourceSequence
from engine.postgres.sequences import ColumnSequence
from engine.targets.postgres.sequences import outcome_of

ORDERS = TableName("public", "orders")
SEQUENCE = TableName("public", "orders_id_seq")


def outcome(now: tuple[int, bool], goal: tuple[int, bool], increment: int = 1, source_increment: int = 1) -> str:
    wanted = SequenceGoal(ORDERS, "id", SequenceValue(*goal), ascending=source_increment > 0)
    sequence = ColumnSequence(ORDERS, "id", SEQUENCE, increment, -100, 100, may_read=True, may_set=True)
    return outcome_of(SequenceValue(*now), wanted, sequence).value


@pytest.mark.parametrize(
    ("now", "goal", "expected"),
    [
        ((1, False), (50, True), "advanced"),
        ((49, True), (50, True), "advanced"),
        ((50, False), (50, True), "advanced"),
        ((50, True), (50, True), "already_ahead"),
        ((50, True), (50, False), "already_ahead"),
        ((51, False), (50, True), "already_ahead"),
        ((49, True), (50, False), "advanced"),
        ((1, False), (1, False), "already_ahead"),
        ((1, False), (100, True), "advanced"),
        ((1, False), (101, True), "out_of_range"),
        ((100, True), (101, True), "out_of_range"),
        ((1, False), (-500, True), "already_ahead"),
    ],
)
@pytest.mark.parametrize("sign", [1, -1], ids=["ascending", "descending"])
def test_a_sequence_is_set_only_where_it_is_behind(
    now: tuple[int, bool], goal: tuple[int, bool], expected: str, sign: int
) -> None:
    mirrored = (sign * now[0], now[1]), (sign * goal[0], goal[1])
    assert outcome(*mirrored, increment=7 * sign, source_increment=sign) == expected


def test_one_that_counts_the_other_way_is_never_ahead() -> None:
    assert outcome((90, True), (50, True), increment=-1) == "direction_differs"
    assert outcome((90, True), (50, True), source_increment=-2) == "direction_differs"


def test_a_margin_is_in_steps_of_the_source() -> None:
    def beyond(increment: int, *, called: bool) -> SequenceValue:
        return SourceSequence(ORDERS, "id", SEQUENCE, SequenceValue(10, called), increment).beyond(5)

    assert beyond(2, called=True) == SequenceValue(20, True)
    assert beyond(-3, called=False) == SequenceValue(-5, False)
