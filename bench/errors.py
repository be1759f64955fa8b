"""The error that ends a measurement."""

from __future__ import annotations


class BenchError(RuntimeError):
    """The measurement cannot continue, or its result would be worthless; the message says why."""
