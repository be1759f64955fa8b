"""Changes that another user may make to slot, publications and replica identities of a subscription, and how they are reverted."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

Connection = psycopg.Connection[Any]

_TRIES = 20
_ALL = "insert, update, delete, truncate"
_APART = ("in one transaction", "at once", "over a look")
_LIMITS = "SET lock_timeout = '5s'; SET statement_timeout = '20s'"
LOOK_S = 4.0
"""Longer than the guard rests between two looks."""


@dataclass(frozen=True, slots=True)
class Meddling:
    """`change`, and `back` to what was there; where `back` is empty, it stays so. `apart`: how the two come one after the other."""

    kind: str
    what: str
    change: tuple[str, ...]
    back: tuple[str, ...] = ()
    apart: str = "at once"

    @property
    def name(self) -> str:
        return f"{self.kind} {self.what}" + (f", back {self.apart}" if self.back else "")


@dataclass(frozen=True, slots=True)
class Followed:
    """A table: the columns of its key, and a change of some rows of it that breaks nothing."""

    name: str
    key: tuple[str, ...]
    rows: str


def slot_of(connection: Connection) -> tuple[str, bool] | None:
    """The name of the subscription's slot, and whether it is read; None where there is none."""
    sql = "SELECT slot_name, active FROM pg_replication_slots WHERE slot_name LIKE 'penstock%' AND NOT temporary"
    row = connection.execute(sql).fetchone()
    return None if row is None else (str(row[0]), bool(row[1]))


SLOT_WAYS = ("advanced", "read", "dropped", "made again")


def of_slot(slot: str, what: str) -> Meddling:
    """`what`: one of SLOT_WAYS."""
    drop = f"SELECT pg_drop_replication_slot('{slot}')"
    ways = {
        "advanced": (f"SELECT pg_replication_slot_advance('{slot}', pg_current_wal_lsn())",),
        "read": (
            f"SELECT count(*) FROM pg_logical_slot_get_binary_changes('{slot}', NULL, NULL, 'proto_version', '1',"
            f" 'publication_names', '{slot}')",
        ),
        "dropped": (drop,),
        "made again": (drop, f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')"),
    }
    return Meddling("slot", what, ways[what])


PUBLICATION_WAYS = ("operations", "root", "member", "filter", "columns", "publication", "comment", "name", "schema")


def of_publication(
    connection: Connection, rng: random.Random, publication: str, table: Followed, what: str
) -> Meddling:
    """`what`: one of PUBLICATION_WAYS. `table`: a member of the publication."""
    p, t = f'"{publication}"', f"public.{table.name}"
    away, ways = f"ALTER PUBLICATION {p} DROP TABLE {t}", _put_back(connection, publication)
    again = f"ALTER PUBLICATION {p} ADD TABLE ONLY {t}"
    made: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
        "operations": (
            (f"ALTER PUBLICATION {p} SET (publish = 'insert')",),
            (f"ALTER PUBLICATION {p} SET (publish = '{_ALL}')",),
        ),
        "root": (
            (f"ALTER PUBLICATION {p} SET (publish_via_partition_root = false)",),
            (f"ALTER PUBLICATION {p} SET (publish_via_partition_root = true)",),
        ),
        "member": ((away,), (again,)),
        "filter": ((away, f"{again} WHERE (false)"), (away, again)),
        "columns": ((away, f"{again} ({', '.join(table.key)})"), (away, again)),
        "publication": ((f"DROP PUBLICATION {p}",), ways[:1]),
        "comment": ((f"DROP PUBLICATION {p}",), ways),
        "name": ((f"ALTER PUBLICATION {p} RENAME TO away",), (f"ALTER PUBLICATION away RENAME TO {p}",)),
        "schema": (
            (f"ALTER PUBLICATION {p} ADD TABLES IN SCHEMA public",),
            (f"ALTER PUBLICATION {p} DROP TABLES IN SCHEMA public",),
        ),
    }
    return Meddling("publication", what, *made[what], apart=rng.choice(_APART))


def _put_back(connection: Connection, publication: str) -> tuple[str, ...]:
    """What makes the publication again as it is: CREATE, and its comment."""
    sql = "SELECT oid, obj_description(oid, 'pg_publication') FROM pg_publication WHERE pubname = %s"
    row = connection.execute(sql, [publication]).fetchone()
    assert row is not None, f"there is no publication {publication}"
    members = connection.execute(
        "SELECT prrelid::regclass::text FROM pg_publication_rel WHERE prpubid = %s ORDER BY 1", [row[0]]
    ).fetchall()
    listed = ", ".join(f"ONLY {name}" for (name,) in members)
    generated = ", publish_generated_columns = stored" if connection.info.server_version >= 180000 else ""
    create = (
        f'CREATE PUBLICATION "{publication}" FOR TABLE {listed}'
        f" WITH (publish = '{_ALL}', publish_via_partition_root{generated})"
    )
    return create, f"COMMENT ON PUBLICATION \"{publication}\" IS '{row[1]}'"


