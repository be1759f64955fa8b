"""Copies that the method `outer_join` keeps on the source: what it needs of a kind of database, and the names of what it created.

A copy only narrows what travels: rows that differ from it. The row store says what is a change. So a copy is used only while it is exactly
as the last cycle that is durable here left it, which its mark shows; otherwise all rows are read, and it is made like them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from engine.model.fault import EngineFault, FaultKind
from engine.queue.files import write_file
from engine.sources.query_diff.database import ComparedTable

_FILE = "source_copies.json"
NEW, CHANGED, REKEYED, GONE = (ord(letter) for letter in "IUKD")
"""What the lines of `CopyJoin.differences` begin with. REKEYED: a row whose key is equal and prints differently, which is gone and new."""


class CopyJoin(Protocol):
    """A transaction of the source in which a table is joined with its copy; its end without `commit` undoes everything."""

    mark: str | None
    """Text that is another one after any change of the copy, or of how its values print; None if there is no copy that fits the table."""

    def differences(self) -> Iterator[bytes]:
        """COPY text in pieces of whole lines, of rows that differ from the copy; the copy has them when the iterator has ended. Each line
        has a letter, the columns of the row in the table, and those of it in the copy; NULL where it is not. For a copy that fits."""
        ...

    def refresh(self) -> None:
        """Make the copy like the table in any case; it is created if it is missing or does not fit."""
        ...

    def commit(self) -> str:
        """Commit; returns the mark of the copy as it is now."""
        ...


class SourceCopies(Protocol):
    """Methods raise EngineFault as those of `ComparedDatabase`."""

    def can_keep(self, table: ComparedTable) -> bool:
        """Whether the user may keep a copy of the table, and its differences can be found exactly."""
        ...

    def join(self, table: ComparedTable, snapshot: str, copy: str) -> AbstractContextManager[CopyJoin]:
        """Join the table as it is in the snapshot with the copy of this name, which only one caller uses at a time."""
        ...

    def drop(self, copies: Collection[str]) -> dict[str, str]:
        """Drop copies that are there. Those that could not be dropped, with the statement that does."""
        ...


class NoSourceCopies:
    """`SourceCopies` of databases on which none is kept."""

    def can_keep(self, table: ComparedTable) -> bool:
        del table
        return False

    def join(self, table: ComparedTable, snapshot: str, copy: str) -> AbstractContextManager[CopyJoin]:
        del snapshot, copy
        raise EngineFault(FaultKind.INTERNAL, str(table.schema.name), "no copy is kept on this kind of source")

    def drop(self, copies: Collection[str]) -> dict[str, str]:
        del copies
        return {}


@dataclass(frozen=True, slots=True)
class CopiesMade:
    """The names of the copies that may exist on the source, in a file of the subscription's folder. Each is written before it is created.
    Used by the process that holds the folder's lock."""

    folder: Path

    def names(self) -> list[str]:
        try:
            found: list[str] = json.loads((self.folder / _FILE).read_bytes())
        except FileNotFoundError:
            return []
        return found

    def add(self, name: str) -> None:
        """Durable when it returns."""
        names = self.names()
        if name not in names:
            self._write([*names, name])

    def drop_others(self, copies: SourceCopies, kept: Collection[str]) -> dict[str, str]:
        """Drop all copies but these; see SourceCopies.drop. Those that could not be dropped are tried again by the next call."""
        others = [name for name in self.names() if name not in kept]
        if not others:
            return {}
        left = copies.drop(others)
        self._write([name for name in self.names() if name in kept or name in left])
        return left

    def _write(self, names: Sequence[str]) -> None:
        write_file(self.folder / _FILE, json.dumps(names).encode("utf-8"), durable=True)


def copy_name(relation: int, store: str) -> str:
    """The name of the copy of a table for one row store: other subscriptions have other ones."""
    return f"copy_{relation}_{store[:16]}"
