"""One check of the file finds whatever others do past the triggers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.sources.sqlite_triggers.source import SqliteSource
from tests.fixtures.replication import table
from tests.process.sqlite_triggers.conftest import File

READER = "penstock_traps"
TRAPS = {
    "untriggered": "DROP TRIGGER {update}",
    "put_back": "DROP TRIGGER {update}; UPDATE put_back SET v = 2; {create}",
    "written_over": "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, '''U''', '''D''') WHERE name = '{update}';"
    " PRAGMA writable_schema = RESET",
    "created_again": "DROP TABLE created_again; CREATE TABLE created_again (id INTEGER PRIMARY KEY, v INT UNIQUE)",
    "dropped": "DROP TABLE dropped",
    "renamed": "ALTER TABLE renamed RENAME TO renamed_now",
}
"""`{update}`, `{create}`: the name and the statement of a trigger."""


@pytest.fixture
def source(file: File) -> Iterator[SqliteSource]:
    with closing(SqliteSource(file.connection)) as opened:
        yield opened


def test_one_check_finds_each_trap(file: File, source: SqliteSource) -> None:
    for name in (*TRAPS, "untouched"):
        file.execute(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, v INT UNIQUE); INSERT INTO {name} VALUES (1, 1)")
    tables = [table(name, "main") for name in (*TRAPS, "untouched")]
    source.sent_tables.prepare(tables, READER)
    with source.reader.create(READER):
        assert not source.safety.check(tables, READER).partition_faults
    for name, trap in TRAPS.items():
        query = f"SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = '{name}' AND name LIKE '%\\_update' ESCAPE '\\'"
        ((update, create),) = [each for each in file.rows(query) if "_before_" not in each[0]]
        file.execute(trap.format(update=update, create=create))
    reading = source.safety.check(tables, READER)
    assert set(reading.partition_faults) == {TableName("main", name) for name in TRAPS}
    assert not reading.sending_faults
    file.execute("DROP TABLE penstock_state")
    assert source.safety.check(tables, READER).sending_faults


def test_a_later_layout_is_refused(file: File, source: SqliteSource) -> None:
    file.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    source.sent_tables.prepare([table("t", "main")], READER)
    file.execute("UPDATE penstock_state SET layout = 99")
    with pytest.raises(EngineFault, match="layout 99") as refused:
        source.sent_tables.prepare([table("t", "main")], READER)
    assert refused.value.kind is FaultKind.LOG_UNREADABLE
