"""What happened below partitioned roots while no engine watched: between two runs, and around a kill."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

import pytest

from engine.copy.orchestrator import CopyOrchestrator
from engine.model.fault import FaultKind
from engine.model.identity import Epoch, TableName
from engine.model.source import ExportedSnapshot
from engine.model.subscription import SchemaPolicy, TableSpec
from engine.model.subscription_state import DesiredState
from engine.pipeline.commit import CommitStage
from engine.safety.findings import Finding
from engine.safety.source_monitor import SourceMonitor
from engine.sources.postgres_log.capabilities import PostgresPartitions
from engine.tables.registry import TableEntry
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, Reports, table
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.pg

LOOKS = ("first_look", "second_look")
CHANGES = {
    "detached": "ALTER TABLE detached DETACH PARTITION detached_1",
    "lone": "ALTER TABLE lone DETACH PARTITION lone_1",
    "attached": "CREATE TABLE attached_3 (id int PRIMARY KEY); INSERT INTO attached_3 VALUES (25); "
    "ALTER TABLE attached ATTACH PARTITION attached_3 FOR VALUES FROM (20) TO (30)",
    "away": "ALTER TABLE away DETACH PARTITION away_1; DELETE FROM away_1 WHERE id = 5; "
    "ALTER TABLE away ATTACH PARTITION away_1 FOR VALUES FROM (0) TO (10)",
    "leaf": "TRUNCATE leaf_1",
    "emptied": "CREATE TABLE emptied_3 PARTITION OF emptied FOR VALUES FROM (20) TO (30); "
    "INSERT INTO emptied VALUES (25)",
    "whole": "TRUNCATE whole",
    "same": "INSERT INTO same SELECT generate_series(100, 109)",
    "created": "CREATE TABLE created_3 PARTITION OF created FOR VALUES FROM (20) TO (30); "
    "INSERT INTO created VALUES (25)",
}
TOLD_BY_THE_LOG = {"whole", "same", "created"}


def make(database: Database, *roots: str) -> None:
    for root in roots:
        database.execute(f"CREATE TABLE {root} (id int PRIMARY KEY) PARTITION BY RANGE (id)")
        database.execute(f"CREATE TABLE {root}_1 PARTITION OF {root} FOR VALUES FROM (0) TO (10)")
        if root != "lone":
            database.execute(f"CREATE TABLE {root}_2 PARTITION OF {root} FOR VALUES FROM (10) TO (20)")
        if root == "same":
            database.execute("CREATE TABLE same_3 PARTITION OF same DEFAULT")
        database.execute(f"INSERT INTO {root} SELECT generate_series(0, 9)")


def marks(replica: Replica) -> dict[str, str | None]:
    """The marks on the target, by the source's names of the tables."""
    target = replica.pipeline.target
    assert target is not None
    progress = target.progress(replica.spec.name)
    assert progress is not None
    return {t.source.name: r.mark for t in replica.spec.tables if (r := progress.tables.get(t.table)) is not None}


def marked(replica: Replica, *roots: str) -> None:
    """Return when the marks of these roots have reached the target; nothing else has to happen for it."""
    wait_until(lambda: all(marks(replica).get(root) for root in roots), 30.0, f"marks of {roots}")


