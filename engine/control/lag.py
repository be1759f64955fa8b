"""Measures what keeps a subscription's changes from the target's readers, on request."""

from __future__ import annotations

from dataclasses import asdict

from engine.control.supervisor import SubscriptionSupervisor
from engine.link.lag import LagBody, LagSpanPart
from engine.model.fault import EngineFault, FaultKind
from engine.model.lag import LagCause, LagSpan


def measured_lag(pipeline: SubscriptionSupervisor) -> LagBody:
    """The spans of all causes that are present now.

    Raises EngineFault: TARGET_UNAVAILABLE while no run is under way; as the source or the target if one cannot be reached.
    """
    run, target = pipeline.run, pipeline.target
    if run is None or target is None or run.ended:
        raise EngineFault(FaultKind.TARGET_UNAVAILABLE, str(pipeline.spec.name), "the subscription does not run")
    lag_ms, spans = run.activity.measured()
    blocker = target.commit_blocked()
    if blocker is not None:
        evidence: dict[str, str | float] = {"pid": blocker.pid, "open_s": round(blocker.open_s, 1)}
        if blocker.statement:
            evidence["statement"] = blocker.statement
        # A commit gives up after a while and is retried: the wait counts from the begin of the blocking transaction, if so old a commit
        # waits.
        waiting_ms = max(blocker.waiting_ms, min(blocker.open_s * 1000, lag_ms))
        spans.append(LagSpan(LagCause.TARGET_LOCK, waiting_ms, evidence=evidence))
    return LagBody(commit_lag_ms=lag_ms, spans=tuple(LagSpanPart(**asdict(span)) for span in spans))
