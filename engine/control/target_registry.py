"""The open targets of this engine process: one object per target file or connection, shared by the subscriptions that write to it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from engine.model.fault import EngineFault
from engine.model.subscription import ConnectionSpec
from engine.model.target import Target

OpenTarget = Callable[[ConnectionSpec], Target]


class TargetRegistry:
    """Counts the users of each target and closes it after the last release. Any thread may use it."""

    def __init__(self, open_target: OpenTarget) -> None:
        self._open = open_target
        self._lock = threading.Lock()
        self._held: dict[str, tuple[Target, int]] = {}

    def acquire(self, connection: ConnectionSpec) -> Target:
        """The target of this connection, opened for its first user. Each call needs one `release`.

        If an open target's file is gone or was replaced, its connection is closed, and its next use opens what exists then.

        Raises:
            EngineFault: opening the target failed (TARGET_LOCKED, TARGET_UNAVAILABLE …).
        """
        key = _key(connection)
        with self._lock:
            held = self._held.get(key)
            target = held[0] if held else self._open(connection)
            try:
                target.check_place()
            except EngineFault:
                target.close()  # The next use opens the file that exists then.
            self._held[key] = (target, held[1] + 1 if held else 1)
            return target

    def release(self, connection: ConnectionSpec) -> None:
        """End one use; the target is closed with the last one. Raises KeyError if it was not acquired."""
        key = _key(connection)
        with self._lock:
            target, users = self._held[key]
            if users > 1:
                self._held[key] = (target, users - 1)
                return
            del self._held[key]
            target.close()

    def close_all(self) -> None:
        """Close every target, whether it is still used or not."""
        with self._lock:
            for target, _ in self._held.values():
                target.close()
            self._held.clear()


def _key(connection: ConnectionSpec) -> str:
    return f"{connection.kind}:{connection.settings.get('path', connection.name)}"
