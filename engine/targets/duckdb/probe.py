"""Run as a program: determines why a database file cannot be opened. A separate process, because closing a file that this process has
open elsewhere would release its POSIX locks."""

from __future__ import annotations

import fcntl
import sys
from pathlib import Path

# Exit codes of the probe: 0, and others than 1 and 2, with which Python itself ends.
FREE = 0
LOCKED = 10
NOT_A_DATABASE = 11
UNREADABLE = 12
# DuckDB's file format: an 8-byte checksum, then these bytes.
_MAGIC_AT = 8
_MAGIC = b"DUCK"


def reason(path: Path) -> int:
    """One of the codes above."""
    try:
        with path.open("r+b") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return LOCKED
            head = file.read(_MAGIC_AT + len(_MAGIC))
            return FREE if head[_MAGIC_AT:] == _MAGIC else NOT_A_DATABASE
    except OSError:
        return UNREADABLE


if __name__ == "__main__":
    sys.exit(reason(Path(sys.argv[1])))
