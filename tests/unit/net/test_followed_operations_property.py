"""Following some of the operations: net changes of batches leave what the wanted changes leave when they are applied one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.model.batch import SealedBatch, TableChanges, TaskResult
from engine.model.identity import BatchId
from engine.model.ledger import LedgerEntry
from engine.model.operations import OPERATIONS, set_problem
from engine.model.position import Lsn
from engine.model.schema import KeyMode, ReplicaIdentity, TableSchema
from engine.model.target import TableCommit
from engine.pipeline.compute import Computed, Scans
from engine.pipeline.ledger import Decided, balanced
from engine.tables.planner import PlannedBatch
from tests.unit.net import pgoutput_encoder as pgoutput
from tests.unit.net.batch_builder import column, part, rows, table, task, whole
from tests.unit.net.dictionary_target import apply_bag
from tests.unit.net.net_change_text import OID

SETS = [
    frozenset({"insert"}),
    frozenset({"insert", "truncate"}),
    frozenset({"insert", "update"}),
    frozenset({"insert", "update", "truncate"}),
    frozenset({"insert", "delete", "truncate"}),
    OPERATIONS,
]
"""Every set that can be followed."""
Row = tuple[int, str, str | None]
Step = tuple[str, int, int, str, bool]
"""An operation, two keys, a value, and whether the log leaves an unchanged large value out."""
_STEPS = st.tuples(
    st.sampled_from(["insert", "update", "update", "move", "delete", "truncate"]),
    st.integers(0, 4),
    st.integers(0, 4),
    st.sampled_from("abc"),
    st.booleans(),
)
_COLUMNS = [column("id", "int4"), column("a"), column("big")]


def test_the_sets_are_all_that_can_be_followed() -> None:
    names = sorted(OPERATIONS)
    subsets = [frozenset(n for bit, n in enumerate(names) if number >> bit & 1) for number in range(1, 16)]
    assert Counter(each for each in subsets if set_problem(each) is None) == Counter(SETS)


class Model:
    """A source's rows, its log records, and the rows of a target that follows `operations`, change by change."""

    def __init__(
        self, initial: Sequence[Row], operations: frozenset[str], *, full: bool, scattered: bool = False
    ) -> None:
        """`scattered`: a row that comes to a key replaces the one that has it."""
        self.source = {row[0]: row for row in initial}
        self.target = dict(self.source)
        self.operations = operations
        self.full = full
        self.scattered = scattered
        self.records: list[bytes] = []
        self.left_out = 0

    def run(self, step: Step) -> None:
        kind, key, other, value, leaves_out = step
        if kind == "truncate":
            self.records.append(pgoutput.truncate([OID], 0))
            self.source.clear()
            self._clear()
        elif kind == "insert" and self._free(key):
            row = (key, value, f"big {value}")
            self.records.append(pgoutput.insert(OID, _texts(row), 0))
            self.source[key] = self.target[key] = row
        elif kind == "delete" and key in self.source:
            self.records.append(pgoutput.delete(OID, *self._old(self.source.pop(key)), 0))
            self._delete(key)
        elif kind == "update" and key in self.source:
            self._update(self.source[key], (key, value, self._big(key, value, leaves_out)), leaves_out)
        elif kind == "move" and key in self.source and other != key and self._free(other):
            self._move(key, (other, value, self._big(key, value, leaves_out)), leaves_out)

    def _free(self, key: int) -> bool:
        return self.scattered or key not in self.source

    def _big(self, key: int, value: str, leaves_out: bool) -> str | None:
        return self.source[key][2] if leaves_out else f"new {value}"

    def _update(self, old: Row, new: Row, leaves_out: bool) -> None:
        image = self._old(old) if self.full else (None, "K")
        self.records.append(pgoutput.update(OID, _texts(new, leaves_out), *image, 0))
        self.source[new[0]] = new
        if "update" in self.operations:
            self.target[new[0]] = new
        else:
            self.left_out += 1

    def _move(self, key: int, new: Row, leaves_out: bool) -> None:
        """A change of a key. A value is only left out if the log has the old row, or if the row may move: see the last test."""
        leaves_out = leaves_out and (self.full or self.operations == OPERATIONS)
        old = self.source.pop(key)
        self.records.append(pgoutput.update(OID, _texts(new, leaves_out), *self._old(old), 0))
        self.source[new[0]] = self.target[new[0]] = new
        if "delete" in self.operations:
            del self.target[key]

    def _old(self, old: Row) -> tuple[list[pgoutput.Value], str]:
        return (_texts(old), "O") if self.full else ([str(old[0]), None, None], "K")

    def _delete(self, key: int) -> None:
        if "delete" in self.operations:
            del self.target[key]
        else:
            self.left_out += 1

    def _clear(self) -> None:
        if "truncate" in self.operations:
            self.target.clear()
        else:
            self.left_out += 1


