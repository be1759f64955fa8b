"""Open targets of this engine process: one object per target file, shared by the subscriptions that feed it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from engine.model.fault import EngineFault
from engine.model.subscription import ConnectionSpec
from engine.model.target import Target

OpenTarget = Callable[[ConnectionSpec], Target]


class TargetRegistry:
    """Counts users of each target and closes it behind the last. Safe to use from any thread."""

    def __init__(self, open_target: OpenTarget) -> None:
        self._open = open_target
        self._lock = threading.Lock()
        self._held: dict[str, tuple[Target, int]] = {}

    def acquire(self, connection: ConnectionSpec) -> Target:
        """The target of this connection, opened by the first user, and anew where its file has gone meanwhile. Raises what opening
        raises (TARGET_LOCKED …)."""
        key = _key(connection)
        with self._lock:
            held = self._held.get(key)
            target = held[0] if held else self._open(connection)
            try:
                target.check_place()
            except EngineFault:
                target.close()  # The next use opens what is there now.
            self._held[key] = (target, held[1] + 1 if held else 1)
            return target

    def release(self, connection: ConnectionSpec) -> None:
        """Give up one use; the last one closes the target."""
        key = _key(connection)
        with self._lock:
            target, users = self._held[key]
            if users > 1:
                self._held[key] = (target, users - 1)
                return
            del self._held[key]
            target.close()

    def close_all(self) -> None:
        with self._lock:
            for target, _ in self._held.values():
                target.close()
            self._held.clear()


def _key(connection: ConnectionSpec) -> str:
    return f"{connection.kind}:{connection.settings.get('path', connection.name)}"
