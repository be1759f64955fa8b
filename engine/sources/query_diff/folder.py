"""The folder of one subscription on the engine's machine, which holds what is known of its source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from engine.model.identity import TableName
from engine.model.subscription import TableSpec
from engine.queue.files import write_file
from engine.sources.query_diff.cycle_files import CycleFiles
from engine.sources.query_diff.cycle_numbers import CycleNumbers, locked
from engine.sources.query_diff.row_store import RowStore

OPERATIONS = {"insert": ord("I"), "update": ord("U"), "delete": ord("D")}
"""Letters of operations."""
_INSERT_ONLY = frozenset({"insert"})


@dataclass(frozen=True, slots=True)
class Follow:
    """How a table is followed. `where`: its row filter; `operations`: those that are wanted."""

    where: str | None
    operations: frozenset[str]

    @staticmethod
    def of(spec: TableSpec) -> Follow:
        return Follow(spec.where, spec.operations & (_INSERT_ONLY if spec.insert_only else OPERATIONS.keys()))


@dataclass(frozen=True, slots=True)
class Folder:
    """What is kept of one subscription's source."""

    path: Path

    @property
    def files(self) -> CycleFiles:
        return CycleFiles(self.path)

    @property
    def numbers(self) -> CycleNumbers:
        return CycleNumbers(self.path)

    @property
    def exists(self) -> bool:
        return (self.path / "rows.duckdb").exists()

    @property
    def has_reader(self) -> bool:
        """Whether a reader began; before that, tables are only followed."""
        return (self.path / "durable").exists()

    @property
    def id(self) -> str | None:
        """A random name of what is kept; None if there is nothing."""
        try:
            return (self.path / "id").read_text(encoding="ascii")
        except FileNotFoundError:
            return None

    def make(self) -> None:
        """Create it if it is missing."""
        self.files.make()
        with locked(self.path / "cycle.lock"), closing(self.open_rows()) as rows:
            write_file(self.path / "id", rows.id.encode("ascii"), durable=True)

    def open_rows(self) -> RowStore:
        return RowStore(self.path / "rows.duckdb")

    @property
    def followed(self) -> dict[TableName, Follow]:
        """The tables that are compared."""
        try:
            listed = json.loads((self.path / "followed.json").read_bytes())
        except FileNotFoundError:
            return {}
        return {
            TableName(each["schema"], each["name"]): Follow(each["where"], frozenset(each["operations"]))
            for each in listed
        }

    def session(self) -> tuple[str, str]:
        """The last session that read, and its application; empty if there was none."""
        try:
            session, _, application = (self.path / "session").read_text(encoding="utf-8").partition("\n")
        except FileNotFoundError:
            return "", ""
        return session, application

    def set_session(self, session: str, application: str) -> None:
        write_file(self.path / "session", f"{session}\n{application}".encode())

    def follow(self, tables: Mapping[TableName, Follow]) -> None:
        """Compare these tables, and no others, from the next cycle on."""
        listed = [
            {"schema": name.schema, "name": name.name, "where": each.where, "operations": sorted(each.operations)}
            for name, each in tables.items()
        ]
        write_file(self.path / "followed.json", json.dumps(listed).encode("utf-8"), durable=True)