def _texts(row: Row, leaves_out: bool = False) -> list[pgoutput.Value]:
    return [str(row[0]), row[1], pgoutput.UNCHANGED if leaves_out else row[2]]


def apply(held: dict[int, Row], shares: Sequence[TableChanges], *, replacing: bool) -> None:
    """Apply the net changes of all buckets, as targets do. `replacing`: an insert replaces a row with its key."""
    inserts = [row for share in shares for row in rows(share.inserts)]
    for share in shares:
        for row in [] if share.partials is None else share.partials.to_pylist():
            there = held[row["k0"]]
            inserts.append(tuple(there[c] if row.get(f"u{c}") else row[f"c{c}"] for c in range(3)))
    if any(share.truncated for share in shares):
        held.clear()
    for share in shares:
        for (gone,) in rows(share.deletes):
            del held[gone]
    for share in shares:
        for (key,) in rows(share.replaced):
            held.pop(key, None)
    assert len({row[0] for row in inserts}) == len(inserts)
    for row in inserts:
        assert replacing or row[0] not in held
        held[row[0]] = (row[0], row[1], row[2])


def followed(operations: frozenset[str], mode: KeyMode, *, full: bool, scattered: bool = False) -> TableSchema:
    """A table of which these operations are followed."""
    identity = ReplicaIdentity.FULL if full else ReplicaIdentity.DEFAULT
    schema = table(_COLUMNS, ["id"] if mode is KeyMode.KEYED else [], mode, identity, OID)
    return replace(schema, skipped=OPERATIONS - operations, scattered=scattered)


def netted(records: Sequence[bytes], schema: TableSchema, buckets: int) -> tuple[list[TableChanges], LedgerEntry]:
    """The net changes of a batch of these records in all buckets, without a fault, and the ledger's entry of the table."""
    given = part(schema)
    results: list[TaskResult] = [task(records, [given], bucket=b, buckets=buckets) for b in range(buckets)]
    shares = [share for result in results for share in result.tables]
    assert [share.fault for share in shares if share.fault] == []
    scans = Scans()
    scans.add([result.tally for result in results], apart=False)
    ranges = tuple(whole(records))
    batch = SealedBatch(Lsn(0), Lsn(1), 1, ranges, (), 0, 0)
    planned = PlannedBatch(BatchId(1), batch, ranges, (given,), frozenset())
    computed = Computed(planned, tuple(shares), 0, "driver", 0.0, 0, 0.0, scans=scans)
    commit = TableCommit(given.table, schema, schema.name, tuple(share for share in shares if not share.is_empty))
    ledger = balanced(computed, Decided({given.table: commit}, (), {given.table}, ()))
    return shares, ledger.tables.get(given.table, LedgerEntry())


def batches(records: Sequence[bytes], cuts: Sequence[int]) -> list[Sequence[bytes]]:
    borders = sorted({0, len(records), *(cut for cut in cuts if cut < len(records))})
    return [records[low:high] for low, high in pairwise(borders)]


