"""When an outage ends, and which errors it excuses."""

from __future__ import annotations

from tests.chaos.outages import Outages


def test_it_ends_when_each_session_has_read_a_commit_begun_after_it() -> None:
    outages = Outages(["a", "b"])
    outages.begin("engine", 10.0)
    outages.answered("a", "REST", began=9.0, now=11.0)
    outages.answered("b", "SQL", began=12.0, now=13.0)
    assert not outages.wait_for_end(0)
    assert outages.covers(50.0, 51.0)
    outages.answered("a", "REST", began=14.0, now=15.5)
    assert outages.wait_for_end(0)
    (outage,) = outages.all
    assert (outage.seconds, outage.doors) == (5.5, {"REST": 5.5, "SQL": 3.0})


def test_an_error_counts_as_its_own_if_it_does_not_overlap_an_outage() -> None:
    outages = Outages(["a"])
    outages.begin("engine", 10.0)
    outages.answered("a", "REST", began=11.0, now=12.0)
    spans = [(8.0, 9.9), (9.0, 10.5), (11.0, 11.5), (11.9, 13.0), (12.5, 13.0)]
    assert [outages.covers(*span) for span in spans] == [False, True, True, True, False]


def test_a_kill_that_found_nothing_excuses_nothing() -> None:
    outages = Outages(["a"])
    outages.begin("engine", 10.0)
    outages.withdraw()
    assert not outages.covers(10.0, 11.0)
    assert outages.wait_for_end(0)


def test_each_kind_has_its_recovery_times() -> None:
    outages = Outages(["a"])
    for began, took in ((10.0, 1.0), (20.0, 3.0)):
        outages.begin("server", began)
        outages.answered("a", "REST", began=began + 0.5, now=began + took)
    assert outages.document()["recovery_s"] == {"server": {"count": 2, "median": 2.0, "most": 3.0}}
