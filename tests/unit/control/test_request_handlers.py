"""Every command of the server that asks for an answer is one that the engine answers."""

from __future__ import annotations

from typing import get_args

from engine.control.request_handlers import Request
from engine.link.messages import Cancel, Command, Reload


def test_every_request_has_somebody_who_answers() -> None:
    commands = get_args(get_args(Command)[0])
    asking = {command for command in commands if "request_id" in command.model_fields}
    # A reload is answered by its reports, and what is cancelled by its own answer.
    assert asking - {Cancel, Reload} <= set(get_args(Request))
