"""Which tables can be repaired row by row, and what a repair would write."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.model.masks import Mask
from engine.model.repair import MOST_REPAIRED, RepairedRows
from engine.model.schema import KeyMode
from engine.model.target import TableRecord
from engine.verify.repairable import why_not, would_write
from engine.verify.verdict import Difference, TableVerdict, VerdictStatus
from tests.unit.copy.copy_fakes import POSITION, table_of

SPEC, SCHEMA = table_of("a").spec, table_of("a").schema
DIFFERENCES = (
    Difference(("1",), "missing", exact=("1",)),
    Difference(("2",), "different", ("v",), ("2",)),
    Difference(("3",), "different", ("v",), ("3",)),
    Difference(("4",), "extra", exact=("4",)),
)


def verdict(differences: tuple[Difference, ...] = DIFFERENCES, set_aside: int = 0, **changes: Any) -> TableVerdict:
    schema = replace(SCHEMA, **changes)
    record = TableRecord(SPEC.table, SPEC.target, schema, ready=True, applied=POSITION)
    found = TableVerdict(SPEC.table, SPEC.source, schema.mode, POSITION, VerdictStatus.DIFFERENT, 9, 9, differences)
    return replace(found, set_aside=set_aside, compared=record)


def test_a_table_with_a_key_can_be_repaired_and_its_rows_are_counted() -> None:
    assert why_not(SPEC, verdict()) is None
    assert would_write(verdict()) == RepairedRows(inserted=1, updated=2, deleted=1)
    assert why_not(SPEC, verdict(history=True, soft_delete=True)) is None


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"mode": KeyMode.BAG, "key": ()}, "no key"),
        ({"mode": KeyMode.APPEND, "key": ()}, "no key"),
        ({"columns": tuple(replace(c, mask=Mask("hash")) for c in SCHEMA.columns)}, "masked"),
        ({"set_aside": 1}, "quarantine"),
        ({"differences": DIFFERENCES[:1] * (MOST_REPAIRED + 1)}, "more than 100,000"),
    ],
)
def test_other_tables_are_left_out_with_what_to_do(changed: dict[str, Any], reason: str) -> None:
    assert reason in (why_not(SPEC, verdict(**changed)) or "")


def test_declarations_of_the_user_keep_a_table_out() -> None:
    assert "owner" in (why_not(replace(SPEC, into_existing=True), verdict()) or "")
    assert "by intent" in (why_not(replace(SPEC, operations=frozenset({"insert", "update"})), verdict()) or "")
    assert "no key" in (why_not(SPEC, replace(verdict(), compared=None)) or "")
