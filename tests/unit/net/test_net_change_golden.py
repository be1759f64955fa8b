"""Net change, case by case: files of changes above the line and the expected outcome below it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.net.net_change_text import run_case

_FOLDER = Path(__file__).parents[2] / "golden" / "net_change"
_LINE = "---"


def _cases() -> list[object]:
    cases: list[object] = []
    for path in sorted(_FOLDER.glob("*.txt")):
        for n, block in enumerate(path.read_text().split("\n== ")[1:]):
            cases.append(pytest.param(path, n, id=f"{path.stem}: {block.splitlines()[0]}"))
    return cases


@pytest.mark.parametrize(("path", "number"), _cases())
def test_outcome_is_the_recorded_one(path: Path, number: int) -> None:
    head, *blocks = path.read_text().split("\n== ")
    title, _, body = blocks[number].partition("\n")
    changes, _, expected = body.partition(f"{_LINE}\n")
    found = "".join(f"{line}\n" for line in run_case(changes))
    if os.environ.get("UPDATE_GOLDEN"):
        blocks[number] = f"{title}\n{changes}{_LINE}\n{found}"
        path.write_text("\n\n== ".join(block.rstrip("\n") for block in (head, *blocks)) + "\n")
        return
    assert found == expected.rstrip("\n") + "\n"


def test_there_are_cases() -> None:
    assert len(_cases()) > 40
