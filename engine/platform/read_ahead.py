"""Reads iterators ahead in threads, so that what they read from is busy while earlier items are processed."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")


class _End:
    """Marks the end of an iterator's items; carries the exception that ended them, if any."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def prefetched(items: Iterator[T], ahead: int) -> Generator[T, None, None]:
    """As `side_by_side`, of one iterator."""
    return side_by_side([items], ahead)


def side_by_side(iterators: Sequence[Iterator[T]], ahead: int) -> Generator[T, None, None]:
    """The items of all, each iterator's in its order, with at most `ahead` of them read in advance. Each is read by a thread of its own.

    An exception of one is raised in the place of its next item. Close the generator to end the threads early; these then close their
    iterators too, if they have a `close`.
    """
    reading = _Reading(iterators, ahead)
    try:
        yield from reading.items()
    finally:
        reading.close()


def in_turn(iterators: Iterable[Iterator[T]], at_once: int, ahead: int) -> Generator[T, None, None]:
    """The items of one iterator after another, while `at_once` of them are read at the same time. Otherwise as `side_by_side`, with
    `ahead` items of each."""
    begun: deque[_Reading[T]] = deque()
    left = iter(iterators)
    try:
        while True:
            begun.extend(_Reading([one], ahead) for one in islice(left, at_once - len(begun)))
            if not begun:
                return
            yield from begun[0].items()
            begun.popleft().close()
    finally:
        for reading in begun:
            reading.close()


class _Reading(Generic[T]):
    """Threads that read iterators."""

    def __init__(self, iterators: Sequence[Iterator[T]], ahead: int) -> None:
        self._ready: queue.Queue[T | _End] = queue.Queue(max(ahead, 1))
        self._closed = threading.Event()
        self._threads = [
            threading.Thread(target=_fill, args=(items, self._ready, self._closed), name="read-ahead", daemon=True)
            for items in iterators
        ]
        for thread in self._threads:
            thread.start()

    def items(self) -> Iterator[T]:
        left = len(self._threads)
        while left:
            item = self._ready.get()
            if not isinstance(item, _End):
                yield item
            elif item.error is not None:
                raise item.error
            else:
                left -= 1

    def close(self) -> None:
        self._closed.set()
        for thread in self._threads:
            _drain(self._ready, thread)


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
