"""Loads what log readers compile, when it is imported: in the process that they are forked from, so that none of them does it again.

Loading the first kernel takes a process 0.2 s of CPU and 50 MB of memory, even from the cache.
"""

from __future__ import annotations

from contextlib import suppress

from engine.connectors import SOURCES
from engine.records import change_counts, scan

# What fails here fails again in the log reader, which reports it; other processes are forked from this one, too.
with suppress(Exception):
    for warm in (*(kind.compile_kernels for kind in SOURCES.values()), change_counts.warm, scan.warm):
        warm()
