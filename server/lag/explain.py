"""Explains a measured lag: the causes, ranked by their shares. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from engine.link.lag import LagBody, LagSpanPart
from engine.model.lag import LagCause
from server.lag.schemas import LagCauseView, LagExplanation

_TIERS: Mapping[LagCause, int] = {LagCause.GATHERING: 2, LagCause.COMPUTING: 1, LagCause.SLOW_COMMIT: 1}
"""Causes of the highest tiers only count while no other one is present: stages always work on something while changes wait."""
_TITLES = {
    LagCause.LONG_OPEN_TRANSACTION: "A transaction of the source is open: its changes cannot be visible before its commit.",
    LagCause.TARGET_LOCK: "Another session of the target holds a lock that the commit waits for.",
    LagCause.QUEUE_AT_BUDGET: "The queue is at its budget: the log is not read until the target has taken some of it.",
    LagCause.COPY_RUNNING: "A table is copied: its changes are kept until the copy is complete.",
    LagCause.HUGE_TRANSACTION: "One source transaction is most of a batch, which is visible only as a whole.",
    LagCause.COMPUTING: "Changes are prepared.",
    LagCause.SLOW_COMMIT: "Changes are written to the target.",
    LagCause.GATHERING: "Changes wait to be sealed into a batch, or for the next stage.",
}
_REMEDIES = {
    LagCause.LONG_OPEN_TRANSACTION: "End the transaction on the source, or wait for it: SELECT pg_terminate_backend(pid).",
    LagCause.TARGET_LOCK: "End the session on the target that holds the lock, or wait for it: SELECT pg_terminate_backend(pid).",
    LagCause.QUEUE_AT_BUDGET: "Remove the other causes first: the queue fills because the target is slower than the source. Or raise the"
    " subscription's queue.budget_bytes.",
    LagCause.COPY_RUNNING: "Wait for the copy: GET /subscriptions/{name} shows its progress in 'copying'. Raise the limits in 'copies' if"
    " it may take more of the source.",
    LagCause.HUGE_TRANSACTION: "Wait for it; write smaller transactions on the source if readers have to see parts of it earlier.",
    LagCause.COMPUTING: "Give the engine more processors, or Spark more workers, if this persists.",
    LagCause.SLOW_COMMIT: "Look at the load of the target's disk and processors if this persists.",
    LagCause.GATHERING: "None is needed below the batch's max_age_ms; lower that if batches may be smaller.",
}


def explained(body: LagBody) -> LagExplanation:
    """The explanation of a measurement.

    The lag is the age of the oldest change that readers of the target do not see, so it begins with the first span. Each moment of it
    counts for the causes that were present then, in equal parts; so the shares add up to the lag.
    """
    lag_ms = max((span.from_ms for span in body.spans), default=0.0)
    shares = _shares(body.spans)
    longest = {}
    for span in sorted(body.spans, key=lambda span: span.from_ms - span.to_ms):
        longest[span.cause] = span
    ranked = sorted(shares, key=lambda cause: (-shares[cause], list(LagCause).index(cause)))
    causes = [
        LagCauseView(
            cause=cause,
            share_ms=round(shares[cause], 1),
            share=round(shares[cause] / lag_ms, 4),
            explanation=_TITLES[cause],
            evidence=longest[cause].evidence,
            remedy=_REMEDIES[cause],
        )
        for cause in ranked
    ]
    return LagExplanation(lag_ms=round(lag_ms, 1), commit_lag_ms=round(body.commit_lag_ms, 1), causes=causes)


def _shares(spans: Sequence[LagSpanPart]) -> dict[LagCause, float]:
    """Milliseconds of each cause, without those of 0."""
    found: dict[LagCause, float] = {}
    borders = sorted({border for span in spans for border in (span.from_ms, span.to_ms)}, reverse=True)
    for begin, end in pairwise(borders):
        present = {span.cause for span in spans if span.from_ms >= begin and span.to_ms <= end}
        first = min((_TIERS.get(cause, 0) for cause in present), default=0)
        counted = [cause for cause in present if _TIERS.get(cause, 0) == first]
        for cause in counted:
            found[cause] = found.get(cause, 0.0) + (begin - end) / len(counted)
    return found
