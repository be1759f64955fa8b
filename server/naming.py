"""Names in bodies and paths: those that users give to connections and subscriptions, and those of tables."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
"""A name that is safe in an address, a file name and a log."""
NamePath = Annotated[
    str,
    Path(pattern=NAME_PATTERN, description="1 to 63 letters, digits, `_`, `.` and `-`, the first a letter or digit."),
]


class Aliased(BaseModel):
    """Base of bodies with a member `schema`: in Python it is `schema_name`, because models have a method of that name."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True, serialize_by_alias=True)


class QualifiedName(Aliased):
    """Base of bodies that begin with the name of a table or another relation."""

    schema_name: str = Field(validation_alias="schema", serialization_alias="schema")
    name: str
