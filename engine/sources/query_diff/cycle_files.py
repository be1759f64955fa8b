"""The folder of one subscription's cycles: what each cycle found, until every change of it is durable on the target.

A cycle is written to a folder that readers do not see, and published by renaming it after its rows are durable in the row store. So a cycle
is seen as a whole or not at all, and one that the row store knows can always be published.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from engine.model.fault import EngineFault, FaultKind
from engine.queue.files import fault_of, sync_folder, write_file

MOST_ROWS = 20_000
"""Most changes in one chunk of records, as for other sources."""
_MOST_BYTES = 4 * 1024 * 1024
"""Bytes of rows in one chunk above which it is cut. Not measured."""
_REPORTS = 200
"""Reports of cycles that are kept after their changes are durable."""
_MANIFEST = "manifest.json"
_FAILED = ".failed.json"
"""Ends the names of reports of cycles that failed."""


@dataclass(frozen=True, slots=True)
class TableFound:
    """What a cycle found in one table. `record`: its relation record; `columns`: number of its columns; `keys`: places of the key's.

    `unreadable`: the rows cannot be compared with earlier ones, and the record matches no structure, so that the table is copied again.
    `fault`, `detail`: why it could not be read; the record says that in place of a structure. `resumed`: the cycle before could not read
    it. The other numbers are for users: rows and bytes read, rows by operation, seconds.
    """

    schema: str
    name: str
    relation: int
    record: bytes
    columns: int
    keys: tuple[int, ...]
    method: str
    deletes: str | None = None
    rows: str | None = None
    """Names of the files with deleted keys, and with inserted and updated rows."""
    unreadable: bool = False
    keyless: bool = False
    """Rows had NULL in the declared key, or the same key: `unreadable`, and the record says so."""
    since_stamp: bool = False
    """Only rows whose stamps were not older than those of the last cycle were read: rows that are gone were not looked for."""
    known_before: str | None = None
    """The stamp from which the next cycle reads."""
    filled: bool = False
    """It was read for the first time: nothing is reported of it."""
    fault: str | None = None
    detail: str = ""
    resumed: bool = False
    rows_read: int = 0
    rows_hashed: int = 0
    rows_shared: int = 0
    bytes_read: int = 0
    ranges: int = 0
    ranges_different: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    seconds: float = 0.0
    snapshots: int = 1
    """Its ranges were read in so many: more than 1 if it continued after a lost connection."""


@dataclass(frozen=True, slots=True)
class CycleFound:
    """A cycle. `number`, and `previous`: that of the published cycle before it; `at_us`: when its first snapshot was taken, since 1970."""

    number: int
    previous: int
    at_us: int
    ended_us: int
    snapshot: bool
    """Every table was read in one snapshot."""
    tables: tuple[TableFound, ...] = ()
    reads: Mapping[str, int] = field(default_factory=dict)
    """What the source says of its own work, such as pages read."""

    def as_json(self) -> bytes:
        content = asdict(self)
        for table in content["tables"]:
            table["record"] = table["record"].hex()
        return json.dumps(content).encode("utf-8")

    @staticmethod
    def of_json(text: bytes) -> CycleFound:
        content = json.loads(text)
        tables = [
            TableFound(**{**table, "record": bytes.fromhex(table["record"]), "keys": tuple(table["keys"])})
            for table in content.pop("tables")
        ]
        return CycleFound(**content, tables=tuple(tables))


@dataclass(frozen=True, slots=True)
class CycleFailed:
    """A cycle that had no effect. `fault`: its code; `subject`, `detail`: of the fault; `table`: the one that was being read, as text."""

    number: int
    at_us: int
    ended_us: int
    fault: str
    subject: str
    detail: str
    table: str | None = None


class CycleFiles:
    """Cycles in the folder `cycles`, reports of earlier ones in `reports`, and the last cycle that is durable on the target."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._cycles = folder / "cycles"
        self._reports = folder / "reports"

    def make(self) -> None:
        """Create the folders."""
        for each in (self.folder, self._cycles, self._reports):
            each.mkdir(parents=True, exist_ok=True, mode=0o700)

    def begin(self, number: int) -> CycleWriter:
        """Write a cycle, which is not published."""
        path = self._cycles / f".{number}"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(mode=0o700)
        return CycleWriter(path)

    def publish(self, number: int) -> None:
        (self._cycles / f".{number}").rename(self._cycles / str(number))
        sync_folder(self._cycles)

    def recover(self, last: int) -> None:
        """Publish the row store's last cycle, if a crash prevented that, and remove what is left of others. While no cycle runs."""
        if (self._cycles / f".{last}").exists():
            self.publish(last)
        for path in self._cycles.glob(".*"):
            shutil.rmtree(path, ignore_errors=True)

    def published(self) -> list[int]:
        """The numbers of published cycles whose changes are kept, ascending."""
        try:
            return sorted(int(path.name) for path in self._cycles.iterdir() if path.name.isdecimal())
        except FileNotFoundError:
            return []

    @property
    def last(self) -> int:
        """The last cycle that was published; 0 if there is none."""
        return max([self.durable, *self.published()[-1:]])

    def read(self, number: int) -> CycleFound:
        """Raises EngineFault(LOG_GAP) if the cycle is gone."""
        try:
            return CycleFound.of_json((self._cycles / str(number) / _MANIFEST).read_bytes())
        except OSError as error:
            raise EngineFault(FaultKind.LOG_GAP, self.folder.name, f"cycle {number} is gone") from error

    def batches(self, number: int, file: str) -> Iterator[Any]:
        """The pyarrow.RecordBatch of a cycle's file, each for one chunk."""
        try:
            with pa.memory_map(str(self._cycles / str(number) / file)) as mapped:
                reader = pa.ipc.open_file(mapped)
                for place in range(reader.num_record_batches):
                    yield reader.get_batch(place)
        except (OSError, pa.ArrowInvalid) as error:
            raise EngineFault(FaultKind.LOG_GAP, self.folder.name, f"cycle {number} cannot be read") from error

    @property
    def durable(self) -> int:
        """The last cycle that is durable on the target, which may be removed with those before it; 0 if there is none."""
        try:
            return int((self.folder / "durable").read_text(encoding="ascii"))
        except FileNotFoundError:
            return 0

    def confirm(self, number: int) -> None:
        """Record that cycles up to this one are durable, and remove their changes. Their reports stay for a while."""
        write_file(self.folder / "durable", str(number).encode("ascii"), durable=True)
        for each in self.published():
            if each > number:
                break
            path = self._cycles / str(each)
            with suppress(FileNotFoundError):  # A process that was killed here has moved it.
                (path / _MANIFEST).replace(self._reports / f"{each}.json")
            shutil.rmtree(path, ignore_errors=True)
        kept = sorted((p for p in self._reports.iterdir() if p.stem.isdecimal()), key=lambda p: int(p.stem))
        for path in kept[:-_REPORTS]:
            path.unlink(missing_ok=True)

    def reports(self, most: int, upto: int | None = None) -> list[CycleFound]:
        """The newest cycles, the last one first; `upto`: with at most this number."""
        paths = {int(p.stem): p for p in self._reports.glob("*.json") if p.stem.isdecimal()}
        paths |= {number: self._cycles / str(number) / _MANIFEST for number in self.published()}
        found = []
        for number in sorted((n for n in paths if upto is None or n <= upto), reverse=True)[:most]:
            for path in (paths[number], self._reports / f"{number}.json"):
                # It may just have become durable, or have been the oldest one that was kept.
                with contextlib.suppress(FileNotFoundError):
                    found.append(CycleFound.of_json(path.read_bytes()))
                    break
        return found

    def fail(self, failed: CycleFailed) -> None:
        """Report a cycle that had no effect."""
        write_file(self._reports / f"{failed.number}{_FAILED}", json.dumps(asdict(failed)).encode("utf-8"))
        for number in sorted(self._failed(), reverse=True)[_REPORTS:]:
            (self._reports / f"{number}{_FAILED}").unlink(missing_ok=True)

    def failures(self, most: int, upto: int | None = None, above: int = 0) -> list[CycleFailed]:
        """The newest cycles that failed, the last one first; with numbers greater than `above`, and at most `upto`."""
        found: list[CycleFailed] = []
        for number in sorted(self._failed(), reverse=True):
            if above < number and (upto is None or number <= upto) and len(found) < most:
                with contextlib.suppress(FileNotFoundError):  # It may have been the oldest one that was kept.
                    found.append(CycleFailed(**json.loads((self._reports / f"{number}{_FAILED}").read_bytes())))
        return found

    def _failed(self) -> list[int]:
        names = (path.name.removesuffix(_FAILED) for path in self._reports.glob(f"*{_FAILED}"))
        return [int(name) for name in names if name.isdecimal()]

    def remove(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.folder, ignore_errors=True)


