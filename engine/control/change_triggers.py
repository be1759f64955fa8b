"""The triggers that record the changes of a source, on the server's request."""

from __future__ import annotations

from contextlib import closing

from engine.connectors import by_triggers, open_source
from engine.link.change_triggers import ChangeTriggers, ChangeTriggersBody, PlannedStatementPart, RecordedTablePart


def answer_change_triggers(command: ChangeTriggers) -> ChangeTriggersBody:
    """Do what the command asks. Raises EngineFault as `model.source.ChangeTriggers`."""
    with closing(open_source(by_triggers(command.connection))) as source:
        triggers = source.triggers
        plan = triggers.plan(command.tables) if command.action == "plan" else ()
        grants = triggers.grants() if command.action == "plan" else ()
        if command.action == "install":
            found = triggers.install(command.tables)
        elif command.action == "remove":
            found = triggers.remove()
        else:
            found = triggers.status()
    return ChangeTriggersBody(
        installed=found.installed,
        version=found.version,
        current=found.current,
        tables=tuple(RecordedTablePart(table=t.table, variant=t.variant, current=t.current) for t in found.tables),
        install_sql=found.install_sql,
        remove_sql=found.remove_sql,
        plan=tuple(PlannedStatementPart(sql=s.sql, lock=s.lock, cost=s.cost) for s in plan),
        grants=grants,
    )
