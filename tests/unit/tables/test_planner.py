"""What a sealed batch becomes for tables that are live, copied, paused or parked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container
from dataclasses import replace

import pytest

from engine.model.batch import LogRange, RelationSeen, SealedBatch
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import BatchId, Ordinal, RelationId, TableId, TableName
from engine.model.position import Lsn
from engine.model.schema import Column, KeyMode, ReplicaIdentity, SourceType, TableSchema
from engine.model.source import Resolve
from engine.model.subscription import SchemaPolicy, TableSpec
from engine.tables.copy_admission import CopyAdmission
from engine.tables.parking import TableParking
from engine.tables.planner import CatalogSchema, PlannedBatch, Planner
from engine.tables.registry import TableChange, TableEntry, TableRegistry
from engine.tables.schema_reading import SchemaReading
from engine.tables.state import (
    AskResume,
    CatchingUp,
    CaughtUp,
    Chunk,
    Copy,
    CopyStarted,
    Live,
    Pause,
    ReadProgress,
    Registered,
    Reload,
)
from tests.fixtures.table_copies import finish_copy

INT = SourceType("int4")


def schema(name: str, relation: int, *attnums: int) -> TableSchema:
    columns = tuple(Column(f"c{n}", INT, n) for n in attnums)
    return TableSchema(
        TableName("public", name), RelationId(relation), columns, ("c1",), KeyMode.KEYED, ReplicaIdentity.DEFAULT
    )


A, B = schema("a", 1, 1, 2), schema("b", 2, 1, 2)
A_ADDED = schema("a", 1, 1, 2, 3)
A_RENAMED = replace(A, columns=(A.columns[0], replace(A.columns[1], name="other")))
A_RETYPED = replace(A, columns=(A.columns[0], replace(A.columns[1], type=SourceType("int8"))))
A_DROPPED = schema("a", 1, 1)
PAYLOADS = {b"A-": A_DROPPED, b"A": A, b"A+": A_ADDED, b"A~": A_RENAMED, b"A!": A_RETYPED, b"B": B}


def spec(name: str) -> TableSpec:
    return TableSpec(TableId(f"t{name}"), TableName("public", name), TableName("public", name))


class Bench:
    """A planner over a book, with relation payloads that name their structure."""

    def __init__(self, *entries: TableEntry, policy: SchemaPolicy = SchemaPolicy.APPLY) -> None:
        self.moves: list[tuple[str, str]] = []
        self.looks: list[list[bytes]] = []
        """Relation records of each reading of the source's catalog."""
        self.known: list[TableSchema | None] = []
        """What each of them was compared with."""
        self.book = TableRegistry()
        self.book.subscribe(self._note_move)
        self.admission, self.parking = CopyAdmission(self.book), TableParking(self.book, policy)
        for entry in entries:
            self.book.add(entry)
        self.planner = Planner(
            self.book, SchemaReading(self._resolver, lambda payload: PAYLOADS[payload].name), BatchId(1), policy
        )
        self.announce = dict(PAYLOADS)
        self.meanwhile: Callable[[], None] = lambda: None
        """What other threads do while the source's catalog is read."""
        self._end = 100
        self._ordinal = 0

    def _note_move(self, change: TableChange) -> None:
        if change.shown:
            self.moves.append((change.entry.table, change.entry.shown.value))

    def _resolver(self, payloads: Collection[bytes]) -> Resolve:
        self.looks.append(sorted(payloads))
        self.meanwhile()

        def resolve(payload: bytes, _: TableSpec, known: TableSchema | None, *__: object) -> TableSchema:
            self.known.append(known)
            return self.announce[payload]

        return resolve

    def plan(self, *relations: bytes, records: int = 10, void: Container[int] = ()) -> PlannedBatch:
        """`void`: places of relation records that are of rolled-back subtransactions."""
        after, self._end = self._end, self._end + 100
        start, self._ordinal = self._ordinal, self._ordinal + records
        seen = tuple(
            RelationSeen(Ordinal(start + i), PAYLOADS[payload].relation, payload, i in void)
            for i, payload in enumerate(relations)
        )
        ranges = (LogRange(Ordinal(start), Ordinal(self._ordinal), Lsn(self._end)),) if records else ()
        return self.planner.plan(SealedBatch(Lsn(after), Lsn(self._end), int(records > 0), ranges, seen, 0, 0))


def live(name: str, structure: TableSchema) -> TableEntry:
    return TableEntry(spec(name), Live(), structure)


