"""Formats sizes for users: powers of 1,024, like the declared budgets and PostgreSQL's own units."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(count: float) -> str:
    """A number of bytes as text: `512 B`, `1.5 MiB`, `16 GiB`. The console uses the same format (`numbers.ts`)."""
    value, unit = float(count), 0
    # A value that would be rounded to 1024 is printed as 1 of the next unit.
    while value >= (999.5 if unit == 0 else 1023.5) and unit < len(_UNITS) - 1:
        value /= 1024
        unit += 1
    if unit == 0 or value >= 100:
        return f"{value:.0f} {_UNITS[unit]}"
    return f"{value:.1f}".removesuffix(".0") + f" {_UNITS[unit]}"
