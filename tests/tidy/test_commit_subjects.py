"""Subjects of commits: short, with a capital, in the imperative. Counts from the commit that brought this file on."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.tidy.source_tree import ROOT

LONGEST = 72
_PREFIX = re.compile(r"^[A-Z][\w ]{1,24}: ")
_NOT_IMPERATIVE = re.compile(r"(?:ed|ing|s)$")
IMPERATIVE = {
    "address",
    "pass",
    "process",
    "discuss",
    "focus",
    "access",
    "compress",
    "express",
    "guess",
    "miss",
    "press",
    "suppress",
}
IMPERATIVE |= {
    "bring",
    "ring",
    "string",
    "embed",
    "feed",
    "seed",
    "need",
    "shed",
    "speed",
    "bypass",
    "dismiss",
    "cross",
    "stress",
}


def _git(*arguments: str) -> str | None:
    """What git prints; None where there is no git, or no repository."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def problems(subject: str) -> list[str]:
    """What is wrong with a subject."""
    words = _PREFIX.sub("", subject).split()
    first = re.sub(r"\W", "", words[0]).lower() if words else ""
    return [
        reason
        for reason, wrong in (
            (f"more than {LONGEST} characters; the reason belongs in the body", len(subject) > LONGEST),
            ("begins with a small letter", not subject[:1].isupper()),
            ("is not an imperative", bool(_NOT_IMPERATIVE.search(first)) and first not in IMPERATIVE),
            ("ends with a full stop", subject.endswith(".")),
        )
        if wrong
    ]


def test_subjects_since_this_rule_follow_it() -> None:
    if _git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("the history is not here")
    brought = _git("log", "--diff-filter=A", "--format=%H", "--", "tests/tidy/test_commit_subjects.py")
    if not brought:
        pytest.skip("this rule is not committed yet")
    since = _git("log", "--no-merges", "--format=%h %s", f"{brought.splitlines()[-1]}..HEAD") or ""
    wrong = {line: problems(line.partition(" ")[2]) for line in since.splitlines()}
    assert {line: reasons for line, reasons in wrong.items() if reasons} == {}


@pytest.mark.parametrize(
    "subject",
    [
        "Follow renamed columns",
        "Test: draw no dot segments as parts of an address",
        "Pass positions as values",
        "Bring the DDL capture up to date",
    ],
)
def test_good_subjects_pass(subject: str) -> None:
    assert problems(subject) == []


@pytest.mark.parametrize(
    "subject",
    [
        "follow renamed columns",
        "Followed renamed columns",
        "Fixes a test",
        "Tables: following renamed columns",
        "A column that follows another one which came and went unseen is not taken for it: its rows' old values were kept",
        "Follow renamed columns.",
    ],
)
def test_bad_subjects_are_found(subject: str) -> None:
    assert problems(subject)
