"""Errors of freshness waits."""

from __future__ import annotations

from server.errors import Conflict, Problem


class FreshnessTimeout(Problem):
    status = 504
    code = "freshness_timeout"
    title = "Freshness not reached in time"
    default_remedy = "Wait again, with a longer timeout_ms; 'applied' and 'estimate_ms' show how far it is."


class FreshnessRefusedEarly(FreshnessTimeout):
    code = "freshness_refused_early"
    title = "Freshness would not be reached in time"
    default_remedy = "Wait with a timeout_ms above 'estimate_ms', or without refuse_early."


class FreshnessUnavailable(Problem):
    status = 503
    code = "freshness_unavailable"
    title = "Nothing is being applied"
    default_remedy = "Correct what the detail names, then wait again; with on_unreachable 'wait' a wait continues until its deadline."


class FreshnessUnreachable(Conflict):
    code = "freshness_unreachable"
    title = "This freshness cannot be reached"
    default_remedy = "Set the subscription's desired_state to 'running', then wait again."
