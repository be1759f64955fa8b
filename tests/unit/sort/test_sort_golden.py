"""Logs written out as text, and what sorter and batcher make of them. UPDATE_GOLDEN=1 rewrites the expected part."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.model.subscription import BatchPolicy
from tests.unit.sort.log_script import run_script

_FOLDER = Path(__file__).parents[2] / "golden" / "sort"
_BORDER = "--------\n"


@pytest.mark.parametrize("path", sorted(_FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_script_gives_what_the_file_says(path: Path) -> None:
    script, _, expected = path.read_text().partition(_BORDER)
    lines = [line for line in script.splitlines() if line.strip() and not line.startswith("#")]
    options = {"after": 0, "count": 1000, "bytes": 100_000, "age": 200}
    while lines[0].startswith("policy "):
        _, name, value = lines.pop(0).split()
        options[name] = int(value)
    policy = BatchPolicy(max_transactions=options["count"], max_bytes=options["bytes"], max_age_ms=options["age"])
    actual = "".join(f"{line}\n" for line in run_script(lines, policy, options["after"]))
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(script + _BORDER + actual)
        expected = actual
    assert actual == expected


def test_there_are_cases() -> None:
    assert len(list(_FOLDER.glob("*.txt"))) >= 10
