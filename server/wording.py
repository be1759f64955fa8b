"""The format of figures for people, in the command line and in the sentences of answers. The console uses the same rules."""

from __future__ import annotations

from engine.model import sizes

UNKNOWN = "–"


def format_size(count: float | None) -> str:
    """Bytes: `512 B`, `1.5 MiB`, `16 GiB`."""
    return UNKNOWN if count is None else sizes.size(count)


def format_seconds(value: float | None) -> str:
    """A duration: `12 ms`, `3.4 s`, `5 min`, `3 h`, `2 days`."""
    if value is None:
        return UNKNOWN
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 120:
        return f"{value:.1f} s"
    if value < 7_200:
        return f"{value / 60:.0f} min"
    return f"{value / 3_600:.0f} h" if value < 172_800 else f"{value / 86_400:.0f} days"


def format_share(of_one: float) -> str:
    """A share from 0 to 1: `41 %`. A share below 1 is never shown as 100 %."""
    if 0 < of_one < 0.01:
        return "< 1 %"
    return f"{100 if of_one >= 1 else min(99, round(of_one * 100))} %" if of_one <= 1 else f"{of_one * 100:.0f} %"


def format_count(number: int, noun: str) -> str:
    """`1 table`, `2 tables`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
