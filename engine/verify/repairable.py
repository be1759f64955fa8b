"""Whether the rows of a table that a comparison found different can be repaired, and how many. Pure."""

from __future__ import annotations

from engine.model.repair import MOST_REPAIRED, RepairedRows
from engine.model.schema import KeyMode
from engine.model.subscription import TableSpec
from engine.verify.verdict import TableVerdict


def why_not(spec: TableSpec, verdict: TableVerdict) -> str | None:
    """Why the table cannot be repaired row by row, and what to do instead; None if it can."""
    schema = verdict.compared.schema if verdict.compared is not None else None
    if schema is None or schema.mode is not KeyMode.KEYED:
        return "the table has no key by which single rows could be replaced; reload it"
    if spec.into_existing:
        return "the table was made by its owner on the target, who may compute or refuse values; reload it"
    if any(column.mask is not None for column in schema.key_columns):
        return "its key is masked, so that the source cannot be asked for single rows; reload it"
    if spec.skipped:
        return "the subscription does not follow all operations of the table, so that it differs by intent"
    if verdict.set_aside:
        return "rows of the table are in quarantine; retry or skip them, or reload the table"
    if len(verdict.differences) > MOST_REPAIRED:
        return f"more than {MOST_REPAIRED:,} of its rows differ; reload it"
    return None


def would_write(verdict: TableVerdict) -> RepairedRows:
    """The rows that a repair would write if nothing changed since the comparison."""
    kinds = [difference.kind for difference in verdict.differences]
    return RepairedRows(kinds.count("missing"), kinds.count("different"), kinds.count("extra"))
