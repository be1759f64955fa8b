"""Migrations make exactly what the models describe, on SQLite, and can be undone."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import inspect, text
from sqlmodel import select

from engine.model.position import Lsn
from server.db import migrate
from server.db.database import Database
from server.db.models.batch import BatchRow
from server.db.models.event import SUBJECT_LONGEST, EventRow
from server.db.models.schema_version import SchemaVersionRow
from server.db.models.subscription import SubscriptionRow
from server.db.models.table import TableRow
from server.events.service import record_event
from server.settings import SettingsError
from tests.fixtures.control_rows import subscription_row


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'control.db'}"


def check_migrations(url: str) -> None:
    migrate.upgrade(url)
    migrate.upgrade(url)
    database = Database(url)
    try:
        with database.engine.connect() as connection:
            assert migrate.schema_differences(connection) == []
            assert migrate.is_current(connection)
        migrate.downgrade(url, "base")
        with database.engine.connect() as connection:
            assert set(inspect(connection).get_table_names()) == {"alembic_version"}
        with pytest.raises(SettingsError, match="penstock db upgrade"):
            migrate.require_current(database)
        migrate.upgrade(url)
        migrate.require_current(database)
    finally:
        database.close()


def check_batches_stay(url: str) -> None:
    """Those from before the mode was kept were written as batches; undoing that migration loses no other column."""
    migrate.upgrade(url)
    database = Database(url)
    try:
        with database.write() as session:
            now = session.now()
            subscription = subscription_row(session)
            batch = BatchRow(
                subscription_id=subscription.id,
                epoch=1,
                number=7,
                after=Lsn(1),
                end=Lsn(2),
                transactions=3,
                net_rows=4,
                bytes=5,
                path="driver",
                mode="grouped",
                demanded=False,
                tables=1,
                tuning={"tasks": 1},
                committed_at=now,
            )
            session.add(batch)
        migrate.downgrade(url, "0002_batch_tuning")
        assert "mode" not in {column["name"] for column in inspect(database.engine).get_columns("batches")}
        migrate.upgrade(url)
        with database.read() as session:
            kept = session.exec(select(BatchRow)).one()
        assert kept.model_dump() == {**batch.model_dump(), "mode": "batch"}
    finally:
        database.close()


def check_tables_and_their_history_stay(url: str) -> None:
    """From before there were policies and reasons for structures; undoing that migration takes along nothing else."""
    migrate.upgrade(url)
    database = Database(url)
    try:
        with database.write() as session:
            now = session.now()
            subscription = subscription_row(session)
            subscription.schema_changes = {"policy": "ask"}
            table = TableRow(
                id="t1",
                subscription_id=subscription.id,
                schema_name="public",
                name="orders",
                target_schema="public",
                target_name="orders",
                desired_state="running",
                state="live",
                state_at=now,
                stamp="s",
                created_at=now,
            )
            session.add(table)
            session.flush()
            told = {"changes": ["column note was added"], "learnt": "log", "certain": True}
            version = SchemaVersionRow(table_id="t1", change="structure", position=Lsn(3), columns=[], **told, at=now)
            session.add(version)
        migrate.downgrade(url, "0004_into_existing")
        migrate.upgrade(url)
        with database.read() as session:
            kept = session.exec(select(SchemaVersionRow)).one()
            assert session.exec(select(TableRow)).one().model_dump() == table.model_dump()
            assert session.exec(select(SubscriptionRow)).one().schema_changes == {}
        assert kept.model_dump() == {**version.model_dump(), "changes": None, "learnt": None, "certain": None}
    finally:
        database.close()


def check_events_tell_states(url: str) -> None:
    """Also those from before there was a column for it, which said it in words."""
    migrate.upgrade(url)
    database = Database(url)
    told = {
        "table_added": ("The table 'public.a' was added.", "registered"),
        "table_catching_up": ("The table 'public.a' is catching_up.", "catching_up"),
        "table_unfit": ("The table 'public.a' is parked: no partition takes the row", "parked"),
        "table_removed": ("The table 'public.a' was removed; its rows stay on the target.", "removed"),
        "table_copied": ("3 rows as of 0/50", None),
    }
    try:
        with database.write() as session:
            for kind, (detail, _) in told.items():
                severity = "error" if kind == "table_unfit" else "info"
                record_event(session, kind=kind, severity=severity, subject="public.a", detail=detail)
        migrate.downgrade(url, "0013_history")
        with database.engine.begin() as connection:
            connection.execute(text("UPDATE events SET subject = :longer"), {"longer": "a" * 600})
        migrate.upgrade(url)
        with database.read() as session:
            found = {row.kind: row.table_state for row in session.exec(select(EventRow))}
            subjects = {row.subject for row in session.exec(select(EventRow))}
        assert found == {kind: state for kind, (_, state) in told.items()}
        assert subjects == {"a" * SUBJECT_LONGEST}
    finally:
        database.close()


def test_sqlite(sqlite_url: str) -> None:
    check_migrations(sqlite_url)


def test_tables_and_their_history_stay(sqlite_url: str) -> None:
    check_tables_and_their_history_stay(sqlite_url)


def test_events_of_before_tell_states(sqlite_url: str) -> None:
    check_events_tell_states(sqlite_url)


def test_batches_stay_and_their_ids_are_never_used_again(sqlite_url: str) -> None:
    check_batches_stay(sqlite_url)
    database = Database(sqlite_url)
    with database.engine.connect() as connection:
        made = connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE name = 'batches'").scalar_one()
    database.close()
    assert "AUTOINCREMENT" in made


def test_sqlite_is_in_wal_mode_with_foreign_keys(sqlite_url: str) -> None:
    database = Database(sqlite_url)
    with database.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
    database.close()
