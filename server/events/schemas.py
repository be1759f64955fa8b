"""Bodies of the event endpoints."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from engine.model.table_state import TableStateKind
from server.remedies import Remedied


class Severity(StrEnum):
    """How much an event matters."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class EventView(Remedied):
    """One event."""

    model_config = ConfigDict(
        from_attributes=True,
        coerce_numbers_to_str=True,
        json_schema_extra={
            "examples": [
                {
                    "id": "412",
                    "at": "2026-05-04T10:00:00Z",
                    "severity": "warning",
                    "kind": "table_structure_changed",
                    "subscription": "shop",
                    "subject": "public.orders",
                    "table_state": "parked",
                    "detail": "The type of a column changed; the table is parked.",
                    "remedy": "Reload the table.",
                }
            ]
        },
    )

    id: str = Field(description="Increases with each event; send it as Last-Event-ID to continue after it.")
    at: datetime
    severity: Severity
    kind: str
    subscription: str | None = None
    subject: str | None = Field(default=None, description="The table, slot or file it is about.")
    table_state: TableStateKind | None = Field(
        default=None, description="The table's new state, if the event is a change of state."
    )
    detail: str

    def known_arguments(self) -> dict[str, str | None]:
        return {"subscription": self.subscription, "table": self.subject}


class Changed(BaseModel):
    """Sent on the stream under the event name `changed`: read this subscription again."""

    subscription: str
