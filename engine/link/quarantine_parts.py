"""Messages about rows that a target refused."""

from __future__ import annotations

from typing import Literal

from engine.link.message import Message, Position


class RefusedRows(Message):
    """Refused rows of a table: `list` shows them, `retry` puts those that stand aside into the table, `skip` notes that they stay out.

    `rows`: their ids; None = all. May come twice.
    """

    kind: Literal["refused_rows"] = "refused_rows"
    request_id: str
    subscription: str
    table: str
    action: Literal["list", "retry", "skip"] = "list"
    rows: tuple[str, ...] | None = None
    by: str = ""
    """Who asks for it."""


class RefusedRowPart(Message):
    """A refused row; fields as `engine.model.quarantine.RefusedRow`. It holds row values, and is never logged."""

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
    """Body of the answer to `refused_rows`: the rows for `list`, else the ids of those that were dealt with, and how many stand aside."""

    rows: tuple[RefusedRowPart, ...] = ()
    found: int = 0
    """How many of the rows asked about stood aside."""
    done: tuple[str, ...] = ()
    left: int = 0
