"""How sizes are printed for people, everywhere: powers of 1,024, as budgets are declared and as PostgreSQL counts."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(count: float) -> str:
    """Bytes: `512 B`, `1.5 MiB`, `16 GiB`. The console prints them in the same way (`numbers.ts`)."""
    value, unit = float(count), 0
    # What would be rounded to 1024 is one of the next unit.
    while value >= (999.5 if unit == 0 else 1023.5) and unit < len(_UNITS) - 1:
        value /= 1024
        unit += 1
    if unit == 0 or value >= 100:
        return f"{value:.0f} {_UNITS[unit]}"
    return f"{value:.1f}".removesuffix(".0") + f" {_UNITS[unit]}"