IDENTITY_WAYS = ("FULL", "NOTHING", "key")


def of_identity(connection: Connection, rng: random.Random, table: Followed, what: str) -> Meddling:
    """Another replica identity for a table that has its primary key for one."""
    name = f"public.{table.name}"
    if what != "key":
        change, back = (f"ALTER TABLE {name} REPLICA IDENTITY {way}" for way in (what, "DEFAULT"))
        return Meddling("identity", what, (change,), (back,), rng.choice(_APART[1:]))
    sql = "SELECT conname FROM pg_constraint WHERE conrelid = %s::regclass AND contype = 'p'"
    row = connection.execute(sql, [name]).fetchone()
    assert row is not None, f"{name} has no primary key"
    change = f"ALTER TABLE {name} DROP CONSTRAINT {row[0]}"
    back = f"ALTER TABLE {name} ADD CONSTRAINT {row[0]} PRIMARY KEY ({', '.join(table.key)})"
    return Meddling("identity", what, (change,), (back,), rng.choice(_APART))


def perform(connect: Callable[[], Connection], meddling: Meddling, rows: str, pause: Callable[[float], object]) -> bool:
    """Do it; rows of a table are changed between the change and the way back. Whether the source let it happen.

    What was changed is put back whatever happens in between.
    """
    with connect() as connection:
        connection.execute(_LIMITS)
        if meddling.apart == "in one transaction":
            return _tried(lambda: _in_one(connection, meddling, rows))
        if not _tried(lambda: _each(connection, meddling.change)):
            return False
        try:
            _tried(lambda: _each(connection, (rows,)))
            if meddling.apart == "over a look":
                pause(LOOK_S)
        finally:
            done = _tried(lambda: _each(connection, meddling.back))
    assert done, f"{meddling.name} could not be put back"
    return True


def take_slot(connect: Callable[[], Connection], meddling: Meddling, rows: str) -> bool:
    """Change a slot right after the session that reads it ends. Whether it succeeded before the next session."""
    with connect() as connection:
        connection.execute(_LIMITS)
        _tried(lambda: _each(connection, (rows,)))
        for _ in range(_TRIES):
            try:
                connection.execute(
                    "SELECT pg_terminate_backend(active_pid, 2000) FROM pg_replication_slots"
                    " WHERE active AND NOT temporary AND slot_name LIKE 'penstock%'"
                )
                _each(connection, meddling.change)
            except psycopg.errors.ObjectInUse:
                continue
            except psycopg.Error:
                return False
            return True
    return False


def _in_one(connection: Connection, meddling: Meddling, rows: str) -> None:
    with connection.transaction():
        _each(connection, (*meddling.change, rows, *meddling.back))


def _each(connection: Connection, statements: tuple[str, ...]) -> None:
    for statement in statements:
        connection.execute(statement.encode())


def _tried(act: Callable[[], None]) -> bool:
    """Retry after a lock timeout or a deadlock; False if the source refuses it."""
    for _ in range(_TRIES):
        try:
            act()
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected, psycopg.errors.QueryCanceled):
            continue
        except psycopg.Error:
            return False
        return True
    return False


FOLLOWED: Mapping[str, Followed] = {
    each.name: each
    for each in (
        Followed("checking", ("id",), "UPDATE checking SET statement = repeat(md5(random()::text), 100) WHERE id = 7"),
        Followed("savings", ("branch", "id"), "UPDATE savings SET branch = branch + 7 WHERE id = 7"),
        Followed(
            "entries",
            ("move", "side"),
            "UPDATE entries SET amount = -amount WHERE move = (SELECT min(move) FROM entries)",
        ),
        Followed("labels", ("name",), "UPDATE labels SET name = 'label ' || md5(random()::text) WHERE holder = 7"),
        Followed(
            "vault",
            ("keeper", "place"),
            "UPDATE vault SET note = md5(random()::text) WHERE keeper = 3 AND abs(place) = 7",
        ),
    )
}
"""Tables of the bank, with rows that may be changed without breaking its sums."""
