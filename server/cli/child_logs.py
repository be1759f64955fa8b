"""The logs of `up`'s children: bounds their files, and shows what matters on the terminal in a line each."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

MOST_BYTES = 20 << 20
"""Size at which a log file is moved aside; the file before it is dropped."""
_INTERVAL_S = 0.5
_REPEAT_S = 60.0
"""The same event of a child is shown once in this time; the file has all."""
_SHOWN = frozenset({"warning", "error", "critical"})
_LEFT_OUT = frozenset({"event", "level", "timestamp", "logger", "exception", "stack_info"})


def line_for_people(text: bytes) -> tuple[str, str, str] | None:
    """Level, event and details of a log line that people should see; None for all others, and for what is no JSON log."""
    try:
        record: Any = json.loads(text)
    except ValueError:
        return None
    if not isinstance(record, dict) or record.get("level") not in _SHOWN:
        return None
    fields = [f"{name}={value}" for name, value in record.items() if name not in _LEFT_OUT]
    return str(record["level"]), str(record.get("event", "")), " ".join(fields)


class ChildLog:
    """Follows the file that a child appends to, from its present end. The child writes the file itself, so that it never waits for us."""

    def __init__(self, name: str, file: Path, show: Callable[[str, str, str], None]) -> None:
        """`show`: called with level, child, and text."""
        self._name = name
        self._file = file
        self._show = show
        self._at = file.stat().st_size if file.exists() else 0
        self._rest = b""
        self._shown: dict[str, float] = {}

    def step(self) -> None:
        """Show what was written since the last step, and move a file aside that is too large."""
        if not self._file.exists():
            return
        with self._file.open("rb") as log:
            log.seek(self._at)
            while piece := log.read(1 << 20):
                self._at += len(piece)
                *lines, self._rest = (self._rest + piece).split(b"\n")
                for line in lines:
                    self._line(line)
            if self._at > MOST_BYTES:
                self._move_aside()

    def _line(self, line: bytes) -> None:
        found = line_for_people(line)
        if found is None:
            return
        level, event, fields = found
        now = monotonic()
        if now - self._shown.get(event, -_REPEAT_S) >= _REPEAT_S:
            self._shown[event] = now
            self._show(level, self._name, f"{event.replace('_', ' ')} {fields}".rstrip())

    def _move_aside(self) -> None:
        """The child keeps its file open, so the file is copied and emptied. Lines written in between are lost."""
        shutil.copyfile(self._file, self._file.with_name(f"{self._file.name}.1"))
        with self._file.open("r+b") as log:
            log.truncate(0)
        self._at, self._rest = 0, b""


def follow(logs: list[ChildLog], ended: threading.Event, trouble: Callable[[str], None]) -> None:
    """Follow the logs until `ended`. `trouble`: called with the reason if a file cannot be read or emptied, which ends it."""
    try:
        while not ended.wait(_INTERVAL_S):
            for log in logs:
                log.step()
    except OSError as error:
        trouble(f"the log files are not followed any more: {error.strerror or error}")
