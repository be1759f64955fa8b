"""The folder of a subscription's snapshots: what is written, published, deleted and cleaned there.

A snapshot is a folder. It is written under a hidden name in the same folder, made durable, and renamed, so a folder with a final name is
whole. Names come from positions and ids only.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

from engine.model.snapshots import SnapshotFormat, SnapshotRefused

MANIFEST = "manifest.json"
_WRITING, _DELETED, _LINK = ".writing-", ".deleted-", ".link-"
_HIDDEN = (_WRITING, _DELETED, _LINK)
_TAKEN = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR})
"""What a rename onto an existing folder or file reports."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def position_name(position: str) -> str:
    """The name of a snapshot at a position, given as text."""
    return quote(position.replace("/", "-"), safe="-_,=")


def latest_name(kind: SnapshotFormat) -> str:
    """Name of the link to the newest snapshot of this format."""
    return f"latest-{kind.value}"


def refused_for(error: OSError, folder: Path) -> SnapshotRefused:
    """Why files in this folder could not be written or deleted."""
    if error.errno in _FULL:
        detail = f"no space left on the disk of {folder}"
        return SnapshotRefused(
            507, "snapshot_disk_full", detail, "Free space, or delete older snapshots; then ask again."
        )
    if error.errno in _DENIED:
        detail = f"the engine's user has no permission to write in {folder}"
        remedy = "Let the engine's user write there, or name another folder with PENSTOCK_SNAPSHOTS."
        return SnapshotRefused(409, "snapshot_not_permitted", detail, remedy)
    reason = error.strerror or type(error).__name__
    return SnapshotRefused(503, "snapshot_failed", f"{folder}: {reason}", "Correct the reason, and ask again.")


def make_durable(path: Path) -> None:
    """Write a file, or the entries of a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class SnapshotPlace:
    """The snapshots of one subscription. Methods raise OSError; `refused_for` says what it means."""

    def __init__(self, root: Path, subscription: str) -> None:
        """`subscription`: a name with which no other folder can be reached."""
        if subscription in {"", ".", ".."} or "/" in subscription or "\0" in subscription:
            raise ValueError(f"{subscription!r} is not a name of a folder")
        self.folder = root / subscription

    def begin(self, snapshot: str) -> Path:
        """An empty folder to write a snapshot into. `snapshot`: its id."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.discard(snapshot)
        made = self.folder / f"{_WRITING}{snapshot}"
        made.mkdir()
        return made

    def refuse_taken_link(self, kind: SnapshotFormat) -> None:
        """Raises SnapshotRefused if something that is no link has the name of the link."""
        link = self.folder / latest_name(kind)
        if link.exists() and not link.is_symlink():
            detail = f"{link} exists and is not a link"
            remedy = 'Move it away, or send "latest": false; then ask again.'
            raise SnapshotRefused(409, "snapshot_place_taken", detail, remedy)

    def publish(self, snapshot: str, position: str) -> str:
        """Make a written folder durable and give it its final name, which is returned: a free one that begins with the position."""
        written = self.folder / f"{_WRITING}{snapshot}"
        for file in written.iterdir():
            make_durable(file)
        make_durable(written)
        for number in count(1):
            name = position_name(position) + ("" if number == 1 else f".{number}")
            target = self.folder / name
            if os.path.lexists(target):
                continue
            try:
                written.rename(target)
            except OSError as error:
                if error.errno in _TAKEN and os.path.lexists(target):
                    continue
                raise
            make_durable(self.folder)
            return name
        raise AssertionError("unreachable")

    def link(self, snapshot: str, name: str, kind: SnapshotFormat) -> None:
        """Let the link of this format lead to a published snapshot. Readers see the old or the new one."""
        draft = self.folder / f"{_LINK}{snapshot}"
        draft.unlink(missing_ok=True)
        draft.symlink_to(name)
        draft.replace(self.folder / latest_name(kind))
        make_durable(self.folder)

    def find(self, snapshot: str) -> tuple[str, dict[str, Any]] | None:
        """Name and manifest of a published snapshot; None if there is none with this id."""
        for path in self._published():
            with suppress(OSError, ValueError):
                manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
                if isinstance(manifest, dict) and manifest.get("id") == snapshot:
                    return path.name, manifest
        return None

    def delete(self, snapshot: str) -> bool:
        """Delete a published snapshot, and a link to it; False if there is none."""
        found = self.find(snapshot)
        if found is None:
            return False
        for kind in SnapshotFormat:
            link = self.folder / latest_name(kind)
            if link.is_symlink() and str(link.readlink()) == found[0]:
                link.unlink()
        hidden = self.folder / f"{_DELETED}{snapshot}"
        (self.folder / found[0]).rename(hidden)
        shutil.rmtree(hidden)
        return True

    def discard(self, snapshot: str) -> None:
        """Delete what was written of a snapshot that is not published."""
        shutil.rmtree(self.folder / f"{_WRITING}{snapshot}", ignore_errors=True)

    def clean(self, kept: Collection[str]) -> None:
        """Delete what lost engines left: unpublished and half deleted snapshots, except those being written (`kept`: their ids)."""
        for path in self._entries():
            prefix = next((each for each in _HIDDEN if path.name.startswith(each)), None)
            if prefix is None or path.name.removeprefix(prefix) in kept:
                continue
            if path.is_symlink():
                path.unlink(missing_ok=True)
            else:
                shutil.rmtree(path, ignore_errors=True)

    def _entries(self) -> list[Path]:
        try:
            return list(self.folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _published(self) -> Iterator[Path]:
        for path in self._entries():
            if not path.name.startswith(".") and not path.is_symlink() and path.is_dir():
                yield path
