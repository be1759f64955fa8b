"""Names that users give to connections and subscriptions: safe in an address, a file name and a log."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from pydantic import StringConstraints

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
NamePath = Annotated[
    str,
    Path(pattern=NAME_PATTERN, description="1 to 63 letters, digits, `_`, `.` and `-`, the first a letter or digit."),
]
