"""Whole logs written out as text, and the net changes of their batches. UPDATE_GOLDEN=1 rewrites the expected part."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.model.subscription import BatchPolicy
from tests.property.interleaved_text import run_log

_FOLDER = Path(__file__).parents[1] / "golden" / "interleaved"
_BORDER = "--------\n"


@pytest.mark.parametrize("path", sorted(_FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_log_gives_what_the_file_says(path: Path) -> None:
    script, _, expected = path.read_text().partition(_BORDER)
    lines = [line for line in script.splitlines() if line.strip() and not line.startswith("#")]
    options = {"transactions": 1000, "buckets": 1}
    while lines[0].startswith("at most "):
        _, _, value, name = lines.pop(0).split()
        options[name] = int(value)
    policy = BatchPolicy(max_transactions=options["transactions"], max_age_ms=200)
    actual = "".join(f"{line}\n" for line in run_log(lines, policy, options["buckets"]))
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(script + _BORDER + actual)
        expected = actual
    assert actual == expected


def test_there_are_cases() -> None:
    assert len(list(_FOLDER.glob("*.txt"))) >= 5
