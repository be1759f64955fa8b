"""The kernels of captures by queries."""

from __future__ import annotations

from engine.records import landing, row_digest


def warm() -> None:
    """Compile or load them."""
    landing.warm()
    row_digest.warm()
