"""Random transactions, sessions that are ended and begun again, and several sessions in one thread, against a model of the log."""

from __future__ import annotations

import random
import select
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from time import monotonic

import pytest

from engine.model.position import Lsn
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.pg.two_phase.node import DEADLINE_S, Node, Record, insert, node_on, records_of, words

pytestmark = pytest.mark.pg


@dataclass(slots=True)
class Unit:
    """A transaction, `b` to `P`, `K` or `r`: what a session sends or does not send as a whole."""

    last: Record
    rows: list[bytes] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.last} {self.last.end}"

    def sent(self, confirmed: Lsn) -> bool:
        """Whether its record of the log starts at or after this. ROLLBACK PREPARED does not name its start; no position is inside."""
        return self.last.end > confirmed if self.last.letter == "r" else self.last.lsn >= confirmed


def units_of(records: list[Record]) -> list[Unit]:
    """The records in units; those of rolled back transactions without rows, which may be left out."""
    undone = {one.xid for one in records if one.letter == "r"}
    found, rows = [], []
    for one in records:
        if one.letter == "I":
            rows.append(one.raw)
        elif one.letter in "CPKr":
            found.append(Unit(one, [] if one.xid in undone else rows))
            rows = []
    return found


def write(node: Node, rng: random.Random, count: int) -> None:
    """So many random steps: ordinary transactions, and prepared ones, some of which stay prepared."""
    prepared: list[str] = []
    for number in range(count):
        first, rows = 1000 * number, rng.choice((1, 1, 3, 900))
        step = rng.choice(("ordinary", "prepare", "prepare", "COMMIT", "COMMIT", "ROLLBACK"))
        if step == "ordinary" or (step != "prepare" and not prepared):
            node.execute(insert(first, rows))
        elif step == "prepare":
            gid = next(name for name in "abcdefghijklmnopqrstuvwxyz" if name not in prepared)
            prepared.append(gid)
            undone = ["SAVEPOINT s", insert(first + 950, 9), "ROLLBACK TO s"] if rng.random() < 0.3 else []
            node.prepare(gid, *undone, insert(first, rows))
        else:
            node.finish(step, prepared.pop(rng.randrange(len(prepared))))


@pytest.mark.parametrize("seed", range(5))
def test_a_session_sends_exactly_what_starts_at_or_after_the_confirmed_position(node: Node, seed: int) -> None:
    rng = random.Random(seed)
    write(node, rng, 25)
    log = units_of(node.read())
    assert {unit.last.letter for unit in log} >= set("PK")
    places = [place for unit in log for place in (unit.last.lsn.value, unit.last.lsn.value + 1, unit.last.end.value)]
    inside = [(unit.last.lsn.value, unit.last.end.value) for unit in log if unit.last.letter == "r"]
    ends = {unit.last.end.value for unit in log}
    allowed = {place for place in places if place in ends or not any(low < place < high for low, high in inside)}
    for place in sorted(rng.sample(sorted(allowed), min(8, len(allowed)))):
        confirm = max(Lsn(place), node.begin)
        node.read(confirm=confirm)
        assert node.confirmed() == confirm
        node.begin = confirm
        expected = [unit for unit in log if unit.sent(confirm)]
        found = units_of(node.read())
        assert [unit.name for unit in found] == [unit.name for unit in expected]
        assert [unit.rows for unit in found] == [unit.rows for unit in expected]


def test_one_thread_reads_several_sessions_as_they_bring_something(
    pg: EmbeddedPostgres, database_on: Callable[..., Database]
) -> None:
    with ExitStack() as stack:
        nodes = [stack.enter_context(node_on(database_on(pg))) for _ in range(3)]
        streams = {node: stack.enter_context(node.session()) for node in nodes}
        found: dict[Node, list[Record]] = {node: [] for node in nodes}
        for turn in range(1, 4):
            for node in nodes:
                node.prepare(f"{turn} of {node.slot}", insert(turn))
            deadline = monotonic() + DEADLINE_S
            while any(len([one for one in records if one.letter == "P"]) < turn for records in found.values()):
                assert monotonic() < deadline, [words(records) for records in found.values()]
                select.select(list(streams.values()), [], [], 1.0)
                for node, stream in streams.items():
                    while (chunk := stream.read(0.0)) is not None:
                        found[node] += records_of(chunk)
        for node, records in found.items():
            expected = [
                word for turn in range(1, 4) for word in (f"b {turn} of {node.slot}", f"P {turn} of {node.slot}")
            ]
            assert [word for word in words(records) if word[0] in "bP"] == expected
