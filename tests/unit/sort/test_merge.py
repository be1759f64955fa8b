"""Single rules of the merge of several logs."""

from __future__ import annotations

import numpy as np
import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.sort.merge import LogMerge
from engine.sort.merge_records import Closed, Entry, EntryKind, Global, InDoubt, LocalRun, Order, Passed


def add(
    merge: LogMerge, node: int, kind: EntryKind, gtid: str, end: int, stamp: int, named: set[int] | None = None
) -> None:
    participants = None if named is None else frozenset(named)
    merge.add(node, Entry(kind, gtid, end, stamp, place=end, begin=end - 1, participants=participants))


def add_commits(merge: LogMerge, node: int, stamps: list[int], first: int = 10) -> None:
    """Local transactions whose places are their stamps."""
    ends = np.arange(first, first + 10 * len(stamps), 10)
    merge.add_commits(node, ends, np.array(stamps), np.array(stamps))


def mark(merge: LogMerge, ends: list[int]) -> None:
    assert merge.wants_marks()
    merge.ask_marks()
    merge.marked(ends)
    for node, end in enumerate(ends):
        merge.heard(node, end)


def places(merge: LogMerge) -> list[tuple[int, int]]:
    """Node and place of the local transactions that are released."""
    runs = merge.release()
    assert all(isinstance(run, LocalRun) for run in runs)
    return [
        pair
        for run in runs
        if isinstance(run, LocalRun)
        for pair in zip(run.nodes.tolist(), run.places.tolist(), strict=True)
    ]


def test_local_transactions_are_in_the_order_of_their_stamps() -> None:
    merge = LogMerge(3)
    add_commits(merge, 0, [5, 9, 12])
    add_commits(merge, 1, [6, 7, 30])
    add_commits(merge, 2, [1, 9, 20])
    assert places(merge) == [(2, 1), (0, 5), (1, 6), (1, 7), (0, 9), (2, 9), (0, 12)]
    mark(merge, [30, 30, 30])
    assert places(merge) == [(2, 20), (1, 30)]


def test_stamps_ascend_in_each_log() -> None:
    merge = LogMerge(2)
    add_commits(merge, 0, [10, 3, 4])
    add_commits(merge, 1, [5, 11])
    assert places(merge) == [(1, 5), (0, 10), (0, 3), (0, 4)]


def test_of_equal_stamps_that_of_the_smaller_node_is_first() -> None:
    merge = LogMerge(2)
    add_commits(merge, 1, [7, 7])
    add_commits(merge, 0, [7, 7])
    assert places(merge) == [(0, 7), (0, 7)]
    mark(merge, [20, 20])
    assert places(merge) == [(1, 7), (1, 7)]


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_node_whose_clock_is_behind_holds_the_others_up_for_one_round_only(ahead: int) -> None:
    merge = LogMerge(2)
    add_commits(merge, ahead, [1_000_000])
    assert places(merge) == []
    assert merge.waits_for() == {1 - ahead}
    mark(merge, [10 * (ahead == 0), 10 * (ahead == 1)])
    assert places(merge) == [(ahead, 1_000_000)]
    add_commits(merge, 1 - ahead, [7], first=20)
    add_commits(merge, ahead, [1_000_002], first=20)
    mark(merge, [20, 20])
    assert places(merge) == [(1 - ahead, 7), (ahead, 1_000_002)]


def test_the_clock_of_a_node_without_records_lets_others_pass() -> None:
    merge = LogMerge(2)
    add_commits(merge, 0, [50])
    merge.heard(1, 10, clock_us=49)
    assert places(merge) == []
    merge.heard(1, 20, clock_us=51)
    assert places(merge) == [(0, 50)]


def test_nothing_is_asked_of_nodes_that_nothing_waits_for() -> None:
    merge = LogMerge(2)
    merge.heard(0, 10)
    merge.heard(1, 10)
    assert merge.release() == []
    assert not merge.wants_marks()
    assert merge.waits_for() == frozenset()


def test_marks_that_were_asked_for_before_a_commit_was_read_do_not_count() -> None:
    merge = LogMerge(2, Order.CAUSAL)
    add(merge, 0, EntryKind.PREPARE, "a", 10, 1)
    add(merge, 0, EntryKind.COMMIT_PREPARED, "a", 20, 2)
    merge.ask_marks()
    add(merge, 0, EntryKind.PREPARE, "b", 30, 3)
    add(merge, 0, EntryKind.COMMIT_PREPARED, "b", 40, 4)
    merge.marked([20, 0])
    released = [each.gtid for each in merge.release() if isinstance(each, Global)]
    assert released == ["a"]
    mark(merge, [40, 0])
    assert [each.gtid for each in merge.release() if isinstance(each, Global)] == ["b"]


