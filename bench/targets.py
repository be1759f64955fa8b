"""Goals for a PostgreSQL target, each with the results that apply to it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bench.contenders import PENSTOCK
from bench.report_tables import Document, Row, Table
from bench.results import apply_of, target_of
from bench.suite import sound
from bench.workload import Mode

TITLE = "Goals with a PostgreSQL target"

_RATES = (
    ("tpcb", "batch", 1.7),
    ("tpcb", "relaxed", 2.0),
    ("hot-rows", "batch", 2.2),
    ("hot-rows-many", "batch", 2.2),
    ("inserts", "batch", 2.0),
    ("tpcb", "grouped", 1.0),
    ("tpcb", "transactional", 0.5),
)
"""The minimum ratio of our drain rate to PostgreSQL's."""
_LANES = 1.8
_AUTO_COST = 1.25
_WAITS_AT, _WAITS_MS = 500.0, 200.0
_CPU = "cpu_s_per_million_rows_total"
_SIZE = ("amount", "scale", "tables", "rate")
"""Properties that two results must share before their CPU time per row is compared."""
_NOT_MEASURED, _UNSOUND = "not measured", "no: its checks failed"
_HEAD = ("what", "goal", "measured: median (each)", "met")


def of_goals(documents: Sequence[Document]) -> Iterator[Table]:
    """The table of goals, if any result has a PostgreSQL target.

    `results`: the latest of their kind, without failures.
    """
    ours = [document for document in documents if target_of(document) == "postgres"]
    if ours:
        rates = [_rate(ours, *goal) for goal in _RATES]
        yield TITLE, [], [_HEAD, *rates, _lanes(documents), *_auto(ours), *_waits(ours)]


def _rate(ours: Sequence[Document], workload: str, apply: str, least: float) -> Row:
    what, goal = f"`{workload}`, {apply}", f"at least {least:.1f} times PostgreSQL's rate"
    for document in ours:
        found = (document["workload"], document["mode"], apply_of(document)) == (workload, Mode.BACKLOG.value, apply)
        if found and "ratio" in document["summary"]:
            ratio = document["summary"]["ratio"]
            met = _met(ratio["median"] >= least, document)
            return _row(what, goal, _format_median(ratio["median"], ratio["rounds"], "{:.2f}"), met)
    return _row(what, goal)


def _lanes(documents: Sequence[Document]) -> Row:
    what = "lanes: from one to two, unrelated transactions, 2 ms of delay to the target"
    goal = f"at least {_LANES:g} times the rate"
    for document in documents:
        if document["mode"] == Mode.LANES.value and "ratio" in document["summary"]:
            ratio = document["summary"]["ratio"]
            measured = _format_median(ratio["median"], ratio["rounds"], "{:.2f}")
            return _row(what, goal, measured, _met(ratio["median"] >= _LANES, document))
    return _row(what, goal)


def _auto(ours: Sequence[Document]) -> list[Row]:
    """A row for each workload and mode that was measured with `auto` and with a pinned apply mode."""
    goal = f"at most {_AUTO_COST:g} times that of the best pinned mode"
    costed = [document for document in ours if _cost(document) is not None]
    rows = []
    for document in costed:
        kind = (document["workload"], document["mode"])
        pinned = [one for one in costed if (one["workload"], one["mode"]) == kind and apply_of(one) != "auto"]
        if apply_of(document) == "auto" and pinned:
            rows.append(_row(f"`{kind[0]}`, auto, {kind[1]}: CPU time of a row", goal, *_beside(document, pinned)))
    return rows or [_row("auto: CPU time of a row", goal)]


def _beside(auto: Document, pinned: Sequence[Document]) -> tuple[str, str]:
    """The cost of `auto` relative to the cheapest pinned apply mode, and whether it is within the goal.

    Results with a wrong copy, or with less work, are not candidates for the cheapest.
    """
    costs = [(_cost(one), apply_of(one)) for one in pinned if sound(one) and _extent(one) == _extent(auto)]
    known = [(cost, name) for cost, name in costs if cost]
    mine = _cost(auto)
    if not known or mine is None:
        return "no pinned mode of the same size, with a copy that is right", "–"
    least, name = min(known)
    rounds = [round_["sides"][PENSTOCK].get(_CPU) for round_ in auto["rounds"]]
    each = [cost / least for cost in rounds if cost is not None]
    return f"{_format_median(mine / least, each, '{:.2f}')} of {name}", _met(mine / least <= _AUTO_COST, auto)


def _cost(document: Document) -> float | None:
    cost = document["summary"].get(PENSTOCK, {}).get(_CPU)
    return None if cost is None else float(cost)


def _extent(document: Document) -> list[Any]:
    size = document.get("size") or {}
    return [size.get(key) for key in _SIZE]


def _waits(ours: Sequence[Document]) -> list[Row]:
    """A row for each apply mode that was measured."""
    what, goal = f"waits at {_WAITS_AT:g} transactions a second", f"p50 at most {_WAITS_MS:g} ms"
    rows = []
    for document in ours:
        rate = (document.get("size") or {}).get("rate")
        waits = document["summary"].get(PENSTOCK, {}).get("waits")
        if document["workload"] == "freshness" and rate == _WAITS_AT and waits:
            each = [round_["sides"][PENSTOCK]["waits"]["p50_ms"] for round_ in document["rounds"]]
            met = _met(waits["p50_ms"] <= _WAITS_MS, document)
            measured = f"{_format_median(waits['p50_ms'], each, '{:.0f}')} ms"
            rows.append(_row(f"`freshness`, {apply_of(document)}: {what}", goal, measured, met))
    return rows or [_row(f"`freshness`: {what}", goal)]


def _row(what: str, goal: str, measured: str = _NOT_MEASURED, met: str = "–") -> Row:
    return (what, goal, measured, met)


def _met(reached: bool, document: Document) -> str:
    if not sound(document):
        return _UNSOUND
    return "yes" if reached else "no"


def _format_median(median: float, each: Sequence[float], form: str) -> str:
    """The median; with the values if there are several."""
    single = f" ({', '.join(form.format(one) for one in each)})" if len(each) > 1 else ""
    return form.format(median) + single
