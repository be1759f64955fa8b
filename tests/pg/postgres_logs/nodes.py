"""Several databases with accounts, a coordinator that moves amounts between them, and a copy that follows their merged log."""

from __future__ import annotations

import contextlib
import random
import re
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import partial

import psycopg

from engine.model.batch import SealedBatch
from engine.model.identity import RelationId, TableName
from engine.model.last_commit import LastCommit
from engine.model.merged_logs import MergedLogs, NodeLog
from engine.model.position import Lsn
from engine.model.source import RecordChunk
from engine.model.subscription import BatchPolicy
from engine.records.messages import parse_truncate
from engine.records.relation import parse_relation
from engine.sort.batcher import Batcher
from engine.sort.merge_records import Order
from engine.sort.sorter import TransactionSorter
from engine.sources.postgres_log import position
from engine.sources.postgres_log.stream import PostgresLogStream
from engine.sources.postgres_logs.consistent_cut import CutState, NodeSnapshot
from engine.sources.postgres_logs.merged_numbers import MergedNumbers
from engine.sources.postgres_logs.merged_stream import Keeping, MergedStream, MergeRules, NodeStreams
from engine.sources.postgres_logs.node_ends import NodeEnds
from engine.sources.postgres_logs.node_log import Naming
from engine.sources.postgres_logs.node_session import NodeSession, Resume
from engine.sources.postgres_logs.relations import Structure, Why, reason_of
from tests.fixtures.postgres import Database, Session
from tests.fixtures.waiting import wait_until
from tests.pg.two_phase.node import Node

ACCOUNTS = 5
"""Of each node."""
OWN = "shop.gtid"
"""Prefix of the message that names a coordinator's own part."""
OWN_TABLE = "CREATE TABLE global_transactions (no serial PRIMARY KEY, made timestamptz DEFAULT now(), gtid text)"
"""The table whose rows name it instead."""
Row = tuple[int, int]
"""Node of the account and its number within the node."""


class Nodes:
    """Databases with a slot each. Keys of accounts are unique over all nodes."""

    def __init__(self, nodes: Sequence[Node], chance: random.Random) -> None:
        self.nodes = nodes
        self.chance = chance
        self.sessions = [node.database.connect() for node in nodes]
        self.left: list[tuple[str, list[int]]] = []
        """Global transactions that are decided, with the nodes that have not committed their part."""
        self.undecided: list[tuple[str, list[int]]] = []
        self._count = 0
        self.named_by = f"SELECT pg_logical_emit_message(true, '{OWN}', %s)"
        """The statement by which a coordinator names its own part."""

    def local(self) -> None:
        """Move an amount between two accounts of a node, unless a prepared transaction has locked one."""
        node = self.chance.randrange(len(self.nodes))
        session = self.sessions[node]
        one, other = self.chance.sample(range(ACCOUNTS), 2)
        with contextlib.suppress(psycopg.errors.LockNotAvailable), session.transaction():
            session.execute("SET LOCAL lock_timeout = '20ms'")
            self._move(session, node, one, -3)
            self._move(session, node, other, 3)

    def on(self, node: int) -> None:
        """Move an amount between two accounts of this node."""
        with self.sessions[node].transaction():
            self._move(self.sessions[node], node, 0, -3)
            self._move(self.sessions[node], node, 1, 3)

    def spread(self, *, own: bool, ends: str = "commit") -> None:
        """Move an amount between nodes. `own`: the first one has an ordinary part. `ends`: commit, roll back, wait (prepared on all nodes,
        undecided) or half (committed on some of them)."""
        members = self.chance.sample(range(len(self.nodes)), self.chance.randint(1, len(self.nodes)))
        self._count += 1
        gtid = f"g {self._count}"
        account = self.chance.randrange(ACCOUNTS)
        rest = 0
        for number, node in enumerate(members):
            amount = -rest if number == len(members) - 1 else 7 + number
            rest += amount
            self.sessions[node].execute("BEGIN")
            self._move(self.sessions[node], node, account, amount)
        coordinator = members[0] if own and ends != "wait" else None
        prepared = [node for node in members if node != coordinator]
        for node in prepared:
            self.sessions[node].execute(f"PREPARE TRANSACTION '{gtid}@{node}'".encode())
        if ends == "roll back":
            if coordinator is not None:
                self.sessions[coordinator].execute("ROLLBACK")
            self._finish("ROLLBACK", gtid, prepared)
        elif ends == "wait":
            self.undecided.append((gtid, prepared))
        else:
            if coordinator is not None:
                self.sessions[coordinator].execute(self.named_by.encode(), [gtid])
                self.sessions[coordinator].execute("COMMIT")
            self._decided(gtid, prepared, half=ends == "half")

    def decide(self) -> None:
        """Commit or roll back what was left undecided, and commit what is left half done."""
        for gtid, prepared in self.undecided:
            if self.chance.random() < 0.5:
                self._finish("ROLLBACK", gtid, prepared)
            else:
                self._decided(gtid, prepared, half=False)
        for gtid, prepared in self.left:
            self._finish("COMMIT", gtid, prepared)
        self.undecided, self.left = [], []

    def values(self) -> dict[int, int]:
        """All accounts, by key."""
        found = {}
        for session in self.sessions:
            found.update({int(key): int(amount) for key, amount in session.execute("SELECT id, amount FROM accounts")})
        return found

    def close(self) -> None:
        self.decide()
        for session in self.sessions:
            session.close()

    def _decided(self, gtid: str, prepared: Sequence[int], *, half: bool) -> None:
        count = len(prepared) // 2 if half else len(prepared)
        self._finish("COMMIT", gtid, prepared[:count])
        if prepared[count:]:
            self.left.append((gtid, list(prepared[count:])))

    def _finish(self, what: str, gtid: str, prepared: Sequence[int]) -> None:
        for node in prepared:
            self.sessions[node].execute(f"{what} PREPARED '{gtid}@{node}'".encode())

    @staticmethod
    def _move(session: Session, node: int, account: int, amount: int) -> None:
        session.execute("UPDATE accounts SET amount = amount + %s WHERE id = %s", [amount, node * ACCOUNTS + account])