@pytest.mark.parametrize("order", list(Order))
def test_what_waits_is_as_old_as_its_first_commit_also_after_prepares(order: Order) -> None:
    merge = LogMerge(3, order)
    for node in (1, 2):
        add(merge, node, EntryKind.PREPARE, "g", 10, 4)
    assert merge.held_since() == 0
    add(merge, 1, EntryKind.COMMIT_PREPARED, "g", 20, 5)
    add_commits(merge, 1, [8], first=30)
    add(merge, 2, EntryKind.PREPARE, "h", 20, 6)
    add(merge, 2, EntryKind.COMMIT_PREPARED, "g", 30, 7)
    merge.release()
    assert merge.held_since() == 5
    mark(merge, [0, 30, 30])
    merge.release()
    assert merge.held_since() == 0


def test_what_is_committed_and_not_released_is_known_by_its_places() -> None:
    merge = LogMerge(2, Order.CAUSAL)
    add(merge, 0, EntryKind.PREPARE, "prepared only", 10, 1)
    add(merge, 0, EntryKind.PREPARE, "g", 20, 2)
    merge.release()
    add_commits(merge, 0, [3], first=30)
    merge.hold([20, 0])
    add(merge, 0, EntryKind.COMMIT_PREPARED, "g", 40, 4)
    add(merge, 0, EntryKind.OWN_COMMIT, "h", 50, 5)
    merge.release()
    assert merge.held_commits(0) == [3, 20, 50]
    assert merge.held_commits(1) == []
    merge.hold(None)
    mark(merge, [50, 0])
    merge.release()
    assert merge.held_commits(0) == []


def test_lost_marks_are_asked_for_again() -> None:
    merge = LogMerge(2, Order.CAUSAL)
    add(merge, 0, EntryKind.PREPARE, "a", 10, 1)
    add(merge, 0, EntryKind.COMMIT_PREPARED, "a", 20, 2)
    merge.ask_marks()
    assert not merge.wants_marks()
    merge.marked(None)
    mark(merge, [20, 0])
    assert any(isinstance(each, Global) for each in merge.release())


def test_parts_are_released_together_and_closed_one_by_one() -> None:
    merge = LogMerge(3, Order.CAUSAL)
    for node in range(3):
        add(merge, node, EntryKind.PREPARE, "g", 10, 1, {0, 1, 2})
    add(merge, 1, EntryKind.COMMIT_PREPARED, "g", 20, 2)
    found = [each for each in merge.release() if not isinstance(each, Passed)]
    assert found == [Global("g", 1, 20, 2, ((0, 10), (1, 10), (2, 10)), (0, 2))]
    add(merge, 2, EntryKind.COMMIT_PREPARED, "g", 20, 9)
    assert merge.release() == [Closed("g", 2, 20, 9)]
    assert merge.released_to() == [10, 20, 20]


def test_a_part_that_is_rolled_back_after_the_release_is_in_doubt() -> None:
    merge = LogMerge(2, Order.CAUSAL)
    for node in range(2):
        add(merge, node, EntryKind.PREPARE, "g", 10, 1, {0, 1})
    add(merge, 0, EntryKind.COMMIT_PREPARED, "g", 20, 2)
    assert any(isinstance(each, Global) for each in merge.release())
    add(merge, 1, EntryKind.ROLLBACK_PREPARED, "g", 20, 3)
    assert merge.release() == [InDoubt("g", 1, 20)]


def test_a_part_that_was_rolled_back_before_the_release_is_named() -> None:
    merge = LogMerge(2, Order.CAUSAL)
    for node in range(2):
        add(merge, node, EntryKind.PREPARE, "g", 10, 1)
    add(merge, 0, EntryKind.COMMIT_PREPARED, "g", 20, 2)
    add(merge, 1, EntryKind.ROLLBACK_PREPARED, "g", 20, 3)
    mark(merge, [20, 20])
    (found,) = (each for each in merge.release() if isinstance(each, Global))
    assert (found.parts, found.rolled_back) == (((0, 10),), (1,))