def versions(planned: PlannedBatch, name: str) -> list[TableSchema]:
    part = planned.part(TableId(f"t{name}"))
    assert part is not None
    return list(part.versions)


def test_live_tables_take_part_from_the_batch_before() -> None:
    planned = Bench(live("a", A), live("b", B)).plan(b"A")
    assert versions(planned, "a") == [A, A]
    assert versions(planned, "b") == [B]
    assert {part.after for part in planned.parts} == {Lsn(100)}
    assert planned.restructured == frozenset()


def test_an_added_column_restructures_and_stays() -> None:
    bench = Bench(live("a", A))
    assert bench.plan(b"A+").restructured == {"ta"}
    assert versions(bench.plan(), "a") == [A_ADDED]


def test_records_that_repeat_are_looked_up_once_and_all_counted() -> None:
    bench = Bench(live("a", A), live("b", B))
    planned = bench.plan(*[b"A", b"B"] * 1000, b"A+", b"A+", b"B")
    assert bench.looks == [[b"A", b"A+", b"B"]]
    assert versions(planned, "a") == [A] * 1001 + [A_ADDED] * 2
    assert versions(planned, "b") == [B] * 1002
    assert planned.restructured == {"ta"}


def test_a_structure_that_comes_back_means_what_it_meant_at_first() -> None:
    """As with a transaction that announced its tables before another one's change of them, and commits after it."""
    bench = Bench(live("a", A))
    planned = bench.plan(b"A", b"A", b"A+", b"A", b"A+", b"A+")
    assert versions(planned, "a") == [A, A, A, A_ADDED, A, A_ADDED, A_ADDED]


def test_records_of_tables_that_nobody_follows_are_not_looked_up() -> None:
    bench = Bench(live("b", B))
    assert versions(bench.plan(b"A", b"A"), "b") == [B]
    assert bench.looks == []


@pytest.mark.parametrize("rolled_back", [b"A-", b"A+", b"A~", b"A!"])
@pytest.mark.parametrize("policy", list(SchemaPolicy))
def test_what_was_rolled_back_changes_no_structure(rolled_back: bytes, policy: SchemaPolicy) -> None:
    bench = Bench(live("a", A), policy=policy)
    planned = bench.plan(b"A", rolled_back, b"A", rolled_back, void={1, 3})
    void = replace(A, void=True)
    assert versions(planned, "a") == [A, A, void, A, void, A]
    assert (planned.restructured, planned.announced, planned.parked) == (frozenset(), {}, {})
    entry = bench.book.get(TableId("ta"))
    assert entry is not None
    assert entry.schema is A
    assert versions(bench.plan(b"A"), "a") == [A, A]


def test_a_rolled_back_record_of_the_known_structure_counts_for_the_rows_behind_it() -> None:
    """The source announces a structure once, be it in a part of the transaction that is rolled back."""
    assert versions(Bench(live("a", A)).plan(b"A", void={0}), "a") == [A, A]


def test_a_rolled_back_structure_that_cannot_be_read_any_more_parks_nothing() -> None:
    bench = Bench(live("a", A))

    def raise_changed(*_: object) -> TableSchema:
        raise EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, "a", "column c2 has changed again since")

    bench.planner._resolver = lambda _: raise_changed
    planned = bench.plan(b"A-", void={0})
    assert planned.parked == {}
    assert versions(planned, "a") == [A, replace(A, void=True), A]


def test_what_the_catalog_shows_counts_beside_a_rolled_back_record() -> None:
    bench = Bench(live("a", A))
    bench.planner.learn(CatalogSchema(TableId("ta"), A, A_ADDED, Lsn(150)))
    planned = bench.plan(b"A-", void={0})
    assert versions(planned, "a") == [A, replace(A, void=True), A, A_ADDED]
    assert planned.learnt == {"ta"}


def test_what_was_rolled_back_behind_a_copy_is_not_the_copys() -> None:
    chunk = Chunk(1, A, Lsn(100), None, first=True, progress=ReadProgress.READ)
    copied = CatchingUp(Lsn(100), Copy(A, Lsn(100), chunk=chunk), BatchId(1))
    bench = Bench(TableEntry(spec("a"), copied, A))
    planned = bench.plan(b"A-", b"A", b"A-", void={0, 2})
    assert planned.handover == {"ta"}
    void = replace(A, void=True)
    assert versions(planned, "a") == [A, void, A, void, A]
    entry = bench.book.get(TableId("ta"))
    assert entry is not None
    assert entry.schema == A


