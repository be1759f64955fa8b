"""Every command of the server is taken by one method of the engine, and those that ask for an answer get one."""

from __future__ import annotations

from typing import get_args

import pytest

from engine.control import engine, request_handlers
from engine.control.handlers import Handlers
from engine.link.message import Question
from engine.link.messages import Cancel, Command, Heartbeat, Reload, Sync

_COMMANDS = frozenset(get_args(get_args(Command)[0]))


def test_every_command_is_taken_in_one_place() -> None:
    obeyed, answered = engine.HANDLERS.commands, request_handlers.HANDLERS.commands
    # A heartbeat says all that it has to say by its coming.
    assert obeyed | answered == _COMMANDS - {Heartbeat}
    assert not obeyed & answered


def test_every_question_is_answered() -> None:
    asking = {command for command in _COMMANDS if "request_id" in command.model_fields}
    # A reload is answered by its reports, and what is cancelled by its own answer.
    questions = asking - {Cancel, Reload}
    assert questions == {command for command in _COMMANDS if issubclass(command, Question)}
    assert questions <= request_handlers.HANDLERS.commands


def test_no_command_has_two_methods() -> None:
    handlers: Handlers[object] = Handlers()

    @handlers.handles(Sync)
    def first(self: object, command: Sync) -> str:
        return command.stream

    assert handlers.find(Sync(subscriptions={})) is first
    with pytest.raises(ValueError, match="two methods take Sync"):
        handlers.handles(Sync)(first)
