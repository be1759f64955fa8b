"""The statements of the page on staging tables are those with which tests rebuild tables."""

from __future__ import annotations

import re
from pathlib import Path

from tests.fixtures.staging_applier import DOCUMENTED

ROOT = Path(__file__).parents[3]
NAMES = {
    "table": "orders",
    "subscription": "mart",
    "limit": 100,
    "columns": "id, total, big",
    "key": "id",
    "same": "a.id = c.id",
}


def statements(text: str) -> list[str]:
    without_comments = re.sub(r"--.*", "", text)
    return [" ".join(one.split()) for one in without_comments.split(";") if one.strip()]


def test_the_page_has_the_statements_that_tests_run() -> None:
    page = (ROOT / "docs/how-to/stage-changes.md").read_text()
    (shown,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    assert statements(shown) == [one for part in DOCUMENTED for one in statements(part.format(**NAMES))]
