"""Each `penstock` command that a page shows can be run: commands and options exist, and in a block of code nothing is missing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from server.cli.main import app
from tests.tidy.documents import Page, pages

ROOT_COMMAND: Any = typer.main.get_command(app)
_ENDS = {"&&", "||", "|", ";", ">", "<", "&"}
_START = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*penstock(?: |$)")
SHOWN = [each for each in pages() if not each.generated]


def commands(text: str) -> Iterator[list[str]]:
    """The words after `penstock` of each line that begins with it, up to a pipe, a redirection or a comment."""
    for line in text.splitlines():
        if not _START.match(line.strip()):
            continue
        words = shlex.split(line.strip(), comments=True)
        words = words[words.index("penstock") + 1 :]
        yield words[: next((place for place, word in enumerate(words) if word in _ENDS), len(words))]


def _found(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the words lead to, and the words that are left for it."""
    command, rest = ROOT_COMMAND, list(words)
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest.pop(0)]
    return command, rest


def find_mistake(words: list[str]) -> str | None:
    """What is wrong with the words of a whole command; None where it could be run."""
    command, rest = _found(words)
    if getattr(command, "commands", None) and not getattr(command, "invoke_without_command", False):
        return f"no such command: {' '.join(words)}"
    try:
        command.make_context(" ".join(words), rest)
    except Exception as error:  # of a class that typer vendors
        return f"{' '.join(words)}: {error or type(error).__name__}"
    return None


def unknown(words: list[str]) -> str | None:
    """What of a command that is only mentioned does not exist."""
    command, rest = _found(words)
    if command is ROOT_COMMAND and rest and not rest[0].startswith("-") and not rest[0].isupper():
        return f"no such command: {' '.join(words)}"
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
    options = {word.partition("=")[0] for word in rest if re.fullmatch(r"--?[a-z][a-z-]*(=.*)?", word)}
    return f"{' '.join(words)}: {sorted(options - known)}" if options - known else None


@pytest.mark.parametrize("each", SHOWN, ids=lambda each: each.path)
def test_shown_commands_parse(each: Page) -> None:
    shown = [words for language, block in each.blocks() if language in {"", "sh"} for words in commands(block)]
    assert [problem for words in shown if (problem := find_mistake(words))] == []


@pytest.mark.parametrize("each", SHOWN, ids=lambda each: each.path)
def test_mentioned_commands_exist(each: Page) -> None:
    mentioned = [words for code in each.inline() for words in commands(code)]
    assert [problem for words in mentioned if (problem := unknown(words))] == []


def test_commands_are_shown_at_all() -> None:
    assert sum(1 for each in SHOWN for _, block in each.blocks() for _ in commands(block)) > 40


def test_wrong_commands_are_found() -> None:
    assert find_mistake(["stauts"])
    assert find_mistake(["tables", "reload"])
    assert find_mistake(["wait", "--forever"])
    assert find_mistake(["tables"]) is None
    assert unknown(["query", "--fresh"]) is None
    assert unknown(["query", "--stale"])
    assert unknown(["stauts"])
    assert list(commands("$ penstock wait --timeout 5m && run-report   # then")) == [["wait", "--timeout", "5m"]]
