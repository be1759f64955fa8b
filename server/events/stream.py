"""Carries notifications of commits, coalesced, from the committing thread to the event streams on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from fastapi import Request

from server.db.signals import Change, Signals


class Watcher:
    """One stream's pending notifications. Used on the event loop only."""

    def __init__(self) -> None:
        self._news = asyncio.Event()
        self._subscriptions: set[str] = set()
        self._events = False

    def notify(self, change: Change) -> None:
        self._subscriptions |= change.subscriptions
        self._events |= change.events
        self._news.set()

    async def next(self) -> Change:
        """Wait for a commit. Returns the subscriptions that changed since, and whether there are new events."""
        await self._news.wait()
        self._news.clear()
        news = Change(events=self._events, subscriptions=frozenset(self._subscriptions))
        self._subscriptions, self._events = set(), False
        return news


class Watchers:
    """All watchers of one application."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._open: set[Watcher] = set()

    @classmethod
    @contextmanager
    def listening_to(cls, signals: Signals) -> Iterator[Watchers]:
        """Watchers that are notified of every commit while the context lasts; entered on the event loop."""
        watchers = cls(asyncio.get_running_loop())
        end = signals.listen(watchers._on_change)
        try:
            yield watchers
        finally:
            end()

    @contextmanager
    def watch(self) -> Iterator[Watcher]:
        watcher = Watcher()
        self._open.add(watcher)
        try:
            yield watcher
        finally:
            self._open.discard(watcher)

    def _on_change(self, change: Change) -> None:
        if change.events or change.subscriptions:
            self._loop.call_soon_threadsafe(self._notify_all, change)

    def _notify_all(self, change: Change) -> None:
        for watcher in self._open:
            watcher.notify(change)


def watchers_of(request: Request) -> Watchers:
    """The application's watchers."""
    return cast("Watchers", request.app.state.watchers)
