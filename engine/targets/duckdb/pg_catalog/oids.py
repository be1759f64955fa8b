"""Stable OIDs for the objects of a copy: the same name has the same OID in every process and at every time, as clients keep them. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

FIRST = 16384
"""The first OID of objects that users create (FirstNormalObjectId)."""
_LAST = 2**31 - 1
"""Some clients read an OID as a signed number of 32 bits."""


def stable_oids(names: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], int]:
    """An OID for every name. Where two have the same hash, the later one in the order of names gets the next free OID."""
    oids: dict[tuple[str, ...], int] = {}
    used: set[int] = set()
    for name in sorted(set(names)):
        digest = hashlib.blake2b("\0".join(name).encode("utf-8", "surrogatepass"), digest_size=8).digest()
        oid = FIRST + int.from_bytes(digest) % (_LAST - FIRST)
        while oid in used:
            oid = FIRST if oid == _LAST else oid + 1
        used.add(oid)
        oids[name] = oid
    return oids