@pytest.mark.parametrize("operations", SETS, ids=lambda each: "-".join(sorted(each)))
@settings(deadline=None, max_examples=60)
@example(
    [(1, "a", None)],
    [("insert", 2, 0, "b", False), ("delete", 2, 0, "a", False), ("insert", 2, 0, "c", False)],
    False,
    1,
    [],
    False,
)
@example(
    [(1, "a", None)],
    [("update", 1, 0, "b", True), ("delete", 1, 0, "a", False), ("insert", 1, 0, "c", False)],
    False,
    2,
    [2],
    False,
)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from("xy"), st.sampled_from([None, "big"])), max_size=4),
    st.lists(_STEPS, max_size=14),
    st.booleans(),
    st.integers(1, 3),
    st.lists(st.integers(1, 13), max_size=3),
    st.booleans(),
)
def test_batches_leave_what_the_wanted_changes_leave(
    operations: frozenset[str],
    initial: list[Row],
    steps: list[Step],
    full: bool,
    buckets: int,
    cuts: list[int],
    scattered: bool,
) -> None:
    model = Model(initial, operations, full=full, scattered=scattered)
    held = dict(model.target)
    for step in steps:
        model.run(step)
    filtered = 0
    for records in batches(model.records, cuts):
        shares, entry = netted(records, followed(operations, KeyMode.KEYED, full=full, scattered=scattered), buckets)
        apply(held, shares, replacing="delete" not in operations)
        assert entry.applied + entry.netted + entry.filtered == len(records)
        assert min(entry.applied, entry.netted) >= 0
        filtered += entry.filtered
    assert held == model.target
    assert filtered <= model.left_out
    assert operations != OPERATIONS or held == model.source


@pytest.mark.parametrize("operations", [each for each in SETS if each == OPERATIONS or "delete" not in each])
@settings(deadline=None, max_examples=60)
@given(st.lists(_STEPS, max_size=14), st.integers(1, 3), st.lists(st.integers(1, 13), max_size=3))
def test_tables_without_a_key(operations: frozenset[str], steps: list[Step], buckets: int, cuts: list[int]) -> None:
    """Keys only find the row that a step changes; the target has rows, and equal ones several times."""
    source: dict[int, Row] = {}
    wanted, records, held = Counter[Row](), list[bytes](), list[Row]()
    for kind, key, _, value, _ in steps:
        old, new = source.get(key), (key, value, "big")
        if kind == "truncate":
            records.append(pgoutput.truncate([OID], 0))
            source.clear()
            wanted = Counter() if "truncate" in operations else wanted
        elif kind == "insert" and old is None:
            records.append(pgoutput.insert(OID, _texts(new), 0))
            source[key] = new
            wanted[new] += 1
        elif kind in ("update", "move") and old is not None:
            records.append(pgoutput.update(OID, _texts(new), _texts(old), "O", 0))
            source[key] = new
            if "update" in operations:
                wanted[old] -= 1
                wanted[new] += 1
        elif kind == "delete" and old is not None:
            records.append(pgoutput.delete(OID, _texts(old), "O", 0))
            del source[key]
            wanted[old] -= "delete" in operations
    for some in batches(records, cuts):
        shares, entry = netted(some, followed(operations, KeyMode.BAG, full=True), buckets)
        held = apply_bag(held, shares)
        assert entry.applied + entry.netted + entry.filtered == len(some)
    assert Counter(held) == +wanted


def test_a_moved_row_without_its_large_value_parks_the_table() -> None:
    """The value would have to come from a row that may be an older version of it."""
    move = pgoutput.update(OID, ["2", "a", pgoutput.UNCHANGED], ["1", None, None], "K", 0)
    for operations in SETS:
        (share,) = task([move], [part(followed(operations, KeyMode.KEYED, full=False))]).tables
        if operations == OPERATIONS:
            assert share.fault is None
        else:
            assert share.fault is not None
            assert "REPLICA IDENTITY FULL" in share.fault.detail
