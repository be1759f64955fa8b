"""Who begins verifications."""

from __future__ import annotations

from enum import StrEnum


class Trigger(StrEnum):
    """Who began a verification."""

    USER = "user"
    SCHEDULE = "schedule"
