"""Migrations make exactly what the models describe, on SQLite, and can be undone."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import inspect
from sqlmodel import select

from engine.model.position import Lsn
from server.db import migrate
from server.db.database import Database
from server.db.models.batch import BatchRow
from server.db.models.connection import ConnectionRow
from server.db.models.schema_version import SchemaVersionRow
from server.db.models.subscription import SubscriptionRow
from server.db.models.table import TableRow
from server.db.session import WriteSession
from server.settings import SettingsError


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'control.db'}"


def check_migrations(url: str) -> None:
    migrate.upgrade(url)
    migrate.upgrade(url)
    database = Database(url)
    try:
        with database.engine.connect() as connection:
            assert migrate.differences(connection) == []
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
            subscription = _subscription(session)
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
            subscription = _subscription(session)
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


def _subscription(session: WriteSession) -> SubscriptionRow:
    now = session.now()
    ends = [ConnectionRow(name=n, kind="k", stamp="s", created_at=now, updated_at=now) for n in ("a", "b")]
    session.add_all(ends)
    session.flush()
    subscription = SubscriptionRow(
        name="s",
        source_id=ends[0].id,
        target_id=ends[1].id,
        slot="s",
        desired_state="running",
        state="running",
        state_at=now,
        stamp="s",
        created_at=now,
        updated_at=now,
    )
    session.add(subscription)
    session.flush()
    return subscription


def test_sqlite(sqlite_url: str) -> None:
    check_migrations(sqlite_url)


def test_tables_and_their_history_stay(sqlite_url: str) -> None:
    check_tables_and_their_history_stay(sqlite_url)


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
