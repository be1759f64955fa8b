"""The settings of a subscription that all captures by triggers have."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, ClassVar, Literal

from pydantic import Field

from engine.kinds import SPEC, Capture
from engine.model.subscription import GuardPolicy

_GUARD = GuardPolicy()


class TriggersCapture(Capture):
    """Base of captures by triggers."""

    title: ClassVar[str] = "Triggers"
    by_triggers: ClassVar[bool] = True

    kind: Literal["triggers"] = "triggers"
    budget_bytes: int = Field(
        default=SPEC["retained_log_budget_bytes"],
        ge=1024**2,
        title="Largest shadow log, in bytes",
        description="Size of the shadow log above which recording is stopped to protect the source's disk; all tables must then be copied"
        " again. A warning event is recorded at half of it.",
    )

    def assigned(self) -> dict[str, Any]:
        guard = {**asdict(_GUARD), "drop_slot": True}
        return {"capture": {"kind": self.kind}, "slot_budget_bytes": self.budget_bytes, "guard": guard}

    def log_budget(self) -> tuple[int, float]:
        return self.budget_bytes, _GUARD.warn_share
