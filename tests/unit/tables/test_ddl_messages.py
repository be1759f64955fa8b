"""What the source's DDL capture tells, and what that means for tables that are followed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import pytest

from engine.model.batch import LogRange, MessageSeen, PlacedMessage, RelationSeen, SealedBatch
from engine.model.ddl import Capture, DdlMessage
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import BatchId, Ordinal, RelationId, TableId, TableName
from engine.model.position import Lsn
from engine.model.schema import Column, KeyMode, ReplicaIdentity, SourceType, TableSchema
from engine.model.source import Resolve
from engine.model.subscription import TableSpec
from engine.tables.ddl_messages import CertifiedSchema
from engine.tables.planner import CatalogSchema, PlannedBatch, Planner
from engine.tables.registry import TableEntry, TableRegistry
from engine.tables.schema_reading import SchemaReading
from engine.tables.state import Live

INT = SourceType("int4", oid=23)
MOOD = SourceType("public.mood", category="e", oid=99)
NAME = TableName("public", "a")
SPEC = TableSpec(TableId("ta"), NAME, NAME)


def schema(*attnums: int, storage: int = 1, edition: int = 1) -> TableSchema:
    columns = tuple(Column(f"c{n}", INT, n, edition=edition) for n in attnums)
    return TableSchema(NAME, RelationId(1), columns, ("c1",), KeyMode.KEYED, ReplicaIdentity.DEFAULT, storage)


A, A_ADDED = schema(1, 2), schema(1, 2, 3)
FILLED = replace(A_ADDED, columns=(*A.columns, replace(A_ADDED.columns[2], fill="5")))
VACUUMED = replace(A_ADDED, relfilenode=2, columns=(*A.columns, replace(A_ADDED.columns[2], edition=2)))


@dataclass(frozen=True)
class Table:
    """A table as a message tells it."""

    structure: TableSchema
    mark: str = "m"

    @property
    def relation(self) -> RelationId:
        return self.structure.relation

    def schema(self, spec: TableSpec) -> TableSchema:
        assert spec == SPEC
        return self.structure


MESSAGES = {
    b"added": DdlMessage("ALTER TABLE", frozenset({7}), Table(FILLED)),
    b"rewritten": DdlMessage("ALTER TABLE", rewritten=frozenset({RelationId(1)}), values=True),
    b"moved": DdlMessage("ALTER TABLE", rewritten=frozenset({RelationId(1)})),
    b"added anew": DdlMessage("ALTER TABLE", table=Table(replace(A_ADDED, relfilenode=2))),
    b"labels": DdlMessage("ALTER TYPE", types=frozenset({99}), labels=("x", "y")),
    b"unknown": DdlMessage("ALTER TABLE", unknown=frozenset({RelationId(1)})),
    b"all unknown": DdlMessage("ALTER TABLE", unknown=None),
}


class Bench:
    """A planner over one live table, with messages that are named."""

    def __init__(self, known: TableSchema = A) -> None:
        self.book = TableRegistry()
        self.book.add(TableEntry(SPEC, Live(), known))
        self.asked: list[Capture | None] = []
        self.unreadable: list[str] = []
        self.planner = Planner(
            self.book,
            SchemaReading(self._resolver, lambda _: NAME, read_message=self._read, unreadable=self.unreadable.append),
            BatchId(1),
        )
        self._end = 100

    @property
    def known(self) -> TableSchema:
        entry = self.book.get(SPEC.table)
        assert entry is not None
        assert entry.schema is not None
        return entry.schema

    def _resolver(self, payloads: Collection[bytes]) -> Resolve:
        def resolve(
            payload: bytes, spec: TableSpec, known: TableSchema | None, capture: Capture | None = None, /
        ) -> TableSchema:
            assert payload in payloads
            assert spec == SPEC
            assert known is not None
            self.asked.append(capture)
            return known

        return resolve

    def _read(self, payload: bytes) -> DdlMessage:
        if payload not in MESSAGES:
            raise EngineFault(FaultKind.LOG_UNREADABLE, "message", "nonsense")
        return MESSAGES[payload]

    def plan(self, *told: bytes | None, aborted: frozenset[int] = frozenset(), void: bool = False) -> PlannedBatch:
        """A batch with these messages, and a relation record for each None."""
        after, self._end = self._end, self._end + 100
        relations: list[RelationSeen] = []
        messages = []
        for ordinal, one in enumerate(told):
            if one is None:
                relations.append(RelationSeen(Ordinal(ordinal), RelationId(1), b"R", void=void))
            else:
                seen = MessageSeen(Ordinal(ordinal), one, aborted)
                messages.append(PlacedMessage(len(relations), seen, Lsn(after + 10 + ordinal)))
        ranges = (LogRange(Ordinal(0), Ordinal(10), Lsn(self._end)),)
        batch = SealedBatch(Lsn(after), Lsn(self._end), 1, ranges, tuple(relations), 0, 0, messages=tuple(messages))
        return self.planner.plan(batch)

    def learn(self, found: TableSchema, since: int | None) -> PlannedBatch:
        self.planner.learn(CatalogSchema(SPEC.table, self.known, found, Lsn(0), None if since is None else Lsn(since)))
        return self.plan()


def versions(planned: PlannedBatch) -> list[TableSchema]:
    part = planned.part(SPEC.table)
    assert part is not None
    return list(part.versions)


def test_a_message_holds_from_its_place_on() -> None:
    bench = Bench()
    planned = bench.plan(None, b"added", None)
    assert versions(planned) == [A, A, FILLED]
    assert planned.restructured == {"ta"}
    assert [one.told_at for one in planned.announced[SPEC.table]] == [None, Lsn(111)]
    assert [one and (one.mark, one.known) for one in bench.asked] == [None, ("m", True)]
    assert versions(bench.plan()) == [FILLED]


def test_without_a_row_behind_it_holds_at_the_batchs_end() -> None:
    planned = Bench().plan(b"added")
    assert versions(planned) == [A, FILLED]
    assert planned.learnt == frozenset()


def test_a_rewrite_tells_whether_values_changed() -> None:
    planned = Bench().plan(b"rewritten", b"added anew")
    assert planned.parked == {"ta": ("table_structure_changed", "column c3 was added and the table rewritten")}
    for harmless in ((b"moved", b"added anew"), (b"added anew",)):
        assert versions(Bench().plan(*harmless))[-1] == replace(A_ADDED, relfilenode=2)


def test_what_older_rows_hold_is_known_on() -> None:
    bench = Bench(FILLED)
    bench.plan(b"added anew")
    assert bench.known == replace(FILLED, relfilenode=2)


def test_a_message_of_a_savepoint_that_was_rolled_back_is_none() -> None:
    assert versions(Bench().plan(b"added", aborted=frozenset({7, 8}))) == [A]
    assert versions(Bench().plan(b"added", aborted=frozenset({8}))) == [A, FILLED]
    bench = Bench()
    bench.plan(b"added")
    bench.plan(None, void=True)
    assert [one and one.void for one in bench.asked] == [True]


def test_new_labels_of_an_enum_reach_its_columns() -> None:
    enum = replace(A, columns=(A.columns[0], replace(A.columns[1], type=MOOD, labels=("x",))))
    bench = Bench(enum)
    bench.plan(b"labels")
    assert [column.labels for column in bench.known.columns] == [(), ("x", "y")]
    plain = Bench()
    plain.plan(b"labels")
    assert plain.known is A


def test_nonsense_is_told_once_and_voids_what_was_vouched_for() -> None:
    bench = Bench()
    bench.plan(b"added", b"nonsense", b"more", None)
    assert bench.unreadable == ["nonsense"]
    assert bench.asked == [None]


@pytest.mark.parametrize("doubt", [b"unknown", b"all unknown", b"nonsense"])
def test_storage_alone_is_no_change_while_all_is_told(doubt: bytes) -> None:
    verdicts = []
    for since, message in ((100, None), (None, None), (100, doubt), (250, doubt)):
        bench = Bench(A_ADDED)
        bench.plan(*([] if message is None else [message]))
        verdicts.append("ta" in bench.learn(VACUUMED, since).parked)
    assert verdicts == [False, True, True, False]


def test_the_catalog_vouches_as_well_unless_it_was_doubted_since() -> None:
    bench = Bench()
    bench.planner.anchor([CertifiedSchema(A, "m", Lsn(100))])
    bench.plan(None)
    bench.plan(b"unknown", None)
    bench.planner.anchor([CertifiedSchema(A, "m", Lsn(150))])
    bench.plan(None)
    bench.planner.anchor([CertifiedSchema(A, "n", Lsn(350))])
    bench.plan(None)
    assert [one and one.mark for one in bench.asked] == ["m", None, None, "n"]
