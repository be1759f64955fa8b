"""The triggers that record a source's changes in tables of the source: what is there, and the statements that create and remove it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.model.identity import TableName


@dataclass(frozen=True, slots=True)
class RecordedTable:
    """A table with triggers. `variant`: how they record its rows, in the source's own words. `current`: they are complete, fire always,
    and record the table's present columns exactly."""

    table: TableName
    variant: str
    current: bool


@dataclass(frozen=True, slots=True)
class PlannedStatement:
    """A statement, and in a sentence each the locks that it takes and what it costs."""

    sql: str
    lock: str
    cost: str


def commented(statements: Iterable[PlannedStatement]) -> tuple[str, ...]:
    """The statements, with locks and cost as comments where they differ from those of the statement before."""
    found = []
    lock = cost = ""
    for statement in statements:
        notes = [f"-- locks: {statement.lock}"] if statement.lock != lock else []
        notes += [f"-- cost: {statement.cost}"] if statement.cost != cost else []
        found.append("\n".join([*notes, statement.sql]))
        lock, cost = statement.lock, statement.cost
    return tuple(found)


@dataclass(frozen=True, slots=True)
class ChangeTriggersState:
    """What is installed. `version`: of the layout of the recorded changes. `install_sql`, `remove_sql`: statements in their order."""

    installed: bool
    version: int | None
    current: bool
    tables: tuple[RecordedTable, ...]
    install_sql: tuple[str, ...]
    remove_sql: tuple[str, ...]
