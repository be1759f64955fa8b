"""Triggers on the tables that a table refers to, which record what cascades of foreign keys do to its rows.

MariaDB fires no triggers on those rows. Before a row of the first table changes, a trigger notes the rows that the change can reach, in a
table of touched rows; the writer has the first row's lock by then, so no other session can add a reference to it. After the change another
trigger reads each of them, and records what it finds: the row is gone, or has new values. Nothing is guessed of what the cascade does,
so rows that it reaches by several paths, and statements with IGNORE, are recorded as they are. If the change does not take place, the
second trigger does not fire, or finds the rows as they were.

Only a row whose key the cascade changes has to be found under its new key, which follows from the foreign keys of the path. If it is at
neither place, or if another session may have added a reference meanwhile (`_check`), a mark is recorded that changes of the table may be
missing, so that it is copied again. Touched rows are removed later (`remove_touched`): a delete by the writer would lock ranges of the
table for other writers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.model.identity import TableName
from engine.sources.mariadb.connect import MariaDbConnection, number_of, quoted, rows, run
from engine.sources.mariadb_triggers.cascades import CascadePath, Cause, paths_to
from engine.sources.mariadb_triggers.catalog import TriggeredTable
from engine.sources.mariadb_triggers.objects import DERIVED, Trigger, row_text, touched_name

_REMOVED_AT_ONCE = 1_000
"""Batches of touched rows, one for each row that a cascade began at, that one statement removes. Not measured."""
_LOST = (1054, 1142, 1143, 1146)
"""Errors of a statement whose table or column is gone, or may not be read any more."""
_NO_RANGES = "@@tx_isolation IN ('READ-COMMITTED', 'READ-UNCOMMITTED')"


def underived(table: TriggeredTable) -> str | None:
    """Why triggers cannot record what cascades do to the table's rows, as text; None if they can."""
    for first in table.structure().parents:  # None without a key: then inserts are followed only, if at all.
        if any(paths_to(table.name, table.cascades, first, cause) is None for cause in Cause):
            keys = ", ".join(map(str, table.cascades))
            return f"cascades of {first} reach {table.name} on too many paths: {keys}"
    return None


def cascade_triggers(table: TriggeredTable, source: int, doubt: int) -> list[Trigger]:
    """The triggers that record the table's rows in cascades as changes of `source`, and marks that changes may be missing as `doubt`."""
    found: list[Trigger] = []
    for number, first in enumerate(table.structure().parents):
        for cause in Cause:
            paths = paths_to(table.name, table.cascades, first, cause) or []
            if paths:
                name = f"{DERIVED}{source}_{number}"
                texts = _Texts(table, first, cause, paths, source, doubt, f"@{name}")
                found.append(Trigger(first, f"{name}_before_{cause}", "BEFORE", cause.value, texts.before()))
                found.append(Trigger(first, f"{name}_after_{cause}", "AFTER", cause.value, texts.after()))
    return found


def touched_statement(table: TriggeredTable, source: int) -> str:
    """The statement that creates the table of touched rows; its key columns are as in the table itself."""
    keys = ", ".join(f"{quoted(name)} AS k{place}" for place, name in enumerate(table.key))
    return (
        f"CREATE TABLE {touched_name(source)} (batch bigint unsigned NOT NULL DEFAULT 0, place bigint unsigned NOT NULL DEFAULT 0,"
        " paths bigint unsigned NOT NULL DEFAULT 0, old longtext, PRIMARY KEY (batch, place))"
        f" ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin SELECT {keys}"
        f" FROM {quoted(table.name.schema, table.name.name)} LIMIT 0"
    )