def test_a_renamed_column_is_followed() -> None:
    planned = Bench(live("a", A)).plan(b"A~")
    assert planned.restructured == {"ta"}
    assert versions(planned, "a") == [A, A_RENAMED]
    assert planned.announced == {"ta": (A, A_RENAMED)}


def test_another_type_parks_only_its_table() -> None:
    planned = Bench(live("a", A), live("b", B)).plan(b"A!", b"B")
    reason = "column c2 changed its type, and its existing values with it"
    assert planned.parked == {"ta": ("table_structure_changed", reason)}
    assert planned.part(TableId("ta")) is None
    assert planned.announced == {}
    assert versions(planned, "b") == [B, B]


def test_what_the_catalog_told_holds_at_the_end_of_the_first_batch_behind_it() -> None:
    bench = Bench(live("a", A))
    bench.planner.learn(CatalogSchema(TableId("ta"), A, A_ADDED, Lsn(201)))
    assert versions(bench.plan(), "a") == [A]
    planned = bench.plan()
    assert versions(planned, "a") == [A, A_ADDED]
    assert (planned.restructured, planned.learnt) == ({"ta"}, {"ta"})
    assert planned.announced == {"ta": (A, A_ADDED)}
    assert versions(bench.plan(), "a") == [A_ADDED]


def test_the_logs_own_word_is_better_than_the_catalogs() -> None:
    bench = Bench(live("a", A))
    bench.planner.learn(CatalogSchema(TableId("ta"), A, A_RENAMED, Lsn(150)))
    assert versions(bench.plan(b"A+"), "a") == [A, A_ADDED]
    assert versions(bench.plan(), "a") == [A_ADDED]


def test_what_the_catalog_told_of_another_structure_is_passed_over() -> None:
    bench = Bench(live("a", A))
    bench.plan(b"A+")
    bench.planner.learn(CatalogSchema(TableId("ta"), A, A_RENAMED, Lsn(150)))
    assert versions(bench.plan(), "a") == [A_ADDED]


def test_a_type_that_only_the_catalog_tells_of_parks() -> None:
    bench = Bench(live("a", A))
    bench.planner.learn(CatalogSchema(TableId("ta"), A, A_RETYPED, Lsn(150)))
    assert bench.plan().parked.keys() == {"ta"}


def test_a_column_that_came_with_rows_written_anew_needs_a_new_copy() -> None:
    before, after = replace(A, relfilenode=5), replace(A_ADDED, relfilenode=6)
    bench = Bench(live("a", before))
    bench.planner.learn(CatalogSchema(TableId("ta"), before, after, Lsn(150)))
    assert bench.plan().parked.keys() == {"ta"}
    known = replace(after, columns=(*A.columns, replace(A_ADDED.columns[2], fill="1")))
    bench = Bench(live("a", before))
    bench.planner.learn(CatalogSchema(TableId("ta"), before, known, Lsn(150)))
    assert versions(bench.plan(), "a") == [before, known]


def test_a_target_that_ignores_changes_keeps_its_structure() -> None:
    bench = Bench(live("a", A), policy=SchemaPolicy.IGNORE)
    planned = bench.plan(b"A+")
    assert versions(planned, "a") == [A, A_ADDED, A]
    planned = bench.plan(b"A~")
    assert versions(planned, "a") == [A_ADDED, A_RENAMED, A]
    assert bench.plan(b"A!").parked.keys() == {"ta"}


def test_a_copied_table_gets_the_kept_batches() -> None:
    bench = Bench(live("b", B), TableEntry(spec("a"), Registered()))
    bench.book.apply(TableId("ta"), CopyStarted(bench.planner.next_number))
    first = bench.plan(b"A")
    assert first.part(TableId("ta")) is None
    bench.admission.begin_chunk(TableId("ta"), A, Lsn(250), None)
    bench.plan(b"A+")
    assert bench.planner.oldest_kept == 0
    finish_copy(bench.book, TableId("ta"))
    planned = bench.plan()
    part = planned.part(TableId("ta"))
    assert planned.handover == {"ta"}
    assert part is not None
    assert part.after == Lsn(250)
    assert list(part.versions) == [A, A_ADDED]
    assert planned.missed is not None
    assert [int(r.start) for r in planned.missed.ranges] == [10, 20]
    assert [int(r.start) for r in planned.ranges] == [20]
    assert versions(planned, "b") == [B]


