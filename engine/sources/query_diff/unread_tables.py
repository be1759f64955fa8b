"""Tables that a cycle did not read: which faults are of one table only, and the names of snapshots that must not be used for such tables.

A copy under a snapshot is continued by what later cycles find. They compare with what the store has of a table, so a table of which the
cycle of the snapshot read nothing must not be copied under it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.records.unread import Unread

OF_A_TABLE = frozenset(
    {
        FaultKind.SOURCE_PRIVILEGE,
        FaultKind.SOURCE_TIMEOUT,
        FaultKind.TABLE_NO_IDENTITY,
        FaultKind.TABLE_KEY_NOT_UNIQUE,
        FaultKind.TABLE_COLUMNS_UNFIT,
        FaultKind.VALUE_OUT_OF_DOMAIN,
        FaultKind.INTERNAL,
    }
)
"""Faults of a read that say nothing of other tables: the cycle continues without this one. INTERNAL: errors of the database that have no
kind of their own, such as those of a row filter's expression or of a damaged page."""
CHANGED = frozenset({FaultKind.TABLE_STRUCTURE_CHANGED, FaultKind.TABLE_MISSING})
"""Faults of a table that was changed after the snapshot was taken: it is read again in a new one."""
LOST = frozenset({FaultKind.SOURCE_UNREACHABLE, FaultKind.COPY_LOST})
"""Faults of the connection, or of the session that holds the snapshot."""
ENDED = frozenset({FaultKind.SOURCE_TIMEOUT})
"""Faults of a statement that was ended: what other statements read before is not lost."""
GONE = Unread(FaultKind.TABLE_MISSING, "the table is gone, or has no key, or the user may not see it")
"""Why a table is not compared that is followed, and not among those that are there."""


def named(
    snapshot: str, followed: Mapping[TableName, object], read: frozenset[TableName], why: Mapping[TableName, Unread]
) -> str:
    """The snapshot's name, with the followed tables that were not read."""
    listed = {name: why.get(name, GONE) for name in followed if name not in read}
    if not listed:
        return snapshot
    return snapshot + "\n" + json.dumps([[n.schema, n.name, w.kind.value, w.detail] for n, w in listed.items()])


def read_under(snapshot: str, table: TableName | None) -> str:
    """The database's own name of the snapshot, to read this table under it; None: of a table that is not known here.

    Raises EngineFault, as the cycle did, if the cycle did not read it.
    """
    own, _, listed = snapshot.partition("\n")
    for schema, name, kind, detail in json.loads(listed) if listed else ():
        if table is None or table == TableName(schema, name):
            raise EngineFault(FaultKind(kind), f"{schema}.{name}", detail)
    return own
