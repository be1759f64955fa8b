"""A session counts exactly where its log is the one of which everything up to its start is held, wherever two histories fork."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.fault import EngineFault, FaultKind
from engine.model.last_commit import LastCommit
from engine.model.position import Lsn
from engine.model.source import SourceTerms
from engine.model.subscription import BatchPolicy
from engine.records.history import HistoryCheck, SessionCommits
from engine.sort.batcher import Batcher
from engine.sort.sorter import TransactionSorter
from tests.property.forked_log import Sent, Transaction, Walsender, chunks, history, placed


class Reader:
    """The engine's side over its sessions: what is read, and what of it is sealed."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._records = 0
        self._sorter = TransactionSorter(Lsn(0))
        self.batcher = Batcher(BatchPolicy(max_transactions=rng.choice((1, 3, 1000)), max_age_ms=0), Lsn(0))
        self.sealed = Lsn(0), LastCommit.unknown(Lsn(0))

    def held(self) -> tuple[Lsn, LastCommit]:
        """Up to where, and the last transaction: of all that is read, or of what the target has."""
        if self._rng.random() < 0.5:
            return self.sealed
        return self.batcher.captured, self.batcher.last_commit

    def session(self, sent: Sequence[Sent], confirmed: int, start: Lsn, last: LastCommit) -> bool | None:
        """Read from `start` on. True: the log is the same one. False: it is not. None: it does not reach that far."""
        check, commits = HistoryCheck("slot", last, start, SourceTerms()), SessionCommits()
        check.confirmed(Lsn(confirmed))
        self._sorter.begin_session(start)
        for chunk, highest in chunks(self._rng, sent, start):
            if not check.done:
                try:
                    check.check_commits(commits.commits_of(chunk.data, chunk.offsets, chunk.controls), highest)
                except EngineFault as fault:
                    assert fault.kind is FaultKind.LOG_GAP  # noqa: PT017 - both outcomes are right
                    return False
            self._sorter.feed(placed(chunk, self._records), {})
            self._records += chunk.count
            self.batcher.add(self._sorter.drain(), 0)
            self.batcher.advance(chunk.wal_end)
            while check.done and self._rng.random() < 0.5:
                batch = self.batcher.seal(1_000_000, lambda start, stop: int(stop) - int(start))
                if batch is None:
                    break
                assert batch.last is not None
                self.sealed = batch.end, batch.last
        return True if check.done else None


def behind(log: Sequence[Transaction], after: Lsn, upto: Lsn) -> list[Transaction]:
    """Transactions with changes that end in `(after, upto]`."""
    return [one for one in log if one.left and after.value < one.end <= upto.value]


@settings(max_examples=1500, deadline=None)
@given(seed=st.integers(0, 2**48))
def test_a_log_that_forked_is_told_from_the_one_that_is_held(seed: int) -> None:
    rng = random.Random(seed)
    first = history(rng, (), rng.randint(1, 14), clock_us := pg_time(1))
    fork = rng.randint(0, len(first))
    other = history(rng, first[:fork], rng.randint(0, 14), clock_us + 1_000_000)
    reader = Reader(rng)
    old = rng.random() < 0.2
    sent = Walsender(rng, first, old=old).session(0)
    assert reader.session(sent[: rng.randint(0, len(sent))], 0, Lsn(0), LastCommit.unknown(Lsn(0))) is not False
    start, last = reader.held()
    assert LastCommit.parse(str(last)) == last
    shared = Lsn(first[fork - 1].end if fork else 0)
    confirmed = rng.choice([0, *(one.end for one in first if one.end <= min(start, shared).value)])
    begin = max(confirmed, HistoryCheck("slot", last, start, SourceTerms()).begin.value)
    found = Reader(rng).session(Walsender(rng, other, old=old).session(begin), confirmed, start, last)
    ours, theirs = behind(first, Lsn(confirmed), start), behind(other, Lsn(confirmed), start)
    if ours == theirs:
        assert found is not False, "a false alarm"
    if found and last.certain:
        assert [one for one in ours if one.certain] == [one for one in theirs if one.certain], "not noticed"
    if found:
        assert not [one for one in theirs if one.certain and one.start >= begin and one not in first], "not noticed"


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**48))
def test_sessions_that_begin_anywhere_in_one_log_are_never_taken_for_another(seed: int) -> None:
    """However the source chooses to send a transaction this time, and whatever it comes to confirm."""
    rng = random.Random(seed)
    log = history(rng, (), rng.randint(1, 20), pg_time(1))
    log.append(Transaction(0, log[-1].end + 5, log[-1].end + 9, 0))
    reader = Reader(rng)
    old = rng.random() < 0.2
    start, last = Lsn(0), LastCommit.unknown(Lsn(0))
    for _ in range(4):
        confirmed = rng.choice([0, *(one.end for one in log if one.end <= start.value)])
        begin = max(confirmed, HistoryCheck("slot", last, start, SourceTerms()).begin.value)
        sent = Walsender(rng, log, old=old).session(begin)
        assert reader.session(sent[: rng.randint(0, len(sent))], confirmed, start, last) is not False
        start, last = reader.batcher.captured, reader.batcher.last_commit
    whole = [
        *Walsender(rng, log, old=old).session(HistoryCheck("slot", last, start, SourceTerms()).begin.value),
        Sent(None, log[-1].end),
    ]
    assert reader.session(whole, 0, start, last) is True


def pg_time(seconds: int) -> int:
    return 1_700_000_000_000_000 + seconds * 1_000_000
