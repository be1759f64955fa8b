"""Tells this process, after a commit, what has changed: commands waiting in the outbox, events, subscriptions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Change:
    """What one commit changed."""

    outbox: bool = False
    events: bool = False
    subscriptions: frozenset[str] = frozenset()
    declared: frozenset[str] = frozenset()
    """Subscriptions for which the user declared or asked for something: what this process keeps of them in memory is out of date."""


@dataclass(slots=True)
class Signals:
    """Listeners are called in the committing thread, after the commit; they must be quick, thread-safe and not raise."""

    _listeners: list[Callable[[Change], None]] = field(default_factory=list)

    def listen(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call `listener` after each commit that changed something; returns what ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def send(self, change: Change) -> None:
        for listener in list(self._listeners):
            listener(change)
