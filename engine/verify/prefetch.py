"""Reads an iterator ahead in a thread, so that the source is read while the target processes earlier items."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from typing import TypeVar

T = TypeVar("T")


class _End:
    """Marks the end of the items; carries the exception that ended them, if any."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def prefetched(items: Iterator[T], ahead: int) -> Generator[T, None, None]:
    """The same items, with at most `ahead` of them read in advance.

    An exception of `items` is raised at its position. Close the generator to end the thread early; that thread then closes `items` too,
    if it has a `close`.
    """
    ready: queue.Queue[T | _End] = queue.Queue(max(ahead, 1))
    closed = threading.Event()
    thread = threading.Thread(target=_fill, args=(items, ready, closed), name="verify-read", daemon=True)
    thread.start()
    try:
        while True:
            item = ready.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item
    finally:
        closed.set()
        _drain(ready, thread)


def _fill(items: Iterator[T], ready: queue.Queue[T | _End], closed: threading.Event) -> None:
    error: BaseException | None = None
    try:
        for item in items:
            ready.put(item)
            if closed.is_set():
                break
        if isinstance(items, Generator):
            items.close()
    except BaseException as raised:
        error = raised
    ready.put(_End(error))


def _drain(ready: queue.Queue[T | _End], thread: threading.Thread) -> None:
    """Empty the queue until the thread has put its end mark, so that it is never blocked on a full queue."""
    while thread.is_alive():
        try:
            ready.get(timeout=0.05)
        except queue.Empty:
            continue
    thread.join()
