"""Reads an iterator ahead in a thread of its own, so that the source is read while the target takes in what came before."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from typing import TypeVar

T = TypeVar("T")


class _End:
    """Marks the end of the items; carries the error that ended them, if one did."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def prefetched(items: Iterator[T], ahead: int) -> Generator[T, None, None]:
    """The same items, at most `ahead` of them read before they are asked for.

    What `items` raises is raised here, in its place. Close the generator to end the thread early; `items` is then closed too, if
    it can be, by the thread that reads it.
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
    """Make room until the thread has put its end mark: it never stays behind in a full queue."""
    while thread.is_alive():
        try:
            ready.get(timeout=0.05)
        except queue.Empty:
            continue
    thread.join()
