"""One run of random schema changes: its own tables, random transactions and disturbances, comparisons during the run and at its end."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from time import monotonic
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from engine.model.fault import EngineFault
from engine.model.identity import TableId, TableName
from engine.model.subscription import TableSpec
from engine.tables.parking import RENEWALS
from engine.verify.verdict import TableVerdict
from tests.chaos.ddl_compare import difference
from tests.chaos.ddl_model import Table
from tests.chaos.ddl_standing import LOOK_S, NOT_DECODED, Standing
from tests.chaos.ddl_tables import new_table, other_schema
from tests.chaos.ddl_transactions import Statement, Transaction, step
from tests.chaos.standstill import standstill
from tests.fixtures.replication import table as spec_of

LOAD_S = 11.0
_STEPS = (30, 60)
_PAUSES_S = (0.0, 0.0, 0.0, 0.02, 0.05, 0.15, 0.3)
_STREAMED = 0.4
"""Share of runs in which all changes are streamed; in others only those that do not fit into memory."""
_CAPTURED = 0.5
"""Share of runs with DDL capture, if it is left to chance."""
_SENT_S = 30.0
_TRUTH = 0.2
"""How often a step is followed by a wait for "now", and then by a comparison."""
_LATE = 0.25
"""How often a table is not in the subscription to begin with."""
_CUTS = 3
_CUT_S = 60.0
_RELOADS = 3
"""How often at the end a parked table is copied again, as its remedy says."""
_LIMITS = "SET lock_timeout = '3s'; SET statement_timeout = '10s'; SET client_min_messages = 'error'"
_MEANWHILE: tuple[tuple[float, str], ...] = (
    (0.05, "reload"),
    (0.05, "pause"),
    (0.05, "resume"),
    (0.03, "remove"),
    (0.06, "add"),
    (0.012, "kill"),
    (0.012, "restart"),
)
"""Events concurrent with the transactions, with their probability for each."""


@dataclass
class Counts:
    """Numbers of acts and of their outcomes."""

    transactions: int = 0
    rolled_back: int = 0
    statements: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    meanwhile: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    renewed: int = 0
    captured: int = 0
    """Runs with DDL capture."""
    sent_open: int = 0
    """Transactions made to be sent while they were open."""
    stream_txns: int = 0
    stream_count: int = 0
    """What the source counted of that, over all transactions."""
    waits: int = 0
    """How many waits for "now" were satisfied, and the tables that they covered were as on the source."""
    cuts: int = 0
    compared: int = 0
    ended: Counter[str] = field(default_factory=Counter)

    def add(self, other: Counts) -> None:
        """Add the counts of another run."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def document(self) -> dict[str, int | dict[str, int]]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: dict(sorted(v.items())) if isinstance(v, Counter) else v for name, v in values.items()}


class RunFailed(AssertionError):
    """A run found a failure. `history`: what was done and reported in it, line by line."""

    def __init__(self, found: str, history: list[str]) -> None:
        super().__init__(found)
        self.history = history


