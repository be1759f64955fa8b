"""Pipes as files: reads in pieces of exactly the size that is asked for, each into memory of its own, and writes that are complete."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self


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


class PipeSink:
    """The writing end of a pipe, for writers of Arrow streams. Owns the descriptor.

    The kernel cuts a write short when a signal, a debugger, or the freezer of a container interrupts it. pyarrow ignores how much of its
    data was written, so that a plain file would lose bytes within a stream.
    """

    closed = False

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: Any) -> int:
        """Write all of the bytes. Raises BrokenPipeError if the pipe is not read any more."""
        rest = memoryview(data).cast("B")
        size = len(rest)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        return size

    def flush(self) -> None:
        """No effect: nothing is buffered."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
