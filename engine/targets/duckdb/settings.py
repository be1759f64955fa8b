"""Limits of a DuckDB target. The defaults are small, because the engine shares the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class DuckDbSettings:
    """Limits of one DuckDB instance; sizes as DuckDB writes them, such as `512MB`."""

    memory_limit: str = "1GB"
    """Memory for applying, and for reading what queries scan; DuckDB's own default would take 80 % of the machine."""
    threads: int = 2
    spill_limit: str = "8GB"
    """Disk that sorts, joins and comparisons larger than memory may use next to the database file."""
    checkpoint_threshold: str = "256MiB"
    """Size of the write-ahead log at which a commit folds it into the database file. A checkpoint compresses each changed row group again.
    With 64 MB, 150 batches of 5,000 changed rows of 60 columns took 33 s of processor time instead of 23 s, and of 50,000 changed rows of 3
    columns 17 s instead of 13 s. What is not folded in yet stays in memory, within `memory_limit`, and is read again when the file is
    opened after a crash: 200 MB within 1 s. 512 MB saved the wide rows another 7 s, and took 190 MB more memory."""
    query_memory: int = 512 * 1024 * 1024
    """Bytes that one reader's statement may take, in the process that it runs in."""


def settings_from(values: Mapping[str, str | int]) -> DuckDbSettings:
    """Read the limits from a connection's settings; missing ones have their default.

    Raises:
        ValueError: `threads` is not a number above 0.
    """
    limits = asdict(DuckDbSettings())
    settings = DuckDbSettings(**{name: type(default)(values.get(name, default)) for name, default in limits.items()})
    if settings.threads < 1:
        message = "threads must be at least 1"
        raise ValueError(message)
    return settings
