"""Makes one page out of results: a Markdown table for each mode, and plots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from server.bench import svg
from server.bench.sides import NATIVE, PENSTOCK
from server.bench.workload import Mode

Document = dict[str, Any]
Cell = Callable[[Document], Any]

_LEGEND = "blue: Penstock, grey: PostgreSQL"
_NAMES = {PENSTOCK: "Penstock", NATIVE: "PostgreSQL"}


def write(folder: Path, documents: Sequence[Document]) -> list[Path]:
    """Write `report.md` and its plots into a folder; returns the files."""
    files = {"report.md": markdown(documents, list(plots(documents))), **plots(documents)}
    for name, text in files.items():
        (folder / name).write_text(text)
    return [folder / name for name in files]


def markdown(documents: Sequence[Document], plot_files: Sequence[str] = ()) -> str:
    """The page; `plot_files` are shown behind the tables."""
    parts = ["# Benchmark", "", *_machine(documents[0]), *_load(documents), ""]
    for mode, title, columns in _TABLES:
        chosen = [document for document in documents if document["mode"] == mode.value]
        if chosen:
            parts += [f"## {title}", "", *_table(columns, chosen), "", *_notes(chosen)]
    for file in plot_files:
        parts += [f"![{file.removesuffix('.svg')}]({file})", ""]
    return "\n".join(parts).rstrip() + "\n"


def plots(documents: Sequence[Document]) -> dict[str, str]:
    """File names and SVG texts of every plot that the results are enough for."""
    result: dict[str, str] = {}
    ratios = [(d["workload"], d["summary"]["ratio"]["median"]) for d in documents if "ratio" in d["summary"]]
    if ratios:
        title = "Draining a backlog: how many times PostgreSQL's own logical replication"
        result["ratios.svg"] = svg.bars(title, "row changes a second, median of the rounds", ratios, rule=1.0, unit="×")
    waits = [
        (f"{d['workload']} {key}", {name: d["summary"][name]["waits"][f"{key}_ms"] for name in d["sides"]})
        for d in documents
        if d["mode"] == Mode.SUSTAINED.value
        for key in ("p50", "p95", "p99")
    ]
    if waits:
        note = f"from the acknowledgement of a commit until it can be read; {_LEGEND}"
        result["waits.svg"] = svg.pairs("Waits for a commit of one's own", note, waits, unit="ms")
    for document in documents:
        if document["mode"] == Mode.LIVE.value and document["rounds"]:
            sides = document["rounds"][-1]["sides"]
            curves = [(name, [(at, mb) for at, mb in side["memory_mb"]]) for name, side in sides.items()]
            title = f"{document['workload']}: memory"
            note = f"sum of the proportional set sizes of all processes; {_LEGEND}"
            result[f"{document['workload']}-memory.svg"] = svg.lines(title, note, curves, unit="MB")
    return result


def _machine(document: Document) -> list[str]:
    machine, source = document["machine"], document["clusters"]["source"]
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    settings = ", ".join(f"`{name}` {value}" for name, value in source.items() if name != "server_version")
    subscriber = ", ".join(
        f"`{k}` {v}" for k, v in document["clusters"]["subscriber"].items() if not isinstance(v, bool)
    )
    return [
        f"{machine['cores']} cores of {machine['cpu']}, {machine['memory_gb']} GB, {machine['kernel']}; everything on one machine.",
        f"Python {machine['python']}, {packages}.",
        f"Source: PostgreSQL {source['server_version']}, {settings}.",
        f"PostgreSQL's own replication goes to a second cluster with the same settings and {subscriber}.",
    ]


def _load(documents: Sequence[Document]) -> list[str]:
    """A machine that was busy with other things shows in its load before the runs; each workload adds to that of the next."""
    loads = [document["machine"]["load_average"][0] for document in documents]
    return [f"Load average over a minute before each run: {min(loads):g} to {max(loads):g}."]


def _table(columns: Sequence[tuple[str, Cell]], documents: Sequence[Document]) -> list[str]:
    lines = ["| " + " | ".join(name for name, _ in columns) + " |"]
    lines.append("| --- |" + " ---: |" * (len(columns) - 1))
    for document in documents:
        lines.append("| " + " | ".join(_shown(cell(document)) for _, cell in columns) + " |")
    return lines


def _notes(documents: Sequence[Document]) -> list[str]:
    """What must not be missed: copies that were not compared or not equal, waits that failed."""
    notes = []
    for document in documents:
        checks = document.get("checks") or {}
        if checks.get("equal") is False:
            notes.append(f"**{document['workload']}: the copy is not equal to its source.**")
        notes += [f"**{document['workload']}: {text}**" for text in checks.get("wrong") or []]
        if not checks:
            notes.append(f"{document['workload']}: source and copy were not compared.")
    return [*notes, ""] if notes else []


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value)


def _figure(side: str, *path: str) -> Cell:
    """A median of one side; None where it was not measured."""

    def cell(document: Document) -> Any:
        value: Any = document["summary"].get(side)
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    return cell


def _ratio(document: Document) -> str | None:
    ratio = document["summary"].get("ratio")
    if ratio is None:
        return None
    return f"{ratio['median']:.2f} ({min(ratio['rounds']):.2f} to {max(ratio['rounds']):.2f})"


def _workload(document: Document) -> str:
    return str(document["workload"])


def _both(title: str, *path: str) -> list[tuple[str, Cell]]:
    return [(f"{title}, {_NAMES[side]}", _figure(side, *path)) for side in (PENSTOCK, NATIVE)]


_TABLES: tuple[tuple[Mode, str, list[tuple[str, Cell]]], ...] = (
    (
        Mode.BACKLOG,
        "Draining a backlog",
        [
            ("workload", _workload),
            ("row changes a round", lambda d: d["rounds"][0]["row_changes"]),
            ("rounds", lambda d: len(d["rounds"])),
            *_both("rows/s", "rows_per_s"),
            ("ratio (all rounds)", _ratio),
            *_both("CPU s per million rows", "cpu_s_per_million_rows_total"),
            *_both("walsender CPU s per million rows", "cpu_s_per_million_rows", "walsender"),
            ("log GB/h, Penstock", _figure(PENSTOCK, "log_gb_per_h")),
            *_both("peak memory MB", "peak_pss_mb_total"),
        ],
    ),
    (
        Mode.SUSTAINED,
        "At a steady rate",
        [
            ("workload", _workload),
            *_both("transactions/s", "transactions_per_s"),
            ("rows/s, Penstock", _figure(PENSTOCK, "rows_per_s")),
            *[
                column
                for key in ("p50", "p95", "p99", "max")
                for column in _both(f"wait {key} ms", "waits", f"{key}_ms")
            ],
            ("lag p99 ms, Penstock", _figure(PENSTOCK, "lag", "p99_ms")),
            ("peak memory MB, Penstock", _figure(PENSTOCK, "peak_pss_mb_total")),
        ],
    ),
    (
        Mode.LIVE,
        "Followed while it is written",
        [
            ("workload", _workload),
            ("row changes", lambda d: d["rounds"][0]["sides"][PENSTOCK]["row_changes"]),
            *_both("seconds to write", "generate_s"),
            *_both("seconds from commit to visible", "commit_to_visible_s"),
            *_both("peak memory MB", "peak_pss_mb_total"),
            *_both("spilled on the source MB", "source_spilled_mb"),
        ],
    ),
    (
        Mode.IDLE,
        "Nothing happens",
        [
            ("workload", _workload),
            ("seconds", _figure(PENSTOCK, "seconds")),
            *_both("CPU, % of a core", "cpu_percent_total"),
            *_both("memory MB", "peak_pss_mb_total"),
            *_both("growth MB", "memory_growth_mb"),
        ],
    ),
)
