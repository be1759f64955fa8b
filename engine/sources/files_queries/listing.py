"""The files of a folder by table, and what shows that none of them was changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName

SCHEMA = "files"
"""Schema of every table of a folder."""
ENDINGS = {"parquet": (".parquet",), "csv": (".csv", ".csv.gz")}
"""Endings of the names of parts, by format."""
_HIDDEN = (".", "_")
"""Files and folders whose names begin so are none of a table's: files that are being written, and marks of programs."""


@dataclass(frozen=True, slots=True)
class Part:
    """A file of a table. `changed_ns`: when it was changed, in nanoseconds since 1970."""

    path: str
    device: int
    inode: int
    size: int
    changed_ns: int

    @staticmethod
    def of(path: str, found: os.stat_result) -> Part:
        return Part(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Listed:
    """The files of a table, by name. `problem`: why they are not read."""

    parts: tuple[Part, ...]
    problem: str | None = None


Listing = dict[TableName, Listed]


def listed(folder: str, form: str, subject: str) -> Listing:
    """The tables of the folder with their files. Raises EngineFault: SOURCE_UNREACHABLE, SOURCE_PRIVILEGE."""
    try:
        entries = list(_entries(folder))
    except PermissionError as error:
        detail = f"the engine's user may not read the folder {folder}"
        raise EngineFault(FaultKind.SOURCE_PRIVILEGE, subject, detail) from error
    except OSError as error:
        raise EngineFault(FaultKind.SOURCE_UNREACHABLE, subject, f"the folder {folder} cannot be read") from error
    found: Listing = {}
    for path, status in entries:
        name = Path(path).name
        if not _is_text(name):
            continue  # No declaration can name it.
        if status is not None and S_ISDIR(status.st_mode):
            table, files = name, _of_folder(path, form)
        elif name.endswith(ENDINGS[form]):
            table, files = _without_ending(name, form), _of_files([(path, status)])
        else:
            continue
        if not files.parts and files.problem is None:
            continue
        key = TableName(SCHEMA, table)
        if key in found:
            what = f"both a folder and a file, or two files, have the name {table}"
            files = Listed((*found[key].parts, *files.parts), what)
        found[key] = files
    return found


def _of_folder(folder: str, form: str) -> Listed:
    try:
        entries = list(_entries(folder))
    except PermissionError:
        return Listed((), "the engine's user may not read the folder of the table")
    except OSError:
        return Listed(())  # It has just gone.
    inner = [path for path, status in entries if status is not None and S_ISDIR(status.st_mode)]
    if inner:
        what = (
            f"the folder of the table has folders in it, such as {Path(inner[0]).name}, whose files would not be read"
        )
        return Listed((), what)
    return _of_files([(path, status) for path, status in entries if path.endswith(ENDINGS[form])])


def _of_files(entries: list[tuple[str, os.stat_result | None]]) -> Listed:
    for path, status in entries:
        if status is None or not S_ISREG(status.st_mode):
            return Listed((), f"{Path(path).name!r} is no file, or a link to none")
        if not _is_text(path):
            return Listed((), f"the name {Path(path).name!r} is not UTF-8")
    return Listed(tuple(Part.of(path, status) for path, status in entries if status is not None))


def _without_ending(name: str, form: str) -> str:
    return next(name.removesuffix(each) for each in reversed(ENDINGS[form]) if name.endswith(each))


def _entries(folder: str) -> Iterator[tuple[str, os.stat_result | None]]:
    """Paths of what is in a folder, by name, with their status; links are followed, and None is that of a link that leads nowhere. What
    goes meanwhile is left out."""
    for path in sorted(Path(folder).iterdir()):
        if path.name.startswith(_HIDDEN):
            continue
        try:
            status = path.stat()
        except FileNotFoundError:
            if path.is_symlink():
                yield str(path), None
            continue
        yield str(path), status


def _is_text(name: str) -> bool:
    """Whether a name is UTF-8: DuckDB opens no other files."""
    with suppress(UnicodeEncodeError):
        name.encode("utf-8")
        return True
    return False
