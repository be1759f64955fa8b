"""A disk so small that it can be filled: a tmpfs, where this process may mount one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """A mounted folder."""

    path: Path

    def fill(self, leave_bytes: int = 0) -> None:
        """Leave at most this much space."""
        size = max(0, shutil.disk_usage(self.path).free - leave_bytes)
        with suppress(OSError), (self.path / "ballast").open("wb") as file:
            file.write(b"\0" * size)

    def free(self) -> None:
        (self.path / "ballast").unlink()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], SmallDisk]]:
    """Mounts disks: `small_disk(16)` has 16 MiB. Skips where mounting is not allowed."""
    mounted: list[Path] = []

    def make(mebibytes: int) -> SmallDisk:
        path = tmp_path / f"disk{len(mounted)}"
        path.mkdir()
        mount = shutil.which("mount")
        if os.geteuid() != 0 or mount is None:
            pytest.skip("mounting a small tmpfs needs root")
        done = subprocess.run(
            [mount, "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(path)], check=False, capture_output=True
        )
        if done.returncode != 0:
            pytest.skip(f"a small tmpfs cannot be mounted here: {done.stderr.decode(errors='replace').strip()}")
        mounted.append(path)
        return SmallDisk(path)

    yield make
    for path in mounted:
        subprocess.run([shutil.which("umount") or "umount", "-l", str(path)], check=False)
