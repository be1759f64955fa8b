"""Maps DuckDB's exceptions to faults. The only module that depends on their classes and, if a class is not specific enough, their
texts."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import duckdb

from engine.model.fault import EngineFault, FaultKind

FULL_BELOW_BYTES = 1024 * 1024
"""A failed write with less free space than this is attributed to a full disk."""
_NO_SPACE = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_MEMORY_WORDS = "Out of Memory Error:"
_UNPINNED = "failed to pin block"
"""A commit or checkpoint that runs out of memory raises a different class of exception."""


def fault_of(error: BaseException, path: Path, subject: str | None = None) -> EngineFault:
    """The fault for an exception of the driver; `subject`: the affected table, if any.

    DuckDB's message is included only if it cannot contain row values.
    """
    if isinstance(error, EngineFault):
        return error
    if is_disk_full(error, path):
        return EngineFault(FaultKind.TARGET_DISK_FULL, str(path), "no space left on the disk of the target's file")
    if isinstance(error, duckdb.OutOfMemoryException):
        return EngineFault(FaultKind.TARGET_UNAVAILABLE, str(path), "memory_limit is too small for this; raise it")
    if isinstance(error, duckdb.FatalException | duckdb.TransactionException) and _UNPINNED in str(error):
        detail = (
            "memory_limit is too small: DuckDB needs the large values of each 122,880 rows in memory at once to write them;"
            " raise it"
        )
        return EngineFault(FaultKind.TARGET_UNAVAILABLE, str(path), detail)
    if subject is not None and isinstance(error, duckdb.DataError | duckdb.ConstraintException):
        return EngineFault(FaultKind.VALUE_OUT_OF_DOMAIN, subject, f"a value does not fit ({type(error).__name__})")
    if isinstance(error, duckdb.IOException | duckdb.FatalException | duckdb.InternalException):
        return EngineFault(FaultKind.TARGET_UNAVAILABLE, str(path), f"the file failed ({type(error).__name__})")
    if isinstance(error, duckdb.TransactionException | duckdb.ConnectionException | duckdb.InterruptException):
        return EngineFault(FaultKind.TARGET_UNAVAILABLE, str(path), f"transaction failed ({type(error).__name__})")
    return EngineFault(FaultKind.INTERNAL, subject or str(path), f"unexpected {type(error).__name__}")


def is_disk_full(error: BaseException, path: Path) -> bool:
    """Whether a failed write means that the disk is full.

    DuckDB does not report errno. Free space is checked first; since a rolled back write has released its space, the operating system's
    text for the errno is checked too.
    """
    if not isinstance(error, duckdb.IOException | duckdb.FatalException | duckdb.TransactionException):
        return False
    if any(words in str(error) for words in _NO_SPACE):
        return True
    try:
        return shutil.disk_usage(path.parent).free < FULL_BELOW_BYTES
    except OSError:
        return False


def is_out_of_memory(error: BaseException) -> bool:
    """Also recognizes errors raised through Arrow's stream, which keeps only DuckDB's message."""
    if isinstance(error, duckdb.OutOfMemoryException):
        return True
    return isinstance(error, OSError) and str(error).startswith(_MEMORY_WORDS)


def is_broken(error: BaseException) -> bool:
    """Whether the instance is unusable until the file is opened again."""
    return isinstance(error, duckdb.FatalException | duckdb.InternalException)
