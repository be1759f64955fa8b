"""Verifications with repair of a running subscription, and errors to plant on its target."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from engine.connectors import open_source
from engine.control.supervisor import SubscriptionSupervisor
from engine.control.table_repairs import TableRepairs
from engine.control.verification import Comparing, VerificationReport
from engine.link.verifications import Verification, VerifiedTable, Verify
from engine.model.soft_delete import DeleteMode
from engine.model.source import ExportedSnapshot
from engine.model.verification import RepairMode, VerificationMethod
from engine.platform.clock import SystemClock
from engine.verify.compare import VerifyLimits
from engine.verify.sampling import Sampling
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table


def _nothing() -> None:
    return None


class MeddledCuts:
    """The cuts of a run. `before` is called before the cut of the first repair, `within` when its snapshot was made."""

    def __init__(self, cuts: Any, before: Callable[[], None], within: Callable[[], None]) -> None:
        self._cuts = cuts
        self._before = before
        self._within = within

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cuts, name)

    def write_at_cut(self, read: Callable[[ExportedSnapshot], Any], write: Callable[..., Any]) -> Any:
        self._before()
        within, self._before, self._within = self._within, _nothing, _nothing

        def meddled(snapshot: ExportedSnapshot) -> Any:
            within()
            return read(snapshot)

        return self._cuts.write_at_cut(meddled, write)


class _Last:
    """A link that keeps the last report."""

    def __init__(self) -> None:
        self.report_: Verification | None = None

    def report(self, report: Verification) -> None:
        self.report_ = report


def verification(
    pipeline: SubscriptionSupervisor,
    *,
    apply: bool = True,
    method: VerificationMethod = VerificationMethod.ROWS,
    sample: float = 1.0,
    budget: float = 1.0,
    before: Callable[[], None] = _nothing,
    within: Callable[[], None] = _nothing,
) -> Verification:
    """The last report of a verification with repair of all live tables. Arguments as of MeddledCuts."""
    run = pipeline.run
    assert run is not None
    link, source = _Last(), open_source(pipeline.spec.source)
    mode = RepairMode.APPLY if apply else RepairMode.PREVIEW
    command = Verify(subscription=pipeline.spec.name, verification_id="v1", method=method, repair=mode)
    report = VerificationReport(link, command, 1, SystemClock())  # type: ignore[arg-type]  # a link of its own
    specs = {entry.table: entry.spec for entry in pipeline.book.all()}
    cuts: Any = MeddledCuts(run.cuts, before, within)
    try:
        how = Comparing(method, Sampling(sample, "v1") if sample < 1 else None, limits=VerifyLimits(budget=budget))
        repairs = TableRepairs(cuts, source, specs, report, threading.Event(), how)
        repairs.run("v1", None, apply=apply)
    finally:
        source.close()
    report.end("succeeded")
    assert link.report_ is not None
    return link.report_


def repaired(replica: Replica, **options: Any) -> dict[str, VerifiedTable]:
    """The results of a verification with repair by source name; options as of `verification`."""
    report = verification(replica.pipeline, **options)
    assert report.problem is None, report.problem
    names = {str(spec.table): spec.source.name for spec in replica.spec.tables}
    return {names[found.table]: found for found in report.tables}


def plant(replica: Replica, statements: Sequence[str]) -> None:
    """Execute statements on the target, as the engine's user."""
    target: Any = replica.pipeline.target
    with target.writing() as writer:
        for statement in statements:
            writer.tables.execute(statement)


def kept(replica: Replica) -> list[tuple[Any, ...]]:
    """The repaired rows that the target keeps: kind, key, row before and after."""
    return replica.look("SELECT kind, row_key, row_before, row_after FROM penstock.repaired_rows ORDER BY 2, 1")


FOLLOWED = """
CREATE TABLE kept (id int PRIMARY KEY, note text);
INSERT INTO kept SELECT i, 'note ' || i FROM generate_series(1, 50) i;
CREATE TABLE chosen (a int, b bigint, region text NOT NULL, PRIMARY KEY (a, b));
ALTER TABLE chosen REPLICA IDENTITY FULL;
INSERT INTO chosen SELECT i % 7, i, CASE WHEN i % 3 = 0 THEN 'eu' ELSE 'us' END FROM generate_series(1, 90) i;
"""
FOLLOWED_TABLES = [table("kept", deletes=DeleteMode.MARK), table("chosen", where="region = 'eu'")]


def assert_followed_rows_are_equal(database: Database, replica: Replica) -> None:
    """Digests leave out what the subscription does not follow, and rows that the target keeps marked as deleted."""
    database.execute("DELETE FROM kept WHERE id <= 20; UPDATE chosen SET region = 'eu' WHERE a = 1")
    replica.catch_up()
    found = repaired(replica, apply=False, method=VerificationMethod.CHECKSUM)
    ((chosen,),) = database.execute("SELECT count(*) FROM chosen WHERE region = 'eu'")
    figures = {name: (one.equal, one.source_rows, one.method, one.by_rows_because) for name, one in found.items()}
    assert figures == {
        "kept": (True, 30, VerificationMethod.CHECKSUM, None),
        "chosen": (True, chosen, VerificationMethod.CHECKSUM, None),
    }
