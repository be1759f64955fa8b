"""Messages and parts about the triggers that record a source's changes."""

from __future__ import annotations

from typing import Literal

from engine.link.declared import Connection
from engine.link.message import Message, Question
from engine.model.identity import TableName


class ChangeTriggers(Question):
    """Show, plan, install or remove the triggers of a source. `tables`: for `plan` and `install`. May be sent twice."""

    kind: Literal["change_triggers"] = "change_triggers"
    connection: Connection
    action: Literal["look", "plan", "install", "remove"] = "look"
    tables: tuple[TableName, ...] = ()


class RecordedTablePart(Message):
    """A table with triggers."""

    table: TableName
    variant: str
    current: bool


class PlannedStatementPart(Message):
    """A statement, the locks that it takes, and what it costs."""

    sql: str
    lock: str
    cost: str


class ChangeTriggersBody(Message):
    """Body of the answer to `change_triggers`. `plan`: for the action of that name; the other fields are as they are now."""

    installed: bool
    version: int | None = None
    current: bool
    tables: tuple[RecordedTablePart, ...] = ()
    install_sql: tuple[str, ...] = ()
    remove_sql: tuple[str, ...] = ()
    plan: tuple[PlannedStatementPart, ...] = ()
    grants: tuple[str, ...] = ()
