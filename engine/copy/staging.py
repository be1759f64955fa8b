"""The folder for copied rows between a task and the target. It is deleted with the copy, whatever the outcome."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from engine.copy.split_task import StagedFile, staging_fault
from engine.model.identity import Epoch


@contextmanager
def staging_folder(root: Path, epoch: Epoch) -> Iterator[Path]:
    """Create a folder below `root`; it is deleted at the end. Folders of other epochs are deleted first. Raises EngineFault as
    `staging_fault`."""
    sweep_staging(root, epoch)
    folder = root / f"e{epoch}-{uuid.uuid4().hex[:12]}"
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise staging_fault(error, str(root)) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep_staging(root: Path, epoch: Epoch) -> None:
    """Delete the folders of other epochs in `root`: their engines have ended or may not write any more."""
    if not root.is_dir():
        return
    for entry in root.iterdir():
        if entry.is_dir() and not entry.name.startswith(f"e{epoch}-"):
            shutil.rmtree(entry, ignore_errors=True)


def read_staged(file: StagedFile) -> Any:
    """The file's rows as a pyarrow.Table over mapped memory. It remains readable after the file is deleted."""
    try:
        with pa.memory_map(file.path) as mapped, pa.ipc.open_stream(mapped) as reader:
            return reader.read_all()
    except OSError as error:
        raise staging_fault(error, file.path) from error


def delete_staged(files: Iterable[StagedFile]) -> None:
    for file in files:
        Path(file.path).unlink(missing_ok=True)
