"""Explains a measured lag: the causes, ranked by their shares. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from engine.link.lag import LagBody, LagSpanPart
from engine.model.lag import LagCause
from server.lag.schemas import LagCauseView, LagExplanation
from server.remedies import LATE_NODE_REMEDY

_TIERS: Mapping[LagCause, int] = {LagCause.GATHERING: 2, LagCause.COMPUTING: 1, LagCause.SLOW_COMMIT: 1}
"""Causes of the highest tiers only count while no other one is present: stages always work on something while changes wait."""
_OF_WORK = frozenset({LagCause.HOT_TABLE, LagCause.KEY_SKEW, LagCause.SMALL_BATCHES, LagCause.CPU_STARVED})
"""Causes that make the work of a stage take longer. They do not count while the target's lock prevents that work."""
_TITLES = {
    LagCause.LONG_OPEN_TRANSACTION: "A transaction of the source is open: its changes cannot be visible before its commit.",
    LagCause.TARGET_LOCK: "Another session of the target holds a lock that the commit waits for.",
    LagCause.QUEUE_AT_BUDGET: "The queue is at its budget: the log is not read until the target has taken some of it.",
    LagCause.COPY_RUNNING: "A table is copied: its changes are kept until the copy is complete.",
    LagCause.SLOW_SENDER: "The source has not sent all of its log yet: the process that sends it is still reading or decoding.",
    LagCause.SLOW_READER: "The engine reads the log more slowly than the source sends it: the source's sender waits for the engine.",
    LagCause.SILENT_NODE: "Changes of other nodes wait for the log of {nodes}, as transactions of all nodes have one order.",
    LagCause.AWAITING_KEEPALIVE: "The source has no change to send, and has not confirmed yet that its log ends there: a client waits for"
    " that position.",
    LagCause.HUGE_TRANSACTION: "One source transaction is most of a batch, which is visible only as a whole.",
    LagCause.HOT_TABLE: "One table has most of the rows that are written to the target.",
    LagCause.KEY_SKEW: "A batch is prepared or written in parallel, and one task or one key has most of its changes: the others wait for"
    " it.",
    LagCause.SMALL_BATCHES: "Clients wait so often that batches are sealed with few changes: most of the time is the fixed cost of each.",
    LagCause.CPU_STARVED: "The engine waits for a processor: other processes of its machine use them, or its share is limited.",
    LagCause.COMPUTING: "Changes are prepared.",
    LagCause.SLOW_COMMIT: "Changes are written to the target.",
    LagCause.GATHERING: "Changes wait to be sealed into a batch, or for the next stage.",
}
_REMEDIES = {
    LagCause.LONG_OPEN_TRANSACTION: "End the transaction on the source, or wait for it: SELECT pg_terminate_backend(pid); of a prepared one"
    " COMMIT PREPARED or ROLLBACK PREPARED.",
    LagCause.TARGET_LOCK: "End the session on the target that holds the lock, or wait for it: SELECT pg_terminate_backend(pid).",
    LagCause.QUEUE_AT_BUDGET: "Remove the other causes first: the queue fills because the target is slower than the source. Or raise the"
    " subscription's queue.budget_bytes.",
    LagCause.COPY_RUNNING: "Wait for the copy: GET /subscriptions/{name} shows its progress in 'copying'. Raise the limits in 'copies' if"
    " it may take more of the source.",
    LagCause.SLOW_SENDER: "Look at the load of the source, and at what its sender waits for. Transactions on tables that are not replicated"
    " are decoded too: make large ones smaller.",
    LagCause.SLOW_READER: "Look at the load of the engine's machine, the disk of its queue, and the network between it and the source.",
    LagCause.SILENT_NODE: LATE_NODE_REMEDY,
    LagCause.AWAITING_KEEPALIVE: "Look at the network between the engine and the source, and at the load of the source: it was asked for a"
    " keepalive, and is asked again several times a second.",
    LagCause.HUGE_TRANSACTION: "Wait for it; write smaller transactions on the source if readers have to see parts of it earlier.",
    LagCause.HOT_TABLE: "Look at what writes the table on the source, and leave out columns or rows that readers do not need. A"
    " subscription of its own keeps the table from delaying the others.",
    LagCause.KEY_SKEW: "Change the key's rows in fewer transactions on the source, or split the part that has them. More tasks or"
    " connections do not help.",
    LagCause.SMALL_BATCHES: "Let clients wait less often: one wait serves all reads after it, a read point serves many readers, and reads"
    " that may be some seconds old need no wait.",
    LagCause.CPU_STARVED: "Give the engine's machine or container more processors, or stop what else uses them.",
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
            explanation=_TITLES[cause].format(nodes=longest[cause].evidence.get("nodes", "one node")),
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
        if LagCause.TARGET_LOCK in present:
            present -= _OF_WORK
        if LagCause.SILENT_NODE in present:
            # What a client waits for is that node's keepalive.
            present.discard(LagCause.AWAITING_KEEPALIVE)
        first = min((_TIERS.get(cause, 0) for cause in present), default=0)
        counted = [cause for cause in present if _TIERS.get(cause, 0) == first]
        for cause in counted:
            found[cause] = found.get(cause, 0.0) + (begin - end) / len(counted)
    return found
