"""Base of the policies of a subscription, and the engine's defaults for them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from pydantic import BaseModel, ConfigDict

from engine.model.subscription import SubscriptionSpec

SPEC: dict[str, Any] = {field.name: field.default for field in fields(SubscriptionSpec)}
"""Defaults of a subscription's specification, by field."""


class Policy(BaseModel):
    """Base of the policies; unknown names are refused."""

    model_config = ConfigDict(extra="forbid")
