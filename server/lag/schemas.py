"""Bodies of explanations of lag."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from engine.model.lag import LagCause


class LagCauseView(BaseModel):
    """One cause of the lag."""

    cause: LagCause
    share_ms: float = Field(description="Its part of `lag_ms`.")
    share: float = Field(description="The same as a fraction, 0 to 1.")
    explanation: str
    evidence: dict[str, str | float] = Field(
        description="What was measured. Statements of other sessions are shown without their literals."
    )
    remedy: str


class LagExplanation(BaseModel):
    """The causes of the lag at the time of the request, the largest first. Their shares add up to `lag_ms`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "lag_ms": 42000.0,
                    "commit_lag_ms": 42000.0,
                    "causes": [
                        {
                            "cause": "target_lock",
                            "share_ms": 41800.0,
                            "share": 0.9952,
                            "explanation": "Another session of the target holds a lock that the commit waits for.",
                            "evidence": {"pid": 4711, "open_s": 60.2, "statement": "LOCK TABLE orders"},
                            "remedy": "End the session on the target that holds the lock, or wait for it:"
                            " SELECT pg_terminate_backend(pid).",
                        }
                    ],
                }
            ]
        }
    )

    lag_ms: float = Field(
        description="Age of the oldest change on the source that readers of the target do not see, as far as its cause is known, in"
        " milliseconds. It includes changes of transactions that are still open, and of tables that are being copied."
    )
    commit_lag_ms: float = Field(
        description="Age of the oldest commit that was read and is not visible; `lag.seconds` of the subscription."
    )
    causes: list[LagCauseView]
