"""Sequences of a source's tables, which its log does not contain."""

from __future__ import annotations

from collections.abc import Sequence

from engine.model.identity import TableName
from engine.model.sequences import SourceSequence
from engine.postgres.sequences import refuse_forbidden, sequences_of, values_of
from engine.sources.postgres.connect import Connector


def of_tables(connector: Connector, tables: Sequence[TableName]) -> list[SourceSequence]:
    """The sequences of these tables' columns. With CACHE, a value may be one that a session has reserved but not used."""
    with connector.session() as connection:
        found = sequences_of(connection, tables)
        refuse_forbidden([one for one in found if not one.may_read], connector.name, "read", "SELECT")
        values = values_of(connection, [one.name for one in found])
    return [SourceSequence(one.table, one.column, one.name, values[one.name], one.increment) for one in found]
