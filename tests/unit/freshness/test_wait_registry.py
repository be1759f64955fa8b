"""The registry of waits against a plain model: who ends, when, and what is demanded."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.link.messages import Progress
from engine.model.position import Lsn
from engine.model.positions import Mark, single_mark
from engine.model.subscription_state import DesiredState, SubscriptionState
from engine.model.table_state import TableStateKind
from engine.sources.postgres_log.position_form import PostgresLogForm
from server.freshness.subscription_status import GONE_AFTER_S, SubscriptionStatus, TableView
from server.freshness.wait_registry import Unreachable, Verdict, Wait, WaitRegistry

_TABLES = ("t1", "t2", "t3")
_AT = datetime(2026, 1, 1, tzinfo=UTC)


def _progress(applied: int, source: int | None = None) -> Progress:
    return Progress(subscription="s", epoch=0, applied=Lsn(applied), source=source and Lsn(source), at=_AT)


def _registry(applied: int | None = 10, state: SubscriptionState = SubscriptionState.RUNNING) -> WaitRegistry:
    desired = DesiredState.PAUSED if state is SubscriptionState.PAUSED else DesiredState.RUNNING
    progress = None if applied is None else _progress(applied)
    status = SubscriptionStatus(name="s", form=PostgresLogForm(), state=state, desired=desired, progress=progress)
    status.stream = lambda: "s"
    status.confirm_run(0, "s")
    for table in _TABLES:
        status.tables[table] = TableView(id=table, schema="public", name=table, state=TableStateKind.LIVE)
    return WaitRegistry(status)


@dataclass
class _Watched:
    """A wait and the verdicts it got."""

    wait: Wait
    verdicts: list[Verdict]

    @property
    def satisfied(self) -> bool:
        return self.verdicts == [None]

    @property
    def refused(self) -> bool:
        return len(self.verdicts) == 1 and isinstance(self.verdicts[0], Unreachable)


def _watch(position: int, tables: tuple[str, ...] = _TABLES, *, named: bool = True, patient: bool = False) -> _Watched:
    verdicts: list[Verdict] = []
    return _Watched(Wait(single_mark(Lsn(position)), set(tables), named, verdicts.append, patient), verdicts)


def _demand(registry: WaitRegistry) -> list[Lsn]:
    return [mark.position for mark in registry.take_demand()]


def test_waits_end_in_the_order_of_their_positions() -> None:
    registry = _registry()
    order: list[int] = []
    for position in (30, 20, 25, 40):
        registry.add(Wait(single_mark(Lsn(position)), {"t1"}, True, lambda _, p=position: order.append(p)))
    registry.status.progress = _progress(30)
    assert registry.end_reached_waits() == 3
    assert order == [20, 25, 30]
    assert len(registry) == 1


def test_a_position_already_applied_ends_at_once_also_while_paused() -> None:
    registry = _registry(state=SubscriptionState.PAUSED)
    seen, ahead = _watch(10), _watch(11)
    assert not registry.add(seen.wait)
    assert seen.satisfied
    assert not registry.add(ahead.wait)
    assert ahead.refused
    assert registry.take_demand() == []


@pytest.mark.parametrize("named", [True, False])
def test_a_failed_subscription_refuses_also_what_was_applied(named: bool) -> None:
    registry = _registry(state=SubscriptionState.FAILED)
    seen = _watch(10, named=named)
    assert not registry.add(seen.wait)
    assert seen.refused


def test_of_positions_that_exist_only_the_highest_is_demanded_and_once() -> None:
    registry = _registry()
    registry.status.progress = _progress(10, 100)
    for position in (20, 50, 30):
        registry.add(_watch(position).wait)
    assert _demand(registry) == [Lsn(50)]
    assert registry.take_demand() == []
    registry.add(_watch(40).wait)
    assert registry.take_demand() == []
    registry.add(_watch(60).wait)
    assert _demand(registry) == [Lsn(60)]


def test_a_position_that_may_never_come_does_not_stand_for_the_nearer_ones() -> None:
    registry = _registry()
    for position in (20, 90, 30):
        registry.add(_watch(position).wait)
    assert _demand(registry) == [Lsn(20), Lsn(30), Lsn(90)]
    registry.status.progress = _progress(10, 50)
    registry.add(_watch(40).wait)
    assert _demand(registry) == [Lsn(40)]
    registry.add(_watch(35).wait)
    registry.add(_watch(90).wait)
    assert registry.take_demand() == []


def test_a_new_stream_hears_the_outstanding_demand_again() -> None:
    registry = _registry()
    last = _watch(60)
    registry.add(_watch(50).wait)
    registry.add(last.wait)
    registry.take_demand()
    registry.remove(last.wait)
    registry.reset_demand()
    assert _demand(registry) == [Lsn(50)]


def test_a_position_far_away_is_not_demanded_before_it_comes_near() -> None:
    registry = _registry()
    far = 10 + PostgresLogForm.horizon + 5
    registry.add(_watch(far).wait)
    registry.add(_watch(20).wait)
    assert _demand(registry) == [Lsn(20)]
    registry.status.progress = _progress(20)
    registry.end_reached_waits()
    assert _demand(registry) == [Lsn(far)]


def test_a_dropped_wait_hears_nothing() -> None:
    registry = _registry()
    watched = _watch(20)
    registry.add(watched.wait)
    registry.remove(watched.wait)
    registry.status.progress = _progress(99)
    assert registry.end_reached_waits() == 0
    assert watched.verdicts == []
    assert len(registry) == 0


def test_a_wait_on_a_table_that_copies_ends_when_it_is_live() -> None:
    registry = _registry()
    registry.status.tables["t2"].state = TableStateKind.CATCHING_UP
    watched = _watch(20)
    registry.add(watched.wait)
    registry.status.progress = _progress(30)
    assert registry.end_reached_waits() == 0
    registry.status.tables["t2"].state = TableStateKind.LIVE
    assert registry.end_decided_waits({"t2"}) == 1
    assert watched.satisfied


def test_a_removed_table_ends_waits_that_named_it_and_leaves_the_others() -> None:
    registry = _registry()
    named, every = _watch(20, ("t1",)), _watch(20, _TABLES, named=False)
    registry.add(named.wait)
    registry.add(every.wait)
    del registry.status.tables["t1"]
    assert registry.end_decided_waits() == 1
    assert named.refused
    assert every.wait.tables == {"t2", "t3"}


def test_when_the_applied_position_goes_back_waits_begin_again() -> None:
    registry = _registry()
    registry.status.tables["t2"].state = TableStateKind.COPYING
    watched = _watch(20)
    registry.add(watched.wait)
    assert registry.status.set_progress(_progress(25), 1.0)
    registry.end_reached_waits()
    assert not registry.status.set_progress(_progress(5), 2.0)
    registry.reopen_reached_waits()
    registry.status.tables["t2"].state = TableStateKind.LIVE
    assert registry.end_decided_waits() == 0
    registry.status.set_progress(_progress(21), 3.0)
    assert registry.end_reached_waits() == 1
    assert watched.satisfied


def test_the_estimate_follows_the_pace_while_there_is_something_to_do() -> None:
    status = _registry(applied=None).status
    assert status.estimate_ms(single_mark(Lsn(100))) is None
    status.set_progress(_progress(0, source=1000), 0.0)
    status.set_progress(_progress(100, source=1000), 1.0)
    assert status.estimate_ms(single_mark(Lsn(300))) == 2000
    assert status.estimate_ms(single_mark(Lsn(50))) == 0
    status.set_progress(_progress(1000, source=1000), 2.0)  # It reached the end, and might have been faster.
    for second in range(3, 40):
        status.set_progress(_progress(1000 + second, source=1000 + second), float(second))
    assert status.estimate_ms(single_mark(Lsn(1000 + 39 + 200))) == 2000
    for second in range(40, 100):
        status.set_progress(_progress(1000 + second, source=1000 + second), float(second))
    assert status.estimate_ms(single_mark(Lsn(9000))) is None  # What is known is too old.


def test_an_idle_subscription_is_not_taken_for_a_slow_one() -> None:
    """The log of an idle source grows by some bytes now and then, which are applied at once."""
    status = _registry(applied=None).status
    for second in range(0, 100, 10):
        status.set_progress(_progress(100 + second, source=105 + second), float(second))
    assert status.estimate_ms(single_mark(Lsn(1 << 20))) is None


_steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("wait"),
            st.integers(1, 60),
            st.sets(st.sampled_from(_TABLES), min_size=1),
            st.booleans(),
            st.booleans(),
        ),
        st.tuples(st.just("applied"), st.integers(1, 8)),
        st.tuples(st.just("table"), st.sampled_from(_TABLES), st.sampled_from(list(TableStateKind))),
        st.tuples(
            st.just("state"),
            st.sampled_from(
                [
                    SubscriptionState.RUNNING,
                    SubscriptionState.STARTING,
                    SubscriptionState.PAUSED,
                    SubscriptionState.FAILED,
                ]
            ),
        ),
        st.tuples(st.just("desired"), st.sampled_from([DesiredState.RUNNING, *DesiredState])),
        st.tuples(st.just("paused"), st.sampled_from(_TABLES), st.booleans()),
        st.tuples(st.just("away"), st.sampled_from([None, 1.0, GONE_AFTER_S + 1])),
        st.tuples(st.just("drop"), st.integers(0, 20)),
    ),
    max_size=40,
)


@given(_steps)
def test_no_wait_ends_wrongly_twice_or_is_forgotten(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    registry = _registry(applied=1)
    status = registry.status
    watched: list[_Watched] = []
    dropped: set[int] = set()
    for step in steps:
        match step:
            case ("wait", position, tables, named, patient):
                watched.append(_watch(position, tuple(tables), named=named, patient=patient))
                registry.add(watched[-1].wait)
            case ("applied", more):
                assert status.applied is not None
                status.set_progress(_progress(status.applied.value + more), 0.0)
                registry.end_reached_waits()
            case ("table", table, state):
                status.tables[table].state = state
                registry.end_decided_waits({table})
            case ("paused", table, paused):
                status.tables[table].paused = paused
                registry.end_decided_waits({table})
            case ("state", state):
                status.state = state
                registry.end_decided_waits()
            case ("desired", desired):
                status.desired = desired
                registry.end_decided_waits()
            case ("away", seconds):
                status.away_s = lambda seconds=seconds: seconds
                status.stream = lambda seconds=seconds: "s" if seconds is None else None
                registry.end_reached_waits()
                registry.end_decided_waits()
            case ("drop", index) if index < len(watched) and not watched[index].verdicts:
                registry.remove(watched[index].wait)
                dropped.add(index)
        for index, one in enumerate(watched):
            _check(status, one, dropped=index in dropped)
    assert len(registry) == sum(not one.verdicts and i not in dropped for i, one in enumerate(watched))


_LOGS = ("a", "b", "c")
_marks = st.dictionaries(st.sampled_from(_LOGS), st.integers(1, 40), min_size=1)
_steps_of_logs = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), _marks, st.sets(st.sampled_from(_TABLES), min_size=1)),
        st.tuples(st.just("applied"), st.dictionaries(st.sampled_from(_LOGS), st.integers(0, 15))),
        st.tuples(st.just("back"), st.dictionaries(st.sampled_from(_LOGS), st.integers(0, 15))),
        st.tuples(
            st.just("table"),
            st.sampled_from(_TABLES),
            st.sampled_from([TableStateKind.COPYING, TableStateKind.LIVE, TableStateKind.LIVE]),
        ),
        st.tuples(st.just("demand")),
        st.tuples(st.just("drop"), st.integers(0, 20)),
    ),
    max_size=40,
)


def _reach(status: SubscriptionStatus, applied: dict[str, Lsn]) -> None:
    """These positions are applied in the logs of a source that has several, each of which ended at 1 when it was last read."""
    of_logs = {"applied_of_logs": applied, "source_of_logs": dict.fromkeys(applied, Lsn(1))}
    status.progress = _progress(1).model_copy(update=of_logs)


@pytest.mark.parametrize(
    ("marks", "beyond"),
    [
        ({"": 9}, False),
        ({"": 20}, False),
        ({"": 21}, True),
        ({"a": 12}, False),
        ({"a": 13}, True),
        ({"a": 12, "b": 7}, False),
        ({"a": 1, "b": 8}, True),
    ],
)
def test_a_position_of_several_logs_is_beyond_what_is_known_of_each(marks: dict[str, int], beyond: bool) -> None:
    """The merged log, whose positions have no name, ends where the source's does."""
    status = _registry(applied=1).status
    of_logs = {"applied_of_logs": {"": Lsn(9), "a": Lsn(5), "b": Lsn(7)}, "source_of_logs": {"a": Lsn(12), "b": Lsn(6)}}
    status.progress = _progress(9, source=20).model_copy(update=of_logs)
    assert status.is_beyond_log(tuple(Mark(log, Lsn(at)) for log, at in sorted(marks.items()))) is beyond


