"""Prepared transactions of ours: parts of a batch that wait for the progress record to say that the batch counts.

A part holds a share lock on its subscription's progress record from its first statement until it is committed, and has seen its
own engine's epoch there. Whoever decides, the engine that moves the record or the one that takes it over, holds the record against
each other, but not against the parts. So:

- the record is moved only where every part is prepared, looked up while the record is held;
- a part whose end the record has reached is committed, any other rolled back, while the record is held;
- whoever has taken the record over waits for it without any part before it goes on: then none of an older engine is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

from psycopg import errors

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import Epoch, SubscriptionName
from engine.model.position import Lsn
from engine.postgres.sessions import PostgresConnection
from engine.targets.postgres.identifiers import literal
from engine.targets.target_metadata import OWN_SCHEMA

_PREFIX = "penstock"
_MINE = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND gid LIKE 'penstock %' ORDER BY gid"
_ALONE_S = 30.0
"""How long parts of an older engine that are still being written are waited for."""
_TRY_MS = 200


@dataclass(frozen=True, slots=True)
class PartId:
    """A part of a batch, as the database knows it by its global id."""

    database: int
    """Its oid: global ids are those of a whole cluster."""
    subscription: SubscriptionName
    epoch: Epoch
    end: Lsn
    """Of the batch."""
    part: int

    @property
    def gid(self) -> str:
        # The name comes last: it may hold anything.
        return f"{_PREFIX} {self.database} {self.epoch} {self.end} {self.part} {self.subscription}"

    @classmethod
    def parse(cls, gid: str) -> PartId | None:
        """None where it is not one of ours."""
        words = gid.split(" ", 5)
        if len(words) != 6 or words[0] != _PREFIX:
            return None
        try:
            return cls(
                int(words[1]), SubscriptionName(words[5]), Epoch(int(words[2])), Lsn.parse(words[3]), int(words[4])
            )
        except ValueError:
            return None


def database_of(connection: PostgresConnection) -> int:
    """The oid of the connection's database."""
    sql = "SELECT oid::pg_catalog.int8 FROM pg_database WHERE datname = current_database()"
    return int(connection.execute(sql).fetchall()[0][0])


def hold_as_part(connection: PostgresConnection, subscription: SubscriptionName, epoch: Epoch) -> None:
    """In a part's transaction, before anything else. Raises EngineFault(EPOCH_LOST) where the claim is another engine's."""
    row = connection.execute(
        f"SELECT epoch FROM {OWN_SCHEMA}.progress WHERE subscription = %s FOR KEY SHARE", [subscription]
    ).fetchone()
    if row is None or row[0] != epoch:
        raise EngineFault(FaultKind.EPOCH_LOST, subscription, "another engine has taken this subscription over")


def all_prepared(connection: PostgresConnection, parts: Sequence[PartId]) -> bool:
    """Whether every part waits. The caller holds the progress record, so none of them is ended meanwhile."""
    there = {row[0] for row in connection.execute(_MINE).fetchall()}
    return there.issuperset(part.gid for part in parts)


def finish(connection: PostgresConnection, parts: Sequence[PartId], *, commit: bool) -> None:
    """End prepared parts; those that have been ended already are passed over. Outside a transaction."""
    verb = "COMMIT" if commit else "ROLLBACK"
    for part in parts:
        try:
            connection.execute(f"{verb} PREPARED {literal(part.gid)}".encode())
        except errors.UndefinedObject:
            continue


def waiting_parts(connection: PostgresConnection, subscription: SubscriptionName) -> list[PartId]:
    """The subscription's parts that are prepared, of whatever engine."""
    found = [PartId.parse(row[0]) for row in connection.execute(_MINE).fetchall()]
    return [part for part in found if part is not None and part.subscription == subscription]


def settle_parts(connection: PostgresConnection, subscription: SubscriptionName, reached: Lsn | None) -> None:
    """End every part of the subscription as the progress record says.

    `reached`: the position on record, None where there is none. The record is held over another connection meanwhile.
    """
    mine = waiting_parts(connection, subscription)
    finish(connection, [part for part in mine if reached is not None and part.end <= reached], commit=True)
    finish(connection, [part for part in mine if reached is None or part.end > reached], commit=False)


def wait_alone(connection: PostgresConnection, subscription: SubscriptionName, reached: Lsn | None) -> None:
    """Behind a claim: until no part of an older engine is at work any more. What it leaves is ended as in `settle_parts`.

    Raises EngineFault(TARGET_UNAVAILABLE) where one goes on for too long.
    """
    deadline = monotonic() + _ALONE_S
    while True:
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = {_TRY_MS}")
                connection.execute(
                    f"SELECT FROM {OWN_SCHEMA}.progress WHERE subscription = %s FOR UPDATE", [subscription]
                )
            return
        except errors.LockNotAvailable as error:
            settle_parts(connection, subscription, reached)
            if monotonic() > deadline:
                detail = "an older engine is still writing a part of a batch"
                raise EngineFault(FaultKind.TARGET_UNAVAILABLE, subscription, detail) from error