def test_a_rollback_where_nothing_was_committed_drops_the_part() -> None:
    merge = LogMerge(2, Order.CAUSAL)
    add(merge, 0, EntryKind.PREPARE, "g", 10, 1)
    assert merge.release() == [Passed(EntryKind.PREPARE, "g", 0, 10)]
    assert merge.releases_log() == [9, 0]
    assert merge.add(0, Entry(EntryKind.ROLLBACK_PREPARED, "g", 20, 2)) == 10
    assert merge.release() == [Passed(EntryKind.ROLLBACK_PREPARED, "g", 0, 20)]
    assert merge.releases_log() == [20, 0]


def test_local_transactions_do_not_pass_a_global_one_with_an_earlier_stamp() -> None:
    merge = LogMerge(2)
    add_commits(merge, 0, [5])
    add(merge, 0, EntryKind.OWN_COMMIT, "g", 20, 7, {0})
    add_commits(merge, 1, [6, 9])
    mark(merge, [20, 20])
    assert in_order(merge) == [5, 6, "g", 9]


def test_a_commit_is_stamped_later_than_its_prepares_whatever_its_clock_says() -> None:
    merge = LogMerge(3)
    add(merge, 1, EntryKind.PREPARE, "g", 10, 100)
    add(merge, 0, EntryKind.OWN_COMMIT, "g", 10, 50, {0, 1})
    add_commits(merge, 2, [80, 100, 102])
    mark(merge, [10, 10, 30])
    assert in_order(merge) == [80, 100, "g", 102]


def in_order(merge: LogMerge) -> list[int | str]:
    """Places of local transactions, and ids of global ones."""
    found: list[int | str] = []
    for each in merge.release():
        if isinstance(each, LocalRun):
            found += each.places.tolist()
        elif isinstance(each, Global):
            found.append(each.gtid)
    return found


def test_a_part_that_the_coordinator_prepares_itself_belongs_to_a_later_use_of_the_id() -> None:
    merge = LogMerge(2, Order.CAUSAL)
    add(merge, 0, EntryKind.OWN_COMMIT, "g", 10, 1)
    add(merge, 0, EntryKind.PREPARE, "g", 20, 2)
    mark(merge, [20, 0])
    (found,) = (each for each in merge.release() if isinstance(each, Global))
    assert (found.parts, found.open) == (((0, 10),), ())


def test_a_commit_without_a_prepare_is_that_of_a_part_without_rows() -> None:
    """Some versions send nothing when a transaction is prepared that only locked rows. What follows it there still comes later."""
    merge = LogMerge(2, Order.CAUSAL)
    add(merge, 0, EntryKind.COMMIT_PREPARED, "g", 10, 1)
    add_commits(merge, 0, [5], first=20)
    add(merge, 1, EntryKind.PREPARE, "g", 10, 1)
    assert not any(isinstance(each, LocalRun | Global) for each in merge.release())
    mark(merge, [20, 10])
    found = [each for each in merge.release() if isinstance(each, LocalRun | Global)]
    assert isinstance(found[0], Global)
    assert (found[0].parts, found[0].open) == (((1, 10),), (1,))
    assert isinstance(found[1], LocalRun)


def test_a_part_that_is_sent_again_replaces_the_one_before() -> None:
    merge = LogMerge(1, Order.CAUSAL)
    assert merge.add(0, Entry(EntryKind.PREPARE, "g", 10, 1, place=1)) is None
    assert merge.add(0, Entry(EntryKind.PREPARE, "g", 10, 1, place=3)) == 1
    add(merge, 0, EntryKind.COMMIT_PREPARED, "g", 20, 2)
    mark(merge, [20])
    (found,) = (each for each in merge.release() if isinstance(each, Global))
    assert found.parts == ((0, 3),)


def test_a_log_that_does_not_ascend_is_refused() -> None:
    merge = LogMerge(1)
    add_commits(merge, 0, [1, 2])
    with pytest.raises(EngineFault, match="does not ascend") as caught:
        add(merge, 0, EntryKind.OWN_COMMIT, "g", 20, 1)
    assert caught.value.kind is FaultKind.LOG_UNREADABLE


def test_commits_that_contradict_each_other_are_refused() -> None:
    merge = LogMerge(2, Order.CAUSAL)
    for node, prepared, own in ((0, "a", "b"), (1, "b", "a")):
        add(merge, node, EntryKind.PREPARE, prepared, 10, 1, {0, 1})
        add(merge, node, EntryKind.COMMIT_PREPARED, prepared, 20, 2)
        add(merge, node, EntryKind.OWN_COMMIT, own, 30, 3, {0, 1})
    with pytest.raises(EngineFault, match="contradict"):
        merge.release()


