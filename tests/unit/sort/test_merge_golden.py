"""The examples 7 to 9 and the propositions 1 to 4 of the document on which the merge of several logs rests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.sort.merge import LogMerge
from engine.sort.merge_records import Closed, Entry, EntryKind, Global, LocalRun, Merged, Order, Passed

GOLDEN = Path(__file__).parents[2] / "golden" / "merge"
EXAMPLES: dict[str, Any] = json.loads((GOLDEN / "examples_7_to_9.json").read_text(encoding="utf-8"))
PROPOSITIONS: list[dict[str, Any]] = json.loads((GOLDEN / "propositions_1_to_4.json").read_text(encoding="utf-8"))[
    "cases"
]
STEP = 10
"""Bytes of a record in these logs."""


class Logs:
    """Three logs, and the merge that they are passed to. Nodes and parts have the document's names: node 1 is number 0."""

    def __init__(self, order: Order, participants: dict[str, list[str]]) -> None:
        self.merge = LogMerge(3, order)
        self.ends = [0, 0, 0]
        self.parts: list[str] = []
        self._participants = {
            gtid: frozenset(int(node) - 1 for node in nodes) for gtid, nodes in participants.items() if nodes
        }

    def read(self, node: str, kind: str, gtid: str, stamp: int) -> None:
        number = int(node) - 1
        begin, self.ends[number] = self.ends[number], self.ends[number] + STEP
        self.parts.append(f"{gtid.replace('GTX', 'STX')}{node}")
        place = len(self.parts) - 1
        if kind == "local":
            single = (np.array([value], np.int64) for value in (self.ends[number], stamp, place))
            self.merge.add_commits(number, *single)
            return
        named = self._participants.get(gtid) if kind == EntryKind.OWN_COMMIT.value else None
        entry = Entry(EntryKind(kind), gtid, self.ends[number], stamp, place, begin, named)
        self.merge.add(number, entry)

    def mark(self) -> None:
        """Take the ends of all logs, up to which they were read."""
        assert self.merge.wants_marks()
        self.merge.ask_marks()
        self.merge.marked(list(self.ends))

    def delivered(self) -> list[list[str]]:
        return [self._named(each) for each in self.merge.release()]

    def released(self) -> dict[str, dict[str, str]]:
        return {
            each.gtid: {str(node + 1): self.parts[place] for node, place in each.parts}
            for each in self.merge.release()
            if isinstance(each, Global)
        }

    def _named(self, merged: Merged) -> list[str]:
        if isinstance(merged, LocalRun):
            return [str(int(merged.nodes[0]) + 1), "local", ""]
        assert isinstance(merged, Global | Closed | Passed)
        node = str(merged.node + 1)
        if isinstance(merged, Passed):
            return [node, merged.kind.value, merged.gtid]
        # In these logs every coordinator has a part of its own.
        kind = EntryKind.OWN_COMMIT if isinstance(merged, Global) else EntryKind.COMMIT_PREPARED
        return [node, kind.value, merged.gtid]


def all_logs() -> Logs:
    logs = Logs(Order.STRICT, EXAMPLES["participants"])
    for node, records in EXAMPLES["logs"].items():
        for kind, gtid, stamp in records:
            logs.read(node, kind, gtid, stamp)
    logs.mark()
    return logs


def test_logs_of_example_7_give_the_sequence_of_example_8() -> None:
    assert all_logs().delivered() == EXAMPLES["example_8"]


def test_global_transactions_of_example_7_are_whole() -> None:
    assert all_logs().released() == EXAMPLES["released"]


def test_records_are_held_and_delivered_as_in_example_9() -> None:
    logs = Logs(Order.STRICT, EXAMPLES["participants"])
    rest = {node: list(records) for node, records in EXAMPLES["logs"].items()}
    for step in EXAMPLES["example_9"]:
        if "hold" in step:
            node = step["hold"]
            logs.read(node, *rest[node].pop(0))
        else:
            assert not any(rest.values())
            logs.mark()
        assert logs.delivered() == step["deliver"], step


@pytest.mark.parametrize("case", PROPOSITIONS, ids=lambda case: f"{case['proposition']}-{case['name']}")
def test_what_may_pass_a_node_at_the_end_of_its_log(case: dict[str, Any]) -> None:
    logs = Logs(Order.CAUSAL, {"G": case.get("participants", [])})
    for node, kind, gtid, stamp in case["before"]:
        logs.read(node, kind, gtid, stamp)
    logs.delivered()
    for kind, gtid, stamp in case["log"]:
        logs.read("2", kind, gtid, stamp)
    passed = logs.delivered()
    assert bool(passed) == case["passes"]
    if not case["passes"]:
        if case["then"] == "marks":
            logs.mark()
        else:
            logs.read(*case["then"])
        assert logs.delivered()


@pytest.mark.parametrize("case", PROPOSITIONS, ids=lambda case: f"{case['proposition']}-{case['name']}")
def test_nothing_passes_a_node_in_the_order_of_stamps_until_it_is_known_to_have_nothing(case: dict[str, Any]) -> None:
    logs = Logs(Order.STRICT, {"G": case.get("participants", [])})
    for node, kind, gtid, stamp in case["before"]:
        logs.read(node, kind, gtid, stamp)
    for kind, gtid, stamp in case["log"]:
        logs.read("2", kind, gtid, stamp)
    last = [["2", *case["log"][-1][:2]]]
    assert logs.delivered()[-1:] != last
    if "then" in case and case["then"] != "marks":
        logs.read(*case["then"])
    logs.mark()
    assert logs.delivered()