@dataclass(frozen=True, slots=True)
class _Texts:
    """The bodies of the two triggers of one cause on one table. `batch`: a variable of the session."""

    table: TriggeredTable
    first: TableName
    cause: Cause
    paths: Sequence[CascadePath]
    source: int
    doubt: int
    batch: str

    @property
    def name(self) -> str:
        return quoted(self.table.name.schema, self.table.name.name)

    def before(self) -> str:
        """Notes the rows that can be reached, with numbers from 1."""
        return (
            f"BEGIN {self._handler()} SET {self.batch} = NULL, {self.batch}_rows = 0; IF {self._condition()} THEN"
            f" SET {self.batch} = NEXTVAL(penstock.numbers);{self._unseen()} {self._note()}; END IF; END"
        )

    def after(self) -> str:
        """Records what happened to each of them. They are read by their whole keys: with a binary log that is not by rows, other reads
        would lock ranges, in which other writers could note none."""
        touched, doubt = touched_name(self.source), self._doubtful()
        gone = f"INSERT INTO penstock.changes (source, op, old) VALUES ({self.source}, 'D', r.old)"
        lost = gone if self.cause is Cause.DELETE else doubt
        moved = self._moved()
        otherwise = f"{self._record(moved)}; IF ROW_COUNT() = 0 THEN {lost}; END IF" if moved else lost
        found = self._record([f"r.k{place}" for place in range(len(self.table.key))])
        return (
            f"BEGIN DECLARE b bigint unsigned DEFAULT {self.batch}; DECLARE n bigint unsigned DEFAULT 0;"
            f" DECLARE r ROW TYPE OF {touched}; {self._handler()}"
            f" IF {self._condition()} THEN IF b IS NULL THEN {doubt}; ELSE {self._check()}WHILE n < {self.batch}_rows DO SET n = n + 1;"
            f" SELECT * INTO r FROM {touched} t WHERE t.batch = b AND t.place = n;"
            f" {found}; IF ROW_COUNT() = 0 THEN {otherwise}; END IF; END WHILE; SET {self.batch} = NULL; END IF; END IF; END"
        )

    def _check(self) -> str:
        """Records a doubt if a row was reached, maybe, that was not noted.

        With READ COMMITTED, which locks no ranges, another session may add a reference after the note, where it locks only an index entry
        of the first row, or a row in between, which can only be read under a shared lock. If a row of the table itself does, its change was
        recorded after the note, and the row is no longer as that says. Only locking reads see what was committed since the writer's
        statement began.
        """
        places = [[facts.name for facts, _ in self.table.printed].index(name) + 1 for name in self.table.key]
        fields = [rf"SUBSTRING_INDEX(SUBSTRING_INDEX(c.new, '\t', {place}), '\t', -1)" for place in places]
        same = " AND ".join(f"t.{quoted(name)} = {field}" for name, field in zip(self.table.key, fields, strict=True))
        row, locked = row_text(self.table, "t"), "LOCK IN SHARE MODE SKIP LOCKED"
        return (
            f"IF {_NO_RANGES} AND EXISTS (SELECT 1 FROM penstock.changes c WHERE c.no > b AND c.source = {self.source} AND c.op <> 'D'"
            f" AND NOT EXISTS (SELECT 1 FROM {self.name} t WHERE {same} AND BINARY {row} = BINARY c.new {locked}) {locked})"
            f" THEN {self._doubtful()}; END IF; "
        )

    def _unseen(self) -> str:
        """The same if it is a row of another table in between, whose changes are not examined: then with READ COMMITTED always."""
        keys = {path.keys[0]: None for path in self.paths if any(key.child != self.table.name for key in path.keys[1:])}
        found = []
        for key in keys:
            pairs = zip(key.columns, key.referenced, strict=True)
            refers = " AND ".join(f"c1.{quoted(column)} = OLD.{quoted(referenced)}" for column, referenced in pairs)
            name = quoted(key.child.schema, key.child.name)
            found.append(f"EXISTS (SELECT 1 FROM {name} c1 WHERE {refers} LOCK IN SHARE MODE)")
        if not found:
            return ""
        return f" IF {_NO_RANGES} AND ({' OR '.join(found)}) THEN {self._doubtful()}; END IF;"

    def _doubtful(self) -> str:
        return f"INSERT INTO penstock.changes (source, op) VALUES ({self.doubt}, 'S')"

    def _handler(self) -> str:
        """If the table was dropped, or a column of it, or rights on it were taken away, writes to the other table still succeed."""
        return f"DECLARE EXIT HANDLER FOR {', '.join(map(str, _LOST))} {self._doubtful()};"

    def _condition(self) -> str:
        """Whether there is a cascade."""
        if self.cause is Cause.DELETE:
            return "@@foreign_key_checks"
        changed = " OR ".join(dict.fromkeys(self._changed(path) for path in self.paths))
        return f"@@foreign_key_checks AND ({changed})"

    @staticmethod
    def _changed(path: CascadePath) -> str:
        """Whether the columns change that the path begins with, also to a value that only compares as equal."""
        names = [quoted(name) for name in path.keys[0].referenced]
        same = [f"NEW.{n} <=> OLD.{n} AND BINARY NEW.{n} <=> BINARY OLD.{n}" for n in names]
        return f"NOT ({' AND '.join(same)})"

    def _note(self) -> str:
        """A locking read sees rows as they are, not as in the writer's snapshot. FOR UPDATE fails where the statement uses the table."""
        keys = [f"k{number}" for number in range(len(self.table.key))]
        values = [f"t.{quoted(name)}" for name in self.table.key]
        if len(self.paths) == 1:
            paths, rest = "1", self._reached(self.paths[0])
        else:
            listed = ", ".join(f"{value} AS {key}" for value, key in zip(values, keys, strict=True))
            reached = " UNION ALL ".join(
                f"(SELECT STRAIGHT_JOIN {1 << place} AS path, {listed} {self._reached(path)})"
                for place, path in enumerate(self.paths)
            )
            same = " AND ".join(f"{value} = g.{key}" for value, key in zip(values, keys, strict=True))
            grouped = f"SELECT BIT_OR(path) AS paths, {', '.join(keys)} FROM ({reached}) u GROUP BY {', '.join(keys)}"
            paths, rest = "g.paths", f"FROM ({grouped}) g JOIN {self.name} t ON {same} LOCK IN SHARE MODE"
        return (
            f"INSERT INTO {touched_name(self.source)} (batch, place, paths, {', '.join(keys)}, old) SELECT STRAIGHT_JOIN {self.batch},"
            f" {self.batch}_rows := {self.batch}_rows + 1, {paths}, {', '.join(values)}, {row_text(self.table, 't')} {rest}"
        )

    def _reached(self, path: CascadePath) -> str:
        """The part of a query from FROM on, which has the rows that a path leads to as `t`."""
        above_it, joins = "OLD", []
        conditions = [self._changed(path)] if self.cause is Cause.UPDATE else []
        for alias, key in zip([*(f"c{level}" for level in range(1, len(path.keys))), "t"], path.keys, strict=True):
            pairs = zip(key.columns, key.referenced, strict=True)
            conditions += [
                f"{alias}.{quoted(column)} = {above_it}.{quoted(referenced)}" for column, referenced in pairs
            ]
            joins.append(f"{quoted(key.child.schema, key.child.name)} {alias}")
            above_it = alias
        if self.first == self.table.name:
            itself = " AND ".join(f"t.{quoted(name)} <=> OLD.{quoted(name)}" for name in self.table.key)
            conditions.append(f"NOT ({itself})")
        return f"FROM {' JOIN '.join(joins)} WHERE {' AND '.join(conditions)} LOCK IN SHARE MODE"

    def _record(self, values: Sequence[str]) -> str:
        found = " AND ".join(f"t.{quoted(name)} = {value}" for name, value in zip(self.table.key, values, strict=True))
        return (
            f"INSERT INTO penstock.changes (source, op, old, new) SELECT {self.source}, 'U', r.old, {row_text(self.table, 't')}"
            f" FROM {self.name} t WHERE {found} LOCK IN SHARE MODE"
        )

    def _moved(self) -> list[str]:
        """A row's key after the cascade, by the paths that reach it; empty if no path changes it."""
        values = []
        for number, name in enumerate(self.table.key):
            choices = [
                f"WHEN r.paths & {1 << place} THEN NEW.{quoted(path.moved[name])}"
                for place, path in enumerate(self.paths)
                if name in path.moved
            ]
            values.append(f"CASE {' '.join(choices)} ELSE r.k{number} END" if choices else f"r.k{number}")
        return values if any(value.startswith("CASE") for value in values) else []


def remove_touched(connection: MariaDbConnection, source: int) -> None:
    """Remove touched rows whose writers have committed: they have been recorded, or their change did not take place."""
    name = touched_name(source)
    try:
        # What is read without a lock is committed, so the delete waits for no writer.
        while listed := rows(connection, f"SELECT DISTINCT batch FROM {name} LIMIT {_REMOVED_AT_ONCE}"):
            batches = ", ".join(str(int(batch)) for (batch,) in listed)
            run(connection, f"DELETE FROM {name} WHERE batch IN ({batches})")
    except Exception as error:
        if number_of(error) is None:
            raise
