"""Reading blocks of the queue, in whatever process a task runs."""

from __future__ import annotations

from engine.queue.block import read_block

__all__ = ["read_block"]
