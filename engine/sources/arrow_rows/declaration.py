"""The settings that captures of databases read by drivers have in common."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, StringConstraints

from engine.kinds import Consistency
from engine.sources.arrow_rows.options import open_options_of
from engine.sources.query_diff.declaration import LimitsStatements


def _checked(text: str) -> str:
    open_options_of(text)
    return text


Options = Annotated[str, StringConstraints(max_length=4096, pattern=r"^[^\x00]*$"), AfterValidator(_checked)]
"""Options of a driver as one text."""
Quote = Literal['"', "`", "["]
QUOTE_WORDS = (
    'What names are put in: `"` as in the standard, "`" as in MySQL, or `[` as in SQL Server, which ends with `]`.'
)
WORDS = (
    "Queries read the tables again and again, and compare them with what they had before. Nothing is written to the database. Each cycle"
    " reads every followed table as a whole by one statement, into a temporary file of the engine: tables are as they were at different"
    " moments of the cycle, so that `consistency` is `ranges`. The target shows them at cycles only: rows that were changed several times"
    " in between show their last change. Tables need a primary key of which the driver knows, or a key that the subscription declares."
    " After a change of its structure a table is copied again. Not possible: lists, structs and maps, row filters."
)


class DriverCapture(LimitsStatements):
    """How changes are found."""

    words: ClassVar[str] = WORDS
    consistency: ClassVar[Consistency] = Consistency.RANGES
    table_options: ClassVar[frozenset[str]] = frozenset({"key", "columns"})
    unstamped: ClassVar[str | None] = (
        "drivers do not show how long transactions have been open, so rows that are committed late would be missed"
    )

    kind: Literal["query_diff"] = Field(default="query_diff", description=WORDS)
    method: Literal["incremental"] = Field(
        default="incremental",
        title="How changes are found",
        description="`incremental`: all rows are read, and hashed by Penstock.",
    )

    def promised(self) -> Consistency:
        return Consistency.RANGES
