"""Verifications by checksums, and what they found."""

from __future__ import annotations

import random
from typing import Any

from engine.link.verifications import VerifiedTable
from engine.model.verification import VerificationMethod
from tests.fixtures.replication import Replica
from tests.pg.engine.repairing import repaired


def checksums(replica: Replica, **options: Any) -> dict[str, VerifiedTable]:
    return repaired(replica, **{"apply": False, "method": VerificationMethod.CHECKSUM, **options})


def listed(found: VerifiedTable) -> list[tuple[tuple[str | None, ...], str, tuple[str, ...]]]:
    return sorted((d.key, d.kind, d.columns) for d in found.differing)  # type: ignore[type-var]  # keys of texts


def assert_found_by_checksums(found: VerifiedTable, rows: int) -> None:
    """Everything was compared by several ranges, and all of it is equal: no range was read."""
    assert (found.method, found.by_rows_because) == (VerificationMethod.CHECKSUM, None)
    assert (found.equal, found.source_rows, found.target_rows) == (True, rows, rows)
    assert found.ranges > 3
    assert found.ranges_different == 0


def drawn_text(chance: random.Random) -> str:
    """Characters that are escaped, or compared without regard to case, accents and padding."""
    drawn = "".join(chance.choice("aA \t\n\r\\N'\"{},()\x01\x0b\x7fÄ€😀'/0") for _ in range(chance.randrange(12)))
    return drawn + " " * chance.randrange(2)
