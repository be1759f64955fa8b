"""Answers of nodes that cannot be asked: the last ones count while their logs are not read either."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.merged_logs import Away
from engine.sources.postgres_logs import last_answers
from engine.sources.postgres_logs.last_answers import AbsentNodes, LastAnswers
from engine.sources.postgres_logs.merged_stream import StreamState
from engine.sources.postgres_logs.reader_folder import ReaderFolder

AWAY = {"n0": Away(5, "source_unreachable", "refused")}


class Asked:
    """Two nodes, of which the first may be lost. `states`: what the reader says, one after another; the last one for ever."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *states: StreamState | None) -> None:
        self.lost: FaultKind | None = None
        self.asked: list[str] = []
        self._states = list(states)
        nodes = [SimpleNamespace(number=number, name=f"n{number}") for number in range(2)]
        absent = AbsentNodes(ReaderFolder(Path("unused")))
        self.absent = absent
        self.answers = LastAnswers[str](
            cast("Any", SimpleNamespace(each=lambda ask: [ask(one) for one in nodes])), absent
        )
        monkeypatch.setattr(last_answers, "request_state", lambda _: self._next())
        monkeypatch.setattr(last_answers, "_LOOK_S", 0.0)

    def _next(self) -> StreamState | None:
        return self._states.pop(0) if len(self._states) > 1 else self._states[0]

    def ask(self, about: str | None = None) -> list[str]:
        return self.answers.ask(self._answer, about)

    def _answer(self, node: Any) -> str:
        self.asked.append(node.name)
        if self.lost is not None and node.number == 0:
            raise EngineFault(self.lost, f"shop/{node.name}", "refused")
        return f"{node.name} {len(self.asked)}"


def state(read: int, away: dict[str, Away] | None = None) -> StreamState:
    return StreamState({"n0": read, "n1": 7}, frozenset(), 0, 0.0, away or {})


@pytest.mark.parametrize("states", [[state(5, AWAY)], [state(5), state(5)]])
def test_the_last_answer_of_a_node_that_is_not_read_counts(
    monkeypatch: pytest.MonkeyPatch, states: list[StreamState]
) -> None:
    nodes = Asked(monkeypatch, *states)
    assert nodes.ask() == ["n0 1", "n1 2"]
    nodes.lost = FaultKind.SOURCE_UNREACHABLE
    assert nodes.ask() == ["n0 1", "n1 4"]
    assert nodes.absent.away["n0"].reason == "refused"
    nodes.asked.clear()
    assert nodes.ask()[0] == "n0 1"
    assert nodes.asked == ["n1"], "it is not asked again at once"
    monkeypatch.setattr(last_answers, "_PAUSE_S", -1.0)
    with pytest.raises(EngineFault):
        nodes.ask("something else")
    nodes.lost = None
    nodes.ask("something else")
    assert nodes.absent.away == {}


@pytest.mark.parametrize("states", [[None], [*map(state, range(20))]])
def test_a_node_that_is_read_or_has_no_reader_has_to_answer(
    monkeypatch: pytest.MonkeyPatch, states: list[StreamState | None]
) -> None:
    nodes = Asked(monkeypatch, *states)
    nodes.ask()
    nodes.lost = FaultKind.SOURCE_UNREACHABLE
    with pytest.raises(EngineFault) as caught:
        nodes.ask()
    assert caught.value.subject == "shop/n0"


def test_other_faults_are_not_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Asked(monkeypatch, state(5, AWAY))
    nodes.ask()
    nodes.lost = FaultKind.SOURCE_PRIVILEGE
    with pytest.raises(EngineFault) as caught:
        nodes.ask()
    assert caught.value.kind is FaultKind.SOURCE_PRIVILEGE
