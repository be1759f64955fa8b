"""The book of waits against a plain model: who ends, when, and what is demanded."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.position import Lsn
from engine.model.subscription_state import DesiredState, SubscriptionState
from engine.model.table_state import TableState
from server.freshness.subscription_status import GONE_AFTER_S, Picture, TableView
from server.freshness.wait_registry import HORIZON_BYTES, Unreachable, Verdict, Wait, WaitBook

_TABLES = ("t1", "t2", "t3")


def _book(applied: int | None = 10, state: SubscriptionState = SubscriptionState.RUNNING) -> WaitBook:
    desired = DesiredState.PAUSED if state is SubscriptionState.PAUSED else DesiredState.RUNNING
    picture = Picture(name="s", state=state, desired=desired, applied=None if applied is None else Lsn(applied))
    picture.stream = lambda: "s"
    picture.vouch(0, "s")
    for table in _TABLES:
        picture.tables[table] = TableView(id=table, schema="public", name=table, state=TableState.LIVE)
    return WaitBook(picture)


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
    return _Watched(Wait(Lsn(position), set(tables), named, verdicts.append, patient), verdicts)


def test_waits_end_in_the_order_of_their_positions() -> None:
    book = _book()
    order: list[int] = []
    for position in (30, 20, 25, 40):
        book.add(Wait(Lsn(position), {"t1"}, True, lambda _, p=position: order.append(p)))
    book.picture.applied = Lsn(30)
    assert book.progressed() == 3
    assert order == [20, 25, 30]
    assert len(book) == 1


def test_a_position_already_applied_ends_at_once_also_while_paused() -> None:
    book = _book(state=SubscriptionState.PAUSED)
    seen, ahead = _watch(10), _watch(11)
    assert not book.add(seen.wait)
    assert seen.satisfied
    assert not book.add(ahead.wait)
    assert ahead.refused
    assert book.demand() == []


@pytest.mark.parametrize("named", [True, False])
def test_a_failed_subscription_refuses_also_what_was_applied(named: bool) -> None:
    book = _book(state=SubscriptionState.FAILED)
    seen = _watch(10, named=named)
    assert not book.add(seen.wait)
    assert seen.refused


def test_of_positions_that_exist_only_the_highest_is_demanded_and_once() -> None:
    book = _book()
    book.picture.source = Lsn(100)
    for position in (20, 50, 30):
        book.add(_watch(position).wait)
    assert book.demand() == [Lsn(50)]
    assert book.demand() == []
    book.add(_watch(40).wait)
    assert book.demand() == []
    book.add(_watch(60).wait)
    assert book.demand() == [Lsn(60)]


def test_a_position_that_may_never_come_does_not_stand_for_the_nearer_ones() -> None:
    book = _book()
    for position in (20, 90, 30):
        book.add(_watch(position).wait)
    assert book.demand() == [Lsn(20), Lsn(30), Lsn(90)]
    book.picture.source = Lsn(50)
    book.add(_watch(40).wait)
    assert book.demand() == [Lsn(40)]
    book.add(_watch(35).wait)
    book.add(_watch(90).wait)
    assert book.demand() == []


def test_a_new_stream_hears_the_outstanding_demand_again() -> None:
    book = _book()
    last = _watch(60)
    book.add(_watch(50).wait)
    book.add(last.wait)
    book.demand()
    book.drop(last.wait)
    book.forget_demand()
    assert book.demand() == [Lsn(50)]


def test_a_position_far_away_is_not_demanded_before_it_comes_near() -> None:
    book = _book()
    far = 10 + HORIZON_BYTES + 5
    book.add(_watch(far).wait)
    book.add(_watch(20).wait)
    assert book.demand() == [Lsn(20)]
    book.picture.applied = Lsn(20)
    book.progressed()
    assert book.demand() == [Lsn(far)]


def test_a_dropped_wait_hears_nothing() -> None:
    book = _book()
    watched = _watch(20)
    book.add(watched.wait)
    book.drop(watched.wait)
    book.picture.applied = Lsn(99)
    assert book.progressed() == 0
    assert watched.verdicts == []
    assert len(book) == 0


def test_a_wait_on_a_table_that_copies_ends_when_it_is_live() -> None:
    book = _book()
    book.picture.tables["t2"].state = TableState.CATCHING_UP
    watched = _watch(20)
    book.add(watched.wait)
    book.picture.applied = Lsn(30)
    assert book.progressed() == 0
    book.picture.tables["t2"].state = TableState.LIVE
    assert book.changed({"t2"}) == 1
    assert watched.satisfied


def test_a_removed_table_ends_waits_that_named_it_and_leaves_the_others() -> None:
    book = _book()
    named, every = _watch(20, ("t1",)), _watch(20, _TABLES, named=False)
    book.add(named.wait)
    book.add(every.wait)
    del book.picture.tables["t1"]
    assert book.changed() == 1
    assert named.refused
    assert every.wait.tables == {"t2", "t3"}


def test_when_the_applied_position_goes_back_waits_begin_again() -> None:
    book = _book()
    book.picture.tables["t2"].state = TableState.COPYING
    watched = _watch(20)
    book.add(watched.wait)
    assert book.picture.advance(Lsn(25), 1.0)
    book.progressed()
    assert not book.picture.advance(Lsn(5), 2.0)
    book.rewound()
    book.picture.tables["t2"].state = TableState.LIVE
    assert book.changed() == 0
    book.picture.advance(Lsn(21), 3.0)
    assert book.progressed() == 1
    assert watched.satisfied


def test_the_estimate_follows_the_pace() -> None:
    picture = _book(applied=None).picture
    assert picture.estimate_ms(Lsn(100), 0.0) is None
    picture.advance(Lsn(0), 0.0)
    picture.advance(Lsn(100), 1.0)
    assert picture.estimate_ms(Lsn(300), 1.0) == 2000
    assert picture.estimate_ms(Lsn(50), 1.0) == 0


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
        st.tuples(st.just("table"), st.sampled_from(_TABLES), st.sampled_from(list(TableState))),
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
    book = _book(applied=1)
    picture = book.picture
    watched: list[_Watched] = []
    dropped: set[int] = set()
    for step in steps:
        match step:
            case ("wait", position, tables, named, patient):
                watched.append(_watch(position, tuple(tables), named=named, patient=patient))
                book.add(watched[-1].wait)
            case ("applied", more):
                assert picture.applied is not None
                picture.advance(Lsn(picture.applied.value + more), 0.0)
                book.progressed()
            case ("table", table, state):
                picture.tables[table].state = state
                book.changed({table})
            case ("paused", table, paused):
                picture.tables[table].paused = paused
                book.changed({table})
            case ("state", state):
                picture.state = state
                book.changed()
            case ("desired", desired):
                picture.desired = desired
                book.changed()
            case ("away", seconds):
                picture.away_s = lambda seconds=seconds: seconds
                picture.stream = lambda seconds=seconds: "s" if seconds is None else None
                book.progressed()
                book.changed()
            case ("drop", index) if index < len(watched) and not watched[index].verdicts:
                book.drop(watched[index].wait)
                dropped.add(index)
        for index, one in enumerate(watched):
            _check(picture, one, dropped=index in dropped)
    assert len(book) == sum(not one.verdicts and i not in dropped for i, one in enumerate(watched))


def _check(picture: Picture, one: _Watched, *, dropped: bool) -> None:
    """What the present picture says of a wait: ended at most once, and never outstanding where it should have ended."""
    assert len(one.verdicts) <= 1
    if dropped:
        assert one.verdicts == []
    if dropped or one.verdicts:
        return
    states = [picture.tables[table].state for table in one.wait.tables]
    reached = picture.reached is not None and picture.reached >= one.wait.position
    assert not (reached and all(state is TableState.LIVE for state in states))
    assert picture.desired is DesiredState.RUNNING
    assert picture.state is not SubscriptionState.FAILED
    assert not {TableState.PARKED, TableState.REMOVED} & set(states)
    assert not any(picture.tables[table].paused for table in one.wait.tables)
    assert one.wait.patient or picture.away_s() in {None, 1.0}
