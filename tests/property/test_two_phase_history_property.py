"""A two-phase session, which begins at the confirmed position, counts exactly where its log is the one that is held up to its start."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.fault import EngineFault, FaultKind
from engine.model.last_commit import LastCommit
from engine.model.position import Lsn
from engine.model.source import SourceTerms
from engine.records.history import HistoryCheck, SessionCommits
from tests.property.forked_log import Sent, chunks
from tests.unit.net import pgoutput_encoder as pgoutput

FIRST_US = 1_700_000_000_000_000


@dataclass(frozen=True, slots=True)
class Entry:
    """A record of the log at `[start, end)`: `C` of an ordinary transaction, or `P`, `K` or `r` of a prepared one."""

    letter: str
    xid: int
    start: int
    end: int
    time_us: int
    rows: int
    prepared: Entry | None = None

    @property
    def commit(self) -> bool:
        """Whether it is one that each session sends: ordinary ones without rows are not sent."""
        return self.letter == "K" or (self.letter == "C" and self.rows > 0)


def log_of(rng: random.Random, before: Sequence[Entry], count: int, clock_us: int) -> list[Entry]:
    """`before`, followed by `count` more records, from this time on."""
    found = list(before)
    for _ in range(count):
        start = (found[-1].end if found else 100) + rng.choice((0, 0, 3, 40))
        end, clock_us = start + rng.randint(1, 9), clock_us + rng.randint(1, 5)
        ended = {one.prepared for one in found}
        waiting = [one for one in found if one.letter == "P" and one not in ended]
        xid, rows = 3 + len(found), rng.choice((0, 1, 1, 3))
        letter = rng.choice("CCPPKKr")
        if letter in "Kr" and waiting:
            prepared = rng.choice(waiting)
            found.append(Entry(letter, prepared.xid, start, end, clock_us, prepared.rows, prepared))
        else:
            found.append(Entry("P" if letter == "P" else "C", xid, start, end, clock_us, rows))
    return found


def session_of(rng: random.Random, log: Sequence[Entry], confirmed: int) -> Iterator[Sent]:
    """What a session sends: each record that does not start before the confirmed position."""
    row = Sent(pgoutput.insert(5, ["1"]), 0)
    for one in log:
        gid = b"g%d" % one.xid
        if one.start < confirmed or (one.letter == "C" and not one.rows):
            pass
        elif one.letter == "C":
            yield Sent(pgoutput.begin(one.start, one.xid, one.time_us), 0)
            yield from [row] * one.rows
            yield Sent(pgoutput.commit(one.start, one.end, one.time_us), one.end)
        elif one.letter == "P":
            if one.rows or rng.random() < 0.5:
                yield Sent(pgoutput.begin_prepare(one.start, one.end, one.xid, gid, one.time_us), 0)
            yield from [row] * one.rows
            yield Sent(pgoutput.prepare(one.start, one.end, one.xid, gid, one.time_us), one.end)
        elif one.letter == "K":
            yield Sent(pgoutput.commit_prepared(one.start, one.end, one.xid, gid, one.time_us), one.end)
        elif one.prepared is not None:
            yield Sent(pgoutput.rollback_prepared(one.prepared.end, one.end, one.xid, gid, one.time_us), one.end)
        if rng.random() < 0.5 and one.end >= confirmed:
            yield Sent(None, one.end)


def verified(rng: random.Random, sent: Sequence[Sent], confirmed: int, start: Lsn, last: LastCommit) -> bool | None:
    """True: the log is the same one. False: it is not. None: it does not reach that far."""
    check, commits = HistoryCheck("slot", last, start, SourceTerms()), SessionCommits()
    check.confirmed(Lsn(confirmed))
    for chunk, highest in chunks(rng, sent, start, two_phase=True):
        if check.done:
            break
        try:
            check.check_commits(commits.commits_of(chunk.data, chunk.offsets, chunk.controls), highest)
        except EngineFault as fault:
            assert fault.kind is FaultKind.LOG_GAP  # noqa: PT017 - both outcomes are right
            return False
    return True if check.done else None


def held(rng: random.Random, log: Sequence[Entry]) -> tuple[Lsn, LastCommit]:
    """A position up to which the log is held, and the last commit up to it."""
    count = rng.randint(0, len(log))
    start = Lsn(log[count - 1].end if count else 0)
    commits = [one for one in log[:count] if one.commit]
    if not commits or rng.random() < 0.1:
        return start, LastCommit.unknown(start)
    last = commits[-1]
    after = rng.randint(max([0, *(one.end for one in commits[:-1])]), last.start)
    return start, LastCommit(Lsn(after), Lsn(last.end), last.time_us, certain=rng.random() < 0.8)


@settings(max_examples=1500, deadline=None)
@given(seed=st.integers(0, 2**48))
def test_a_forked_log_with_prepared_transactions_is_told_from_the_one_that_is_held(seed: int) -> None:
    rng = random.Random(seed)
    first = log_of(rng, (), rng.randint(1, 14), FIRST_US)
    fork = rng.randint(0, len(first))
    other = log_of(rng, first[:fork], rng.randint(0, 14), FIRST_US + 1_000_000)
    start, last = held(rng, first)
    shared = first[fork - 1].end if fork else 0
    confirmed = rng.choice([0, *(one.end for one in first if one.end <= min(start.value, shared))])
    found = verified(rng, list(session_of(rng, other, confirmed)), confirmed, start, last)
    ours, theirs = ([one for one in log if one.commit and confirmed < one.end <= start.value] for log in (first, other))
    if ours == theirs:
        assert found is not False, "a false alarm"
    elif last.known and last.certain:
        assert not found, "not noticed"


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**48))
def test_sessions_that_begin_anywhere_in_one_log_are_verified(seed: int) -> None:
    rng = random.Random(seed)
    log = log_of(rng, (), rng.randint(1, 20), FIRST_US)
    start, last = held(rng, log)
    confirmed = rng.choice([0, *(place for one in log for place in (one.start, one.end) if place <= start.value)])
    sent = [*session_of(rng, log, confirmed), Sent(None, log[-1].end)]
    assert verified(rng, sent, confirmed, start, last) is True
