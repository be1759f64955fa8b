"""Bodies of approvals."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ApprovalBody(BaseModel):
    """The schema change to approve."""

    model_config = ConfigDict(
        extra="forbid",
        hide_input_in_errors=True,
        json_schema_extra={"examples": [{"reason": "ALTER TABLE public.orders ADD COLUMN note text"}]},
    )

    reason: str | None = Field(
        default=None,
        max_length=100_000,
        description="The table's `reason` as you read it. The approval is refused if another change now waits.",
    )
