"""Whether a table's options let a column of it be read as it is."""

from __future__ import annotations

from engine.model.table_options import TableOptions


def why_hidden(options: TableOptions, column: str) -> str | None:
    """Why not each row of a table with these options has the column's value, as the end of a sentence that begins with the table; None if
    each has. `column`: its name on the source."""
    if options.where is not None:
        return "has a condition ('where'), and rows that do not meet it are not sent"
    if column in options.mask:
        return f"has the column {column} masked"
    return None if options.selection.takes(column) else f"has the column {column} left out"
