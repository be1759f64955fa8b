"""Reports that wait: progress replaces progress, nothing overtakes, memory is bounded."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from engine.link.messages import BatchReport, CopyProgress, Progress, Report, TableStateReport
from engine.link.outgoing import Outgoing
from engine.model.position import Lsn

_AT = datetime(2026, 1, 1, tzinfo=UTC)


def _progress(applied: int, subscription: str = "s") -> Progress:
    return Progress(subscription=subscription, epoch=1, applied=Lsn(applied), at=_AT)


def _batch(number: int) -> BatchReport:
    return BatchReport(
        subscription="s",
        epoch=1,
        batch=number,
        after=Lsn(0),
        end=Lsn(1),
        transactions=1,
        path="driver",
        committed_at=_AT,
    )


def _state(table: str, state: str) -> TableStateReport:
    return TableStateReport.model_validate(
        {"subscription": "s", "epoch": 1, "table": table, "schema": "p", "name": table, "state": state}
    )


def test_the_newest_progress_replaces_the_older_one() -> None:
    queue = Outgoing(10)
    for applied in (1, 2, 3):
        queue.put(_progress(applied))
    queue.put(_progress(9, "other"))
    assert queue.only_unhurried
    assert queue.take_reports(10) == [_progress(3), _progress(9, "other")]
    assert len(queue) == 0


def test_progress_never_overtakes_a_state() -> None:
    queue = Outgoing(10)
    queue.put(_progress(1))
    queue.put(_state("t1", "parked"))
    queue.put(_progress(2))
    assert not queue.only_unhurried
    assert queue.take_reports(10) == [_state("t1", "parked"), _progress(2)]


def test_when_full_old_batches_go_and_states_stay() -> None:
    queue = Outgoing(3)
    queue.put(_batch(1))
    queue.put(_state("t1", "copying"))
    queue.put(_batch(2))
    queue.put(_batch(3))
    queue.put(_state("t1", "live"))
    assert queue.dropped == 2
    assert queue.take_reports(10) == [_state("t1", "copying"), _batch(3), _state("t1", "live")]


def test_when_full_of_states_the_superseded_one_goes() -> None:
    queue = Outgoing(2)
    for report in (_state("t1", "copying"), _state("t1", "catching_up"), _state("t1", "live"), _state("t2", "live")):
        queue.put(report)
    assert queue.take_reports(10)[-2:] == [_state("t1", "live"), _state("t2", "live")]
    assert queue.dropped >= 1


_reports = st.one_of(
    st.integers(1, 50).map(_progress),
    st.integers(1, 50).map(_batch),
    st.tuples(st.sampled_from(["t1", "t2"]), st.sampled_from(["live", "parked"])).map(lambda p: _state(*p)),
    st.integers(1, 5).map(lambda n: CopyProgress(subscription="s", epoch=1, table="t1", rows=n, bytes=n)),
)


@given(st.lists(st.one_of(_reports, st.integers(1, 5)), max_size=60))
def test_nothing_but_superseded_progress_is_missing(steps: list[Report | int]) -> None:
    """Below capacity.

    What is taken is what was put, in order, less progress that a later put replaced before it was taken.
    """
    queue = Outgoing(1000)
    put: list[Report] = []
    taken: list[Report] = []
    for step in steps:
        if isinstance(step, int):
            taken += queue.take_reports(step)
        else:
            put.append(step)
            queue.put(step)
    taken += queue.take_reports(1000)
    rest = iter(put)
    assert all(any(report is other for other in rest) for report in taken)
    lasting = [r for r in put if not isinstance(r, Progress | CopyProgress)]
    assert [r for r in taken if not isinstance(r, Progress | CopyProgress)] == lasting
    for kind in (Progress, CopyProgress):
        last = [r for r in put if isinstance(r, kind)][-1:]
        assert [r for r in taken if isinstance(r, kind)][-1:] == last
