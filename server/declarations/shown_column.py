"""A capture may name a table of the subscription whose rows say what others belong to: it has to be declared, and to show that."""

from __future__ import annotations

from collections.abc import Sequence

from engine.kinds import Capture
from engine.model.identity import TableName
from engine.model.shown_column import why_hidden
from engine.model.table_options import TableOptions
from server.declarations.table_body import TableBody
from server.errors import InvalidRequest

POINTER = "/capture/own_table"
"""The member that names the table."""


class OwnTableUnfit(InvalidRequest):
    code = "own_table_unfit"
    title = "Rows of the table cannot name global transactions"
    default_remedy = (
        "Let 'tables' have the table that capture.own_table names, without 'where', and with the column capture.own_column neither left"
        " out nor masked. For another table create another subscription."
    )


def refuse_hidden(named: tuple[TableName, str], options: TableOptions | None, pointer: str | None = POINTER) -> None:
    """Raises OwnTableUnfit if a table with these options hides the column. `options` None: the subscription does not have the table.

    `pointer`: the invalid member of the request, if there is one.
    """
    table, column = named
    why = "is none of the subscription's tables" if options is None else why_hidden(options, column)
    if why is None:
        return
    detail = f"'{table}', whose rows name global transactions (capture.own_table), {why}."
    raise OwnTableUnfit(detail) if pointer is None else OwnTableUnfit.at(pointer, detail)


def refuse_hidden_bodies(capture: Capture, bodies: Sequence[TableBody]) -> None:
    """Raises OwnTableUnfit if these tables do not have the one that the capture names, or hide its column."""
    named = capture.shown_column()
    if named is None:
        return
    table, _ = named
    by_name = [body for body in bodies if not body.is_pattern and TableName(body.schema_name, body.name) == table]
    found = [*by_name, *(body for body in bodies if body.takes(table.schema, table.name))]
    refuse_hidden(named, found[0].options if found else None)
