"""From when on a file's time of change shows whether it was changed since.

File systems count it in ticks: two changes in one tick have the same time. So a stamp counts only after its tick has ended.
"""

from __future__ import annotations

import time

_TICK_NS = 20_000_000
"""Nanoseconds, two ticks of a Linux kernel with 100 of them in a second. Not measured."""
_SECONDS_NS = 2_100_000_000
"""Nanoseconds where the time has whole seconds: file systems without fractions count in steps of one or two."""


def unsettled_ns(changed_ns: int) -> int:
    """Nanoseconds after which the tick of a change has ended; 0 if it has. A time in the future cannot be that of a later change."""
    tick = _TICK_NS if changed_ns % 1_000_000_000 else _SECONDS_NS
    age = time.time_ns() - changed_ns
    return tick - age if 0 <= age < tick else 0
