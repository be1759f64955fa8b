"""The sources of recorded changes: for each version of a table's structure, what its triggers record."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from engine.model.identity import TableName
from engine.sources.mariadb.catalog import Structure
from engine.sources.mariadb.connect import MariaDbConnection, literal, rows, run
from engine.sources.mariadb_triggers.catalog import TriggeredTable


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


def next_source(connection: MariaDbConnection) -> int:
    """The number of the next source, while the lock of installations is held."""
    return int(rows(connection, "SELECT IFNULL(MAX(id), 0) + 1 FROM penstock.sources")[0][0])


def source_statement(table: TriggeredTable, source: int) -> str:
    """The statement that records the table's present structure as a new source; for a table whose rows cascades change, the next number is
    for marks that changes may be missing."""
    created, text = literal(table.created), literal(table.structure().to_text())
    doubt = f", ({source + 1}, {table.relation}, '', NULL)" if table.structure().parents else ""
    return (
        "INSERT INTO penstock.sources (id, relation, created, structure)"
        f" VALUES ({source}, {table.relation}, {created}, {text}){doubt}"
    )


def mark_doubt(connection: MariaDbConnection, relation: int) -> None:
    """Record that changes of this table may be missing, so that each of its readers copies it again."""
    statement = "INSERT INTO penstock.sources (relation, created, structure) VALUES (%s, '', NULL)"
    run(connection, statement, relation)
    run(connection, "INSERT INTO penstock.changes (source, op) VALUES (LAST_INSERT_ID(), 'S')")