class CycleWriter:
    """Writes the files of one cycle."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: list[TableFile] = []
        self._kept = 0

    def file(self, name: str, schema: Any) -> TableFile:
        file = TableFile(self._folder / name, schema)
        self._files.append(file)
        return file

    def discard(self) -> None:
        """Remove the files since the last `keep`: their table could not be read to the end."""
        for file in self._files[self._kept :]:
            file.discard()
        del self._files[self._kept :]

    def keep(self) -> None:
        """The files so far are part of the cycle."""
        self._kept = len(self._files)

    def release(self) -> None:
        """Close the files, which stay: of a cycle that is given up, or may be."""
        for file in self._files:
            file.release()

    def finish(self, found: CycleFound) -> None:
        """Make everything durable."""
        try:
            for file in self._files:
                file.close()
            write_file(self._folder / _MANIFEST, found.as_json(), durable=True)
        except OSError as error:
            raise fault_of(error, self._folder) from error


class TableFile:
    """A file of record batches, none larger than a chunk."""

    def __init__(self, path: Path, schema: Any) -> None:
        self.name = path.name
        self.rows = 0
        self._path = path
        self._file = path.open("wb")
        self._writer = pa.ipc.new_file(self._file, schema, options=pa.ipc.IpcWriteOptions(compression="lz4"))

    def write(self, rows: Any) -> None:
        """Append the rows of a pyarrow.Table."""
        if not rows.num_rows:
            return
        most = max(1, min(MOST_ROWS, _MOST_BYTES * rows.num_rows // max(1, rows.nbytes)))
        try:
            self._writer.write_table(rows, max_chunksize=most)
        except OSError as error:
            raise fault_of(error, self._path) from error
        self.rows += rows.num_rows

    def discard(self) -> None:
        self.release()
        self._path.unlink()

    def release(self) -> None:
        with suppress(OSError, ValueError):  # What cannot be written is not needed; it may have been closed.
            self._writer.close()
        self._file.close()

    def close(self) -> None:
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()


def deletes_schema(*, olds: bool = False) -> Any:
    """Of a file with deleted rows. `line`: the key's fields as COPY text, with its end. `olds`: with a column `old`, COPY text of the row
    before the change, with its end, or NULL if it is not known."""
    return pa.schema([("line", pa.large_binary()), *_OLD[: int(olds)]])


def rows_schema(*, olds: bool = False) -> Any:
    """Of a file with rows. `op`: the operation's letter; `line`: COPY text of the row, with its end; `olds`: as of deleted rows."""
    return pa.schema([("op", pa.uint8()), ("line", pa.large_binary()), *_OLD[: int(olds)]])


_OLD = [("old", pa.large_binary())]
