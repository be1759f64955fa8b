"""The target's file: how it opens, what keeps it from opening, and what is in it after the worst."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pytest

from engine.model.fault import FaultKind
from engine.model.identity import Epoch, TableId, TableName
from engine.model.position import Lsn
from engine.model.subscription import ConnectionSpec
from engine.model.target import LogStart, QueryRefused
from engine.targets.duckdb.settings import DuckDbSettings, settings_from
from engine.targets.duckdb.target import DuckDbTarget, open_target
from tests.contract.target_material import SUBSCRIPTION, Pipeline, changes, fault_of, inserts, keys, structure
from tests.fixtures.answers import answered
from tests.fixtures.python_process import start_python

T = TableId("t0a")
pairs = structure(TableName("public", "pairs"), {"id": "int4", "v": "int8"}, ["id"])


# Opening


def test_nothing_is_created_before_the_first_use(tmp_path: Path) -> None:
    target = DuckDbTarget("mart.duckdb", home=tmp_path)
    (found,) = target.check([pairs.name])
    assert found[:2] == ("info", "target_path_relative")
    assert list(tmp_path.iterdir()) == []
    Pipeline(target).claim()
    assert (tmp_path / "mart.duckdb").exists()
    target.close()
    assert [p.name for p in tmp_path.iterdir()] == ["mart.duckdb"]


def test_a_file_held_by_another_process_is_locked(tmp_path: Path) -> None:
    path = tmp_path / "mart.duckdb"
    program = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    holder = start_python("-c", program, str(path))
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        target = DuckDbTarget(path)
        assert fault_of(lambda: Pipeline(target).claim()).kind is FaultKind.TARGET_LOCKED
        assert ("error", "target_locked") in [finding[:2] for finding in target.check([])]
    finally:
        holder.communicate(timeout=20)
    Pipeline(target).claim()
    target.close()


@pytest.mark.parametrize("what", ["no folder", "folder", "text", "empty", "cut off"])
def test_what_is_no_database_is_said_so(tmp_path: Path, what: str) -> None:
    path = tmp_path / "mart.duckdb"
    words = "not a DuckDB database"
    if what == "no folder":
        path, words = tmp_path / "none" / "mart.duckdb", "does not exist"
    elif what == "folder":
        path.mkdir()
        words = "it is a folder"
    elif what == "text":
        path.write_text("id,name\n" * 5000)
    elif what == "empty":
        path.touch()
    else:
        DuckDbTarget(path).claim(SUBSCRIPTION, Epoch(1), LogStart("s", 1, "slot", Lsn(1)))
        path.write_bytes(path.read_bytes()[:5000])
        words = "damaged"
    target = DuckDbTarget(path)
    fault = fault_of(lambda: target.progress(SUBSCRIPTION))
    assert (fault.kind, fault.subject) == (FaultKind.TARGET_UNAVAILABLE, str(path))
    assert words in fault.detail
    findings = target.check([pairs.name])
    assert any(f[:2] == ("error", "target_unavailable") and f[3] for f in findings)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_without_permission_is_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "mart.duckdb"
    DuckDbTarget(path).claim(SUBSCRIPTION, Epoch(1), LogStart("s", 1, "slot", Lsn(1)))
    path.chmod(0o400)
    assert "permission" in fault_of(lambda: DuckDbTarget(path).progress(SUBSCRIPTION)).detail


def test_a_foreign_penstock_schema_and_a_newer_layout_are_left_alone(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.duckdb"
    with duckdb.connect(str(foreign)) as connection:
        connection.execute("CREATE SCHEMA penstock")
        connection.execute("CREATE TABLE penstock.mine (a INTEGER)")
    target = DuckDbTarget(foreign)
    assert fault_of(lambda: Pipeline(target).claim()).kind is FaultKind.TARGET_FOREIGN
    target.close()
    newer = tmp_path / "newer.duckdb"
    with duckdb.connect(str(newer)) as connection:
        connection.execute("CREATE SCHEMA penstock")
        connection.execute("CREATE TABLE penstock.layout AS SELECT 99 AS version")
    other = DuckDbTarget(newer)
    assert "99" in fault_of(lambda: other.progress(SUBSCRIPTION)).detail
    other.close()


def test_tables_of_the_user_are_never_taken(tmp_path: Path) -> None:
    path = tmp_path / "mart.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE SCHEMA public")
        connection.execute("CREATE TABLE public.Pairs (a INTEGER)")
        connection.execute("CREATE VIEW public.seen AS SELECT 1")
    target = DuckDbTarget(path)
    pipeline = Pipeline(target).claim()
    for name in ("pairs", "Seen"):
        fault = fault_of(lambda name=name: target.adopt(SUBSCRIPTION, T, TableName("PUBLIC", name)))
        assert fault.kind is FaultKind.TABLE_NAME_COLLISION
        found = target.check([TableName("public", name)])
        assert [f[:2] for f in found if f[0] == "error"] == [("error", "table_name_collision")]
    for schema in ("penstock", "Penstock", "information_schema", "pg_catalog"):
        assert fault_of(lambda schema=schema: target.adopt(SUBSCRIPTION, T, TableName(schema, "x"))).subject == T
    assert pipeline.look('SELECT * FROM public."Pairs"') == []
    target.close()


def test_a_schema_named_like_the_file_works_and_is_warned_of(tmp_path: Path) -> None:
    target = DuckDbTarget(tmp_path / "public.duckdb")
    assert [f[:2] for f in target.check([pairs.name])] == [("warning", "target_ambiguous_schema")]
    pipeline = Pipeline(target).claim()
    pipeline.load(T, pairs, [(1, 1)])
    pipeline.change(T, pairs, changes(T, delete=keys(pairs, [(1,)]), insert=inserts(pairs, [(2, 2)])))
    assert pipeline.select("SELECT * FROM public.public.pairs") == [(2, 2)]
    target.close()


def test_columns_that_duckdb_takes_for_one_collide(tmp_path: Path) -> None:
    target = DuckDbTarget(tmp_path / "mart.duckdb")
    Pipeline(target).claim()
    twins = structure(TableName("public", "twins"), {"id": "int4", "Ä": "text", "ä": "text", "ID": "text"}, ["id"])
    target.adopt(SUBSCRIPTION, T, twins.name)
    fault = fault_of(lambda: target.begin_copy(SUBSCRIPTION, T, twins.name, twins))
    assert (fault.kind, fault.subject) == (FaultKind.TABLE_NAME_COLLISION, T)
    letters = structure(twins.name, {"id": "int4", "Ä": "text", "ä": "text"}, ["id"])
    target.begin_copy(SUBSCRIPTION, T, letters.name, letters)
    target.close()


def test_columns_held_as_text_say_what_they_were(tmp_path: Path) -> None:
    target = DuckDbTarget(tmp_path / "mart.duckdb")
    pipeline = Pipeline(target).claim()
    schema = structure(TableName("public", "r"), {"id": "int4", "doc": "jsonb", "x": "text", "s": "interval[]"}, ["id"])
    pipeline.load(T, schema, [])
    sql = "SELECT column_name, comment FROM duckdb_columns() WHERE table_name = 'r' AND comment IS NOT NULL"
    assert pipeline.select(sql) == [("doc", "PostgreSQL jsonb, in its text form")]
    target.close()


def test_settings_come_from_the_connection(tmp_path: Path) -> None:
    spec = ConnectionSpec("mart", "duckdb", {"path": "m.duckdb", "memory_limit": "128MB", "threads": 1})
    target = open_target(spec, tmp_path)
    pipeline = Pipeline(target).claim()
    assert target.path == tmp_path / "m.duckdb"
    assert pipeline.target.progress(SUBSCRIPTION) is not None
    target.close()
    with pytest.raises(ValueError, match="threads"):
        settings_from({"threads": 0})
    for wrong in (DuckDbSettings(memory_limit="plenty"), DuckDbSettings(spill_limit="plenty")):
        refused = DuckDbTarget(tmp_path / "n.duckdb", wrong)
        fault = fault_of(lambda refused=refused: refused.progress(SUBSCRIPTION))
        assert (fault.kind, "settings" in fault.detail) == (FaultKind.TARGET_UNAVAILABLE, True)


# Limits and sharing


def test_a_batch_that_lacks_memory_is_a_fault_and_leaves_nothing(tmp_path: Path) -> None:
    target = DuckDbTarget(tmp_path / "mart.duckdb", DuckDbSettings(memory_limit="10MB", spill_limit="0MB", threads=1))
    pipeline = Pipeline(target).claim()
    wide = structure(TableName("public", "wide"), {"id": "int4", "v": "text"}, ["id"])
    pipeline.load(T, wide, [(1, "a")])
    rows = [(i, f"{i}" * 20_000) for i in range(2, 400)]
    fault = fault_of(lambda: pipeline.change(T, wide, changes(T, insert=inserts(wide, rows))))
    assert fault.kind is FaultKind.TARGET_UNAVAILABLE
    assert pipeline.rows(wide) == [(1, "a")]
    pipeline.change(T, wide, changes(T, insert=inserts(wide, [(2, "b")])))
    assert pipeline.rows(wide) == [(1, "a"), (2, "b")]
    target.close()


def test_a_closed_target_opens_again_when_it_is_used(tmp_path: Path) -> None:
    target = DuckDbTarget(tmp_path / "mart.duckdb")
    pipeline = Pipeline(target).claim()
    target.close()
    target.close()
    pipeline.load(T, pairs, [(1, 1)])
    assert pipeline.rows(pairs) == [(1, 1)]
    target.close()


def test_two_targets_of_one_process_share_the_file(tmp_path: Path) -> None:
    first, second = DuckDbTarget(tmp_path / "mart.duckdb"), DuckDbTarget(tmp_path / "mart.duckdb")
    one, two = Pipeline(first).claim(), Pipeline(second, subscription="crm").claim()  # type: ignore[arg-type]
    one.load(T, pairs, [(1, 1)])
    two.load(TableId("t0b"), structure(TableName("crm", "x"), {"id": "int4"}, ["id"]), [(5,)])
    assert one.rows(pairs) == [(1, 1)]
    first.close()
    assert two.select("SELECT id FROM crm.x") == [(5,)]
    second.close()


# Beginning again


def test_a_whole_reload_may_start_in_another_log(tmp_path: Path) -> None:
    target = DuckDbTarget(tmp_path / "mart.duckdb")
    pipeline = Pipeline(target).claim()
    pipeline.load(T, pairs, [(1, 1)])
    target.rebase(SUBSCRIPTION, Epoch(2), LogStart("another", 3, "slot2", Lsn(5)))
    progress = target.progress(SUBSCRIPTION)
    assert progress is not None
    assert (progress.system_id, progress.timeline, progress.end, progress.epoch) == ("another", 3, Lsn(5), 2)
    assert progress.tables[T].ready is False
    assert pipeline.rows(pairs) == [(1, 1)]
    target.close()


def test_a_forgotten_subscription_leaves_its_tables_and_may_come_back(tmp_path: Path) -> None:
    target = DuckDbTarget(tmp_path / "mart.duckdb")
    target.forget(SUBSCRIPTION)
    pipeline = Pipeline(target, epoch=9).claim()
    pipeline.load(T, pairs, [(1, 1)])
    target.forget(SUBSCRIPTION)
    assert target.progress(SUBSCRIPTION) is None
    again = Pipeline(target, epoch=1).claim()
    again.load(TableId("t0c"), pairs, [(2, 2)])
    assert again.rows(pairs) == [(2, 2)]
    with pytest.raises(QueryRefused):
        answered(target, "SELECT 1", 1, 5.0, "other")  # type: ignore[arg-type]
    target.close()


def test_a_comparison_takes_less_memory_than_the_rows(tmp_path: Path) -> None:
    """Each side is 96 MB, and is read a few rows at a time."""
    target = DuckDbTarget(tmp_path / "mart.duckdb", DuckDbSettings(memory_limit="150MB", spill_limit="0MB", threads=1))
    pipeline = Pipeline(target).claim()
    wide = structure(TableName("public", "wide"), {"id": "int4", "v": "text"}, ["id"])
    rows = [(i, f"{i:04}" * 1_000_000) for i in range(24)]
    pipeline.load(T, wide, rows[:1])
    for row in rows[1:]:
        pipeline.change(T, wide, changes(T, insert=inserts(wide, [row])))
    progress = target.progress(SUBSCRIPTION)
    assert progress is not None
    with target.pin(SUBSCRIPTION) as reader:
        source = (batch for row in rows for batch in inserts(wide, [row]).to_batches())
        assert reader.compare(progress.tables[T], source, 5) == (24, 24, [])
    target.close()
