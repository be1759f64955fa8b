"""A session that reads for others answers the next one, whatever happened to the one before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableName
from engine.model.source import TableSplit
from engine.records.served_snapshot import Request, SnapshotServer, read_served


def lines(request: Request) -> Iterator[bytes]:
    yield b"1\n"
    if request.sql == "fault":
        raise EngineFault(FaultKind.TABLE_MISSING, request.subject, "gone")
    if request.sql == "error":
        raise ValueError("of no kind")


def read(server: SnapshotServer, sql: str) -> bytes:
    split = TableSplit(RelationId(7), sql, 0, 0, reads=TableName("main", "goods"))
    return b"".join(read_served(str(server.path), split, "goods"))


@pytest.mark.parametrize(("sql", "kind"), [("fault", FaultKind.TABLE_MISSING), ("error", FaultKind.INTERNAL)])
def test_a_read_that_fails_ends_no_other_one(sql: str, kind: FaultKind) -> None:
    server = SnapshotServer(lines, lambda: None)
    try:
        with pytest.raises(EngineFault) as failed:
            read(server, sql)
        assert (failed.value.kind, failed.value.subject) == (kind, "goods")
        assert read(server, "rows") == b"1\n"
    finally:
        server.close()
