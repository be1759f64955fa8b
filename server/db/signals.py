"""Notifies this process, after each commit, of what changed: commands in the outbox, events, subscriptions, tokens."""

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
    """Subscriptions with a new declaration or request of a user: their in-memory status is outdated."""
    revoked: bool = False
    """A token is not valid any longer, or has other rights."""


@dataclass(slots=True)
class Signals:
    """Listeners are called in the committing thread after the commit. They must be quick and thread-safe, and must not raise."""

    _listeners: list[Callable[[Change], None]] = field(default_factory=list)

    def listen(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call `listener` after each commit that changed something; returns the function that removes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def send(self, change: Change) -> None:
        for listener in list(self._listeners):
            listener(change)
