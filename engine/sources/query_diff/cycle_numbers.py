"""The numbers of cycles: which one began last, and which one was requested. Shared by the engine's processes through files.

A cycle gets its number before its snapshot is taken. So what was committed before a request for the next number is in that cycle.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.model.fault import EngineFault, FaultKind
from engine.queue.files import write_file
from engine.sources.query_diff.moments import Moment

_LOOK_S = 0.05
"""Seconds between two tries to get a lock that another process holds for a cycle."""


class CycleNumbers:
    """Numbers in a folder. Methods may be called from any thread and process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def request(self) -> int:
        """The number of the next cycle that begins; it is due at once."""
        with self._locked():
            write_file(self._folder / "asked", Moment.now().text.encode("ascii"))
            begun, wanted = self.read()
            number = begun + 1
            if wanted < number:
                self._write(begun, number)
        return number

    def begin(self, least: int) -> int:
        """A new cycle's number, at least `least`; its snapshot may be taken afterwards."""
        with self._locked():
            begun, wanted = self.read()
            number = max(begun + 1, least)
            self._write(number, wanted)
        return number

    def read(self) -> tuple[int, int]:
        """The number of the last cycle that began, and the last one that was requested; 0 if there is none."""
        try:
            begun, wanted = (self._folder / "numbers").read_text(encoding="ascii").split()
        except FileNotFoundError:
            return 0, 0
        return int(begun), int(wanted)

    def asked(self) -> Moment:
        """When the last request came. Of a number that has begun no request is later than the answer."""
        try:
            return Moment.of((self._folder / "asked").read_text(encoding="ascii"))
        except FileNotFoundError:
            return Moment("", 0)

    def _write(self, begun: int, wanted: int) -> None:
        write_file(self._folder / "numbers", f"{begun} {wanted}".encode("ascii"))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with locked(self._folder / "numbers.lock"):
            yield


@contextmanager
def locked(path: Path, timeout_s: float | None = None) -> Iterator[None]:
    """Hold a lock that ends with the process. Raises EngineFault(SOURCE_TIMEOUT) if others hold it for `timeout_s` seconds."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError as error:
        detail = f"the folder {path.parent} does not exist"
        raise EngineFault(FaultKind.LOG_GAP, path.parent.name, detail) from error
    try:
        while deadline is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    detail = f"another cycle has run for {timeout_s:.0f} s"
                    raise EngineFault(FaultKind.SOURCE_TIMEOUT, path.parent.name, detail) from None
                time.sleep(_LOOK_S)
        else:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def is_locked(path: Path) -> bool:
    """Whether someone holds the lock now."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(file, fcntl.LOCK_UN)  # Closing does not suffice: a process may have been forked meanwhile.
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


@contextmanager
def hold(path: Path, *, shared: bool = False) -> Iterator[bool]:
    """Whether the lock could be taken at once; it is held for the block then, and ends with the process. `shared`: others may hold it too.

    Raises OSError if there can be no such file.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        try:
            yield True
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # As in `is_locked`.
    finally:
        os.close(file)
