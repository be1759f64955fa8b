"""Bodies of approvals."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ApprovalBody(BaseModel):
    """What is approved."""

    model_config = ConfigDict(
        extra="forbid",
        hide_input_in_errors=True,
        json_schema_extra={"examples": [{"reason": "ALTER TABLE public.orders ADD COLUMN note text"}]},
    )

    reason: str | None = Field(
        default=None,
        max_length=100_000,
        description="The table's `reason`, as it was read. If another change waits for approval by now, the approval is refused.",
    )