class Run:
    """`go` plays one run; `counts` at any time."""

    def __init__(self, standing: Standing, seed: int, number: int) -> None:
        self.counts = Counts()
        self._standing = standing
        self._rng = random.Random(f"{seed}/{number}")
        self._at_once = self._rng.random() < _STREAMED
        self._captured = self._rng.random() < _CAPTURED if standing.capture is None else standing.capture
        self._home = f"run{number}"
        self._tables: dict[str, Table] = {}
        self._specs: dict[str, TableSpec] = {}
        """In the subscription now."""
        self._places: dict[str, TableName] = {}
        self._doubtful: set[str] = set()
        """Tables whose schema changed since the catalog was last known to have been read."""
        self._once: dict[str, set[str]] = {}
        """What each table was at any time that may park it: `missing` or `unidentified`."""
        self._history: list[tuple[float, str]] = []
        self._began = monotonic()
        self._pause = threading.Event()
        self._requests = 0

    def go(self) -> None:
        """RunFailed where something is found. Afterwards nothing of this run is left on the source or in the subscription."""
        self._standing.reports.forget()
        try:
            with ExitStack() as stack:
                self._sessions = [stack.enter_context(self._standing.database.connect()) for _ in range(2)]
                for session in self._sessions:
                    session.execute(_LIMITS)
                self._begin()
                self._load()
                self._finish()
                self._leave_streams()
            self._leave()
        except (AssertionError, EngineFault, psycopg.Error) as error:
            raise RunFailed(
                f"{type(error).__name__}: {error}",
                [*self._lines(), *self._standing.complaints(), *standstill(self._standing.database)],
            ) from error
        finally:
            self.counts.events.update(self._standing.reports.events)
            self.counts.renewed = self._standing.reports.renewed

    # Beginning and end.

    def _begin(self) -> None:
        self._standing.stream_at_once(on=self._at_once)
        self._standing.capture_ddl(on=self._captured)
        self.counts.captured += self._captured
        self._note(
            f"changes are sent {'at once' if self._at_once else 'as memory takes it'}; the source tells its DDL: {self._captured}"
        )
        self._streams = self._standing.streams()
        self._do(0, f"CREATE SCHEMA {self._home}; CREATE SCHEMA {other_schema(self._home)}")
        for label in [f"t{n}" for n in range(1, self._rng.randint(3, 5) + 1)]:
            self._tables[label], statements = new_table(self._rng, label, self._home)
            for sql in statements:
                self._do(0, sql)
            self._places[label] = TableName(self._home, label)
            self._once[label] = set()
            if self._rng.random() >= _LATE:
                self._add(label)
        self._declare()
        if self._rng.random() < 0.6:
            self._standing.reports.wait_until(
                lambda: all(self._state(label) == "live" for label in self._specs), "its tables live to begin with"
            )

    def _leave_streams(self) -> None:
        """Count what was sent of open transactions; AssertionError where nothing was, although it was to be."""
        now = self._standing.streams()
        txns, count = (max(0, after - before) for after, before in zip(now, self._streams, strict=True))
        self.counts.stream_txns += txns
        self.counts.stream_count += count
        assert count or not self.counts.sent_open or NOT_DECODED in self._standing.reports.events, (
            f"the source sent no open transaction, of {self.counts.sent_open} made for that"
        )

    def _finish(self) -> None:
        """Everything that may be live has to be, and equal."""
        self._standing.wait_running()
        for label, table in self._tables.items():
            if label not in self._specs and table.exists:
                self._add(label)
        self._specs = {label: replace(spec, paused=False) for label, spec in self._specs.items()}
        self._note("everything is to be live")
        self._declare()
        self._standing.look()
        self._standing.look()
        self._rest()
        self._cut()
        for label in self._specs:
            state = self._standing.state(self._specs[label])
            assert state is not None
            assert state.state == self._wanted(label), (
                f"{label} is {state.state} ({state.code}), not {self._wanted(label)}"
            )
            self.counts.ended[" ".join(filter(None, (state.state, state.code)))] += 1
            if self._tables[label].exists and state.state == "live":
                name = TableName(state.schema_name, state.name)
                now = TableName(self._tables[label].schema, self._tables[label].name)
                assert name == now, f"{label} goes by {name} and is {now}"

    def _wanted(self, label: str) -> str:
        """Where a table has to end. One that lost its identity and had no row since may be live as well."""
        table = self._tables[label]
        if table.exists and not table.followed and self._state(label) == "live":
            return "live"
        return "live" if table.exists and table.followed else "parked"

    def _rest(self) -> None:
        """Wait until every table's state is stable; parked tables that can be followed again are copied again, as their remedy says."""
        for _ in range(_RELOADS):
            self._standing.reports.wait_until(
                lambda: all(self._state(label) in {"live", "parked"} for label in self._specs), "all tables at rest"
            )
            if any(self._code(label) == "net_change_anomaly" for label in self._specs):
                # If rows were rewritten with other values, the next read of the catalog explains it.
                self._standing.look()
                self._standing.reports.wait_until(
                    lambda: all(self._state(label) in {"live", "parked"} for label in self._specs), "all tables at rest"
                )
            parked = [label for label in self._specs if self._state(label) == "parked"]
            for label in parked:
                self._judge_park(label)
            again = [label for label in parked if self._wanted(label) == "live"]
            if not again:
                return
            self._reload(again)
            self._standing.reports.wait_until(partial(self._none_parked, again), "copied anew")

    def _none_parked(self, labels: list[str]) -> bool:
        return all(self._state(label) != "parked" for label in labels)

    def _judge_park(self, label: str) -> None:
        spec, once = self._specs[label], self._once[label]
        report = self._standing.state(spec)
        assert report is not None
        renewals = self._standing.reports.renewals[spec.table]
        allowed = {
            "table_missing": "missing" in once,
            "table_no_identity": "unidentified" in once,
            "table_structure_changed": renewals >= RENEWALS,
            "table_partitions_changed": renewals >= RENEWALS,
        }
        assert allowed.get(report.code or "", False), f"{label} parked: {report.code}: {report.reason}"

    def _leave(self) -> None:
        self._specs.clear()
        self._declare()
        database = self._standing.database
        database.execute(f"DROP SCHEMA {self._home}, {other_schema(self._home)} CASCADE")
        self._standing.catch_up()

    # Load.

    def _load(self) -> None:
        steps = self._rng.randint(*_STEPS)
        cuts = {steps * (n + 1) // (_CUTS + 1) for n in range(_CUTS)}
        until = monotonic() + LOAD_S
        for number in range(steps):
            if monotonic() > until and number not in cuts:
                continue
            if number in cuts:
                self._cut()
            self._standing.take_names()
            self._play(step(self._rng, self._tables))
            if self._rng.random() < _TRUTH:
                self._be_true()
            self._pause.wait(self._rng.choice(_PAUSES_S))

    def _play(self, transactions: list[Transaction]) -> None:
        """Statements of both in random order, with events between two of them or at the end."""
        meanwhile = [what for share, what in _MEANWHILE if self._rng.random() < share]
        left = [list(each.statements) for each in transactions]
        open_still = [index for index, each in enumerate(transactions) if each.statements]
        while open_still:
            index = self._rng.choice(open_still)
            if left[index]:
                done = self._statement(index, transactions[index], left[index].pop(0))
            else:
                done = False
                self._end(index, transactions[index])
            if not done:
                open_still.remove(index)
            while meanwhile and self._rng.random() < 0.3:
                busy = {label for each in open_still for label in transactions[each].after}
                self._happen(meanwhile.pop(), busy)
        for what in meanwhile:
            self._happen(what, set())

    def _statement(self, index: int, transaction: Transaction, statement: Statement) -> bool:
        """False where the source refused it; then its transaction is rolled back."""
        session = self._sessions[index]
        self.counts.statements += 1
        before = self._standing.streams() if statement.streamed else (0, 0)
        try:
            if session.info.transaction_status is TransactionStatus.IDLE and not transaction.alone:
                self._do(index, "BEGIN")
            self._do(index, statement.sql)
        except psycopg.Error as error:
            self._refused(index, error)
            return False
        if statement.streamed:
            self._sent(before)
        if statement.looks:
            self._note(f"-- {'ab'[index]} stays open for {statement.looks} looks")
            self._pause.wait(statement.looks * LOOK_S)
        return True

    def _sent(self, before: tuple[int, int]) -> None:
        """Return when the source has streamed more open transactions than before. Without a slot, everything is sent again later."""
        until = monotonic() + _SENT_S
        while self._standing.streams() == before:
            if self._standing.pipeline.run is None:
                self._note("-- nobody reads the log now")
                return
            assert monotonic() < until, "the source does not send a transaction for which it has no memory"
            self._pause.wait(0.02)

    def _end(self, index: int, transaction: Transaction) -> None:
        try:
            if not transaction.alone:
                self._do(index, "COMMIT" if transaction.commits else "ROLLBACK")
        except psycopg.Error as error:
            self._refused(index, error)
            return
        self.counts.sent_open += transaction.streamed
        if not transaction.commits:
            self.counts.rolled_back += 1
            return
        self.counts.transactions += 1
        self._doubtful |= transaction.restructured
        for label, table in transaction.after.items():
            self._tables[label] = table.committed()
            if not table.exists:
                self._once[label].add("missing")
            elif not table.followed:
                self._once[label].add("unidentified")

    def _refused(self, index: int, error: psycopg.Error) -> None:
        self.counts.refused[error.sqlstate or type(error).__name__] += 1
        self._note(f"-- refused: {error.sqlstate} {str(error).splitlines()[0] if str(error) else ''}")
        assert not isinstance(error, psycopg.OperationalError) or error.sqlstate, f"the source is gone: {error}"
        if self._sessions[index].info.transaction_status is not TransactionStatus.IDLE:
            self._do(index, "ROLLBACK")

    def _do(self, index: int, sql: str) -> None:
        self._note(f"{'ab'[index]}: {sql};")
        self._sessions[index].execute(sql.encode())

    # What happens meanwhile.

    def _happen(self, what: str, busy: set[str]) -> None:
        """`busy`: tables of open transactions, whose names may soon belong to other objects."""
        inside = sorted(self._specs)
        paused = [label for label in inside if self._specs[label].paused]
        outside = [
            label for label in sorted(self._tables.keys() - self._specs.keys() - busy) if self._tables[label].exists
        ]
        choice = {"resume": paused, "add": outside, "pause": [each for each in inside if each not in paused]}.get(
            what, inside
        )
        if what in {"kill", "restart"}:
            if what == "restart" and busy:
                return
            self._disturb(what)
        elif choice:
            label = self._rng.choice(choice)
            if what == "reload":
                self._reload([label])
            elif what == "remove":
                self._note(f"-- {label} is removed")
                del self._specs[label]
                self._declare()
            elif what == "add":
                self._add(label)
                self._declare()
            else:
                self._note(f"-- {label}: {what}")
                self._specs[label] = replace(self._specs[label], paused=what == "pause")
                self._declare()
        else:
            return
        self.counts.meanwhile[what] += 1

    def _disturb(self, what: str) -> None:
        run = self._standing.pipeline.run
        pid = run.reader_pid() if run is not None else None
        self._note(f"-- {'the log reader is killed' if what == 'kill' else 'the subscription starts again'}")
        if what == "restart":
            self._standing.restart()
        elif pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _add(self, label: str) -> None:
        """Under the name that it has now, to the place that it had before."""
        table = self._tables[label]
        self._specs[label] = spec_of(table.name, table.schema, target=self._places[label])
        table.fixed = True
        self._once[label] = set()
        if not table.followed:
            self._once[label].add("unidentified")
        self._note(f"-- {label} is added as {self._specs[label].table}")

    def _reload(self, labels: list[str]) -> None:
        self._requests += 1
        self._note(f"-- {', '.join(labels)}: reload")
        tables: list[TableId] = [self._specs[label].table for label in labels]
        self._standing.pipeline.reload(f"{self._home}-{self._requests}", tables)

    def _declare(self) -> None:
        self._standing.declare(list(self._specs.values()))

    def _state(self, label: str) -> str:
        report = self._standing.state(self._specs[label])
        return report.state if report is not None else "untold"

    def _code(self, label: str) -> str | None:
        report = self._standing.state(self._specs[label])
        return report.code if report is not None else None

    # Comparison.

    def _be_true(self) -> None:
        """A reader that has waited for "now" reads what was committed before; without concurrent statements, exactly that."""
        covered = self._standing.satisfied()
        for label, spec in self._specs.items():
            table = self._tables[label]
            if spec.table not in covered or not table.exists:
                continue
            found = difference(self._standing, spec, TableName(table.schema, table.name))
            assert found is None or self._state(label) != "live", f"{label} behind a satisfied wait for now: {found}"
        self.counts.waits += 1
        self._note("-- a wait for now was satisfied and true")

    def _cut(self) -> None:
        """Compare the live tables. A table changed since the last read may be reported later, and is compared again."""
        self._note("-- cut")
        late = self._differing(self._verdicts())
        certain = {label: what for label, what in late.items() if label not in self._doubtful}
        assert not certain, f"different at a cut: {certain}"
        self._standing.look()
        self._note_catalog_read()
        if late:
            late = self._differing(self._verdicts())
            if any("not_compared" in what for what in late.values()):
                # Tables copied again meanwhile are compared at another cut, like by the product's own verifications.
                late = self._differing(self._verdicts())
            assert not late, f"different at a cut, although the catalog was looked at: {late}"
        self._standing.catch_up()
        for label, spec in self._specs.items():
            if self._state(label) == "live":
                table = self._tables[label]
                found = difference(self._standing, spec, TableName(table.schema, table.name))
                # Its copy may have been restarted while it was read.
                assert found is None or self._state(label) != "live", f"{label} as text: {found}"
                self.counts.compared += 1
        self.counts.cuts += 1

    def _note_catalog_read(self) -> None:
        """Record that the catalog was read after everything that was done."""
        self._doubtful.clear()
        for label, table in self._tables.items():
            table.moved = False
            if label not in self._specs or self._state(label) in {"live", "parked", "paused"}:
                table.fixed = False

    def _verdicts(self) -> list[TableVerdict]:
        """The product's own comparison; retried if the subscription was starting, or open transactions blocked it."""
        until = monotonic() + _CUT_S
        while True:
            self._standing.wait_running()
            try:
                return self._standing.verify()
            except (EngineFault, AssertionError) as error:
                if monotonic() > until:
                    raise
                self._note(f"-- no cut: {error}")
                self._pause.wait(0.1)

    def _differing(self, verdicts: list[TableVerdict]) -> dict[str, Any]:
        """Live tables that were found unequal, or could not be compared; those that are not live any more do not count."""
        labels = {spec.table: label for label, spec in self._specs.items()}
        self.counts.compared += len(verdicts)
        wrong = {labels[v.table]: v for v in verdicts if not v.equal and v.table in labels}
        return {
            label: f"{v.status.value} {v.code or ''} {v.detail or ''} {v.source_rows} rows, {v.target_rows} on the target,"
            f" {Counter(d.kind for d in v.differences)}"
            for label, v in wrong.items()
            if self._state(label) == "live"
        }

    def _note(self, line: str) -> None:
        self._history.append((monotonic(), line))

    def _lines(self) -> list[str]:
        told = [(at, f"      -- told: {text}") for at, text in self._standing.reports.told]
        return [
            f"{at - self._began:7.2f} {line}" for at, line in sorted([*self._history, *told], key=lambda each: each[0])
        ]
