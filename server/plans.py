"""What a PUT would do, determined without doing it: the parts common to plans of connections, alert channels and subscriptions."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, Field, JsonValue


class PlanResult(StrEnum):
    """What happens to the resource."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"


class FieldChange(BaseModel):
    """A declared field that the PUT changes. Secrets are never among them."""

    field: str
    before: JsonValue = Field(description="Null if there is none.")
    after: JsonValue


class SecretsPlan(BaseModel):
    """Base of plans for resources with secrets."""

    result: PlanResult
    fields: list[FieldChange]
    secrets: list[str] = Field(description="Names of secrets that change. Their values are never shown.")


def field_changes(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> list[FieldChange]:
    """The fields of `after` that differ from `before`; none for a new resource."""
    if before is None:
        return []
    return [
        FieldChange(field=name, before=before.get(name), after=value)
        for name, value in after.items()
        if before.get(name) != value
    ]


def result_of(created: bool, changed: bool) -> PlanResult:
    return PlanResult.CREATED if created else PlanResult.CHANGED if changed else PlanResult.UNCHANGED