def test_a_copy_that_is_ahead_of_the_log_waits() -> None:
    bench = Bench(TableEntry(spec("a"), Registered()))
    bench.book.apply(TableId("ta"), CopyStarted(bench.planner.next_number))
    bench.admission.begin_chunk(TableId("ta"), A, Lsn(250), None)
    finish_copy(bench.book, TableId("ta"))
    assert bench.plan().handover == frozenset()
    assert bench.plan().handover == {"ta"}


def test_structures_before_the_copy_count_as_the_copys_own() -> None:
    bench = Bench(TableEntry(spec("a"), Registered()))
    bench.book.apply(TableId("ta"), CopyStarted(bench.planner.next_number))
    bench.plan(b"A")
    bench.admission.begin_chunk(TableId("ta"), A_ADDED, Lsn(300), None)
    finish_copy(bench.book, TableId("ta"))
    planned = bench.plan()
    assert versions(planned, "a")[-1] == A_ADDED
    assert planned.parked == {}


def test_what_a_record_tells_late_does_not_hide_that_rows_were_written_anew() -> None:
    """It names the columns of the copy, but the catalog that completed it was of a later time."""
    copied = replace(A, relfilenode=100)
    bench = Bench(TableEntry(spec("a"), Registered()))
    bench.book.apply(TableId("ta"), CopyStarted(bench.planner.next_number))
    bench.admission.begin_chunk(TableId("ta"), copied, Lsn(150), None)
    bench.announce[b"A"] = replace(A, relfilenode=200, inferred=True)
    bench.plan(b"A")
    finish_copy(bench.book, TableId("ta"))
    planned = bench.plan()
    assert planned.handover == {"ta"}
    entry = bench.book.get(TableId("ta"))
    assert entry is not None
    assert entry.schema == copied


def test_a_column_that_came_behind_the_copy_with_values_of_its_own_parks_at_the_hand_over() -> None:
    bench = Bench(TableEntry(spec("a"), Registered()))
    bench.book.apply(TableId("ta"), CopyStarted(bench.planner.next_number))
    bench.admission.begin_chunk(TableId("ta"), replace(A, relfilenode=100), Lsn(150), None)
    bench.announce[b"A+"] = replace(A_ADDED, relfilenode=200)
    bench.plan(b"A+")
    finish_copy(bench.book, TableId("ta"))
    assert bench.plan().parked["ta"][0] == "table_structure_changed"  # type: ignore[index]


def test_structures_that_a_table_had_before_its_copy_are_not_looked_at_again_for_another_table() -> None:
    """What is kept for one that is paused goes back to before the other was copied with another type."""
    bench = Bench(live("a", A), live("b", B))
    bench.book.apply(TableId("tb"), Pause(bench.planner.next_number, Lsn(100), taken_in=False))
    bench.plan(b"A", b"B")
    bench.book.amend(TableId("ta"), schema=A_RETYPED)
    bench.book.apply(TableId("tb"), AskResume())
    planned = bench.plan()
    assert len(planned.ranges) == 2
    assert versions(planned, "a") == [A_RETYPED, A_RETYPED]
    assert versions(planned, "b")[-1] == B


def test_records_before_a_copy_are_met_whatever_was_known_of_the_table_then() -> None:
    """They lie in what is kept for another table; the scan counts them, so the structures must be as many."""
    bench = Bench(TableEntry(spec("b"), Registered()))
    bench.book.apply(TableId("tb"), CopyStarted(bench.planner.next_number))
    bench.admission.begin_chunk(TableId("tb"), B, Lsn(100), None)
    bench.plan(b"A", b"A")
    bench.book.add(TableEntry(spec("a"), Registered()))
    bench.announce[b"A"] = replace(A, relation=RelationId(9))
    bench.plan(b"A")
    bench.announce[b"A"] = A
    bench.book.apply(TableId("ta"), CopyStarted(bench.planner.next_number))
    bench.admission.begin_chunk(TableId("ta"), A, Lsn(300), None)
    finish_copy(bench.book, TableId("ta"))
    finish_copy(bench.book, TableId("tb"))
    planned = bench.plan(b"A+")
    assert planned.missed is not None
    assert len(planned.missed.ranges) == 3
    assert versions(planned, "a") == [A, A, A, A, A_ADDED]
    assert versions(bench.plan(b"A"), "a") == [A_ADDED, A]


