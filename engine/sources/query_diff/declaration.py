"""The settings of a subscription that all captures by queries have."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from engine.kinds import SPEC, Capture
from engine.model.subscription import GuardPolicy

DEFAULT_EVERY_S = 300
"""Seconds between two cycles: each reads the tables as a whole. Not measured."""
DEFAULT_METHOD = "incremental"
_GUARD = GuardPolicy()


class QueryDiffCapture(Capture):
    """Base of captures by queries."""

    title: ClassVar[str] = "Queries"
    keeps_folder: ClassVar[bool] = True

    kind: Literal["query_diff"] = "query_diff"
    every_seconds: int = Field(
        default=DEFAULT_EVERY_S,
        ge=1,
        le=604_800,
        title="Cycle every … seconds",
        description="Seconds from the beginning of one cycle to that of the next. A wait for what is committed now begins one at once.",
    )
    method: Literal["incremental", "row_checksum"] = Field(
        default="incremental",
        title="How changes are found",
        description="`incremental`: all rows are read, and hashed by Penstock. `row_checksum`: the database hashes its rows; keys and"
        " hashes are read, and the rows whose hash changed. Tables that the database cannot hash are compared by `incremental`.",
    )

    def assigned(self) -> dict[str, Any]:
        settings: dict[str, int | str] = {"every_seconds": self.every_seconds, "method": self.method}
        return {"capture": {"kind": self.kind, "settings": settings}}

    def log_budget(self) -> tuple[int, float]:
        """Nothing is held back on the source."""
        return SPEC["retained_log_budget_bytes"], _GUARD.warn_share
