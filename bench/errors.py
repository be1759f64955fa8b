"""What ends a measurement."""

from __future__ import annotations


class BenchError(RuntimeError):
    """The measurement cannot go on, or would not be worth anything; the message says why."""
