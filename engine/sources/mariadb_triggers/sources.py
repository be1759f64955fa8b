"""The sources of recorded changes: for each version of a table's structure, what its triggers record."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from engine.model.identity import TableName
from engine.sources.mariadb_triggers.catalog import MariaDbTable, Structure
from engine.sources.mariadb_triggers.connect import MariaDbConnection, rows, run


@dataclass(frozen=True, slots=True)
class RecordedSource:
    """What the changes with the number `id` were recorded with. `structure`: None for a mark that changes of the table may be missing
    before it. `relation`, `created`: the table's number, and when its definition was last changed."""

    id: int
    relation: int
    created: str
    structure: Structure | None

    def is_as_now(self, now: Mapping[TableName, tuple[int, str]]) -> bool:
        """Whether the table still has the structure. `now`: as `marks_now`. If it does, its triggers record every column."""
        return self.structure is None or now.get(self.structure.name) == (self.relation, self.created)


def read_sources(connection: MariaDbConnection, ids: Collection[int]) -> dict[int, RecordedSource]:
    """These sources, by number; missing ones are left out."""
    listed = ", ".join(str(int(one)) for one in ids)
    return _found(connection, f"id IN ({listed})") if ids else {}


def sources_of(connection: MariaDbConnection, relations: Collection[int]) -> list[RecordedSource]:
    """All sources of these tables, the latest last."""
    listed = ", ".join(str(int(one)) for one in relations)
    return list(_found(connection, f"relation IN ({listed})").values()) if relations else []


def _found(connection: MariaDbConnection, condition: str) -> dict[int, RecordedSource]:
    statement = f"SELECT id, relation, created, structure FROM penstock.sources WHERE {condition} ORDER BY id"
    return {
        int(one): RecordedSource(int(one), int(relation), created, None if text is None else Structure.from_text(text))
        for one, relation, created, text in rows(connection, statement)
    }


def add_source(connection: MariaDbConnection, table: MariaDbTable) -> int:
    """Record the table's present structure as a new source; returns its number."""
    text = table.structure().to_text()
    statement = "INSERT INTO penstock.sources (relation, created, structure) VALUES (%s, %s, %s)"
    run(connection, statement, table.relation, table.created, text)
    return int(rows(connection, "SELECT LAST_INSERT_ID()")[0][0])


def mark_doubt(connection: MariaDbConnection, relation: int) -> None:
    """Record that changes of this table may be missing, so that each of its readers copies it again."""
    statement = "INSERT INTO penstock.sources (relation, created, structure) VALUES (%s, '', NULL)"
    run(connection, statement, relation)
    run(connection, "INSERT INTO penstock.changes (source, op) VALUES (LAST_INSERT_ID(), 'S')")
