"""Messages about the causes of lag."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from engine.link.message import Message, Question
from engine.model.lag import LagCause


class Lag(Question):
    """Measure what keeps the source's changes from the target's readers now. May be sent twice."""

    kind: Literal["lag"] = "lag"
    subscription: str


class LagSpanPart(Message):
    """As `engine.model.lag.LagSpan`."""

    cause: LagCause
    from_ms: float
    to_ms: float = 0.0
    evidence: dict[str, str | float] = Field(default_factory=dict)


class LagBody(Message):
    """Body of the answer to `lag`. `commit_lag_ms`: age of the oldest commit that was read and is not visible; 0 if there is none."""

    commit_lag_ms: float
    spans: tuple[LagSpanPart, ...] = ()
