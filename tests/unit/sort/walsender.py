"""Plays a source: transactions whose records interleave in its log, and what a session that streams open ones sends of them.

The decoder keeps what it has read of each open transaction and sends some of it early, when it likes. A savepoint that was
rolled back before any of it was sent leaves no trace; of one that was sent in part, only its end comes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.model.control import ControlKind
from tests.unit.sort.log_script import LogFeed

Step = tuple[str, int, int]
"""One record that is sent: its kind, the transaction's number, and the item or the subtransaction it is about."""

_BETWEEN = 100
"""Places in the log from one transaction's end to the next one's."""


@dataclass(slots=True)
class Transaction:
    """One transaction of the source.

    `items`: (kind, own xid), where kind is "change" or "relation" for a record, or "rollback" where that subtransaction was
    rolled back. `streamed`: it may be sent while it is open. `ends`: False where the log does not tell its end.
    """

    number: int
    xid: int
    end: int
    streamed: bool
    commits: bool
    items: list[tuple[str, int]]
    aborted: frozenset[int]
    ends: bool = True


@dataclass(slots=True)
class Reality:
    """Says which item of which transaction lies at an ordinal."""

    items: dict[int, tuple[int, int]] = field(default_factory=dict)
    own_xid: dict[int, int] = field(default_factory=dict)
    relations: dict[int, int] = field(default_factory=dict)
    """Oid of the relation record at an ordinal."""


def make_transactions(rng: random.Random, count: int) -> list[Transaction]:
    made = []
    end = 100
    for number in range(count):
        end += rng.randint(1, 20)
        streamed = rng.random() < 0.6
        xid = 10 * (number + 1)
        subs = [xid + k for k in range(1, 4)]
        items = [
            ("relation" if rng.random() < 0.2 else "change", rng.choice([xid, *subs]))
            for _ in range(rng.choice((0, 1, 2, 3, 7)))
        ]
        aborted = frozenset(sub for sub in subs if rng.random() < 0.3)
        for sub in sorted(aborted):
            behind = max((k for k, (_, own) in enumerate(items) if own == sub), default=-1) + 1
            items.insert(rng.randint(behind, len(items)), ("rollback", sub))
        made.append(Transaction(number, xid, end, streamed, rng.random() < 0.8, items, aborted))
    return made


class Walsender:
    """Sends the log of the transactions, which come in the order of their ends, in any number of sessions."""

    def __init__(self, rng: random.Random, transactions: Sequence[Transaction]) -> None:
        self.rng, self.transactions = rng, transactions
        self.log = _interleave(rng, transactions)

    def session(self, confirmed: int) -> list[Step]:
        """All that a session from this confirmed position sends, to the end of the log."""
        decoder = _Decoder(self.rng, self.transactions)
        for number, k in self.log:
            t = self.transactions[number]
            if not t.ends or t.end > confirmed:
                decoder.read(t, k)
        return decoder.steps


def _interleave(rng: random.Random, transactions: Sequence[Transaction]) -> list[tuple[int, int]]:
    """(transaction, item) in the order of the log; the item after the last one is the transaction's end."""
    placed: list[tuple[int, int, int]] = []
    for t in transactions:
        reach = _BETWEEN * rng.choice((0, 0, 1, 2, 5))
        places = sorted(_BETWEEN * t.number - (rng.randint(0, reach) if reach else 0) for _ in t.items)
        placed += [(place, t.number, k) for k, place in enumerate(places)]
        if t.ends:
            placed.append((_BETWEEN * t.number + 1, t.number, len(t.items)))
    return [(number, k) for _, number, k in sorted(placed)]


class _Decoder:
    """One session of the source's decoder."""

    def __init__(self, rng: random.Random, transactions: Sequence[Transaction]) -> None:
        self.rng, self.transactions = rng, transactions
        self.steps: list[Step] = []
        self.held: dict[int, list[int]] = {}
        """Items read and not sent, by open transaction."""
        self.sent: dict[int, set[int]] = {}
        """The xids of which something was sent, by open transaction of which something was."""
        self.haste = rng.choice((0.0, 0.1, 0.3, 0.6))

    def read(self, t: Transaction, k: int) -> None:
        held = self.held.setdefault(t.number, [])
        if k == len(t.items):
            self._end(t)
        elif t.items[k][0] == "rollback":
            self._roll_back(t, t.items[k][1])
        else:
            held.append(k)
            self._relieve()

    def _relieve(self) -> None:
        open_ones = [n for n in self.held if self.transactions[n].streamed]
        if open_ones and self.haste and self.rng.random() < self.haste:
            self._chunk(self.rng.choice(open_ones))

    def _chunk(self, number: int) -> None:
        items = self.transactions[number].items
        self.sent.setdefault(number, set()).update(items[k][1] for k in self.held[number])
        inside = [("item", number, k) for k in self.held[number]]
        self.steps += [("start", number, 0), *inside, ("stop", number, 0)]
        self.held[number] = []

    def _roll_back(self, t: Transaction, sub: int) -> None:
        self.held[t.number] = [k for k in self.held[t.number] if t.items[k][1] != sub]
        if sub in self.sent.get(t.number, ()):
            self.sent[t.number].remove(sub)
            self.steps.append(("sub-abort", t.number, sub))

    def _end(self, t: Transaction) -> None:
        if t.commits and (t.number in self.sent or (t.streamed and self.rng.random() < 0.1)):
            if self.held[t.number] or t.number not in self.sent or self.rng.random() < 0.3:
                self._chunk(t.number)
            self.steps.append(("stream-commit", t.number, 0))
        elif t.commits:
            inside = [("item", t.number, k) for k in self.held[t.number]]
            self.steps += [("begin", t.number, 0), *inside, ("commit", t.number, 0)]
        elif t.number in self.sent:
            subs = sorted(self.sent[t.number] - {t.xid})
            self.steps += [("sub-abort", t.number, sub) for sub in subs] + [("abort", t.number, 0)]
        self.held.pop(t.number, None)
        self.sent.pop(t.number, None)


def play(step: Step, transactions: Sequence[Transaction], log: LogFeed, reality: Reality) -> None:
    """Append what is sent to a feed of control records."""
    kind, number, argument = step
    t = transactions[number]
    if kind == "item":
        what, own = t.items[argument]
        ordinal = log.change() if what == "change" else log.relation(1000 + number)
        reality.items[ordinal] = (number, argument)
        reality.own_xid[ordinal] = own
        if what == "relation":
            reality.relations[ordinal] = 1000 + number
        return
    controls = {
        "begin": (ControlKind.BEGIN, t.xid, 0, 0),
        "commit": (ControlKind.COMMIT, 0, 0, t.end),
        "start": (ControlKind.STREAM_START, t.xid, 0, 0),
        "stop": (ControlKind.STREAM_STOP, 0, 0, 0),
        "stream-commit": (ControlKind.STREAM_COMMIT, t.xid, 0, t.end),
        "abort": (ControlKind.STREAM_ABORT, t.xid, t.xid, 0),
        "sub-abort": (ControlKind.STREAM_ABORT, t.xid, argument, 0),
    }
    control, xid, subxid, end = controls[kind]
    log.control(control, xid, subxid, end, end * 1000)