def test_a_restart_reads_no_part_twice() -> None:
    """Released at node 0 with node 1 open: both parts come again, and neither is released again."""
    merge = LogMerge(2, Order.CAUSAL, after=[20, 5], unclosed={"g": [1]})
    assert merge.add(0, Entry(EntryKind.PREPARE, "g", 10, 1, place=1)) is None
    assert merge.add(0, Entry(EntryKind.COMMIT_PREPARED, "g", 20, 2)) == 1
    assert merge.add(1, Entry(EntryKind.PREPARE, "g", 10, 1, place=2)) == 2
    add(merge, 1, EntryKind.COMMIT_PREPARED, "g", 20, 2)
    assert merge.release() == [
        Passed(EntryKind.PREPARE, "g", 0, 10),
        Closed("g", 1, 20, 2),
    ]


def test_a_part_of_before_the_restart_completes_nothing_until_its_log_was_read_again() -> None:
    """An id that is used again: node 1's part of the first use comes again, and looks like one of the second."""
    merge = LogMerge(2, Order.CAUSAL, after=[20, 20])
    add(merge, 0, EntryKind.PREPARE, "g", 30, 5, {0, 1})
    add(merge, 0, EntryKind.COMMIT_PREPARED, "g", 40, 6)
    add(merge, 1, EntryKind.PREPARE, "g", 10, 1, {0, 1})
    assert not any(isinstance(each, Global) for each in merge.release())
    assert merge.add(1, Entry(EntryKind.COMMIT_PREPARED, "g", 20, 2)) == 10
    add(merge, 1, EntryKind.PREPARE, "g", 30, 5, {0, 1})
    (found,) = (each for each in merge.release() if isinstance(each, Global))
    assert found.parts == ((0, 30), (1, 30))


@pytest.mark.parametrize("order", Order)
def test_nothing_later_than_the_positions_of_a_hold_is_released(order: Order) -> None:
    merge = LogMerge(2, order)
    merge.hold([20, 10])
    add_commits(merge, 0, [1, 2, 3])
    add_commits(merge, 1, [4, 5])
    assert sorted(places(merge)) == [(0, 1), (0, 2), (1, 4)]
    assert merge.is_held()
    assert not merge.is_torn()
    merge.hold(None)
    if order is Order.STRICT:
        mark(merge, [30, 20])
    assert sorted(places(merge)) == [(0, 3), (1, 5)]


def test_a_hold_between_two_commits_of_a_global_transaction_names_it() -> None:
    merge = LogMerge(2, Order.CAUSAL)
    merge.hold([20, 10])
    for node in range(2):
        add(merge, node, EntryKind.PREPARE, "g", 10, 1, {0, 1})
        add(merge, node, EntryKind.COMMIT_PREPARED, "g", 20, 2)
    assert any(isinstance(each, Global) for each in merge.release())
    assert merge.is_held()
    assert merge.unclosed() == {"g": frozenset({1})}
    merge.hold(None)
    assert merge.release() == [Closed("g", 1, 20, 2)]
    assert merge.unclosed() == {}


def test_a_hold_before_the_coordinators_commit_and_after_one_that_follows_it_is_torn() -> None:
    merge = LogMerge(2, Order.CAUSAL)
    merge.hold([0, 20])
    add(merge, 1, EntryKind.PREPARE, "g", 10, 1, {0, 1})
    add(merge, 1, EntryKind.COMMIT_PREPARED, "g", 20, 3)
    add(merge, 0, EntryKind.OWN_COMMIT, "g", 10, 2, {0, 1})
    assert not any(isinstance(each, Global) for each in merge.release())
    assert merge.is_torn()
    assert not merge.is_held()
    merge.hold(None)
    assert any(isinstance(each, Global) for each in merge.release())
    assert not merge.is_torn()


@pytest.mark.parametrize("order", Order)
def test_a_participant_without_a_part_is_not_waited_for_after_its_mark(order: Order) -> None:
    """The logs begin at different moments: a part may have been committed before its node's log begins."""
    merge = LogMerge(2, order, after=[100, 100])
    merge.heard(1, 100)
    add(merge, 0, EntryKind.PREPARE, "a", 110, 1, named={0, 1})
    add(merge, 0, EntryKind.COMMIT_PREPARED, "a", 120, 2)
    assert all(isinstance(each, Passed) for each in merge.release())
    mark(merge, [120, 130])
    released = [each for each in merge.release() if isinstance(each, Global)]
    assert [(each.gtid, each.parts) for each in released] == [("a", ((0, 110),))]
