"""The session that reads is looked up while it ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.sources.postgres import open_transactions
from engine.sources.postgres.open_transactions import end_own_session

OWN, OTHERS = (7, "penstock-shop-3", True), (8, "psql", True)
ENDING = (7, None, None)
"""It has the lock, but is no longer among the sessions."""


class Ended:
    """A connection that notes which sessions it ends."""

    def __init__(self) -> None:
        self.pids: list[int] = []

    def execute(self, query: str, given: list[int]) -> None:
        assert "pg_terminate_backend" in query
        self.pids += given


def end(connection: Ended, *found: tuple[int, str | None, bool | None] | None) -> bool:
    answers: Iterator[Any] = iter(found)
    return end_own_session(connection, "reader", "penstock-shop-4", lambda _: next(answers))  # type: ignore[arg-type]


@pytest.mark.parametrize(("found", "ended"), [([ENDING, None], []), ([ENDING, ENDING, OWN, None], [7])])
def test_a_session_that_is_ending_is_looked_up_again(found: list[Any], ended: list[int]) -> None:
    connection = Ended()
    assert end(connection, *found) is bool(ended)
    assert connection.pids == ended


def test_a_session_of_others_that_follows_it_is_not_ended() -> None:
    connection = Ended()
    with pytest.raises(EngineFault, match="pid 8 reads it") as refused:
        end(connection, ENDING, OTHERS)
    assert refused.value.kind is FaultKind.SLOT_IN_USE
    assert connection.pids == []


def test_a_session_that_stays_without_an_owner_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_transactions, "FREE_TIMEOUT_S", 0.0)
    connection = Ended()
    with pytest.raises(EngineFault, match="pid 7 reads it"):
        end(connection, ENDING)
    assert connection.pids == []
