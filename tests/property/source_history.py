"""What a random case means on the source: tables, transactions in the order of their ends, and the rows after each commit."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.property.raw_log import RawLog, relation_record
from tests.unit.net import pgoutput_encoder as pgoutput
from tests.unit.net.history_model import Parts, Row, Table, Written, execute
from tests.unit.sort.walsender import Step, Transaction

KINDS = ("default", "default", "default", "full", "bag", "bag", "append", "composite", "unfollowed")
_START = 1000
_XIDS = 100
"""Ids that one transaction and its savepoints may use."""


class Tape(random.Random):
    """A `Random` that plays bytes, so that Hypothesis sees and shrinks every choice; after their end, nothing happens."""

    def __init__(self, tape: bytes) -> None:
        super().__init__(0)
        self._tape, self._at = tape, 0

    def getrandbits(self, k: int) -> int:
        self._at += (k + 7) // 8
        return int.from_bytes(self._tape[self._at - (k + 7) // 8 : self._at], "little") & ((1 << k) - 1)

    def random(self) -> float:
        return 1 - (self.getrandbits(8) + 0.5) / 256


@dataclass(frozen=True)
class Case:
    """A drawn case. `kinds`: of its tables; `rows`: how many each has at first; `transactions`: (fate, parts)."""

    kinds: Sequence[str]
    rows: int
    transactions: Sequence[tuple[str, Parts]]
    tape: bytes


@dataclass
class SourceHistory:
    """The transactions of a case, and the state of the source after each of them."""

    tables: list[Table]
    followed: list[Table]
    transactions: list[Transaction] = field(default_factory=list)
    written: list[list[Written | None]] = field(default_factory=list)
    """By transaction and item; None where a savepoint was rolled back."""
    starts: list[int] = field(default_factory=list)
    """Where the commit record of each transaction begins."""
    ends: list[int] = field(default_factory=lambda: [0])
    """End of each commit, in order, with the state before all of them in front."""
    states: list[dict[int, list[Row]]] = field(default_factory=list)
    """Rows by table, after each of `ends`."""

    @property
    def top(self) -> int:
        """A position after all transactions."""
        return max([_START, *(t.end for t in self.transactions)]) + 100

    def rows_at(self, position: int, table: Table) -> list[Row]:
        return self.states[bisect_right(self.ends, position) - 1][table.oid]

    def counted(self, after: int, end: int, table: Table) -> Counter[str]:
        """How many changes of each kind the commits in `(after, end]` made to a table."""
        found = Counter[str]()
        for t, items in zip(self.transactions, self.written, strict=True):
            if t.commits and after < t.end <= end:
                for (_, own), item in zip(t.items, items, strict=True):
                    if item is not None and own not in t.aborted and table.oid in item.oids:
                        found[item.op] += 1
        return found

    def committed(self, after: int, end: int) -> int:
        return bisect_right(self.ends, end) - bisect_right(self.ends, after)


def make_history(case: Case, rng: random.Random) -> SourceHistory:
    """Run the case's transactions one after another, as row locks would make them look in the order of their commits."""
    tables = [_table(kind, 100 + n, case.rows) for n, kind in enumerate(case.kinds)]
    followed = [t for t, kind in zip(tables, case.kinds, strict=True) if kind != "unfollowed"]
    made = SourceHistory(tables, followed)
    made.states.append({t.oid: list(t.rows) for t in tables})
    end = _START
    for number, (fate, parts) in enumerate(case.transactions):
        start = end + rng.randint(0, 3)
        end = start + 1 + rng.randint(0, 15)
        xids = iter(range(_XIDS * (number + 1), _XIDS * (number + 2)))
        xid = next(xids)
        before = [list(t.rows) for t in tables]
        done = execute(tables, parts, xid, lambda xids=xids: next(xids))
        if fate == "commit":
            made.ends.append(end)
            made.states.append({t.oid: list(t.rows) for t in tables})
        else:
            for table, rows in zip(tables, before, strict=True):
                table.rows = rows
        items = [("rollback" if item is None else "change", own) for own, item in done.items]
        commits, ends, aborted = fate == "commit", fate != "open", frozenset(done.aborted)
        made.transactions.append(Transaction(number, xid, end, True, commits, items, aborted, ends))
        made.written.append([item for _, item in done.items])
        made.starts.append(start)
    return made


def _table(kind: str, oid: int, rows: int) -> Table:
    held: list[Row] = [(n, "x", "long value" if n % 3 else None) for n in range(rows)]
    if kind == "bag":
        held = [(n // 2, "x", None) for n in range(rows)]
    return Table(
        held,
        full=kind in ("full", "bag"),
        keyed=kind in ("default", "full", "composite", "unfollowed"),
        oid=oid,
        appended=kind == "append",
        key=(1, 0) if kind == "composite" else (0,),
    )


class Sender:
    """Puts a session's steps on the wire: announces tables, marks what lies inside a stream, now and then says a word more."""

    def __init__(self, rng: random.Random, history: SourceHistory, log: RawLog) -> None:
        self.rng, self.history, self.log = rng, history, log
        self._known: set[int] = set()
        self._known_in: dict[int, set[int]] = {}
        self._stream = 0

    def begin_session(self) -> None:
        self._known, self._known_in, self._stream = set(), {}, 0
        self.log.begin_session()

    def play(self, step: Step) -> None:
        """Append the step's records."""
        kind, number, argument = step
        t, start = self.history.transactions[number], self.history.starts[number]
        if kind == "item":
            self._item(t, argument)
        elif kind == "begin":
            self.log.append(pgoutput.begin(start, t.xid))
        elif kind == "commit":
            self.log.append(pgoutput.commit(start, t.end))
            if self.rng.random() < 0.05:
                self.log.append(pgoutput.message("between", b"transactions"))
        elif kind == "start":
            self.log.append(pgoutput.stream_start(t.xid, t.xid not in self._known_in))
            self._stream = t.xid
            self._known_in.setdefault(t.xid, set())
        elif kind == "stop":
            self.log.append(pgoutput.stream_stop())
            self._stream = 0
        elif kind == "stream-commit":
            self.log.append(pgoutput.stream_commit(t.xid, start, t.end))
            self._known |= self._known_in.pop(t.xid)
        else:
            self.log.append(pgoutput.stream_abort(t.xid, argument or t.xid))

    def _item(self, t: Transaction, k: int) -> None:
        item = self.history.written[t.number][k]
        assert item is not None
        xid = t.items[k][1] if self._stream else 0
        known = self._known_in[self._stream] if self._stream else self._known
        for oid in item.oids:
            if oid not in known or self.rng.random() < 0.03:
                known.add(oid)
                self.log.append(pgoutput.type_message(oid, xid))
                self.log.append(relation_record(oid, xid))
        self.log.append(item.record(xid))
