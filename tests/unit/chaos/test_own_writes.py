"""Which reads of a session's own commits count as untrue."""

from __future__ import annotations

import pytest

from engine.model.position import Lsn
from tests.chaos.own_writes import WINDOW, History, Read


def written(commits: int, *, aborted: frozenset[int] = frozenset()) -> History:
    """A history in which number n was committed after position 10 n, and at the latest at 10 n + 5."""
    history = History()
    for number in range(1, commits + 1):
        assert history.begin() == number
        if number in aborted:
            history.abort()
        else:
            history.commit(Lsn(10 * number), Lsn(10 * number + 5))
    return history


def read(position: int, numbers: range | tuple[int, ...], *, wanted: int | None = None, total: int = 0) -> Read:
    return Read(None if wanted is None else Lsn(wanted), Lsn(position), tuple(numbers), total)


def judged(history: History, one: Read) -> str:
    return "; ".join(history.judge(one))


def test_all_committed_numbers_at_the_last_position_are_true() -> None:
    history = written(5, aborted=frozenset({3}))
    assert history.end == Lsn(55)
    assert history.judge(read(55, (1, 2, 4, 5), wanted=55)) == []


def test_an_older_position_shows_what_was_committed_up_to_it() -> None:
    assert written(5).judge(read(38, (1, 2, 3))) == []
    assert "committed numbers [] are missing, and [4] are too many" in judged(written(5), read(38, (1, 2, 3, 4)))
    assert "[3] are missing" in judged(written(5), read(38, (1, 2)))


def test_a_commit_whose_position_is_between_both_bounds_may_show_or_not() -> None:
    assert written(5).judge(read(53, (1, 2, 3, 4))) == []
    assert written(5).judge(read(53, (1, 2, 3, 4, 5))) == []
    assert "[4] are missing" in judged(written(5), read(53, (1, 2, 3, 5)))


@pytest.mark.parametrize(
    ("numbers", "found"),
    [
        ((1, 2, 4), "[5] are missing"),
        ((1, 2, 3, 4, 5), "[3] are too many"),
        ((2, 4, 5), "[1] are missing"),
        ((), "[1, 2, 4, 5] are missing"),
        ((1, 2, 4, 5, 6), "[6] are too many"),
        ((1, 2, 2, 4, 5), "repeated or out of order"),
        ((2, 1, 4, 5), "repeated or out of order"),
    ],
    ids=["the last one lost", "rolled back", "an early one lost", "empty", "never written", "twice", "order"],
)
def test_false_numbers_are_found(numbers: tuple[int, ...], found: str) -> None:
    assert found in judged(written(5, aborted=frozenset({3})), read(55, numbers))


def test_deleted_numbers_are_not_to_come_back() -> None:
    last = WINDOW + 20
    history, end = written(last), 10 * last + 5
    assert history.judge(read(end, range(last - WINDOW + 1, last + 1))) == []
    assert f"[{last - WINDOW}] are too many" in judged(history, read(end, range(last - WINDOW, last + 1)))
    assert f"[{last - WINDOW + 1}] are missing" in judged(history, read(end, range(last - WINDOW + 2, last + 1)))


def test_another_sum_is_found() -> None:
    assert judged(written(1), read(15, (1,), total=7)) == "the sum over both tables is 7, not 0"


def test_a_claim_before_the_awaited_position_is_found() -> None:
    assert "it waited for 0/37, and claims 0/2D" in judged(written(5), read(45, (1, 2, 3, 4), wanted=55))


def test_a_claim_before_an_earlier_claim_is_found() -> None:
    history = written(5)
    assert history.judge(read(55, (1, 2, 3, 4, 5))) == []
    assert "it claims 0/2D, after a read that claimed 0/37" in judged(history, read(45, (1, 2, 3, 4)))


def test_long_histories_are_judged_as_short_ones_and_forget() -> None:
    last = 12 * WINDOW
    history, end = written(last), 10 * last + 5
    shown = range(last - WINDOW + 1, last + 1)
    assert history.judge(read(end, shown)) == []
    assert f"[{last}] are missing" in judged(history, read(end, shown[:-1]))
    assert "older than the session's last" in judged(written(last), read(10, ()))


def test_whether_the_last_transaction_is_known_to_have_committed() -> None:
    history = written(3)
    assert history.has_last
    history.begin()
    assert not history.has_last
