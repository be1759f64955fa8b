"""The metadata of all tables of the control database, with naming rules for constraints, and factories of columns."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger
from sqlmodel import Field, SQLModel

from server.db.types import PositionText, UtcDateTime

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
SQLModel.metadata.naming_convention = NAMING
metadata = SQLModel.metadata
_DOCUMENT = JSON(none_as_null=True)


def moment(**options: Any) -> Any:
    """A column for a time."""
    return Field(sa_type=UtcDateTime, **options)


def position(**options: Any) -> Any:
    """A column for a position."""
    return Field(sa_type=PositionText, **options)


def document(**options: Any) -> Any:
    """A column for JSON. Assign a new value to change it: a change inside the value is not detected."""
    return Field(sa_type=_DOCUMENT, **options)


def large(**options: Any) -> Any:
    """A column for a count of rows or bytes."""
    return Field(sa_type=BigInteger, **options)