@contextmanager
def nodes_on(databases: Sequence[Database], seed: int) -> Iterator[Nodes]:
    """These databases as nodes, with accounts and slots."""
    nodes = [Node(database) for database in databases]
    for number, node in enumerate(nodes):
        first = number * ACCOUNTS
        # Tables of other numbers before it: one number is another table on each node.
        node.execute(*(f"CREATE TABLE other_{n} (id int PRIMARY KEY)" for n in range(number)))
        own = f"int GENERATED BY DEFAULT AS IDENTITY (START {1 + 1_000_000 * number})"
        node.execute(f"CREATE TABLE other (id {own} PRIMARY KEY)")
        node.execute("CREATE TABLE accounts (id int PRIMARY KEY, amount int)")
        node.execute(f"INSERT INTO accounts SELECT n, 100 FROM generate_series({first}, {first + ACCOUNTS - 1}) AS n")
        node.execute("CREATE PUBLICATION p FOR ALL TABLES")
    for node in nodes:
        node.create_slot()
    found = Nodes(nodes, random.Random(seed))
    try:
        yield found
    finally:
        found.close()
        for node in nodes:
            node.drop()
            node.connector.close()


def _again(node: Node, begin: Resume, away_s: float) -> PostgresLogStream:
    """A session that continues there."""
    del away_s
    return node.session_of(begin.read, begin.last, begin.kept)


def _end_of(node: Node, flushed: bool) -> Lsn:
    return position.now(node.connector) if flushed else position.current(node.connector)


class SameNumbers:
    """Tables are numbered by name; the nodes have no types of their own."""

    def __init__(self, shared: Collection[str] = ()) -> None:
        """`shared`: names of tables that several nodes have."""
        self._names: dict[TableName, int] = {}
        self._shared = shared

    def relation(self, name: TableName) -> RelationId:
        return RelationId(self._names.setdefault(name, 1000 + len(self._names)))

    def type(self, node: int, oid: int, table: TableName) -> int:
        del node, table
        return oid

    def nodes_of(self, table: TableName) -> int:
        return 2 if table.name in self._shared else 1

    def keys_of(self, tables: Collection[TableName]) -> Mapping[TableName, Collection[str]]:
        return dict.fromkeys(tables, ("id",))


