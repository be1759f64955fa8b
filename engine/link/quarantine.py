"""Messages and parts about rejected rows."""

from __future__ import annotations

from typing import Literal

from engine.link.message import Message, Position, Question


class RefusedRows(Question):
    """Rejected rows of a table: `list` returns them, `retry` inserts quarantined ones into the table, `skip` marks them to stay out.

    `rows`: their ids; None = all. May be sent twice.
    """

    kind: Literal["refused_rows"] = "refused_rows"
    subscription: str
    table: str
    action: Literal["list", "retry", "skip"] = "list"
    rows: tuple[str, ...] | None = None
    by: str = ""
    """The user who requests it."""


class RefusedRowPart(Message):
    """A rejected row; fields as `engine.model.quarantine.RefusedRow`. It contains row values and must not be logged."""

    row: str
    state: Literal["parked", "set_aside", "skipped"]
    operation: str
    key: tuple[str | None, ...]
    columns: tuple[tuple[str, str], ...]
    values: tuple[str | None, ...]
    code: str
    detail: str
    sqlstate: str | None
    position: Position
    batch: int
    refused_at: str
    ended_by: str | None
    ended_at: str | None


class RefusedRowsBody(Message):
    """Body of the answer to `refused_rows`: for `list` the rows, else the ids of the processed rows; and the number of quarantined rows."""

    rows: tuple[RefusedRowPart, ...] = ()
    found: int = 0
    """How many of the requested rows were quarantined."""
    done: tuple[str, ...] = ()
    left: int = 0
