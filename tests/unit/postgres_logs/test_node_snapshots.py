"""Which committed transactions a node's snapshot has, and up to where they are a beginning of its log."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from engine.model.position import Lsn
from engine.model.source import RecordChunk
from engine.records.scan import find_controls
from engine.sort.merge import LogMerge
from engine.sources.postgres_logs.consistent_cut import NodeSnapshot
from engine.sources.postgres_logs.late_rows import LateRows
from engine.sources.postgres_logs.node_log import Naming, NodeLog
from engine.sources.postgres_logs.relations import Relations
from tests.pg.postgres_logs.nodes import SameNumbers
from tests.unit.net import pgoutput_encoder as pgoutput
from tests.unit.postgres_logs.fed_nodes import Clock, Log

TURN = 1 << 32
"""Transaction ids of the log have 32 bits, those of snapshots count on."""


@pytest.mark.parametrize("turns", [0, 1, 7])
def test_a_snapshot_has_what_was_committed_before_it(turns: int) -> None:
    base = turns * TURN
    snapshot = NodeSnapshot.parse(f"{base + 100}:{base + 110}:{base + 100},{base + 105}", 0)
    xids = np.array([99, 100, 101, 105, 109, 110, 111], np.int64)
    assert snapshot.has(xids).tolist() == [True, False, True, False, True, False, False]


def test_ids_begin_again_after_the_last_one() -> None:
    snapshot = NodeSnapshot.parse(f"{TURN + 5}:{TURN + 5}:", 0)
    xids = np.array([TURN - 1, 4, 5], np.int64)
    assert snapshot.has(xids).tolist() == [True, True, False]


def committed(*xids: int) -> NodeLog:
    """A node's log with these transactions, which end at 10, 20 and so on; the third one has a relation record."""
    records = []
    for number, xid in enumerate(xids, 1):
        records.append(pgoutput.begin(10 * number - 5, xid))
        if number == 3:
            records.append(pgoutput.relation(7, ["id"]))
        records += [pgoutput.insert(7, ["1"]), pgoutput.commit(10 * number - 5, 10 * number)]
    data, offsets = pgoutput.pack(records)
    controls, _ = find_controls(data, offsets, 0, two_phase=True)
    relations = {
        int(c["ordinal"]): records[int(c["ordinal"])] for c in controls if records[int(c["ordinal"])][:1] == b"R"
    }
    naming = Naming(re.compile("(?P<gtid>.*)"), None, ("n",))
    log = NodeLog(0, naming, LogMerge(1), Relations(SameNumbers(), 1), LateRows(1))
    log.feed(RecordChunk(data, offsets, controls, relations, Lsn(10 * len(xids))))
    return log


@pytest.mark.parametrize(
    ("seen", "passed", "end"),
    [
        ({1, 2, 3, 4}, 0, 40),
        ({1, 2, 3, 4}, 40, 40),
        ({1, 2}, 0, 20),
        ({1, 2}, 20, 20),
        ({1, 2}, 30, None),
        (set(), 0, 0),
        (set(), 10, None),
        ({1, 3, 4}, 0, None),
        ({4}, 0, None),
    ],
)
def test_what_a_snapshot_has_is_a_beginning_of_the_log_or_of_no_use(
    seen: set[int], passed: int, end: int | None
) -> None:
    """`passed`: what is released already, which a snapshot must have."""
    assert committed(1, 2, 3, 4).end_of(lambda xids: np.isin(xids, list(seen)), passed) == end


@pytest.mark.parametrize("sizes", [[], [2, 3, 1, 2, 1]], ids=["at once", "in pieces"])
def test_rows_that_are_removed_by_what_is_committed_and_not_taken_are_known(tmp_path: Path, sizes: list[int]) -> None:
    """Parts that are only prepared remove nothing yet."""
    source = Log(0, Clock(), 7)
    source.local([source.insert("1", "a"), source.delete("2")])
    source.prepare("g", [source.delete("3"), source.delete("4")])
    source.prepare("open", [source.delete("5")])
    source.local([source.delete("6")])
    source.finish("g", commit=True)
    merge, naming = LogMerge(2), Naming(re.compile("^(?P<gtid>.+)@"), None, ("n", "m"))
    with closing(NodeLog(0, naming, merge, Relations(SameNumbers({"t"}), 2), LateRows(2), tmp_path)) as log:
        for chunk in source.chunks(sizes):
            log.feed(chunk)
        assert len(set(log.removed().tolist())) == 4
        log.spool()
        assert len(log.removed()) == 0
        assert len(set(log.removed(on_disk=True).tolist())) == 4
