"""History of a table: every version of each row, in a table of its own next to the target's (slowly changing dimension, type 2)."""

from __future__ import annotations

from engine.model.identity import TableName

HISTORY_SUFFIX = "__history"
"""Ends the name of the history table, which begins with the table's name on the target."""
VALID_FROM, VALID_TO = "_valid_from", "_valid_to"
"""Columns of the history table: commit times of the transactions with which the version began and ended; NULL = it is current."""
FROM_POSITION, TO_POSITION = "_from_position", "_to_position"
"""Columns of the history table: the ends of these transactions in the log, as `str` of Lsn prints them."""
HISTORY_COLUMNS = (VALID_FROM, VALID_TO, FROM_POSITION, TO_POSITION)


def history_of(table: TableName) -> TableName:
    """The name of the table's history table."""
    return TableName(table.schema, table.name + HISTORY_SUFFIX)
