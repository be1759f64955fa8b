"""Sizes are printed in one way: by the engine, the server, the command line and the console."""

from __future__ import annotations

import json
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model import sizes
from server import wording
from tests.fixtures.console import run_module
from tests.tidy.source_tree import ROOT

MODULE = "src/labels/numbers.ts"
_DECIMAL = re.compile(r"\d\s?[kMGT]B\b")


@settings(max_examples=5)
@given(st.lists(st.integers(0, 2**56), min_size=20, max_size=60))
def test_the_console_prints_sizes_as_the_rest_does(found: list[int]) -> None:
    near = [max(0, 1024**power * factor + step) for power in range(6) for factor in (1, 16, 999) for step in (-1, 0, 1)]
    # Half way between two numbers that can be shown.
    near += [1024**power * quarters // 4 for power in range(1, 5) for quarters in (5, 7, 397, 402, 406)]
    given_bytes = [*found, *near, 999, 1000, 1023, 17_179_869_184]
    shown = json.loads(run_module(MODULE, "given.map(found.bytes)", given_bytes))
    assert [text.replace("\u00a0", " ") for text in shown] == [sizes.size(count) for count in given_bytes]
    assert [wording.format_size(count) for count in given_bytes] == [sizes.size(count) for count in given_bytes]


def test_a_budget_has_one_name() -> None:
    assert sizes.size(16 * 1024**3) == "16 GiB"
    assert [sizes.size(count) for count in (0, 512, 1023, 1024, 1536, 102_400, 1024**2 - 1)] == [
        "0 B",
        "512 B",
        "1 KiB",
        "1 KiB",
        "1.5 KiB",
        "100 KiB",
        "1 MiB",
    ]


def test_neither_the_console_nor_the_manual_counts_in_thousands_beside_it() -> None:
    """What others write so is left alone: settings of PostgreSQL, and figures that were measured."""
    pages = [
        page
        for page in (ROOT / "docs").rglob("*.md")
        if not page.name.startswith("benchmark") and "decisions" not in page.parts
    ]
    files = [*(ROOT / "web" / "src").rglob("*.ts*"), *pages]
    wrong = [
        f"{file.relative_to(ROOT)}: {line.strip()[:80]}"
        for file in files
        if file.name != "schema.d.ts"
        for line in file.read_text().splitlines()
        if _DECIMAL.search(line) and not line.lstrip().startswith(("ALTER SYSTEM", "SET "))
    ]
    assert wrong == []
