"""Tables whose source gave them another name, as the engine reports it: what is shown follows, the place on the target stays."""

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
    """The source's tables, by id, go by these names now.

    They may have taken over each other's. A name that another table of the subscription keeps is not taken: an event warns of it.
    Removed tables and unknown ids are passed over. Safe to repeat.
    """
    present = {row.id: row for row in repository.list_present(session, subscription.id or 0)}
    wanted = {table: name for table, name in names.items() if table in present and _source(present[table]) != name}
    for table, holder in _find_conflicts(present, wanted).items():
        _record_conflict(session, subscription, present[table], holder, wanted.pop(table))
    before = {table: _source(present[table]) for table in wanted}
    # First out of each other's way, since names are unique at every moment; no schema of a source has an empty name.
    _set_names(session, present, {table: ("", table) for table in wanted})
    _set_names(session, present, wanted)
    for table, old in before.items():
        present[table].revision += 1
        _record_rename(session, subscription, present[table], old)
        enqueue(session, subscription.name, "table", {"table": table, "removed": False})
    if wanted:
        session.touch(subscription.name)


def _find_conflicts(present: Mapping[str, TableRow], wanted: Mapping[str, SourceName]) -> dict[str, TableRow]:
    """Tables that cannot have the name that is wanted for them, each with the one that has it. They keep theirs from others in turn."""
    refused: dict[str, TableRow] = {}
    while True:
        going = {table: name for table, name in wanted.items() if table not in refused}
        # Where two were given one name, one after the other, the later report is right.
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
    old, new, place = ".".join(before), f"{row.schema_name}.{row.name}", f"{row.target_schema}.{row.target_name}"
    redeclare = (
        f"Where a file or a program declares the subscription, replace '{old}' by '{new}' with the target '{place}': a PUT with the old"
        " name removes the table."
    )
    record_event(
        session,
        kind="table_renamed",
        subscription=subscription.name,
        subject=new,
        detail=f"The source's table '{old}' is '{new}' now; on the target it stays '{place}'.",
        remedy=None if row.from_pattern else redeclare,
    )


def _record_conflict(
    session: WriteSession, subscription: SubscriptionRow, row: TableRow, holder: TableRow, name: SourceName
) -> None:
    old, new = f"{row.schema_name}.{row.name}", ".".join(name)
    record_event(
        session,
        kind="table_rename_not_shown",
        severity="warning",
        subscription=subscription.name,
        subject=old,
        detail=f"The source's table '{old}' (id {row.id}) is '{new}' now. It is still shown under its old name, since another table of"
        f" the subscription goes by the new one (id {holder.id}).",
        remedy=f"Remove the table {holder.id} if the source has it no more; else remove both, and add them again under the names that"
        " they have on the source now.",
    )
