"""For how long the log has not been read: from the ends of it that were seen."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.model.position import Lsn
from engine.pipeline.unread_log import ENDS_KEPT, UnreadLog
from tests.fixtures.manual_clock import ManualEngineClock


def test_the_age_counts_from_the_first_end_that_is_not_read() -> None:
    clock = ManualEngineClock()
    unread = UnreadLog(clock)
    assert unread.age_ms(Lsn(0)) == 0
    for end in (10, 10, 20):
        unread.saw(Lsn(end), Lsn(5))
        clock.ms += 1000
    assert [unread.age_ms(Lsn(captured)) for captured in (5, 9, 10, 19, 20)] == [3000, 3000, 1000, 1000, 0]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=30))
def test_the_age_is_never_too_large(steps: list[tuple[int, int]]) -> None:
    """`steps`: by how much the log grows, and how much of it is read, each within a second."""
    clock = ManualEngineClock()
    unread, end, captured = UnreadLog(clock), 0, 0
    since: dict[int, float] = {}
    for grown, read in steps:
        end, captured = end + grown, min(end + grown, captured + read)
        since[end] = since.get(end, clock.monotonic_ms())
        unread.saw(Lsn(end), Lsn(captured))
        clock.ms += 1000
        wanted = min((at for seen, at in since.items() if seen > captured), default=None)
        expected = 0.0 if wanted is None else clock.monotonic_ms() - wanted
        assert unread.age_ms(Lsn(captured)) == expected


def test_what_is_kept_is_bounded() -> None:
    clock = ManualEngineClock()
    unread = UnreadLog(clock)
    for end in range(1, 5 * ENDS_KEPT):
        unread.saw(Lsn(end), Lsn(0))
        clock.ms += 1000
    assert len(unread._ends) <= ENDS_KEPT
    assert unread.age_ms(Lsn(0)) == (5 * ENDS_KEPT - 1) * 1000
