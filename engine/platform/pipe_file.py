"""Reading a pipe in pieces of exactly the size that is asked for, each into memory of its own."""

from __future__ import annotations

import os
from collections.abc import Callable


class PipeFile:
    """A file for pyarrow.PythonFile, without a buffer: what is read is not copied again. The caller owns the descriptor."""

    closed = False

    def __init__(self, descriptor: int, wait: Callable[[int], None] | None = None) -> None:
        """`wait`: returns once the descriptor, which does not block then, can be read."""
        if wait is not None:
            os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._wait = wait

    def read(self, size: int) -> memoryview:
        """Fewer bytes only at the end."""
        found = memoryview(bytearray(size))
        filled = 0
        while filled < size:
            try:
                count = os.readv(self._descriptor, [found[filled:]])
            except BlockingIOError:
                if self._wait is None:
                    raise
                self._wait(self._descriptor)
                continue
            if count == 0:
                break
            filled += count
        return found[:filled]

    def close(self) -> None:
        """No effect."""
