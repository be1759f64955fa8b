"""The tables whose changes triggers record, and what others do to the tables and their triggers."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from engine.model.fault import FaultKind
from engine.model.identity import RelationId, TableName
from engine.model.source import Earlier, GuardReading
from engine.model.subscription import TableSpec
from engine.sources.mariadb.connect import Connector, MariaDbConnection, rows, run
from engine.sources.mariadb_triggers.cascade_triggers import remove_touched, underived
from engine.sources.mariadb_triggers.catalog import load_tables, names_of
from engine.sources.mariadb_triggers.change_triggers import (
    PRIVILEGES,
    Look,
    create_triggers,
    install_layout,
    install_lock,
    look_at,
    why_unfit,
)
from engine.sources.mariadb_triggers.objects import derived_triggers, drop_statements, is_installed
from engine.sources.mariadb_triggers.reader_control import ShadowReaderControl

_CHANGED = "its triggers were dropped or created again by others: changes may be missing"
_ALTERED = (
    "the table, or foreign keys by which it depends on others, were changed, and its triggers record what was before"
)
_FOLLOW = "INSERT INTO penstock.followed VALUES (%s, %s, %s) ON DUPLICATE KEY UPDATE mark = VALUES(mark)"


class TriggeredTables:
    """`SentTables` by triggers. The marks of the triggers, as they were installed, are kept on the source."""

    traced = True

    def __init__(self, connector: Connector, watch: TableWatch) -> None:
        self._connector = connector
        self._watch = watch
        self._lock = threading.Lock()
        self._reported: dict[int, FaultKind] = {}
        """What `faults` has reported since the table was prepared, by the table's number. Each kind is reported once."""

    def prepare(
        self,
        tables: Sequence[TableSpec],
        reader: str,
        known: Collection[RelationId] = (),
        earlier: Earlier = Earlier.ANY,
    ) -> frozenset[RelationId]:
        del known  # The marks on the source say what was recorded.
        with self._lock, self._connector.session(reader, PRIVILEGES) as connection:
            install_layout(connection)
            look = look_at(connection, [table.source for table in tables], reader)
            fit = {name: table for name, table in look.tables.items() if why_unfit(table) is None}
            for name in fit:
                self._follow(connection, look, name, reader, earlier)
        self._watch.watch_again({name: table.relation for name, table in fit.items()})
        return frozenset(RelationId(table.relation) for table in fit.values())

    def _follow(
        self, connection: MariaDbConnection, look: Look, name: TableName, reader: str, earlier: Earlier
    ) -> None:
        """Let the table have triggers that record it as it is now, and the reader follow it."""
        relation, mark = look.tables[name].relation, look.mark(name)
        as_recorded = relation in look.followed and mark == look.followed[relation]
        is_known = self._reported.get(relation) is FaultKind.CHANGE_TRIGGERS_CHANGED
        if relation in look.followed and not (as_recorded or is_known) and earlier is not Earlier.ANY:
            return  # The next check reports it; to mend it before would hide that changes may be missing.
        self._reported.pop(relation, None)
        if as_recorded and look.is_current(name):
            return
        with install_lock(connection):
            again = look_at(connection, [name], reader)
            if name not in again.tables:
                return
            now = again.mark(name) if again.is_current(name) else create_triggers(connection, again, name)
            if now is not None:
                run(connection, _FOLLOW, reader, again.tables[name].relation, now)

    def recorded(self, reader: str) -> str | None:
        """The shadow log's identity: it changes if the log is dropped and created again."""
        with self._connector.session(reader) as connection:
            if not is_installed(connection):
                return None
            found = rows(connection, "SELECT log FROM penstock.control")
        return str(found[0][0]) if found else None

    def withdraw(self, tables: Sequence[TableSpec], reader: str) -> None:
        """Nothing: a trigger refuses no change of a table without a key."""

    def unpublished(
        self, tables: Sequence[TableSpec], reader: str, relations: Mapping[TableName, RelationId] | None = None
    ) -> tuple[str, ...]:
        with self._connector.session(reader) as connection:
            look = look_at(connection, [table.source for table in tables], reader)
        asked = relations or {}
        return tuple(
            f"changes of {name} are not recorded"
            for name, table in look.tables.items()
            if asked.get(name, table.relation) == table.relation
            and (table.relation not in look.followed or look.source(name) is None)
        )

    def faults(self, tables: Sequence[TableSpec], reader: str) -> dict[TableName, tuple[FaultKind, str]]:
        """The tables whose changes may be missing because of what others did. Each change is reported once."""
        with self._lock, self._connector.session(reader) as connection:
            look = look_at(connection, [table.source for table in tables], reader)
            wrong: dict[TableName, tuple[FaultKind, str]] = {}
            for name, table in look.tables.items():
                if table.relation not in look.followed:
                    continue
                for source in look.triggers[name].touched if name in look.triggers else ():
                    remove_touched(connection, source)
                found = _wrong(look, name)
                if found is None:
                    self._reported.pop(table.relation, None)
                elif self._reported.get(table.relation) is not found[0]:
                    wrong[name] = found
                    self._reported[table.relation] = found[0]
        return wrong

    def drop_left(self, reader: str) -> None:
        """Drop triggers on other tables that record rows of tables that are gone. Until then writes to those others are slower only."""
        with self._lock, self._connector.session(reader, PRIVILEGES) as connection:
            found = rows(connection, "SELECT relation FROM penstock.followed WHERE reader = %s", reader)
            followed = {int(relation) for (relation,) in found}
            for relation in sorted(followed - names_of(connection, followed).keys()):
                left = derived_triggers(connection, relation)
                if left.present:
                    with install_lock(connection):
                        for statement in drop_statements(left):
                            run(connection, statement)


