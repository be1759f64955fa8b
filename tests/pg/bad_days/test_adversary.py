"""Another client takes the slot, or changes publications and replica identities and restores them: it is reported, or changes nothing.

What is done, and between which two steps of ours, is drawn from a seed. `tests.chaos.run` does the same under load and kills.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from engine.link.messages import Report, SubscriptionStateReport
from engine.model.fault import EngineFault
from engine.model.subscription import QueueMode
from engine.model.subscription_state import DesiredState
from engine.platform.failpoints import Failpoint, held_file
from tests.chaos.meddling import (
    IDENTITY_WAYS,
    PUBLICATION_WAYS,
    SLOT_WAYS,
    Followed,
    of_identity,
    of_publication,
    of_slot,
    perform,
    take_slot,
)
from tests.fixtures.postgres import Database
from tests.fixtures.waiting import wait_until
from tests.pg.bad_days.conftest import PATIENCE_S, BadDay, BadDays, kill_reader, reloaded

pytestmark = pytest.mark.pg

ACTS = 5
_TABLES = (
    Followed("orders", ("id",), "UPDATE orders SET note = md5(random()::text) WHERE id = 7"),
    Followed("lines", ("order_id", "n"), "UPDATE lines SET sku = md5(random()::text) WHERE order_id = 7"),
)
_MOMENTS = ("running", "paused", Failpoint.READER_FREED, Failpoint.READER_BEFORE_OPEN, Failpoint.READER_OPENED)
_ALL = [("slot", what) for what in SLOT_WAYS] * 2
_ALL += [("publication", what) for what in PUBLICATION_WAYS] + [("identity", what) for what in IDENTITY_WAYS]


@contextmanager
def moment(replica: BadDay, armed: Path, which: str | Failpoint) -> Iterator[None]:
    """While all runs, in a pause, or while a process is held after the death of the log reader."""
    if isinstance(which, Failpoint):
        (armed / which.value).write_text("hold")
        kill_reader(replica)
        wait_until(held_file(armed, which).exists, PATIENCE_S)
        yield
        held_file(armed, which).unlink()
    elif which == "paused":
        replica.desire(DesiredState.PAUSED)
        replica.wait_state("paused")
        yield
        replica.desire(DesiredState.RUNNING)
    else:
        yield


def act(rng: random.Random, shop: Database, replica: BadDay, armed: Path, what: tuple[str, str]) -> str:
    """What was done. An act upon a running subscription comes and goes in one transaction, so that no look can come in between."""
    kind, way = what
    which = rng.choice(_MOMENTS)
    table = rng.choice(_TABLES)
    with shop.connect() as connection:
        if kind == "slot":
            meddling = of_slot(replica.spec.reader, way)
        elif kind == "publication":
            meddling = of_publication(connection, rng, replica.spec.reader, table, way)
        else:
            meddling = of_identity(connection, rng, table, way)
    with moment(replica, armed, which):
        if kind == "slot":
            done = take_slot(shop.connect, meddling, table.rows)
        else:
            done = perform(shop.connect, meddling, table.rows, lambda _: None)
    return f"{meddling.name} of {table.name}, {which}{'' if done else ', refused'}"


def failed_with(replica: BadDay) -> str | None:
    own = [r for r in replica.reports.all() if isinstance(r, SubscriptionStateReport)]
    return own[-1].code if own and own[-1].state == "failed" else None


def outcome(replica: BadDay) -> str | None:
    """The code with which the subscription failed; None where a wait for "now" over all tables has been satisfied."""

    def decided(_: list[Report]) -> bool:
        return failed_with(replica) is not None or replica._satisfies(position)

    while True:
        run = replica.pipeline.run
        with suppress(EngineFault):
            if run is not None:
                position = run.nows.read_now().position
                break
        with suppress(AssertionError):
            replica.reports.wait(lambda _: failed_with(replica), "failed", 0.1)
            return failed_with(replica)
    replica.pipeline.demand(position)
    replica.reports.wait(decided, f"failed, or {position} applied", PATIENCE_S)
    return failed_with(replica)


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.chaos) for n in range(2, 14))])
def test_what_is_done_to_a_subscription_is_announced_or_harmless(
    shop: Database, bad_day: BadDays, armed: Path, seed: int
) -> None:
    rng = random.Random(seed)
    replica = bad_day(shop, queue_mode=rng.choice((QueueMode.MEMORY, QueueMode.PERSIST)))
    for number, what in enumerate(rng.sample(_ALL, ACTS)):
        told = act(rng, shop, replica, armed, what)
        code = outcome(replica)
        assert code in {None, "log_gap", "publication_changed"}, f"{told}: {code}"
        if code is not None:
            replica.pipeline.reload(f"all-{number}", None)
            replica.reports.wait(lambda r, n=number: reloaded(r, f"all-{n}"), f"everything reloaded after {told}")
            replica.wait_live()
        verdicts = replica.verify()
        assert [v for v in verdicts if not v.equal] == [], told
        assert len(verdicts) == len(replica.spec.tables), told
