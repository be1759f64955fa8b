"""What every source must do, whatever database it is. A new source is a factory and one line in SOURCES."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from engine.model.absent_capabilities import LogAnnouncesAll
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TicketId
from engine.model.last_commit import LastCommit
from engine.model.masks import Mask, MaskMethod
from engine.model.position import Lsn
from engine.model.schema import KeyMode
from engine.model.source import Severity, Source
from engine.model.subscription import OriginFilter, TableSpec
from engine.net import decode_copy_text
from engine.records.relation import parse_relation, relation_record
from engine.sort.committed import StreamedTransaction
from tests.contract.source_adbc import AdbcPostgresOrigin, AdbcSqliteOrigin
from tests.contract.source_duckdb import duckdb_file
from tests.contract.source_files import files
from tests.contract.source_mariadb import MariaDbOrigin, MariaDbQueriesOrigin, StampedQueriesOrigin, mariadb
from tests.contract.source_material import (
    APPLICATION,
    DEADLINE_S,
    Can,
    Origin,
    Tail,
    Writer,
    copied,
    described,
    ends,
    needs,
    rows_of,
    run,
)
from tests.contract.source_odbc import odbc
from tests.contract.source_postgres import (
    HashedQueriesOrigin,
    JoinedQueriesOrigin,
    PostgresOrigin,
    QueriesOrigin,
    TriggersOrigin,
    partitioned,
    postgres,
)
from tests.contract.source_rows import rows_source
from tests.contract.source_sqlite import SqliteQueriesOrigin, sqlite
from tests.contract.source_stamps import SqliteStampsOrigin
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.pg

Factory = Callable[[Callable[[str], Any], ExitStack, bool], Origin]
SOURCES: dict[str, Factory] = {
    "adbc_queries-postgres": postgres(18, AdbcPostgresOrigin),
    "adbc_queries-sqlite": sqlite("wal", AdbcSqliteOrigin),
    "duckdb_queries": duckdb_file,
    "files_queries": files("parquet"),
    "files_queries-csv": files("csv"),
    "mariadb_queries": mariadb(MariaDbQueriesOrigin),
    "mariadb_queries-stamped": mariadb(StampedQueriesOrigin),
    "mariadb_triggers": mariadb(MariaDbOrigin),
    "odbc_queries-postgres": odbc(18),
    "partitioned-16": partitioned(16),
    "partitioned-18": partitioned(18),
    "postgres_log-16": postgres(16, PostgresOrigin),
    "postgres_log-18": postgres(18, PostgresOrigin),
    "postgres_queries-16": postgres(16, QueriesOrigin),
    "postgres_queries-18": postgres(18, HashedQueriesOrigin),
    "postgres_queries-18-joined": postgres(18, JoinedQueriesOrigin),
    "postgres_triggers-16": postgres(16, TriggersOrigin),
    "postgres_triggers-18": postgres(18, TriggersOrigin),
    "rows": rows_source,
    "sqlite_queries": sqlite("wal", SqliteQueriesOrigin),
    "sqlite_queries-journal": sqlite("delete", SqliteQueriesOrigin),
    "sqlite_queries-stamps": sqlite("wal", SqliteStampsOrigin),
    "sqlite_triggers": sqlite("wal"),
    "sqlite_triggers-journal": sqlite("delete"),
}
NOTES = "CREATE TABLE notes (id bigint PRIMARY KEY, v varchar(100))"


SELDOM = frozenset({"postgres_queries-16", "sqlite_queries-journal"})
"""Variants whose difference the others have."""


@pytest.fixture(
    params=[pytest.param(name, marks=pytest.mark.chaos) if name in SELDOM else name for name in sorted(SOURCES)]
)
def make(request: pytest.FixtureRequest) -> Iterator[Callable[..., Origin]]:
    with ExitStack() as stack:
        yield lambda *, own=False: SOURCES[request.param](request.getfixturevalue, stack, own)


@pytest.fixture
def origin(make: Callable[..., Origin]) -> Origin:
    return make()


@pytest.fixture
def tail(origin: Origin) -> Iterator[Tail]:
    """A stream of the table `notes`, from an empty table on."""
    run(origin, NOTES)
    with followed(origin, [origin.table("notes")]) as tail:
        yield tail


@contextmanager
def followed(origin: Origin, tables: list[TableSpec]) -> Iterator[Tail]:
    """Tables prepared, a reader created after their present state, and its stream open."""
    origin.source.sent_tables.prepare(tables, origin.slot)
    with origin.source.reader.create(origin.slot) as snapshot:
        start = snapshot.position
    tail = opened(origin, start)
    try:
        yield tail
    finally:
        tail.stream.close()


def opened(origin: Origin, start: Lsn, last: LastCommit | None = None) -> Tail:
    return Tail(origin.source.log.open_stream(origin.slot, start, APPLICATION, last=last), origin.scanner, start)


def ids(origin: Origin, tail: Tail, until: Lsn | None = None) -> list[int]:
    """Keys of the rows of `notes` that the log has inserted, in ascending order."""
    return sorted(row[0] for row in rows_of(tail.changes(described(origin, "notes"), until).inserts))


def fault_of(call: Callable[[], object]) -> FaultKind:
    with pytest.raises(EngineFault) as caught:
        call()
    return caught.value.kind


# Who and what it is


def test_the_source_is_the_same_one_whoever_asks(origin: Origin) -> None:
    first = origin.source.identify()
    run(origin, NOTES)
    origin.source.log.now()
    assert first == origin.source.identify() == origin.open().identify()
    assert first.system_id


def test_what_is_discovered_is_described_alike(origin: Origin) -> None:
    run(
        origin,
        NOTES,
        "CREATE TABLE order_lines (order_id bigint, n integer, price numeric(10, 2), PRIMARY KEY (n, order_id))",
        "CREATE TABLE keyless (a integer)",
    )
    found = {table.name: table for table in origin.source.discover()}
    specs = {name: origin.table(name) for name in ("notes", "order_lines", "keyless", "missing")}
    structures = origin.source.describe(list(specs.values()))
    assert found.keys() == {specs[name].source for name in ("notes", "order_lines", "keyless")}
    assert structures.keys() == {
        name for name, table in found.items() if not any(p.severity is Severity.ERROR for p in table.problems)
    }
    for name, schema in structures.items():
        assert schema.name == name
        selection = specs[name.name].selection
        assert [c.name for c in schema.columns] == [
            c["name"] for c in found[name].columns if selection.takes(c["name"])
        ]
        # A source whose log has whole old rows follows tables without a key too.
        assert (schema.key, schema.mode) == (found[name].key, KeyMode.KEYED if found[name].key else KeyMode.BAG)
        assert len({c.attnum for c in schema.columns}) == len(schema.columns)
    assert structures[specs["order_lines"].source].key == ("n", "order_id")
    if Can.EVERY_CHANGE in origin.can:
        assert described(origin, "keyless", insert_only=True).mode is KeyMode.APPEND
    else:
        assert origin.source.describe([origin.table("keyless", insert_only=True)]) == {}


def test_preflight_and_description_agree_on_what_can_be_followed(origin: Origin) -> None:
    run(origin, NOTES, "CREATE TABLE keyless (a integer)")
    bare = origin.source.describe([origin.table("keyless")]).values()
    keyless = None if [schema.mode for schema in bare] == [KeyMode.BAG] else "table_no_identity"
    for name, code in (("notes", None), ("keyless", keyless), ("missing", "table_missing")):
        spec = origin.table(name)
        errors = [f for f in origin.source.preflight([spec], origin.slot) if f.severity is Severity.ERROR]
        assert [f.code for f in errors] == ([] if code is None else [code])
        assert all(f.what and f.remedy for f in errors)
        assert (spec.source in origin.source.describe([spec])) is (code is None)


@pytest.mark.parametrize("operations", [{"insert"}, {"insert", "update"}, {"insert", "delete", "truncate"}])
def test_operations_that_are_not_followed_are_left_out(origin: Origin, operations: set[str]) -> None:
    """A change of a key is a delete and an insert, whatever the source makes of it."""
    run(origin, NOTES, "INSERT INTO notes VALUES (1, 'one'), (2, 'two'), (3, 'three')")
    options = {"operations": frozenset(operations)}
    with followed(origin, [origin.table("notes", **options)]) as tail:
        run(
            origin,
            "UPDATE notes SET v = 'new' WHERE id = 1",
            "DELETE FROM notes WHERE id = 2",
            "UPDATE notes SET id = 7 WHERE id = 3",
            "INSERT INTO notes VALUES (9, 'nine')",
        )
        tail.past(origin.source.log.now())
        found = tail.changes(described(origin, "notes", **options))
    gone = {(1,): "update", (2,): "delete", (3,): "delete"}
    written = {(1, "new"): "update", (7, "three"): "insert", (9, "nine"): "insert"}
    assert found.partials is None
    assert set(rows_of(found.deletes)) == {row for row, operation in gone.items() if operation in operations}
    assert set(rows_of(found.inserts)) == {row for row, operation in written.items() if operation in operations}


def test_preparing_again_changes_nothing_and_more_tables_join(origin: Origin) -> None:
    needs(origin, Can.PUBLISH)
    run(origin, NOTES, "CREATE TABLE more (id bigint PRIMARY KEY)")
    notes, more = origin.table("notes"), origin.table("more")
    source, slot = origin.source, origin.slot
    assert source.sent_tables.unpublished([notes], slot)
    for _ in range(2):
        source.sent_tables.prepare([notes], slot)
        assert source.sent_tables.unpublished([notes], slot) == ()
    assert source.sent_tables.unpublished([notes, more], slot)
    source.sent_tables.prepare([notes, more], slot)
    origin.open().sent_tables.prepare([notes, more], slot)
    assert source.sent_tables.unpublished([notes, more], slot) == ()
    run(origin, "INSERT INTO notes VALUES (1, 'the application goes on')")


def test_a_table_that_was_made_again_since_it_was_described_is_not_unpublished(origin: Origin) -> None:
    needs(origin, Can.PUBLISH)
    run(origin, NOTES)
    notes = origin.table("notes")
    source, slot = origin.source, origin.slot
    source.sent_tables.prepare([notes], slot)
    relations = {notes.source: source.describe([notes])[notes.source].relation}
    assert source.sent_tables.unpublished([notes], slot, relations) == ()
    run(origin, "DROP TABLE notes", NOTES)
    assert source.sent_tables.unpublished([notes], slot, relations) == ()
    assert source.sent_tables.unpublished([notes], slot)


def test_a_healthy_slot_and_what_is_left_when_it_goes(origin: Origin) -> None:
    run(origin, NOTES)
    source, slot, tables = origin.source, origin.slot, [origin.table("notes")]
    assert not source.reader.status(slot).exists
    with followed(origin, tables):
        # The server's own work has short transactions too.
        wait_until(lambda: source.safety.check_reader(slot).oldest_open is None, what="no open transaction")
        reading = source.safety.check(tables, slot)
        assert (reading.sending_faults, dict(reading.partition_faults)) == ((), {})
        assert (reading.reader.exists, reading.reader.lost) == (True, None)
        assert reading.reader.active_pid is not None
        assert reading.reader.confirmed is not None or Can.BEGIN_ANYWHERE not in origin.can
        if Can.SEE_WRITERS in origin.can:
            with origin.session() as session:
                session.execute("INSERT INTO notes VALUES (1, 'open')")
                assert source.safety.check(tables, slot).oldest_open
                session.rollback()
    assert source.reader.remove(slot) == []
    assert not source.reader.status(slot).exists
    assert source.reader.remove(slot) == []


# Snapshots and copies


def test_a_slots_snapshot_and_its_stream_leave_no_gap_and_no_overlap(origin: Origin) -> None:
    needs(origin, Can.SNAPSHOT_ALONE)
    tables = Writer.tables(origin)
    source = origin.source
    structures = source.describe(tables)
    source.sent_tables.prepare(tables, origin.slot)
    with Writer(origin) as writer:
        with source.reader.create(origin.slot) as snapshot:
            writer.more(5)
            first = {t.source: copied(source, structures[t.source], t, snapshot.name) for t in tables}
            start = snapshot.position
        tail = opened(origin, start)
        writer.more(10)
        # A cut while the writer continues: the state at its position is the first one with the changes up to there.
        with source.copies.snapshot(DEADLINE_S) as cut:
            writer.more(5)
            then = {t.source: copied(source, structures[t.source], t, cut.name) for t in tables}
        assert cut.position > start
    with source.copies.snapshot(DEADLINE_S) as end:
        last = {t.source: copied(source, structures[t.source], t, end.name) for t in tables}
    tail.past(source.log.now())
    tail.stream.close()
    history = tables[1].source
    assert len(last[history]) == writer.committed > len(then[history]) > len(first[history]) > 0
    for table in tables:
        name, schema = table.source, structures[table.source]
        assert tail.applied(schema, first[name], cut.position) == then[name]
        assert tail.applied(schema, first[name]) == last[name]
    written = tail.changes(structures[history]).counts
    assert written == {"insert": len(last[history]) - len(first[history])}
    assert ends(tail.closed) == sorted(set(ends(tail.closed)))


def test_parts_of_a_table_hold_every_row_once_while_it_changes(origin: Origin) -> None:
    needs(origin, Can.SNAPSHOT_ALONE)
    table, _ = Writer.tables(origin)
    source, schema = origin.source, described(origin, "moving")
    with Writer(origin) as writer, source.copies.snapshot(DEADLINE_S) as snapshot:
        whole = copied(source, schema, table, snapshot.name, 1 << 30)
        for size in (8 * 1024, 24 * 1024):
            writer.more(8)
            assert len(source.copies.splits(schema, table, size)) > 2
            assert copied(source, schema, table, snapshot.name, size) == whole
    assert whole.keys() >= set(range(1, Writer.ROWS + 1))


def test_parts_of_keys_hold_their_rows(origin: Origin) -> None:
    needs(origin, Can.SNAPSHOT_ALONE)
    table, _ = Writer.tables(origin)
    source, schema = origin.source, described(origin, "moving")
    with Writer(origin) as writer, source.copies.snapshot(DEADLINE_S) as snapshot:
        whole = copied(source, schema, table, snapshot.name, 1 << 30)
        writer.more(8)
        keys = [("3",), ("5",), (str(Writer.ROWS),), ("999999999",)]
        parts = source.copies.key_splits(schema, table, keys)
        text = b"".join(piece for part in parts for piece in source.copies.read_split(part, snapshot.name))
    rows = {row[0]: row for row in rows_of(decode_copy_text(text, schema))}
    found = {key: row for key, row in rows.items() if (str(key),) in keys}
    assert found == {key: row for key, row in whole.items() if (str(key),) in keys}
    assert len(found) == 3


def test_a_copy_whose_snapshot_is_over_is_lost(origin: Origin) -> None:
    needs(origin, Can.SNAPSHOT_ALONE)
    run(origin, NOTES, "INSERT INTO notes VALUES (1, 'x')")
    schema, table = described(origin, "notes"), origin.table("notes")
    with origin.source.copies.snapshot(DEADLINE_S) as snapshot:
        (chunk,) = origin.source.copies.splits(schema, table, 1 << 20)
    run(origin, "UPDATE notes SET v = 'y'")
    # The source may need a moment to let it go; until then it is still the same snapshot.
    deadline = time.monotonic() + DEADLINE_S

    def read_on() -> None:
        while time.monotonic() < deadline:
            assert b"".join(origin.source.copies.read_split(chunk, snapshot.name)) == b"1\tx\n"

    assert fault_of(read_on) is FaultKind.COPY_LOST


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ("ALTER TABLE notes DROP COLUMN v", FaultKind.TABLE_STRUCTURE_CHANGED),
        ("DROP TABLE notes", FaultKind.TABLE_MISSING),
    ],
    ids=["column", "table"],
)
def test_a_part_of_what_is_gone_cannot_be_read(origin: Origin, change: str, kind: FaultKind) -> None:
    needs(origin, Can.SNAPSHOT_ALONE)
    run(origin, NOTES, "INSERT INTO notes VALUES (1, 'x')")
    (chunk,) = origin.source.copies.splits(described(origin, "notes"), origin.table("notes"), 1 << 20)
    run(origin, change)
    with origin.source.copies.snapshot(DEADLINE_S) as snapshot:
        assert fault_of(lambda: list(origin.source.copies.read_split(chunk, snapshot.name))) is kind


def test_a_table_that_is_gone_is_missing(origin: Origin) -> None:
    run(origin, NOTES)
    source, schema, table = origin.source, described(origin, "notes"), origin.table("notes")
    run(origin, "DROP TABLE notes")
    assert fault_of(lambda: source.copies.splits(schema, table, 1 << 20)) is FaultKind.TABLE_MISSING
    assert source.describe([table]) == {}


def test_a_table_that_goes_away_is_reported_by_one_check(origin: Origin) -> None:
    """As long as checks find something, no position counts as "now", and a wait for it does not end."""
    if isinstance(origin.source.safety, LogAnnouncesAll):
        pytest.skip("not this source: its log says that a table was dropped")
    run(origin, NOTES)
    source, slot, tables = origin.source, origin.slot, [origin.table("notes")]
    with source.reader.create(slot):
        source.sent_tables.prepare(tables, slot)
    assert source.safety.check(tables, slot).partition_faults == {}
    run(origin, "DROP TABLE notes")
    assert set(source.safety.check(tables, slot).partition_faults) == {tables[0].source}
    assert source.safety.check(tables, slot).partition_faults == {}
    run(origin, NOTES)
    source.safety.check(tables, slot)  # Another table of the name may be a change, too.
    assert source.safety.check(tables, slot).partition_faults == {}


# Positions


def test_now_is_behind_every_acknowledged_commit_and_is_reached(origin: Origin, tail: Tail) -> None:
    before = Lsn(0)
    for number in range(1, 6):
        run(origin, f"INSERT INTO notes VALUES ({number}, 'x')")
        now = origin.source.log.now()
        assert now > before
        assert ids(origin, tail.past(now), now) == list(range(1, number + 1))
        before = now


def test_now_is_reached_on_an_idle_source(origin: Origin, tail: Tail) -> None:
    for _ in range(3):
        now = origin.source.log.now()
        tail.past(now)
        assert origin.source.log.current() >= now
    assert tail.closed == [] or ids(origin, tail) == []


def test_the_position_moves_with_traffic_of_others(origin: Origin, tail: Tail) -> None:
    needs(origin, Can.SEE_OTHERS)
    run(origin, "CREATE TABLE elsewhere (id bigint PRIMARY KEY)")
    before = origin.source.log.now()
    run(origin, "INSERT INTO elsewhere VALUES " + ", ".join(f"({i})" for i in range(3000)))
    end = origin.source.log.current()
    assert end > before
    tail.past(end)
    assert ids(origin, tail) == []


# Tickets


def test_a_ticket_is_in_the_log_after_everything_that_was_committed_before_it(origin: Origin, tail: Tail) -> None:
    needs(origin, Can.TAKE_TICKETS)
    run(origin, "INSERT INTO notes VALUES (1, 'before')")
    begun = time.time_ns() // 1000
    written = [origin.source.tickets.write(TicketId(each)) for each in ("tk1", "tk2")]
    run(origin, "INSERT INTO notes VALUES (2, 'after')")
    tail.past(origin.source.log.now())
    first, second = tail.tickets
    assert [first.ticket, second.ticket] == ["tk1", "tk2"]
    assert first.position <= second.position
    assert ids(origin, tail, until=first.position) in ([1], [1, 2])
    assert begun <= first.written_us <= second.written_us <= time.time_ns() // 1000
    for marker, known in zip((first, second), written, strict=True):
        if known is not None:
            assert (marker.written_us, marker.position <= known.until) == (known.at_us, True)


def test_a_ticket_that_the_log_cannot_take_is_refused(origin: Origin) -> None:
    if Can.TAKE_TICKETS in origin.can:
        pytest.skip(f"not this source: {Can.TAKE_TICKETS.value}")
    assert fault_of(lambda: origin.source.tickets.write(TicketId("tk1"))) is FaultKind.SOURCE_PRIVILEGE


# The stream


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
def test_only_what_is_committed_comes_out_in_the_order_of_commits(origin: Origin, *, streamed: bool) -> None:
    needs(origin, Can.WRITE_AT_ONCE)
    if streamed:
        needs(origin, Can.STREAM_OPEN_TRANSACTIONS)
        origin.stream_early()
    run(origin, NOTES)
    with (
        followed(origin, [origin.table("notes")]) as tail,
        origin.session() as late,
        origin.session() as early,
        origin.session() as gone,
    ):
        late.execute("INSERT INTO notes VALUES (1, 'late')")
        early.execute("INSERT INTO notes VALUES (2, 'early')")
        gone.execute("INSERT INTO notes VALUES (3, 'gone')")
        late.execute("SAVEPOINT s")
        late.execute("INSERT INTO notes VALUES (4, 'taken back')")
        late.execute("ROLLBACK TO SAVEPOINT s")
        late.execute("SAVEPOINT kept")
        late.execute("INSERT INTO notes VALUES (5, 'late')")
        late.execute("RELEASE SAVEPOINT kept")
        early.execute("INSERT INTO notes VALUES (6, 'early')")
        if streamed:
            run(
                origin, "CREATE TABLE aside (id int)"
            )  # its commit makes the others' log durable, which is read only then
            tail.read_until(lambda: tail.records > 0)
            # The server's own housekeeping may have committed, which brings a transaction without any record.
            assert [one for one in tail.closed if not isinstance(one, StreamedTransaction) or one.chunks] == []
        gone.rollback()
        early.commit()
        between = origin.source.log.now()
        if Can.NOW_AT_ONCE not in origin.can:
            tail.past(between)  # Its position has what is committed until it reads.
        late.execute("UPDATE notes SET v = 'by late' WHERE id = 2")
        late.commit()
        run(origin, "DELETE FROM notes WHERE id = 6")
        tail.past(origin.source.log.now())
        schema = described(origin, "notes")
        assert tail.applied(schema, {}, between) == {2: (2, "early"), 6: (6, "early")}
        assert tail.applied(schema, {}) == {1: (1, "late"), 2: (2, "by late"), 5: (5, "late")}
        assert tail.changes(schema).counts == {"insert": 4, "update": 1, "delete": 1}
        assert tail.streamed >= (2 if streamed else 0)
        assert ends(tail.closed) == sorted(set(ends(tail.closed)))


def test_only_what_is_committed_comes_out_where_one_transaction_writes_after_another(
    origin: Origin, tail: Tail
) -> None:
    with origin.session() as late:
        late.execute("INSERT INTO notes VALUES (1, 'late')")
        late.execute("SAVEPOINT s")
        late.execute("INSERT INTO notes VALUES (4, 'taken back')")
        late.execute("ROLLBACK TO SAVEPOINT s")
        late.execute("SAVEPOINT kept")
        late.execute("INSERT INTO notes VALUES (5, 'late')")
        late.execute("RELEASE SAVEPOINT kept")
        late.commit()
    between = origin.source.log.now()
    tail.past(between)
    with origin.session() as gone:
        gone.execute("INSERT INTO notes VALUES (3, 'gone')")
        gone.rollback()
    run(origin, "UPDATE notes SET v = 'by another' WHERE id = 5", "UPDATE notes SET id = 6 WHERE id = 1")
    run(origin, "DELETE FROM notes WHERE id = 5")
    tail.past(origin.source.log.now())
    schema = described(origin, "notes")
    assert tail.applied(schema, {}, between) == {1: (1, "late"), 5: (5, "late")}
    assert tail.applied(schema, {}) == {6: (6, "late")}
    each, net = {"insert": 2, "update": 2, "delete": 1}, {"insert": 3, "delete": 2}
    assert tail.changes(schema).counts == (each if Can.EVERY_CHANGE in origin.can else net)


def test_a_relation_record_announces_what_is_described(origin: Origin, tail: Tail) -> None:
    run(origin, "INSERT INTO notes VALUES (1, 'x')")
    tail.past(origin.source.log.now())
    table, schema = origin.table("notes"), described(origin, "notes")
    assert [origin.source.log.relation_name(payload) for payload in tail.relations] == [table.source]
    assert origin.source.log.resolve(tail.relations[0], table, None) == schema
    assert origin.source.log.resolve(tail.relations[0], table, schema) == schema


def test_a_relation_record_of_selected_columns_announces_them(origin: Origin, tail: Tail) -> None:
    needs(origin, Can.SELECT_COLUMNS)
    run(origin, "INSERT INTO notes VALUES (1, 'x')")
    tail.past(origin.source.log.now())
    one = parse_relation(tail.relations[0])
    without = relation_record(replace(one, columns=one.columns[:1]))
    table, schema = origin.table("notes", exclude_columns=("v",)), described(origin, "notes", exclude_columns=("v",))
    assert [column.name for column in schema.columns] == ["id"]
    assert origin.source.log.resolve(without, table, None) == schema
    hidden = Mask(MaskMethod.NULL)
    masked = described(origin, "notes", mask={"v": hidden})
    assert origin.source.log.resolve(tail.relations[0], origin.table("notes", mask={"v": hidden}), None) == masked


def test_one_look_serves_all_relation_records_that_it_was_made_for(origin: Origin, tail: Tail) -> None:
    needs(origin, Can.FOLLOW_COLUMNS)
    run(
        origin,
        "INSERT INTO notes VALUES (1, 'x')",
        "ALTER TABLE notes ADD COLUMN w int",
        "INSERT INTO notes VALUES (2, 'y', 1)",
    )
    tail.past(origin.source.log.now())
    table, schema = origin.table("notes"), described(origin, "notes")
    before, after = tail.relations
    resolve = origin.source.log.resolver([before, after, after])
    for _ in range(2):
        for payload, columns in ((before, schema.columns[:-1]), (after, schema.columns)):
            assert resolve(payload, table, None).columns == columns
            assert resolve(payload, table, None) == origin.source.log.resolve(payload, table, None)


def test_a_new_session_goes_on_at_what_was_confirmed_and_confirming_never_goes_back(origin: Origin, tail: Tail) -> None:
    needs(origin, Can.BEGIN_ANYWHERE)
    run(origin, "INSERT INTO notes VALUES (1, 'x')")
    tail.past(origin.source.log.now())
    middle = tail.wal_end
    run(origin, "INSERT INTO notes VALUES (2, 'x')")
    tail.past(origin.source.log.now())

    def confirmed() -> Lsn:
        return origin.source.reader.status(origin.slot).confirmed or Lsn(0)

    assert confirmed() <= tail.start
    tail.stream.confirm(middle)
    tail.read_until(lambda: confirmed() >= middle)
    held = confirmed()
    assert held <= tail.wal_end
    tail.stream.confirm(tail.start)
    tail.past(origin.source.log.now())
    tail.stream.close()
    assert confirmed() >= held
    origin.source.reader.end_other(origin.slot, APPLICATION)
    again = opened(origin, middle)
    assert ids(origin, again.past(origin.source.log.now())) == [2]
    again.stream.close()


def test_a_session_confirms_nothing_by_itself_wherever_it_begins(origin: Origin, tail: Tail) -> None:
    needs(origin, Can.BEGIN_ANYWHERE)
    run(origin, "INSERT INTO notes VALUES (1, 'x')")
    tail.past(origin.source.log.now())
    ahead = tail.wal_end
    tail.stream.close()
    origin.source.reader.end_other(origin.slot, APPLICATION)
    again = opened(origin, ahead)
    run(origin, "INSERT INTO notes VALUES (2, 'x')")
    assert ids(origin, again.past(origin.source.log.now())) == [2]
    again.stream.ask_position()
    again.stream.confirm(Lsn(0))
    again.past(origin.source.log.now())
    again.stream.close()
    origin.source.reader.end_other(origin.slot, APPLICATION)
    once_more = opened(origin, tail.start)
    assert ids(origin, once_more.past(origin.source.log.now())) == [1, 2]
    once_more.stream.close()


def test_a_session_shows_by_the_last_transaction_that_it_reads_the_log_that_is_held(origin: Origin, tail: Tail) -> None:
    """It is not verified before that has come, confirms nothing before, and ends where it is another one, or is not the last."""
    needs(origin, Can.BEGIN_ANYWHERE)
    run(origin, "INSERT INTO notes VALUES (1, 'x')")
    tail.past(origin.source.log.now())
    first = last_of(tail)
    run(origin, "INSERT INTO notes VALUES (2, 'x')")
    tail.past(origin.source.log.now())
    last, held = last_of(tail), tail.wal_end
    assert first.end < last.end <= held
    tail.stream.close()
    origin.source.reader.end_other(origin.slot, APPLICATION)
    others = [replace(last, time_us=last.time_us + 1), replace(last, end=Lsn(last.end.value + 1)), first]
    for other in (*others, LastCommit.unknown(first.end)):
        wrong = opened(origin, held, other)
        wrong.stream.confirm(held)
        assert not wrong.stream.verified
        assert fault_of(partial(wrong.past, Lsn(held.value + 1))) is FaultKind.LOG_GAP
        wrong.stream.close()
        origin.source.reader.end_other(origin.slot, APPLICATION)
        assert (origin.source.reader.status(origin.slot).confirmed or Lsn(0)) <= tail.start
    again = opened(origin, held, last)
    again.stream.confirm(held)
    again.read_until(lambda: again.stream.verified)
    run(origin, "INSERT INTO notes VALUES (3, 'x')")
    assert ids(origin, again.past(origin.source.log.now())) == [3]
    again.read_until(lambda: (origin.source.reader.status(origin.slot).confirmed or Lsn(0)) >= held)
    again.stream.close()
    origin.source.reader.end_other(origin.slot, APPLICATION)
    confirmed = opened(origin, held, replace(last, time_us=1))
    assert ids(origin, confirmed.past(origin.source.log.now())) == [3], "what was confirmed does not come any more"
    confirmed.stream.close()


def last_of(tail: Tail) -> LastCommit:
    """The last transaction with changes that came."""
    found = LastCommit.unknown(tail.start)
    for one in tail.closed:
        found = one.last_commit(found.end.value, OriginFilter.ANY) or found
    return found


def test_what_was_not_confirmed_comes_again(origin: Origin, tail: Tail) -> None:
    needs(origin, Can.WRITE_AT_ONCE)
    run(origin, "INSERT INTO notes VALUES (1, 'x')")
    with origin.session() as session:
        session.execute("INSERT INTO notes VALUES (2, 'open over both sessions')")
        tail.past(origin.source.log.now())
        tail.stream.close()
        origin.source.reader.end_other(origin.slot, APPLICATION)
        again = opened(origin, tail.start)
        session.commit()
    assert ids(origin, again.past(origin.source.log.now())) == [1, 2]
    assert ids(origin, tail) == [1]
    again.stream.close()


def test_only_one_reads_a_slot_and_only_our_own_older_reader_is_ended(origin: Origin, tail: Tail) -> None:
    source, slot = origin.source, origin.slot
    newer = APPLICATION[:-1] + "2"
    assert fault_of(lambda: source.log.open_stream(slot, tail.start, newer)) is FaultKind.SLOT_IN_USE
    assert fault_of(lambda: source.reader.end_other(slot, "penstock-another-2")) is FaultKind.SLOT_IN_USE
    assert source.reader.end_other(slot, newer) is True
    if Can.CONTINUE in origin.can:
        tail.stream.close()
    else:
        assert fault_of(lambda: tail.read_until(lambda: False)) is FaultKind.SOURCE_UNREACHABLE
    assert source.reader.end_other(slot, newer) is False
    source.log.open_stream(slot, tail.start, newer).close()


def test_a_slot_that_is_not_there_is_a_gap(origin: Origin) -> None:
    origin.source.sent_tables.prepare([], origin.slot)
    assert fault_of(lambda: origin.source.log.open_stream("no_such_slot", Lsn(0), APPLICATION)) is FaultKind.LOG_GAP


# The end


def test_closing_is_safe_at_any_time(origin: Origin, tail: Tail) -> None:
    run(origin, "INSERT INTO notes VALUES (1, 'x')")
    tail.past(origin.source.log.now())
    tail.stream.confirm(tail.wal_end)
    for _ in range(2):
        tail.stream.close()
    unused, used = origin.open(), origin.open()
    used.log.now()
    for source in (unused, used, unused, used):
        source.close()
    assert origin.source.log.current() > Lsn(0)


CALLS: dict[str, Callable[[Source, TableSpec, str], object]] = {
    "discover": lambda source, table, slot: source.discover(),
    "identify": lambda source, table, slot: source.identify(),
    "now": lambda source, table, slot: source.log.now(),
    "current": lambda source, table, slot: source.log.current(),
    "prepare": lambda source, table, slot: source.sent_tables.prepare([table], slot),
    "unpublished": lambda source, table, slot: source.sent_tables.unpublished([table], slot),
    "describe": lambda source, table, slot: source.describe([table]),
    "create_slot": lambda source, table, slot: source.reader.create("another").__enter__(),
    "snapshot": lambda source, table, slot: source.copies.snapshot(1).__enter__(),
    "slot_status": lambda source, table, slot: source.reader.status(slot),
    "drop": lambda source, table, slot: source.reader.remove(slot),
    "terminate_reader": lambda source, table, slot: source.reader.end_other(slot, APPLICATION),
    "guard": lambda source, table, slot: source.safety.check([table], slot),
}


def test_a_source_that_stops_is_unreachable_and_comes_back(make: Callable[..., Origin]) -> None:
    origin = make(own=True)
    run(origin, NOTES, "INSERT INTO notes VALUES (1, 'x')")
    source, slot, table = origin.source, origin.slot, origin.table("notes")
    schema = described(origin, "notes")
    (chunk,) = source.copies.splits(schema, table, 1 << 20)
    with followed(origin, [table]) as tail:
        payload = _announced(origin, tail)
        identity = source.identify()
        if Can.CONTINUE in origin.can:
            # While its log is followed, checks answer what they knew last.
            tail.stream.close()
        origin.stop()
        calls: dict[str, Callable[[], object]] = {n: partial(c, source, table, slot) for n, c in CALLS.items()}
        calls["open_stream"] = lambda: source.log.open_stream(slot, tail.start, APPLICATION)
        if Can.PUBLISH not in origin.can:
            del calls["unpublished"]
        if Can.KEEP_READER not in origin.can:
            # These ask the source nothing.
            for name in ("current", "unpublished", "slot_status", "drop", "terminate_reader", "open_stream"):
                calls.pop(name, None)
        calls["splits"] = lambda: source.copies.splits(schema, table, 1 << 20)
        calls["read_split"] = lambda: list(source.copies.read_split(chunk, "gone"))
        if Can.SNAPSHOT_ALONE not in origin.can:
            # These ask the reader.
            for name in ("now", "current", "snapshot", "read_split"):
                del calls[name]
        calls["resolve"] = lambda: source.log.resolve(payload, table, schema)
        calls["resolver"] = lambda: source.log.resolver([payload])(payload, table, schema)
        if Can.KEEP_READER in origin.can and Can.CONTINUE not in origin.can:
            calls["read"] = lambda: tail.read_until(lambda: False)
        kinds = {name: fault_of(call) for name, call in calls.items()}
        assert kinds == dict.fromkeys(calls, FaultKind.SOURCE_UNREACHABLE)
        assert {f.code for f in source.preflight([table], slot)} == {FaultKind.SOURCE_UNREACHABLE.value}
        tail.stream.close()
    origin.start()
    assert source.identify() == identity
    again = opened(origin, tail.start)
    assert ids(origin, again.past(source.log.now())) == [2]
    again.stream.close()


def _announced(origin: Origin, tail: Tail) -> bytes:
    """The relation record of `notes`, after a row came through the log."""
    run(origin, "INSERT INTO notes VALUES (2, 'y')")
    tail.past(origin.source.log.now())
    return tail.relations[0]
