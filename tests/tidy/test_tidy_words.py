"""Pages use the words of the field: those that only this project used in their sense are refused, each with what to write instead."""

from __future__ import annotations

import re

import pytest

from tests.tidy.documents import Page, pages

INSTEAD = {
    r"\btold\b|\btells? (?:of|apart)\b": "reported, distinguished, or name who says it",
    r"\bstands?\b(?! (?:for|by|alone)\b)": "is, or what it does",
    r"\banew\b": "again, re-created, restarted",
    r"\b(?:nobody|somebody|whoever)\b": "the actor: the user, the operator, the engine",
    r"\bwhat (?:becomes?|became) of\b": "what happens to",
    r"\bbeside\b": "concurrently with, next to, in addition to",
    r"\bgetting there\b": "the state's name",
    r"\btaken in\b": "included, accepted",
    r"\bbehind\b": "after, following",
}
LITERAL = re.compile(
    r"\b(?:is|are|was|were|falls?|fell|far|lags?|\d+ (?:m?s|seconds?|minutes?|hours?|[KMG]iB)) behind\b"
    r"|\bbehind (?:a|the) (?:reverse )?proxy"
)
"""Of lag, and of a proxy, the word says what it means."""
READ = [each for each in pages() if not each.generated]


def found(text: str) -> list[str]:
    """What of a text is refused, with the line and what to write instead."""
    return [
        f"{number}: {match[0]!r}: {instead}"
        for number, line in enumerate(LITERAL.sub("", text).splitlines(), 1)
        for pattern, instead in INSTEAD.items()
        for match in re.finditer(pattern, line, re.IGNORECASE)
    ]


@pytest.mark.parametrize("each", READ, ids=lambda each: each.path)
def test_page_uses_the_words_of_the_field(each: Page) -> None:
    assert found(each.words) == []


def test_words_are_found_and_lag_is_not() -> None:
    assert len(found("What becomes of it is told to nobody")) == 3
    assert found("it goes on behind the last one")
    assert found("The copy is behind its source, 3 s behind, or falls behind; the server runs behind a proxy") == []
    assert found("PSS stands for proportional set size") == []