@given(_steps_of_logs)
def test_a_wait_in_several_logs_ends_when_each_of_its_marks_is_applied(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    registry = _registry(applied=1)
    status = registry.status
    _reach(status, dict.fromkeys(_LOGS, Lsn(1)))
    watched: list[_Watched] = []
    demanded: set[Mark] = set()
    for step in steps:
        match step:
            case ("wait", marks, tables):
                watched.append(_watch(0, tuple(tables)))
                watched[-1].wait.marks = tuple(Mark(log, Lsn(at)) for log, at in sorted(marks.items()))
                registry.add(watched[-1].wait)
            case ("applied", more):
                _reach(status, {log: Lsn(at.value + more.get(log, 0)) for log, at in status.applied_marks.items()})
                registry.end_reached_waits()
            case ("back", less):
                marks = status.applied_marks.items()
                _reach(status, {log: Lsn(max(1, at.value - less.get(log, 0))) for log, at in marks})
                demanded.clear()
                registry.reopen_reached_waits()
                registry.reset_demand()
            case ("table", table, state):
                status.tables[table].state = state
                registry.end_decided_waits({table})
            case ("demand",):
                demanded.update(registry.take_demand())
                for one in watched:
                    if one.wait.open:
                        assert _is_demanded(status, one.wait, demanded)
            case ("drop", index) if index < len(watched) and not watched[index].verdicts:
                registry.remove(watched[index].wait)
        for one in watched:
            if one.wait.open or one.verdicts:
                _check(status, one, dropped=False)
    assert len(registry) == sum(one.wait.open for one in watched)


def _is_demanded(status: SubscriptionStatus, wait: Wait, demanded: set[Mark]) -> bool:
    """Each mark that is not applied was demanded, or one after it that is known to exist."""
    highest, applied = status.highest_marks, status.applied_marks
    return all(
        mark.position <= applied[mark.log]
        or mark in demanded
        or any(log == mark.log and mark.position <= at <= highest[log] for log, at in demanded)
        for mark in wait.marks
    )


def test_a_wait_that_names_one_log_of_several_does_not_wait_for_the_others() -> None:
    registry = _registry()
    _reach(registry.status, {"a": Lsn(5), "b": Lsn(5)})
    one = _watch(0)
    one.wait.marks = (Mark("b", Lsn(9)),)
    assert registry.add(one.wait)
    assert registry.take_demand() == [Mark("b", Lsn(9))]
    _reach(registry.status, {"a": Lsn(5), "b": Lsn(9)})
    assert registry.end_reached_waits() == 1
    assert one.satisfied


def _check(status: SubscriptionStatus, one: _Watched, *, dropped: bool) -> None:
    """What the present status says of a wait: ended at most once, and never outstanding where it should have ended."""
    assert len(one.verdicts) <= 1
    if dropped:
        assert one.verdicts == []
    if dropped or one.verdicts:
        return
    states = [status.tables[table].state for table in one.wait.tables]
    reached = all(status.confirmed_marks.get(log, Lsn(0)) >= at for log, at in one.wait.marks)
    assert not (reached and all(state is TableStateKind.LIVE for state in states))
    assert status.desired is DesiredState.RUNNING
    assert status.state is not SubscriptionState.FAILED
    assert not {TableStateKind.PARKED, TableStateKind.REMOVED} & set(states)
    assert not any(status.tables[table].paused for table in one.wait.tables)
    assert one.wait.patient or status.away_s() in {None, 1.0}
