"""Which reloads a hand-over ends: not those that were requested after the copy was handed over."""

from __future__ import annotations

import pytest

from engine.link.messages import ReloadReport
from engine.model.position import Lsn
from tests.unit.copy.test_reload_figures import A, B, Told


@pytest.fixture
def told() -> Told:
    """The reload `r1` of A and B is in force."""
    return Told()


def states(told: Told, request: str) -> list[str]:
    return [one.state for one in told.reports if isinstance(one, ReloadReport) and one.request_id == request]


def test_a_hand_over_ends_what_waited_for_it_only(told: Told) -> None:
    served = {table: told.book.served_by(table) for table in (A, B)}
    told.book.begin("r2", [A])
    for table in (A, B):
        told.book.finished(table, Lsn(1), served[table])
    assert (states(told, "r1"), states(told, "r2")) == (["running", "succeeded"], ["running"])
    told.book.finished(A, Lsn(2), told.book.served_by(A))
    assert states(told, "r2") == ["running", "succeeded"]


def test_a_reload_that_is_not_in_force_is_not_ended_by_a_hand_over(told: Told) -> None:
    told.book.begin("r2", [A, B], in_force=False)
    assert told.book.served_by(A) == {"r1"}
    told.book.put_in_force("r2", [A])
    assert (told.book.served_by(A), told.book.served_by(B)) == ({"r1", "r2"}, {"r1"})
    told.book.put_in_force("r3", [A])


def test_a_reload_that_is_begun_again_is_not_in_force_again(told: Told) -> None:
    told.book.begin("r1", [A], in_force=False)
    assert (told.book.served_by(A), told.book.served_by(B)) == (frozenset(), {"r1"})


def test_the_next_run_ends_what_an_earlier_one_did_not_put_in_force(told: Told) -> None:
    told.book.begin("r2", [A], in_force=False)
    told.book.take_up()
    assert told.book.served_by(A) == {"r1", "r2"}
