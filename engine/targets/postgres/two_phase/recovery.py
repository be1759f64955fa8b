"""Prepared transactions of ours: parts of a batch that wait for the decision in the progress record.

A part holds a share lock on its subscription's progress record from its first statement until it is committed, and has verified its
engine's epoch in it. The engine that decides a batch, and one that takes the subscription over, lock the record exclusively against each
other, but not against parts. Therefore:
- the record is moved only if every part is prepared, verified while the record is locked;
- a part whose end the record has reached is committed, any other rolled back, while the record is locked;
- an engine that has taken over waits until no part holds the record; then no part of an older engine is active.
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
"""How long to wait for parts of an older engine that are still being written."""
_TRY_MS = 200
"""Longest wait for the record's lock in ms per attempt; between attempts, parts that were prepared meanwhile are ended. Not measured."""


@dataclass(frozen=True, slots=True)
class PartId:
    """A part of a batch, identified by its global transaction id."""

    database: int
    """OID of its database: global ids are unique per cluster."""
    subscription: SubscriptionName
    epoch: Epoch
    end: Lsn
    """End of the batch."""
    part: int

    @property
    def gid(self) -> str:
        # The name is last: it may contain any character.
        return f"{_PREFIX} {self.database} {self.epoch} {self.end} {self.part} {self.subscription}"

    @classmethod
    def parse(cls, gid: str) -> PartId | None:
        """None if it is not one of ours."""
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
    """OID of the connection's database."""
    sql = "SELECT oid::pg_catalog.int8 FROM pg_database WHERE datname = current_database()"
    return int(connection.execute(sql).fetchall()[0][0])


def hold_as_part(connection: PostgresConnection, subscription: SubscriptionName, epoch: Epoch) -> None:
    """Lock the record at the start of a part's transaction. Raises EngineFault(EPOCH_LOST) if another engine has the claim."""
    row = connection.execute(
        f"SELECT epoch FROM {OWN_SCHEMA}.progress WHERE subscription = %s FOR KEY SHARE", [subscription]
    ).fetchone()
    if row is None or row[0] != epoch:
        raise EngineFault(FaultKind.EPOCH_LOST, subscription, "another engine has taken over this subscription")


def all_prepared(connection: PostgresConnection, parts: Sequence[PartId]) -> bool:
    """Whether every part is prepared. The caller holds the progress record, so none of them ends meanwhile."""
    there = {row[0] for row in connection.execute(_MINE).fetchall()}
    return there.issuperset(part.gid for part in parts)


def finish(connection: PostgresConnection, parts: Sequence[PartId], *, commit: bool) -> None:
    """Commit or roll back prepared parts; those that have already ended are ignored. Outside a transaction."""
    verb = "COMMIT" if commit else "ROLLBACK"
    for part in parts:
        try:
            connection.execute(f"{verb} PREPARED {literal(part.gid)}".encode())
        except errors.UndefinedObject:
            continue


def waiting_parts(connection: PostgresConnection, subscription: SubscriptionName) -> list[PartId]:
    """The subscription's prepared parts, of any engine."""
    found = [PartId.parse(row[0]) for row in connection.execute(_MINE).fetchall()]
    return [part for part in found if part is not None and part.subscription == subscription]


def settle_parts(connection: PostgresConnection, subscription: SubscriptionName, reached: Lsn | None) -> None:
    """End every part of the subscription as the progress record decides.

    `reached`: the recorded position, None if there is none. Another connection holds the record meanwhile.
    """
    mine = waiting_parts(connection, subscription)
    finish(connection, [part for part in mine if reached is not None and part.end <= reached], commit=True)
    finish(connection, [part for part in mine if reached is None or part.end > reached], commit=False)


def wait_alone(connection: PostgresConnection, subscription: SubscriptionName, reached: Lsn | None) -> None:
    """After a claim: wait until no part of an older engine is active. Prepared ones are ended as by `settle_parts`.

    Raises EngineFault(TARGET_UNAVAILABLE) if one remains active for too long.
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