class Copy:
    """Follows the merged log batch by batch, and begins again from what one of its last batches has recorded."""

    def __init__(self, nodes: Nodes, order: Order, keeping: Keeping | None = None) -> None:
        self.nodes = nodes
        self.order = order
        self.keeping = keeping or Keeping()
        self.values = nodes.values()
        whole = MergedLogs(tuple(NodeLog.unknown(node.begin) for node in nodes.nodes))
        self.last = LastCommit.unknown(Lsn(0), logs=whole)
        self.kept = [(Lsn(0), self.last, dict(self.values))]
        """After each batch: its end, what is recorded of the log, and the accounts."""
        self.confirmed = Lsn(0)
        self.transactions = 0
        self.inserted: dict[str, list[int]] = {}
        """By table, the rows that each transaction inserted."""
        self._structures: dict[int, Structure] = {}
        self.shared: list[str] = []
        """Tables that are in force as shared from the next session on."""
        self.reloads: list[tuple[str, Why]] = []
        """Tables that have to be copied again, with the reason."""
        self.truncated: dict[str, int] = {}
        """By table, how often."""
        self.stream: MergedStream | None = None
        self.open()

    def open(self) -> MergedStream:
        """Begin a session after the last batch."""
        end, last, values = self.kept[-1]
        self.last, self.values = last, dict(values)
        assert last.logs is not None
        ends = [partial(_end_of, node) for node in self.nodes.nodes]
        rounds = NodeEnds(ends), NodeEnds(ends)
        sessions = []
        kept = last.logs.kept or [log.read for log in last.logs.nodes]
        with contextlib.ExitStack() as opened:
            for each in rounds:
                opened.callback(each.close)
            for node, log, most in zip(self.nodes.nodes, last.logs.nodes, kept, strict=True):
                begin = Resume(log.read, LastCommit(log.after, log.end, log.time_us), most)
                again = partial(_again, node)
                session = NodeSession(again(begin, 0.0), begin, again, rounds[0].notify)
                opened.callback(session.close)
                sessions.append(session)
            closed = opened.pop_all()
        names = tuple(f"n{number}" for number in range(len(sessions)))
        rules = MergeRules(self.order, Naming(re.compile("^(?P<gtid>.+)@"), OWN, names), self._keeping())
        self.stream = MergedStream(
            NodeStreams(names, tuple(sessions), *rounds, closed),
            rules,
            SameNumbers(self.shared),
            MergedNumbers(end.value),
            last.logs,
        )
        self._records: list[bytes] = []
        self._sorter = TransactionSorter(end)
        self._batcher = Batcher(BatchPolicy(max_transactions=3, max_bytes=1 << 30, max_age_ms=0), end, last=last)
        self._tables: dict[int, tuple[str, int]] = {}
        return self.stream

    def _keeping(self) -> Keeping:
        """What is kept, with the structures of tables over all sessions."""

        def keep(structures: Mapping[int, Structure]) -> None:
            self._structures = deepcopy(dict(structures))

        return replace(self.keeping, structures=lambda: deepcopy(self._structures), keep_structures=keep)

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()
            for node in self.nodes.nodes:
                node.await_free()
        self.stream = None

    def restart(self, back: int) -> None:
        """Begin again after an earlier batch, but not before what was confirmed."""
        self.close()
        while back and len(self.kept) > 1 and self.kept[-2][0] >= self.confirmed:
            self.kept.pop()
            back -= 1
        self.open()

    def follow(self, timeout_s: float = 0.05) -> RecordChunk | None:
        """Read once, and apply what can be sealed. Returns what was read."""
        assert self.stream is not None
        chunk = self.stream.read(timeout_s)
        if chunk is not None:
            self._land(chunk)
        return chunk

    def confirm(self) -> None:
        assert self.stream is not None
        self.confirmed = self.kept[-1][0]
        self.stream.confirm(self.confirmed)

    def reach(self) -> None:
        """Follow until all that is committed on the nodes is applied."""
        assert self.stream is not None
        ends = {f"n{number}": node.now() for number, node in enumerate(self.nodes.nodes)}
        mark = self.stream.mark(ends)
        wait_until(lambda: self.is_at(mark), what="the mark is reached")

    def tell(self) -> None:
        """Follow until the merged log says that the first node may release what it has written so far."""
        written = self.nodes.nodes[0].now()

        def is_told() -> bool:
            self.follow()
            logs = self.kept[-1][1].logs
            return logs is not None and bool(logs.kept) and logs.kept[0] > written

        wait_until(is_told, what="the merged log says what is kept")

    def cut(self, meanwhile: Callable[[], None]) -> tuple[dict[int, int], dict[int, int]] | None:
        """The accounts in snapshots of all nodes, and in the copy at their position; None if the snapshots are not of one moment.
        `meanwhile`: called between two of them."""
        assert self.stream is not None
        self.stream.begin_cut()
        texts, expected = [], {}
        for node in self.nodes.nodes:
            with node.database.connect() as session:
                session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                ((text,),) = session.execute("SELECT pg_current_snapshot()::text")
                meanwhile()
                expected.update(
                    {int(row[0]): int(row[1]) for row in session.execute("SELECT id, amount FROM accounts")}
                )
            texts.append(str(text))
        ends = [position.current(node.connector).value for node in self.nodes.nodes]
        snapshots = [NodeSnapshot.parse(text, end) for text, end in zip(texts, ends, strict=True)]
        self.stream.take_snapshots(snapshots)
        found: list[Lsn] = []

        def is_reached() -> bool:
            assert self.stream is not None
            chunk = self.stream.read(0.05)
            if self.stream.cut_position is not None and not found:
                found.append(self.stream.cut_position)
                assert self._batcher.request_cut(found[0])
            if chunk is not None:
                self._land(chunk)
            return self.stream.cut_state is CutState.TORN or (bool(found) and self._batcher.sealed_end >= found[0])

        wait_until(is_reached, what="the cut is reached")
        self.stream.end_cut()
        if not found:
            return None
        (values,) = (values for end, _, values in self.kept if end == found[0])
        return expected, values

    def is_at(self, mark: Lsn) -> bool:
        """Follow once; whether the position is applied."""
        self.follow()
        return self._batcher.sealed_end >= mark

    def _land(self, chunk: RecordChunk) -> None:
        base = len(self._records)
        data = chunk.data.tobytes()
        self._records += [data[a:b] for a, b in zip(chunk.offsets[:-1], chunk.offsets[1:], strict=True)]
        controls = chunk.controls.copy()
        controls["ordinal"] += base
        self._sorter.feed(controls, {base + at: record for at, record in chunk.relations.items()})
        self._batcher.add(self._sorter.drain(), 0)
        self._batcher.advance(chunk.wal_end)
        while (batch := self._batcher.seal(1, lambda start, stop: stop - start)) is not None:
            self._apply(batch)

    def _apply(self, batch: SealedBatch) -> None:
        for part in batch.ranges:
            inserts: Counter[str] = Counter()
            for record in self._records[part.start : part.stop]:
                if record[:1] == b"R":
                    announced = parse_relation(record)
                    reason = reason_of(announced)
                    if reason is not None:
                        self.reloads.append((announced.name.name, reason))
                    self._tables[announced.relation] = announced.name.name, 0 if reason else len(announced.columns)
                elif record[:1] in {b"U", b"I"}:
                    name, columns = self._tables[struct.unpack_from(">I", record, 1)[0]]
                    row = _texts(record[6:])
                    assert columns in (0, len(row))
                    inserts[name] += record[:1] == b"I"
                    if name == "accounts":
                        self.values[int(row[0] or "")] = int(row[1] or "")
                elif record[:1] == b"D":
                    assert self._tables[struct.unpack_from(">I", record, 1)[0]][0] == "accounts"
                    del self.values[int(_texts(record[6:])[0] or "")]
                elif record[:1] == b"T":
                    for name, _ in (self._tables[oid] for oid in parse_truncate(record, streamed=False)[1]):
                        self.truncated[name] = self.truncated.get(name, 0) + 1
                elif record[:1] == b"C":
                    self.transactions += 1
                    assert sum(self.values.values()) == 100 * ACCOUNTS * len(self.nodes.nodes)
                    for name, count in inserts.items():
                        self.inserted.setdefault(name, []).append(count)
                    inserts.clear()
        assert batch.last is not None
        self.kept.append((batch.end, batch.last, dict(self.values)))


def _texts(row: bytes) -> list[str | None]:
    (count,) = struct.unpack_from(">H", row)
    at = 2
    found: list[str | None] = []
    for _ in range(count):
        if row[at : at + 1] == b"n":
            found.append(None)
            at += 1
            continue
        assert row[at : at + 1] == b"t"
        (size,) = struct.unpack_from(">I", row, at + 1)
        found.append(row[at + 5 : at + 5 + size].decode())
        at += 5 + size
    assert at == len(row)
    return found
