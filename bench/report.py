"""Makes one page from results: first the failures, then a Markdown table and plots for each mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import svg
from bench.contenders import NATIVE, PENSTOCK
from bench.report_tables import (
    Document,
    Row,
    by_mode,
    of_captures,
    of_initial_copies,
    of_lanes,
    of_nodes,
    of_processes,
    of_scaling,
    of_techniques,
)
from bench.results import label
from bench.suite import late
from bench.targets import of_goals
from bench.workload import Mode
from bench.workloads import WORKLOADS

_MEASURED = "measured in the same run, median of the rounds"


def write(folder: Path, documents: Sequence[Document]) -> list[Path]:
    """Write `report.md` and its plots into a folder; returns the files. Workloads are in the order of the catalogue."""
    known = list(WORKLOADS)
    documents = sorted(documents, key=lambda d: known.index(d["workload"]) if d["workload"] in known else len(known))
    files = {"report.md": markdown(documents, list(plots(documents))), **plots(documents)}
    for name, text in files.items():
        (folder / name).write_text(text)
    return [folder / name for name in files]


def markdown(documents: Sequence[Document], plot_files: Sequence[str] = ()) -> str:
    """The page as Markdown; the images in `plot_files` follow the tables."""
    parts = ["# Benchmark", "", *_machine(documents), *_load(documents), ""]
    parts += _failures(documents)
    measured = [document for document in documents if "failed" not in document]
    for heading, chosen, rows in (
        *of_goals(measured),
        *by_mode(measured),
        *of_techniques(measured),
        *of_lanes(measured),
        *of_captures(measured),
        *of_initial_copies(measured),
        *of_nodes(measured),
        *of_scaling(measured),
        *of_processes(measured),
    ):
        parts += [f"## {heading}", "", *_lines(rows), "", *_notes(chosen)]
    for file in plot_files:
        parts += [f"![{file.removesuffix('.svg')}]({file})", ""]
    return "\n".join(parts).rstrip() + "\n"


def plots(documents: Sequence[Document]) -> dict[str, str]:
    """File names and SVG texts of all plots for which there are enough results."""
    return dict(_plots([document for document in documents if "failed" not in document]))


def _plots(documents: Sequence[Document]) -> Iterator[tuple[str, str]]:
    drained = [document for document in documents if document["mode"] == Mode.BACKLOG.value]
    ratios = [(label(d), d["summary"]["ratio"]["median"]) for d in drained if "ratio" in d["summary"]]
    if ratios:
        heading = "Draining a backlog: how many times PostgreSQL's own logical replication"
        note = f"row changes a second until the last one can be read; {_MEASURED}"
        yield "ratios.svg", svg.bars(heading, note, ratios, rule=1.0, unit="×")
    costs = [(label(d), _by_side(d, "cpu_s_per_million_rows_total")) for d in drained]
    if any(len(sides) > 1 for _, sides in costs):
        heading = "CPU seconds for a million row changes"
        note = f"the source's sender and all that receive and apply; {_MEASURED}"
        yield "cpu.svg", svg.pairs(heading, note, costs, unit="s")
    waits = [
        (f"{label(d)} {key}", {name: d["summary"][name]["waits"][f"{key}_ms"] for name in d["sides"]})
        for d in documents
        if d["mode"] == Mode.SUSTAINED.value
        for key in ("p50", "p95", "p99")
    ]
    if waits:
        note = "from the acknowledgement of a commit until it can be read"
        yield "waits.svg", svg.pairs("Waits for a commit of one's own", note, waits, unit="ms")
    for document in documents:
        if document["mode"] in {Mode.LIVE.value, Mode.OPEN.value} and document["rounds"]:
            sides = document["rounds"][-1]["sides"]
            curves = [(name, [(at, mb) for at, mb in side["memory_mb"]]) for name, side in sides.items()]
            heading, note = f"{label(document)}: memory", "sum of the proportional set sizes of all processes"
            file = f"{label(document).replace(',', '').replace(' ', '-')}-memory.svg"
            yield file, svg.lines(heading, note, curves, unit="MB")
        if document["mode"] == Mode.TECHNIQUES.value:
            points = [(_technique(one), one["rows_per_s"]) for one in document["techniques"]]
            heading = "The same changes brought into DuckDB in different ways"
            note = "row changes a second on a scale of powers of ten; in brackets: source transactions in a commit"
            yield "techniques.svg", svg.powers(heading, note, points)


def _technique(one: Document) -> str:
    return f"{one['technique']}{', netted' if one['netted'] else ''} ({one['transactions_per_commit']:,})"


def _by_side(document: Document, key: str) -> dict[str, float]:
    found = {name: document["summary"].get(name, {}).get(key) for name in document["sides"]}
    return {name: value for name, value in found.items() if value is not None}


def _machine(documents: Sequence[Document]) -> list[str]:
    """The machine of the first result; all results of a folder are from one machine."""
    machine = documents[0]["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    lines = [
        f"{machine['cores']} cores of {machine['cpu']}, {machine['memory_gb']} GB, {machine['kernel']}; everything on one machine.",
        f"Python {machine['python']}, {packages}.",
    ]
    clusters = [document["clusters"] for document in documents if document.get("clusters")]
    source = clusters[0]["source"] if clusters else {}
    if source:
        settings = ", ".join(f"`{name}` {value}" for name, value in source.items() if name != "server_version")
        lines.append(f"Source: PostgreSQL {source['server_version']}, {settings}.")
    for cluster in clusters:
        if cluster.get("subscriber"):
            own = ", ".join(f"`{k}` {v}" for k, v in cluster["subscriber"].items() if not isinstance(v, bool))
            lines.append(f"PostgreSQL's own replication goes to a second cluster with the same settings and {own}.")
            break
    return lines


def _load(documents: Sequence[Document]) -> list[str]:
    """The load average before each run, which shows other activity. Each workload adds to the average of the next one."""
    loads = [document["machine"]["load_average"][0] for document in documents]
    lines = [f"Load average over a minute before each run: {min(loads):g} to {max(loads):g}."]
    speeds = [
        one["core_ms"]
        for document in documents
        for one in (document["machine"], *document["rounds"])
        if "core_ms" in one
    ]
    if speeds:
        lines.append(
            f"The same small computation took a core {min(speeds):g} to {max(speeds):g} ms before the runs and rounds:"
            " as much did the machine's own speed change."
        )
    if any(document.get("quick") for document in documents):
        lines.append("**Small sizes (`--quick`): to see that all of it runs, not for figures.**")
    return lines


def _failures(documents: Sequence[Document]) -> list[str]:
    failed = [document for document in documents if "failed" in document]
    if not failed:
        return []
    lines = [f"- **{label(d)} ({d['mode']}): {str(d['failed']).strip().splitlines()[-1]}**" for d in failed]
    return ["## Could not be measured", "", *lines, ""]


def _lines(rows: Sequence[Row]) -> list[str]:
    """A Markdown table; the first row is its head."""
    head, *body = rows
    lines = ["| " + " | ".join(map(str, head)) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    return [*lines, *("| " + " | ".join(map(_shown, row)) + " |" for row in body)]


def _notes(documents: Sequence[Document]) -> list[str]:
    """Warnings: copies that were not compared or not equal, waits that failed."""
    notes = []
    for document in documents:
        checks = document.get("checks") or {}
        if checks.get("equal") is False:
            notes.append(f"**{label(document)}: {_UNEQUAL.get(document['mode'], _UNEQUAL_COPY)}**")
        notes += [f"**{label(document)}: {text}**" for text in checks.get("wrong") or []]
        if not checks:
            notes.append(f"{label(document)}: source and copy were not compared.")
        notes += [
            f"**{label(document)}: a {key.removesuffix('_ms')} of ours was above its limit of {most:g} ms.**"
            for key, most in late(document).items()
        ]
        failed = [
            (name, document["summary"].get(name, {}).get("waits", {}).get("failed")) for name in document["sides"]
        ]
        notes += [f"**{label(document)}: waits failed, {_NAMES[name]}: {count:g}**" for name, count in failed if count]
    return [*notes, ""] if notes else []


_NAMES = {PENSTOCK: "Penstock", NATIVE: "PostgreSQL"}
_UNEQUAL_COPY = "the copy is not equal to its source."
_UNEQUAL = {
    Mode.CAPTURE.value: "what landed is not what the source has.",
    Mode.TECHNIQUES.value: "the tables do not hold what they must.",
}


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value)
