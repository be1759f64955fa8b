"""The folder of one subscription on the engine's machine: where its reader began, which numbers it gave, and the socket that it serves."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.position import Lsn, MalformedPosition
from engine.model.subscription import FOLDER, ConnectionSpec
from engine.queue.files import write_file
from engine.sources.postgres_logs.merged_numbers import ROOM, clock_number
from engine.sources.postgres_logs.relations import Structure


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a reader began: its position, and by node's name the position of its slot. Everything that committed before is in copies."""

    position: Lsn
    nodes: Mapping[str, Lsn]


@dataclass(frozen=True, slots=True)
class SentTable:
    """A table that is published. `mark`: see NodeTable.mark; `key`, `insert_only`: as declared."""

    mark: str
    key: tuple[str, ...] = ()
    insert_only: bool = False


@dataclass(frozen=True, slots=True)
class ReaderFolder:
    """Methods may be called from any process."""

    path: Path

    def make(self) -> None:
        """Create it if it is missing; only this user may enter it."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    @property
    def beginning(self) -> Beginning | None:
        """None if it is not known: the folder was lost."""
        try:
            found = json.loads((self.path / "beginning.json").read_bytes())
            return Beginning(Lsn(found["position"]), {name: Lsn.parse(at) for name, at in found["nodes"].items()})
        except (OSError, ValueError, LookupError, MalformedPosition):
            return None

    def set_beginning(self, beginning: Beginning) -> None:
        """Durable when it returns."""
        nodes = {name: str(at) for name, at in beginning.nodes.items()}
        text = json.dumps({"position": beginning.position.value, "nodes": nodes})
        self._write("beginning.json", text, durable=True)

    @property
    def timelines(self) -> dict[str, int]:
        """The timeline of each node's log, by name, at the last session; empty if they are not known."""
        try:
            return {
                str(name): int(timeline)
                for name, timeline in json.loads((self.path / "timelines.json").read_bytes()).items()
            }
        except (OSError, ValueError, AttributeError):
            return {}

    def set_timelines(self, timelines: Mapping[str, int]) -> None:
        self._write("timelines.json", json.dumps(timelines))

    @property
    def sent(self) -> dict[TableName, SentTable]:
        """The tables that are published; empty if it is not known."""
        try:
            found = json.loads((self.path / "sent.json").read_bytes())
            return {
                TableName(schema, name): SentTable(mark, tuple(key), insert_only)
                for schema, name, mark, key, insert_only in found
            }
        except (OSError, ValueError):
            return {}

    def set_sent(self, tables: Mapping[TableName, SentTable]) -> None:
        found = [[name.schema, name.name, each.mark, each.key, each.insert_only] for name, each in tables.items()]
        self._write("sent.json", json.dumps(found))

    @property
    def structures(self) -> dict[int, Structure]:
        """Structures of tables in the merged log, by the table's number; empty if they are not known."""
        try:
            found = json.loads((self.path / "structures.json").read_bytes())
            return {int(number): Structure(bytes.fromhex(record), set(late)) for number, record, late in found}
        except (OSError, ValueError):
            return {}

    def set_structures(self, structures: Mapping[int, Structure]) -> None:
        found = [[number, each.record.hex(), sorted(each.late)] for number, each in structures.items()]
        self._write("structures.json", json.dumps(found))

    @property
    def ceiling(self) -> int:
        """No number above it was given; 0 if that is not known."""
        try:
            return int((self.path / "ceiling").read_bytes())
        except (OSError, ValueError):
            return 0

    def raise_ceiling(self, number: int) -> None:
        """After a crash of the machine the clock takes its place, so it need not be durable."""
        self._write("ceiling", str(number))

    def number_without_reader(self) -> Lsn:
        """A position that no reader has reached, and the next one reaches once it has read everything that is committed now."""
        return Lsn(max(clock_number(), self.ceiling + ROOM))

    def _write(self, name: str, text: str, *, durable: bool = False) -> None:
        self.make()
        write_file(self.path / name, text.encode("ascii"), durable=durable)


def folder_of(spec: ConnectionSpec) -> ReaderFolder | None:
    """The folder that the engine has set; None outside a subscription."""
    path = spec.capture.settings.get(FOLDER) if spec.capture is not None else None
    return None if path is None else ReaderFolder(Path(str(path)))


def required(folder: ReaderFolder | None) -> ReaderFolder:
    """Raises EngineFault(INTERNAL) for a source outside a subscription."""
    if folder is None:
        raise EngineFault(FaultKind.INTERNAL, "log", "the source of no subscription has no reader")
    return folder
