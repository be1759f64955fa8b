"""Tables renamed on the source, as the engine reports it: the subscription shows the new name, the name on the target stays."""

from __future__ import annotations

from collections.abc import Mapping

from server.db.models.subscription import SubscriptionRow
from server.db.models.table import TableRow
from server.db.outbox import enqueue
from server.db.session import WriteSession
from server.events.service import record_event
from server.tables import repository

SourceName = tuple[str, str]
"""Schema and name on the source."""


def rename_tables(session: WriteSession, subscription: SubscriptionRow, names: Mapping[str, SourceName]) -> None:
    """Store the current source names of tables, by table id.

    Tables may have swapped names. A name that another table of the subscription keeps is not stored: an event warns about it. Removed
    tables and unknown ids are ignored. Safe to repeat.
    """
    present = {row.id: row for row in repository.list_present(session, subscription.id or 0)}
    wanted = {table: name for table, name in names.items() if table in present and _source(present[table]) != name}
    for table, holder in _find_conflicts(present, wanted).items():
        _record_conflict(session, subscription, present[table], holder, wanted.pop(table))
    before = {table: _source(present[table]) for table in wanted}
    # Names are unique after each statement, so swapped tables first get a temporary name. No source schema has an empty name.
    _set_names(session, present, {table: ("", table) for table in wanted})
    _set_names(session, present, wanted)
    for table, old in before.items():
        present[table].revision += 1
        _record_rename(session, subscription, present[table], old)
        enqueue(session, subscription.name, "table", {"table": table, "removed": False})
    if wanted:
        session.touch(subscription.name)


def _find_conflicts(present: Mapping[str, TableRow], wanted: Mapping[str, SourceName]) -> dict[str, TableRow]:
    """Tables that cannot get their new name, each with the table that has it. As they keep their old names, others may conflict in
    turn."""
    refused: dict[str, TableRow] = {}
    while True:
        going = {table: name for table, name in wanted.items() if table not in refused}
        # If two tables got the same name one after the other, the later report is right.
        holders = {name: present[table] for table, name in going.items()}
        holders |= {_source(row): row for row in present.values() if row.id not in going}
        more = {table: holders[name] for table, name in going.items() if holders[name].id != table}
        if not more:
            return refused
        refused |= more


def _set_names(session: WriteSession, present: Mapping[str, TableRow], names: Mapping[str, SourceName]) -> None:
    for table, (schema, name) in names.items():
        row = present[table]
        row.schema_name, row.name = schema, name
        session.add(row)
    session.flush()


def _source(row: TableRow) -> SourceName:
    return row.schema_name, row.name


def _record_rename(session: WriteSession, subscription: SubscriptionRow, row: TableRow, before: SourceName) -> None:
    old, new, place = ".".join(before), row.full_name, f"{row.target_schema}.{row.target_name}"
    redeclare = (
        f"If a file or a program declares the subscription, replace '{old}' by '{new}' with the target '{place}': a PUT with the old"
        " name removes the table."
    )
    record_event(
        session,
        kind="table_renamed",
        subscription=subscription.name,
        subject=new,
        detail=f"The source's table '{old}' is now '{new}'; on the target it remains '{place}'.",
        remedy=None if row.from_pattern else redeclare,
    )


def _record_conflict(
    session: WriteSession, subscription: SubscriptionRow, row: TableRow, holder: TableRow, name: SourceName
) -> None:
    old, new = row.full_name, ".".join(name)
    record_event(
        session,
        kind="table_rename_not_shown",
        severity="warning",
        subscription=subscription.name,
        subject=old,
        detail=f"The source's table '{old}' (id {row.id}) is now '{new}'. It is still shown under its old name, because another table of"
        f" the subscription has the new one (id {holder.id}).",
        remedy=f"Remove the table {holder.id} if it no longer exists on the source; else remove both, and add them again under their"
        " current names on the source.",
    )
