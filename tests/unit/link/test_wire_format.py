"""Every message is read and written as it always was: a server and an engine one release apart understand each other.

`messages.jsonl`: per line a message's class, what is given, and what is written of it, defaults included. A new field adds to the
lines; a field that changes or leaves one raises PROTOCOL where the other side could misunderstand.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from engine.link import messages
from engine.link.change_triggers import ChangeTriggersBody
from engine.link.cycles import BegunCycleBody, CyclesBody
from engine.link.lag import LagBody
from engine.link.message import Message, encode
from engine.link.partitions import PartitionsBody
from engine.link.quarantine import RefusedRowsBody
from engine.link.read_points import ReadPointsBody

_CASES = (Path(__file__).parents[2] / "golden/link/messages.jsonl").read_text(encoding="utf-8").splitlines()
_COMMANDS, _REPORTS = (
    {each.__name__: each for each in get_args(get_args(union)[0])} for union in (messages.Command, messages.Report)
)
_OTHERS = {
    each.__name__: each
    for each in (
        messages.PreflightBody,
        messages.DiscoverBody,
        messages.DdlCaptureBody,
        messages.NowBody,
        messages.SequencesBody,
        messages.Registration,
        messages.Registered,
        messages.ReportBundle,
        BegunCycleBody,
        ChangeTriggersBody,
        CyclesBody,
        LagBody,
        PartitionsBody,
        ReadPointsBody,
        RefusedRowsBody,
    )
}
_MESSAGES: dict[str, type[Message]] = {**_COMMANDS, **_REPORTS, **_OTHERS}


def _sorted_sets(value: Any, name: str = "") -> Any:
    """Sets have no order on the wire."""
    if isinstance(value, dict):
        return {key: _sorted_sets(each, key) for key, each in value.items()}
    if isinstance(value, list):
        each = [_sorted_sets(one) for one in value]
        return sorted(each) if name in {"operations", "dropped"} else each
    return value


@pytest.mark.parametrize("line", _CASES, ids=[json.loads(line)["message"] for line in _CASES])
def test_a_message_is_written_as_before(line: str) -> None:
    case = json.loads(line)
    message = _MESSAGES[case["message"]].model_validate(case["given"])
    assert _sorted_sets(json.loads(encode(message))) == case["encoded"]


def test_what_is_written_is_read_back_the_same() -> None:
    for line in _CASES:
        case = json.loads(line)
        message = _MESSAGES[case["message"]].model_validate(case["given"])
        assert type(message).model_validate_json(encode(message)) == message


def test_every_message_has_an_example() -> None:
    assert {json.loads(line)["message"] for line in _CASES} == _MESSAGES.keys()