def _wrong(look: Look, name: TableName) -> tuple[FaultKind, str] | None:
    table = look.tables[name]
    if look.mark(name) != look.followed[table.relation]:
        return FaultKind.CHANGE_TRIGGERS_CHANGED, _CHANGED
    problem = underived(table)
    if problem is not None:
        return FaultKind.CASCADE_UNCAPTURED, problem
    return None if look.is_current(name) else (FaultKind.TABLE_STRUCTURE_CHANGED, _ALTERED)


@dataclass(frozen=True, slots=True)
class _Moves:
    """Tables that were renamed, old name to new name, and those that are gone or were replaced, with the number under the name now."""

    renamed: Mapping[TableName, TableName] = field(default_factory=dict)
    replaced: Mapping[TableName, int] = field(default_factory=dict)


class TableWatch:
    """Remembers the numbers of tables, and reports those whose storage was replaced. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[TableName, int] = {}
        self._gone: dict[TableName, int] = {}
        """Number that had the table's name when its loss was reported; 0 = none."""

    def accept(self, name: TableName, relation: int) -> None:
        """Watch the number that has the name of a table reported as gone."""
        with self._lock:
            if self._gone.pop(name, None) is not None:
                self._numbers[name] = relation

    def watch_again(self, present: Mapping[TableName, int]) -> None:
        """Watch new tables, and again those whose loss was reported while they had these numbers."""
        with self._lock:
            for name, relation in present.items():
                if name not in self._numbers or self._gone.get(name) == relation:
                    self._gone.pop(name, None)
                    self._numbers[name] = relation

    def examine(self, connection: MariaDbConnection, names: Collection[TableName]) -> _Moves:
        """What has changed; each change is reported once."""
        present = {name: table.relation for name, table in load_tables(connection, names).items()}
        with self._lock:
            missing = {name: self._numbers[name] for name in names if name in self._numbers and name not in present}
        elsewhere = names_of(connection, list(missing.values()))
        renamed: dict[TableName, TableName] = {}
        replaced: dict[TableName, int] = {}
        with self._lock:
            for name in names:
                before, now = self._numbers.get(name), present.get(name, 0)
                if before is None:
                    if now:
                        self._numbers[name] = now
                elif now != before and self._gone.get(name) != now:
                    new = elsewhere.get(before)
                    if not now and new is not None and new not in names:
                        renamed[name] = new
                        self._numbers[new] = self._numbers.pop(name)
                        self._gone.pop(name, None)
                        continue
                    replaced[name] = self._gone[name] = now
        return _Moves(renamed, replaced)


class TriggerSafety:
    """`SourceSafety` over the marks of triggers, and the numbers of tables."""

    def __init__(
        self, connector: Connector, watch: TableWatch, tables: TriggeredTables, reader: ShadowReaderControl
    ) -> None:
        self._connector = connector
        self._watch = watch
        self._tables = tables
        self._reader = reader
        self._log: str | None = None
        """The shadow log's identity at the first check."""

    def check_reader(self, reader: str) -> GuardReading:
        return self._reader.check_reader(reader)

    def check(self, tables: Sequence[TableSpec], reader: str) -> GuardReading:
        with self._connector.session(reader) as connection:
            moves = self._watch.examine(connection, {table.source for table in tables})
        log = self._tables.recorded(reader)
        if self._log is None:
            self._log = log
        gone = () if log == self._log else ("the shadow log was dropped, or created again by others",)
        if log == self._log and 0 in moves.replaced.values():
            self._tables.drop_left(reader)
        wrong = self._tables.faults([t for t in tables if t.source not in moves.replaced], reader)
        replaced = {
            name: "its storage was replaced, as by TRUNCATE, or it was dropped and created again"
            if now
            else "the table was dropped"
            for name, now in moves.replaced.items()
        }
        return replace(
            self._reader.check_reader(reader),
            sending_faults=gone,
            partition_faults={**replaced, **{name: detail for name, (_, detail) in wrong.items()}},
            replaced={name: RelationId(now) for name, now in moves.replaced.items()},
            renamed=moves.renamed,
            sent_otherwise={name: kind for name, (kind, _) in wrong.items()},
        )

    def remember(self, marks: Mapping[TableName, str]) -> None:
        """Nothing: only partitioned tables have fingerprints."""

    def accept(self, table: TableName, relation: RelationId) -> None:
        self._watch.accept(table, relation)
