"""Staging tables on targets: the transactions of a subscription (units of work, UOW), and what each changed in a table (CD)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from engine.model.history import history_of
from engine.model.identity import TableName
from engine.model.last_commit import CommitTimes
from engine.model.merged_logs import LogsMessage

CHANGES_SUFFIX = "__cd"
"""Ends the name of the CD table, which begins with the table's name on the target."""
POSITION, NUMBER, OPERATION = "_position", "_n", "_op"
"""Columns of a CD table: the end of the transaction in the log as a number, the order of its changes of this table, and an Operation."""
CHANGE_COLUMNS = (POSITION, NUMBER, OPERATION)
UNITS_TABLE = "uow"
"""Name of the table of transactions, in the schema of the target's metadata."""
UNIT_COLUMNS = ("subscription", "position", "commit_time", "transaction", "gtid", "type")
"""Columns of the table of transactions."""


class Operation(StrEnum):
    """What a row of a CD table says."""

    INSERT = "I"
    UPDATE = "U"
    DELETE = "D"
    TRUNCATE = "T"
    """All rows before it are deleted; the row has no values."""
    RELOAD = "R"
    """The table was replaced up to the position without its changes; the row has no values."""


class UnitKind(StrEnum):
    """`type` of a transaction."""

    LOCAL = "local"
    SEVERAL_NODES = "global 1"
    """A global transaction with parts on several nodes."""
    OTHER_NODE = "global 2"
    """A global transaction with a part on one node, which is not the coordinator."""


UNIT_KINDS: Mapping[int, UnitKind] = {1: UnitKind.SEVERAL_NODES, 2: UnitKind.OTHER_NODE}
"""By the type in a message of the log."""


@dataclass(frozen=True, slots=True)
class GlobalUnit:
    """The id of a global transaction, and its type."""

    gtid: str
    kind: UnitKind


def global_units(times: CommitTimes) -> dict[int, GlobalUnit]:
    """The global transactions among these, by end. Raises EngineFault(LOG_UNREADABLE) if a message has another form."""
    found = {}
    for end, content in times.messages:
        named = LogsMessage.parse(content).transaction
        if named is not None and named[1] in UNIT_KINDS:
            found[end] = GlobalUnit(_as_text(named[0]), UNIT_KINDS[named[1]])
    return found


def _as_text(gtid: str) -> str:
    """The id as a text that every target can hold: bytes that are not UTF-8, and NUL, are escaped."""
    return gtid.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace").replace("\0", "\\x00")


def change_columns(number: str, text: str) -> list[str]:
    """Definitions of the columns CHANGE_COLUMNS with these types."""
    kinds = (number, number, text)
    return [f'"{name}" {kind}' for name, kind in zip(CHANGE_COLUMNS, kinds, strict=True)]


def changes_of(table: TableName) -> TableName:
    """The name of the table's CD table."""
    return TableName(table.schema, table.name + CHANGES_SUFFIX)


def kept_with(table: TableName, *, history: bool, staging: bool) -> list[TableName]:
    """The tables that go with a table on the target: those of its versions and of its changes."""
    return [*([history_of(table)] if history else []), *([changes_of(table)] if staging else [])]
