"""The explanation of a measured lag: shares, order, and that the shares add up."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.link.lag import LagBody, LagSpanPart
from engine.model.lag import LagCause
from server.lag.explain import explained

OPEN, LOCK, BUDGET, COPY = (
    LagCause.LONG_OPEN_TRANSACTION,
    LagCause.TARGET_LOCK,
    LagCause.QUEUE_AT_BUDGET,
    LagCause.COPY_RUNNING,
)
HUGE, COMPUTING, COMMIT, GATHERING = (
    LagCause.HUGE_TRANSACTION,
    LagCause.COMPUTING,
    LagCause.SLOW_COMMIT,
    LagCause.GATHERING,
)
HOT, KEY, SMALL, STARVED = LagCause.HOT_TABLE, LagCause.KEY_SKEW, LagCause.SMALL_BATCHES, LagCause.CPU_STARVED
SENDER, KEEPALIVE, NODE = LagCause.SLOW_SENDER, LagCause.AWAITING_KEEPALIVE, LagCause.SILENT_NODE
Span = tuple[LagCause, float, float]

CASES: list[tuple[str, list[Span], list[tuple[LagCause, float]]]] = [
    ("nothing", [], []),
    ("only gathering", [(GATHERING, 80, 0)], [(GATHERING, 80)]),
    ("stages count before the wait for them", [(GATHERING, 100, 0), (COMPUTING, 60, 20)], [(GATHERING, 60), (COMPUTING, 40)]),
    ("a lock during a commit", [(GATHERING, 900, 0), (COMMIT, 850, 0), (LOCK, 840, 0)], [(LOCK, 840), (GATHERING, 50), (COMMIT, 10)]),
    ("a huge transaction", [(GATHERING, 900, 0), (HUGE, 880, 300), (HUGE, 300, 0)], [(HUGE, 880), (GATHERING, 20)]),
    ("an open transaction alone", [(OPEN, 5000, 0)], [(OPEN, 5000)]),
    ("an open transaction and a lock", [(OPEN, 1000, 0), (GATHERING, 500, 0), (COMMIT, 450, 0), (LOCK, 400, 0)],
     [(OPEN, 800), (LOCK, 200)]),
    ("equal parts are ranked as listed", [(LOCK, 100, 0), (OPEN, 100, 0)], [(OPEN, 50), (LOCK, 50)]),
    ("several copies are one cause", [(COPY, 100, 0), (COPY, 300, 0)], [(COPY, 300)]),
    ("a hot table behind a lock", [(GATHERING, 600, 0), (HOT, 500, 0), (LOCK, 400, 100)],
     [(LOCK, 300), (HOT, 200), (GATHERING, 100)]),
    ("a hot table and an open transaction", [(GATHERING, 600, 0), (HOT, 500, 0), (OPEN, 300, 0)],
     [(HOT, 350), (OPEN, 150), (GATHERING, 100)]),
    ("a hot table while another batch is prepared", [(GATHERING, 600, 0), (HOT, 500, 0), (COMPUTING, 500, 0)],
     [(HOT, 500), (GATHERING, 100)]),
    ("a key and a starved stage", [(GATHERING, 600, 0), (KEY, 600, 0), (STARVED, 200, 0)], [(KEY, 500), (STARVED, 100)]),
    ("small batches and a slow sender", [(SENDER, 400, 0), (GATHERING, 600, 0), (SMALL, 600, 0)], [(SMALL, 400), (SENDER, 200)]),
    ("a keepalive alone", [(KEEPALIVE, 700, 0)], [(KEEPALIVE, 700)]),
    ("a silent node, for which clients wait", [(KEEPALIVE, 700, 0), (NODE, 600, 0), (SENDER, 50, 0)],
     [(NODE, 575), (KEEPALIVE, 100), (SENDER, 25)]),
    ("small batches behind a lock", [(GATHERING, 600, 0), (SMALL, 600, 0), (LOCK, 600, 0)], [(LOCK, 600)]),
    ("a full queue behind a lock", [(GATHERING, 600, 0), (LOCK, 600, 0), (BUDGET, 200, 0)], [(LOCK, 500), (BUDGET, 100)]),
]  # fmt: skip


def body(spans: list[Span], commit_lag_ms: float = 0.0) -> LagBody:
    parts = tuple(LagSpanPart(cause=cause, from_ms=begin, to_ms=end) for cause, begin, end in spans)
    return LagBody(commit_lag_ms=commit_lag_ms, spans=parts)


@pytest.mark.parametrize(("spans", "wanted"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_causes_are_ranked_by_their_shares(spans: list[Span], wanted: list[tuple[LagCause, float]]) -> None:
    found = explained(body(spans))
    assert [(one.cause, one.share_ms) for one in found.causes] == wanted
    assert found.lag_ms == max((begin for _, begin, _ in spans), default=0)
    assert sum(one.share for one in found.causes) == pytest.approx(1.0 if spans else 0.0)


@given(
    st.lists(st.tuples(st.sampled_from(LagCause), st.floats(1, 1e6), st.floats(0, 1)), min_size=1, max_size=12),
    st.floats(1, 1e6),
)
@settings(max_examples=200, deadline=None)
def test_shares_add_up_to_the_lag(found: list[tuple[LagCause, float, float]], lag_ms: float) -> None:
    """Whatever is measured, as long as a commit waits: then `gathering` is present all the time."""
    longest = max(lag_ms, *(begin for _, begin, _ in found))
    spans = [(GATHERING, longest, 0.0), *((cause, begin, begin * part) for cause, begin, part in found)]
    answer = explained(body(spans))
    assert sum(one.share_ms for one in answer.causes) == pytest.approx(longest, rel=1e-3, abs=1)
    shares = [one.share_ms for one in answer.causes]
    assert shares == sorted(shares, reverse=True)


INDEPENDENT = [OPEN, LOCK, BUDGET, COPY, SENDER, LagCause.SLOW_READER, KEEPALIVE, HUGE]


@given(
    st.lists(st.sampled_from(INDEPENDENT), min_size=2, max_size=2, unique=True),
    st.lists(st.sampled_from([*LagCause]), max_size=6),
    st.floats(10, 1e5),
    st.floats(0.0, 0.2),
)
@settings(max_examples=200, deadline=None)
def test_two_causes_that_last_are_the_first_two(
    two: list[LagCause], others: list[LagCause], lag_ms: float, part: float
) -> None:
    """Whatever else was present for a short part of the time."""
    spans = [(GATHERING, lag_ms, 0.0), *((one, lag_ms, 0.0) for one in two)]
    spans += [(one, lag_ms * part, 0.0) for one in others if one not in two]
    found = explained(body(spans)).causes
    assert {one.cause for one in found[:2]} == {*two}
    assert sum(one.share_ms for one in found) == pytest.approx(lag_ms, rel=1e-3, abs=1)


def test_a_cause_shows_the_evidence_of_its_longest_span_and_a_remedy() -> None:
    spans = (
        LagSpanPart(cause=COPY, from_ms=100, evidence={"table": "public.small"}),
        LagSpanPart(cause=COPY, from_ms=900, evidence={"table": "public.large"}),
    )
    (one,) = explained(LagBody(commit_lag_ms=0, spans=spans)).causes
    assert one.evidence == {"table": "public.large"}
    assert one.remedy
    assert one.explanation


def test_every_cause_is_explained() -> None:
    for cause in LagCause:
        (one,) = explained(body([(cause, 10, 0)])).causes
        assert one.remedy


def test_the_silent_nodes_are_named() -> None:
    parts = (LagSpanPart(cause=NODE, from_ms=900, to_ms=0, evidence={"nodes": "n1, {n2}"}),)
    (cause,) = explained(LagBody(commit_lag_ms=900, spans=parts)).causes
    assert "the log of n1, {n2}," in cause.explanation
    assert cause.remedy.startswith("Look at the node")
