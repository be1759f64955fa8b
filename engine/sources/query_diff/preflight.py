"""Findings of all captures by queries."""

from __future__ import annotations

from engine.model.fault import FaultKind
from engine.model.source import Finding, Severity
from engine.model.subscription import OriginFilter


def origin_findings(origin: OriginFilter) -> list[Finding]:
    """A filter by origin cannot be had."""
    if origin is OriginFilter.ANY:
        return []
    what = "queries find changes of every origin"
    remedy = "Let `capture.origin` be `any`."
    return [Finding(Severity.ERROR, FaultKind.ORIGIN_UNSUPPORTED.value, what, remedy)]
