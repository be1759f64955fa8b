"""How a freshness wait can end badly."""

from __future__ import annotations

from server.errors import Conflict, Problem


class FreshnessTimeout(Problem):
    status = 504
    code = "freshness_timeout"
    title = "Not fresh in time"
    default_remedy = "Wait again, with a longer timeout_ms; 'applied' and 'estimate_ms' tell how far it is."


class FreshnessUnavailable(Problem):
    status = 503
    code = "freshness_unavailable"
    title = "Nothing is applied at present"
    default_remedy = (
        "Mend what the detail names, then wait again; with on_unreachable 'wait' a wait goes on until its deadline."
    )


class FreshnessUnreachable(Conflict):
    code = "freshness_unreachable"
    title = "This freshness cannot be reached"
    default_remedy = "Set the subscription's desired_state to 'running', then wait again."
