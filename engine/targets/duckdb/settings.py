"""What a DuckDB target may use of the machine. Every value has a small default, since the engine shares the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MEMORY_LIMIT = "1GB"
"""Memory for applying, and for reading what queries scan; DuckDB's own default would take 80 % of the machine."""
THREADS = 2
SPILL_LIMIT = "8GB"
"""Disk that sorts, joins and comparisons larger than memory may use beside the database file."""
CHECKPOINT_THRESHOLD = "64MB"
"""Size of the write-ahead log at which a commit folds it into the database file."""
QUERY_MEMORY = 512 * 1024 * 1024
"""Bytes that one reader's statement may take, in the process that it runs in."""


@dataclass(frozen=True, slots=True)
class DuckDbSettings:
    """Limits of one DuckDB instance; sizes as DuckDB writes them, such as `512MB`."""

    memory_limit: str = MEMORY_LIMIT
    threads: int = THREADS
    spill_limit: str = SPILL_LIMIT
    checkpoint_threshold: str = CHECKPOINT_THRESHOLD
    query_memory: int = QUERY_MEMORY


def settings_from(values: Mapping[str, str | int]) -> DuckDbSettings:
    """Read the limits from a connection's settings; what is absent keeps its default.

    Raises:
        ValueError: `threads` is not a number above 0.
    """
    threads = int(values.get("threads", THREADS))
    if threads < 1:
        message = "threads must be at least 1"
        raise ValueError(message)
    return DuckDbSettings(
        memory_limit=str(values.get("memory_limit", MEMORY_LIMIT)),
        threads=threads,
        spill_limit=str(values.get("spill_limit", SPILL_LIMIT)),
        checkpoint_threshold=str(values.get("checkpoint_threshold", CHECKPOINT_THRESHOLD)),
        query_memory=int(values.get("query_memory", QUERY_MEMORY)),
    )
