"""Answers of all nodes to a question that is asked again and again: while a node's log is not read, its last answer counts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from engine.model.fault import EngineFault
from engine.model.merged_logs import Away
from engine.sources.postgres_logs.node_session import AWAY_KINDS
from engine.sources.postgres_logs.nodes import Node, Nodes
from engine.sources.postgres_logs.reader_folder import ReaderFolder
from engine.sources.postgres_logs.reader_socket import request_state

T = TypeVar("T")
_PAUSE_S = 5.0
"""Seconds after a node could not be reached in which it is not asked again: each attempt may take as long as the connection's timeout. Not
measured."""
_LOOK_S = 0.5
"""Seconds between two reads of how far a node's log is read: longer than the reader takes to note it. Not measured."""
_LOOKS = 6
"""Such reads, after which a node whose log is read all the time counts as there: the reader may still take what the node sent before. Not
measured."""


class AbsentNodes:
    """Which nodes cannot be asked, while their logs are not read either. Any thread may use it.

    A node that sends its log and cannot be asked is none of them: what it sends would not be checked.
    """

    def __init__(self, folder: ReaderFolder | None) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._found: dict[str, tuple[float, Away]] = {}
        """By name: until when it is not asked again, and why."""

    @property
    def away(self) -> dict[str, Away]:
        """Those that could not be asked the last time."""
        with self._lock:
            return {name: why for name, (_, why) in self._found.items()}

    def is_left_out(self, node: Node) -> bool:
        """Whether it is not asked now, since it could not be just before."""
        with self._lock:
            found = self._found.get(node.name)
        return found is not None and time.monotonic() < found[0]

    def answered(self, node: Node) -> None:
        with self._lock:
            self._found.pop(node.name, None)

    def take(self, node: Node, fault: EngineFault) -> bool:
        """A node could not be asked. Returns whether it is absent."""
        if fault.kind not in AWAY_KINDS or not self._is_unread(node):
            return False
        with self._lock:
            known = self._found.get(node.name)
            since_us = time.time_ns() // 1000 if known is None else known[1].since_us
            self._found[node.name] = time.monotonic() + _PAUSE_S, Away(since_us, fault.kind.value, fault.detail)
        return True

    def _is_unread(self, node: Node) -> bool:
        """Whether the reader runs and reads nothing of the node."""
        if self._folder is None:
            return False
        read: int | None = None
        for look in range(_LOOKS):
            if look:
                time.sleep(_LOOK_S)
            try:
                state = request_state(self._folder.path)
            except EngineFault:
                return False
            if state is None:
                return False
            if node.name in state.away or state.read.get(node.name) == read:
                return True
            read = state.read.get(node.name)
        return False


class LastAnswers(Generic[T]):
    """The answers to one kind of question. Any thread may use it."""

    def __init__(self, nodes: Nodes, absent: AbsentNodes) -> None:
        self._nodes = nodes
        self._absent = absent
        self._lock = threading.Lock()
        self._known: dict[tuple[int, Hashable], T] = {}

    def ask(self, question: Callable[[Node], T], about: Hashable = None) -> list[T]:
        """The answers of all nodes, by number, asked at the same time; of an absent one the last to a question `about` the same.

        Raises the fault of the first node that has one, or has not answered before.
        """
        found = self._nodes.each(lambda node: self._ask(node, question, about))
        faults = [one for one in found if isinstance(one, EngineFault)]
        if faults:
            raise faults[0]
        answers: list[Any] = found
        return answers

    def _ask(self, node: Node, question: Callable[[Node], T], about: Hashable) -> T | EngineFault:
        key = (node.number, about)
        with self._lock:
            is_known, known = key in self._known, self._known.get(key)
        if is_known and known is not None and self._absent.is_left_out(node):
            return known
        try:
            answer = question(node)
        except EngineFault as fault:
            return known if is_known and known is not None and self._absent.take(node, fault) else fault
        self._absent.answered(node)
        with self._lock:
            self._known[key] = answer
        return answer