@contextmanager
def down(replica: Replica, way: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The body runs while no engine watches: `stopped` by its user, or with its engine `killed`, which writes nothing at the end."""
    if way == "stopped":
        replica.desire(DesiredState.STOPPED)
        replica.wait_state("stopped")
        yield
        replica.desire(DesiredState.RUNNING)
        replica.wait_state("running")
        return
    with monkeypatch.context() as patch:
        patch.setattr(CommitStage, "write_progress", lambda self: None)
        replica.pipeline.close()
        replica._targets.close_all()
    yield
    replica.spec = replace(replica.spec, epoch=Epoch(replica.spec.epoch + 1))
    replica.reports = Reports()
    replica._start()


def decided(database: Database, replica: Replica) -> set[str]:
    """The roots that are parked after the guard has read the catalog, the log up to there is read, and the guard has read it again."""
    for root in LOOKS:
        database.execute(f"ALTER TABLE {root} DETACH PARTITION {root}_1")
        replica.wait_table(root, "parked")
        replica.catch_up()
    return {name for name, state in replica.states().items() if state == "parked"} - set(LOOKS)


@pytest.mark.parametrize("way", ["stopped", "killed"])
def test_only_what_the_log_tells_of_is_fine(
    database: Database, replicate: Callable[..., Replica], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    make(database, *CHANGES, *LOOKS)
    replica = replicate(database, [table(root) for root in (*CHANGES, *LOOKS)], schema_changes=SchemaPolicy.ASK)
    marked(replica, *CHANGES, *LOOKS)
    with down(replica, way, monkeypatch):
        for statements in CHANGES.values():
            for statement in statements.split("; "):
                database.execute(statement)
        database.execute("TRUNCATE emptied_3")
    assert decided(database, replica) == CHANGES.keys() - TOLD_BY_THE_LOG
    for root in CHANGES.keys() - TOLD_BY_THE_LOG:
        assert replica.wait_table(root, "parked").code == FaultKind.TABLE_PARTITIONS_CHANGED.value, root
    for root in TOLD_BY_THE_LOG:
        on_source = [tuple(row) for row in database.execute(f"SELECT id FROM {root} ORDER BY id")]
        assert replica.query(f"SELECT id FROM {root} ORDER BY id") == on_source, root
    assert replica.query("SELECT count(*) FROM whole") == [(0,)]


CAME_AND_WENT = {
    "dropped": (
        "BEGIN; CREATE TABLE dropped_3 PARTITION OF dropped FOR VALUES FROM (20) TO (30); "
        "INSERT INTO dropped VALUES (25); COMMIT",
        "DROP TABLE dropped_3",
    ),
    "at_once": (
        "BEGIN; CREATE TABLE at_once_3 PARTITION OF at_once FOR VALUES FROM (20) TO (30); "
        "INSERT INTO at_once VALUES (25); DROP TABLE at_once_3; COMMIT",
    ),
    "detached": (
        "CREATE TABLE detached_3 PARTITION OF detached FOR VALUES FROM (20) TO (30)",
        "INSERT INTO detached_3 VALUES (25)",
        "ALTER TABLE detached DETACH PARTITION detached_3",
    ),
    "deep": (
        "CREATE TABLE deep_3 PARTITION OF deep FOR VALUES FROM (20) TO (30) PARTITION BY RANGE (id)",
        "CREATE TABLE deep_3_1 PARTITION OF deep_3 DEFAULT",
        "INSERT INTO deep VALUES (25)",
        "DROP TABLE deep_3",
    ),
    "typed": (
        "CREATE TABLE typed_3 PARTITION OF typed FOR VALUES FROM (20) TO (30)",
        "INSERT INTO typed VALUES (25, 'ok', 1)",
        "DROP TABLE typed_3",
    ),
    "created": ("CREATE TABLE created_3 PARTITION OF created DEFAULT", "INSERT INTO created VALUES (25)"),
    "empty": ("CREATE TABLE empty_3 PARTITION OF empty DEFAULT", "DROP TABLE empty_3", "INSERT INTO empty VALUES (15)"),
    "whole": ("TRUNCATE whole, plain", "INSERT INTO whole VALUES (1), (11)"),
    "plain": ("INSERT INTO plain VALUES (1)", "INSERT INTO same VALUES (15)", "UPDATE plain SET id = 2"),
    "same": (),
}
FINE = {"created", "empty", "whole", "plain", "same"}


def came_and_went(
    database: Database,
    replicate: Callable[..., Replica],
    eyes: Eyes,
    meanwhile: Callable[[Replica], AbstractContextManager[None]],
) -> Replica:
    """All of it happens within `meanwhile`, while no engine watches; it is on the target when this returns."""
    make(database, *CAME_AND_WENT.keys() - {"plain"})
    for statement in (
        "CREATE TABLE plain (id int PRIMARY KEY)",
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE DOMAIN amount AS int",
        "ALTER TABLE typed ADD COLUMN m mood, ADD COLUMN a amount",
    ):
        database.execute(statement)
    replica = replicate(database, [table(name) for name in CAME_AND_WENT], schema_changes=SchemaPolicy.ASK)
    marked(replica, *CAME_AND_WENT.keys() - {"plain"})
    eyes.shut(on=True)
    with meanwhile(replica):
        for statements in CAME_AND_WENT.values():
            for statement in statements:
                database.execute(statement)
    replica.catch_up()
    return replica


@pytest.mark.parametrize("way", ["running", "stopped"])
def test_a_partition_that_came_and_went_unseen_takes_its_rows_with_it(
    database: Database, replicate: Callable[..., Replica], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    eyes = Eyes(monkeypatch)

    def meanwhile(replica: Replica) -> AbstractContextManager[None]:
        return nullcontext() if way == "running" else down(replica, way, monkeypatch)

    replica = came_and_went(database, replicate, eyes, meanwhile)
    eyes.shut(on=False)
    run = replica.pipeline.run
    assert run is not None
    for _ in range(3):
        run.check_source()
    gone = CAME_AND_WENT.keys() - FINE
    for name in gone:
        parked = replica.wait_table(name, "parked")
        assert (parked.code, "was attached and detached between" in str(parked.reason)) == (
            "table_partitions_changed",
            True,
        ), name
    assert {name for name, state in replica.states().items() if state == "live"} == FINE
    replica.pipeline.reload("r1", [replica.table_id(name) for name in gone])
    replica.wait_live()
    replica.assert_equal()
    for _ in range(3):
        run.check_source()
    assert set(replica.states().values()) == {"live"}


@pytest.mark.parametrize("way", ["stopped", "killed"])
def test_a_partition_that_came_and_went_before_the_end_of_a_run_is_found_by_the_next(
    database: Database, replicate: Callable[..., Replica], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    eyes = Eyes(monkeypatch)
    replica = came_and_went(database, replicate, eyes, lambda _: nullcontext())
    with down(replica, way, monkeypatch):
        eyes.shut(on=False)
    gone = CAME_AND_WENT.keys() - FINE
    for name in gone:
        parked = replica.wait_table(name, "parked")
        assert (parked.code, "was detached or dropped" in str(parked.reason)) == ("table_partitions_changed", True), (
            name
        )
    replica.catch_up()
    assert {name for name, state in replica.states().items() if state == "live"} == FINE
    replica.pipeline.reload("r1", [replica.table_id(name) for name in gone])
    replica.wait_live()
    replica.assert_equal()
    marked(replica, *CAME_AND_WENT.keys() - {"plain"})


def test_a_partition_with_rows_that_was_attached_unseen_is_found_though_the_log_told_of_it(
    database: Database, replicate: Callable[..., Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    eyes = Eyes(monkeypatch)
    make(database, "attached", "created")
    replica = replicate(database, [table("attached"), table("created")], schema_changes=SchemaPolicy.ASK)
    marked(replica, "attached", "created")
    eyes.shut(on=True)
    before = marks(replica)
    database.execute(CHANGES["attached"])
    database.execute("INSERT INTO attached VALUES (26)")
    database.execute(CHANGES["created"])
    replica.catch_up()
    assert "attached_3" in str(marks(replica)["attached"])
    assert marks(replica) != before
    with down(replica, "killed", monkeypatch):
        eyes.shut(on=False)
    replica.wait_table("attached", "parked")
    replica.catch_up()
    assert replica.states() == {"attached": "parked", "created": "live"}


class Eyes:
    """The guard's looks, which can be held back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._lock = threading.Lock()
        self._shut = False
        real = SourceMonitor.check

        def look(monitor: SourceMonitor) -> Iterator[Finding]:
            with self._lock:
                if not self._shut:
                    yield from real(monitor)

        monkeypatch.setattr(SourceMonitor, "check", look)

    def shut(self, *, on: bool) -> None:
        """When this returns no look is under way."""
        with self._lock:
            self._shut = on


def test_a_root_truncated_right_before_a_kill_is_not_blamed(
    database: Database, replicate: Callable[..., Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    eyes = Eyes(monkeypatch)
    make(database, "whole", "leaf", *LOOKS)
    replica = replicate(database, [table(root) for root in ("whole", "leaf", *LOOKS)], schema_changes=SchemaPolicy.ASK)
    marked(replica, "whole", "leaf")
    eyes.shut(on=True)
    database.execute("TRUNCATE whole")
    database.execute("TRUNCATE leaf_1")
    database.execute("INSERT INTO whole VALUES (5)")
    replica.catch_up()
    assert replica.query("SELECT id FROM whole") == [(5,)]
    assert marks(replica)["whole"] is None
    assert marks(replica)["leaf"] is not None
    with down(replica, "killed", monkeypatch):
        eyes.shut(on=False)
    assert decided(database, replica) == {"leaf"}
    assert replica.query("SELECT id FROM whole") == [(5,)]
    marked(replica, "whole")
    assert marks(replica)["leaf"] is None


def test_a_mark_follows_what_is_fine(database: Database, replicate: Callable[..., Replica]) -> None:
    make(database, "whole", *LOOKS)
    replica = replicate(database, [table(root) for root in ("whole", *LOOKS)], schema_changes=SchemaPolicy.ASK)
    marked(replica, "whole")
    first = marks(replica)["whole"]
    database.execute("TRUNCATE whole")
    wait_until(lambda: marks(replica)["whole"] not in {first, None}, 30.0, "a new mark behind a truncate")
    second = marks(replica)["whole"]
    database.execute("CREATE TABLE whole_3 PARTITION OF whole DEFAULT")
    wait_until(lambda: marks(replica)["whole"] not in {second, None}, 30.0, "a new mark behind a new partition")
    assert decided(database, replica) == set()


def test_what_happens_below_a_root_behind_its_copy_is_found_though_nobody_looked_since(
    database: Database, replicate: Callable[..., Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(database, "leaf", "same")
    eyes = Eyes(monkeypatch)
    eyes.shut(on=True)
    replica = replicate(database, [table("leaf"), table("same")], schema_changes=SchemaPolicy.ASK)
    assert all(marks(replica).values())
    with down(replica, "killed", monkeypatch):
        database.execute("TRUNCATE leaf_1")
        database.execute("INSERT INTO same VALUES (15)")
        eyes.shut(on=False)
    replica.wait_table("leaf", "parked")
    replica.catch_up()
    assert replica.states() == {"leaf": "parked", "same": "live"}


def test_a_partition_detached_while_a_root_made_again_is_copied_is_found(
    database: Database, replicate: Callable[..., Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard meets the new root below its old name for the first time when the partition is gone already."""
    eyes, armed = Eyes(monkeypatch), threading.Event()
    read_marks, copy = PostgresPartitions.fingerprints, CopyOrchestrator._copy_under

    def marks_unseen(source: PostgresPartitions, tables: Sequence[TableSpec]) -> dict[TableName, str]:
        eyes.shut(on=armed.is_set())
        return read_marks(source, tables)

    def copy_then_detach(desk: CopyOrchestrator, snapshot: ExportedSnapshot, entries: list[TableEntry]) -> None:
        copy(desk, snapshot, entries)
        if armed.is_set():
            armed.clear()
            database.execute("ALTER TABLE days DETACH PARTITION days_1")
            eyes.shut(on=False)

    make(database, "days")
    replica = replicate(database, [table("days")])
    monkeypatch.setattr(PostgresPartitions, "fingerprints", marks_unseen)
    monkeypatch.setattr(CopyOrchestrator, "_copy_under", copy_then_detach)
    armed.set()
    database.execute("DROP TABLE days")
    make(database, "days")
    wait_until(lambda: not armed.is_set(), 30.0, "the copy of the new root")
    wait_until(lambda: replica.query("SELECT count(*) FROM days") == [(0,)], 30.0, "the rows of the partition are gone")
    replica.wait_live()
    replica.assert_equal()


def test_a_root_that_parked_over_rows_of_an_unseen_partition_is_copied_at_the_next_start(
    database: Database, replicate: Callable[..., Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes of a partition's rows arrive before the guard reads the catalog, and the truncate invalidates what it read before."""
    make(database, "attached")
    replica = replicate(database, [table("attached")], guard_interval_s=3600.0)
    database.execute("TRUNCATE attached")
    for statement in CHANGES["attached"].split("; "):
        database.execute(statement)
    database.execute("UPDATE attached SET id = 26 WHERE id = 25")
    assert replica.wait_table("attached", "parked").code == FaultKind.NET_CHANGE_ANOMALY.value
    with down(replica, "stopped", monkeypatch):
        pass
    replica.wait_table("attached", "live")
    replica.catch_up()
    replica.assert_equal()
