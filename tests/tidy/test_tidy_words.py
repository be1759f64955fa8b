"""Pages and texts for users use the words of the field: words that only this project used in their sense are refused, each with what
to write instead."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Mapping

import pytest

from tests.tidy.documents import Page, pages
from tests.tidy.source_tree import Module, comments, docstrings, modules, texts

INSTEAD = {
    r"\btold\b|\btells? (?:of|apart)\b": "reported, distinguished, or name who says it",
    r"\bstands?\b(?! (?:for|by|alone)\b)": "is, or what it does",
    r"\banew\b": "again, re-created, restarted",
    r"\b(?:nobody|somebody|anybody|whoever)\b": "the actor: the user, the operator, the engine",
    r"\bwhat (?:becomes?|became) of\b": "what happens to",
    r"\bbeside\b": "concurrently with, next to, in addition to",
    r"\bgetting there\b": "the state's name",
    r"\btaken in\b": "included, accepted",
    r"\bbehind\b": "after, following",
    r"\bat present\b": "now, or leave it out",
    r"\bof late\b": "recently, or since when",
    r"\bpassed over\b": "ignored, skipped, left out",
    r"\bmakes? no sense\b": "is invalid",
    r"\b(?:to be|is|are) had\b": "available, possible",
    r"\bso much\b": "the amount",
    r"\btaken? up\b": "continued, taken over",
    r"\bcomes? true\b": "holds",
    r"\bdone again\b": "repeated, retried",
    r"\bin the way\b": "what blocks what",
}
IN_DOCSTRINGS = {
    r"\bgo(?:es)? on\b": "continues",
    r"\blook(?:s|ed)? at\b": "reads, checks, examines",
    r"\blets? go\b": "releases",
    r"\bputs? into\b": "writes, inserts",
}
"""Refused in docstrings only: they also have a plain meaning, which guides use."""
LITERAL = re.compile(
    r"\b(?:is|are|was|were|falls?|fell|far|lags?|\d+ (?:m?s|seconds?|minutes?|hours?|[KMG]iB)) behind\b"
    r"|\bbehind (?:a|the) (?:reverse )?proxy"
)
"""Of lag, and of a proxy, the word says what it means."""
READ = [each for each in pages() if not each.generated]
PRODUCT = modules("engine", "server", "bench", "penstock")
SQL = re.compile(r"^\s*(?:SELECT|INSERT|UPDATE|DELETE|CREATE|WITH)\b|\n[^\n]*\bSELECT\b")
"""Statements, and parts of several lines: their names are not words for users."""
CODE = re.compile(r"`[^`\n]+`")
FORMATTED = "0 s"
"""A value that a string formats counts as a time, so that the list accepts the word for lag."""
CHECKED_DOCSTRINGS = (
    "bench",
    "deploy",
    "docs",
    "engine",
    "penstock",
    "server",
    "tests/bench",
    "tests/browser",
    "tests/chaos",
    "tests/contract",
    "tests/fixtures",
    "tests/pg",
    "tests/process",
    "tests/property",
    "tests/server",
    "tests/tidy",
    "tests/unit",
)
"""Folders whose docstrings and comments use these words too. A folder is added when it does."""


def found(text: str, refused: Mapping[str, str] = INSTEAD) -> list[str]:
    """What of a text is refused, with the line and what to write instead."""
    return [
        f"{number}: {match[0]!r}: {instead}"
        for number, line in enumerate(LITERAL.sub("", text).splitlines(), 1)
        for pattern, instead in refused.items()
        for match in re.finditer(pattern, line, re.IGNORECASE)
    ]


@pytest.mark.parametrize("each", READ, ids=lambda each: each.path)
def test_page_uses_the_words_of_the_field(each: Page) -> None:
    assert found(each.words) == []


def in_texts(module: Module) -> list[str]:
    """What of a module's texts for users is refused; the line is the text's, then the one within it."""
    return [
        f"{line}, {each}"
        for line, text in texts(module, FORMATTED)
        if not SQL.search(text)
        for each in found(CODE.sub("``", text))
    ]


@pytest.mark.parametrize("module", PRODUCT, ids=lambda module: module.path)
def test_text_for_users_uses_the_words_of_the_field(module: Module) -> None:
    assert in_texts(module) == []


@pytest.mark.parametrize("folder", CHECKED_DOCSTRINGS)
def test_docstrings_use_the_words_of_the_field(folder: str) -> None:
    read = modules(folder)
    assert read
    refused = [
        f"{module.path}:{line}, {each}"
        for module in read
        for line, text in (*docstrings(module), *comments(module))
        for each in found(CODE.sub("``", text), INSTEAD | IN_DOCSTRINGS)
    ]
    assert refused == []


def test_words_are_found_in_texts_and_not_in_statements() -> None:
    text = """
        def one(lag, rows):
            "A docstring that stands here."
            yield f"{lag} behind the source"
            yield "`anybody` may"
            yield "SELECT told FROM rows"
            yield f"{rows} rows stand aside," f" {lag} s of late"
    """
    module = Module("one.py", text, ast.parse(textwrap.dedent(text)))
    assert [each.partition(":")[2] for each in in_texts(module)] == [
        " 'stand': is, or what it does",
        " 'of late': recently, or since when",
    ]
    assert len(found(next(docstrings(module))[1])) == 1


def test_words_are_found_and_lag_is_not() -> None:
    assert len(found("What becomes of it is told to nobody")) == 3
    assert found("it goes on behind the last one")
    assert found("The copy is behind its source, 3 s behind, or falls behind; the server runs behind a proxy") == []
    assert found("PSS stands for proportional set size") == []
