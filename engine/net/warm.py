"""Compiles every kernel of this package, or loads it from numba's cache, so that no batch waits for the compiler."""

from __future__ import annotations

import struct

import numpy as np

from engine.model.batch import TableChanges, TablePart
from engine.model.identity import RelationId, TableId, TableName
from engine.model.position import ZERO
from engine.model.schema import Column, KeyMode, ReplicaIdentity, SourceType, TableSchema
from engine.net.change_data import with_change_data
from engine.net.change_kernels import Changes
from engine.net.copy_text import decode_copy_text
from engine.net.in_order import Places
from engine.net.table import Bucket, net_table
from engine.net.versions import Commits, with_versions
from engine.platform.compiled import Array

_SAMPLES: dict[str, str] = {
    "int8": "1",
    "bool": "t",
    "int2": "1",
    "int4": "1",
    "oid": "1",
    "float4": "1",
    "float8": "1",
    "numeric": "1.50",
    "text": "a",
    "bytea": r"\x00",
    "date": "2000-01-01",
    "timestamp": "2000-01-01 00:00:00",
    "timestamptz": "2000-01-01 00:00:00+00",
    "time": "00:00:00",
    "uuid": "00000000-0000-0000-0000-000000000000",
}
_DECIMAL_9_2 = (9 << 16 | 2) + 4
"""Type modifier of numeric(9,2) in PostgreSQL: precision in the upper 16 bits, scale in the lower ones, plus the 4 bytes of VARHDRSZ."""
_TEXTS = [*_SAMPLES.values(), "{1}"]


def warm() -> None:
    """Compile every kernel for the types used in production. Raises RuntimeError if a kernel's result is not the expected one."""
    one, other = _tuple(_TEXTS), _tuple(["2", *_TEXTS[1:]])
    data = np.frombuffer(one + other, np.uint8).copy()
    inserts = (0, len(one))
    outcomes = [
        _net(KeyMode.KEYED, data, [(1, inserts[0], -1, 0), (2, inserts[1], inserts[0], 2)]),
        _net(KeyMode.BAG, data, [(1, inserts[0], -1, 0), (2, inserts[1], inserts[0], 2)]),
        _net(KeyMode.APPEND, data, [(1, inserts[0], -1, 0)]),
    ]
    line = "\t".join(_TEXTS).replace("\\", "\\\\") + "\n"
    rows = decode_copy_text(line.encode(), _schema(KeyMode.KEYED)).num_rows
    if rows != 1 or not all(map(_as_known, outcomes)):
        raise RuntimeError("the compiled kernels do not net a known batch correctly")


def _as_known(outcome: TableChanges) -> bool:
    return outcome.fault is None and outcome.inserts is not None and outcome.inserts.num_rows == 1


def _net(mode: KeyMode, data: Array, found: list[tuple[int, int, int, int]]) -> TableChanges:
    op, new, old, kind = (np.array(values) for values in zip(*found, strict=True))
    changes = Changes(
        op.astype(np.uint8),
        np.zeros(len(op), np.int32),
        new.astype(np.int64),
        old.astype(np.int64),
        kind.astype(np.uint8),
    )
    part, commits = TablePart(TableId("t0"), (_schema(mode),), ZERO), Commits(np.ones(len(op), np.uint64), new)
    shares = []
    for bucket in (Bucket(0, 2), Bucket(1, 2)):
        share = net_table(part, data, len(data), changes, bucket)
        if mode is KeyMode.KEYED:
            share = with_versions(share, part, data, len(data), changes, bucket, commits)
        places = Places(np.arange(len(op)), commits.end)
        share = with_change_data(share, part, data, len(data), changes, places, bucket)
        shares.append(share)
    return next((share for share in shares if share.inserts is not None), shares[0])


def _schema(mode: KeyMode) -> TableSchema:
    types = [SourceType(name, _DECIMAL_9_2 if name == "numeric" else -1) for name in _SAMPLES]
    types.append(SourceType("_int4", element=SourceType("int4")))
    columns = tuple(Column(f"c{n}", kind, n + 1) for n, kind in enumerate(types))
    key = ("c0",) if mode is KeyMode.KEYED else ()
    return TableSchema(TableName("warm", "warm"), RelationId(1), columns, key, mode, ReplicaIdentity.FULL)


def _tuple(texts: list[str]) -> bytes:
    values = (b"t" + struct.pack(">i", len(text)) + text.encode() for text in texts)
    return struct.pack(">h", len(texts)) + b"".join(values)