def test_another_type_behind_the_copy_parks_at_the_hand_over() -> None:
    bench = Bench(TableEntry(spec("a"), Registered()))
    bench.book.apply(TableId("ta"), CopyStarted(bench.planner.next_number))
    bench.admission.begin_chunk(TableId("ta"), A, Lsn(150), None)
    bench.plan(b"A!")
    finish_copy(bench.book, TableId("ta"))
    planned = bench.plan()
    assert planned.handover == frozenset()
    assert "ta" in planned.parked


def test_a_paused_table_gets_what_was_kept_when_it_resumes() -> None:
    bench = Bench(live("a", A), live("b", B))
    bench.book.apply(TableId("ta"), Pause(bench.planner.next_number, Lsn(100), taken_in=False))
    assert bench.plan().part(TableId("ta")) is None
    bench.book.apply(TableId("ta"), AskResume())
    planned = bench.plan()
    part = planned.part(TableId("ta"))
    assert planned.resumed == {"ta"}
    assert part is not None
    assert part.after == Lsn(100)
    assert len(planned.ranges) == 2


def test_a_structure_that_comes_with_the_batch_that_takes_a_table_in_again_is_the_last_one() -> None:
    bench = Bench(live("a", A))
    bench.book.apply(TableId("ta"), Pause(bench.planner.next_number, Lsn(100), taken_in=False))
    bench.plan(b"A")
    bench.book.apply(TableId("ta"), AskResume())
    assert versions(bench.plan(b"A+"), "a")[-1] == A_ADDED


def test_a_table_parked_while_its_structures_are_looked_at_has_no_part() -> None:
    bench = Bench(live("a", A), live("b", B))
    bench.meanwhile = lambda: bench.parking.park(TableId("ta"), "table_missing", "the guard saw it")
    planned = bench.plan(b"B", b"A+")
    assert planned.part(TableId("ta")) is None
    assert planned.part(TableId("tb")) is not None


def test_kept_batches_go_when_nobody_needs_them() -> None:
    bench = Bench(live("a", A))
    bench.book.apply(TableId("ta"), Pause(bench.planner.next_number, Lsn(100), taken_in=False))
    bench.plan()
    bench.parking.park(TableId("ta"), "deferred_over_budget", "over budget")
    bench.plan()
    assert bench.planner.oldest_kept is None


def test_relation_records_of_strangers_are_passed_over() -> None:
    assert versions(Bench(live("a", A)).plan(b"B"), "a") == [A]


@pytest.mark.parametrize("policy", SchemaPolicy)
def test_a_record_behind_a_hand_over_that_is_not_committed_yet_is_compared_with_the_copy(policy: SchemaPolicy) -> None:
    """Otherwise the storage in the catalog, which is later than the record, would hide that rows were rewritten."""
    bench = Bench(TableEntry(spec("a"), Registered()), policy=policy)
    bench.book.apply(TableId("ta"), CopyStarted(bench.planner.next_number))
    bench.admission.begin_chunk(TableId("ta"), A, Lsn(150), None)
    finish_copy(bench.book, TableId("ta"))
    assert bench.plan().handover == {"ta"}
    planned = bench.plan(b"A+")
    assert (bench.known, planned.parked) == ([A], {})
    assert bench.plan(b"A!").parked.keys() == {"ta"}


def test_a_hand_over_is_planned_once_even_before_it_is_committed() -> None:
    bench = Bench(TableEntry(spec("a"), Registered()))
    bench.book.apply(TableId("ta"), CopyStarted(bench.planner.next_number))
    bench.admission.begin_chunk(TableId("ta"), A, Lsn(150), None)
    finish_copy(bench.book, TableId("ta"))
    assert bench.plan().handover == {"ta"}
    second = bench.plan()
    part = second.part(TableId("ta"))
    assert second.handover == frozenset()
    assert part is not None
    assert part.after == Lsn(200)
    bench.book.apply(TableId("ta"), CaughtUp())
    assert bench.plan().part(TableId("ta")) is not None
    bench.book.apply(TableId("ta"), Reload(bench.planner.next_number))
    assert bench.plan().part(TableId("ta")) is None


def test_a_resumed_table_is_caught_up_once() -> None:
    bench = Bench(live("a", A))
    bench.book.apply(TableId("ta"), Pause(bench.planner.next_number, Lsn(100), taken_in=False))
    bench.plan()
    bench.book.apply(TableId("ta"), AskResume())
    assert bench.plan().resumed == {"ta"}
    second = bench.plan()
    assert second.resumed == frozenset()
    assert second.part(TableId("ta")) is not None
