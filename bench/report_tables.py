"""The tables of the report: which figures of which results they contain, and in which order. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bench import captures, initial_copy
from bench.contenders import NATIVE, PENSTOCK
from bench.lanes import ONE, PAIRS
from bench.processes import SENDER
from bench.results import label
from bench.workload import Mode

Document = dict[str, Any]
Row = Sequence[Any]
Table = tuple[str, Sequence[Document], Sequence[Row]]
"""Title, the results in the table, and its rows, header first."""
Cell = Callable[[Document], Any]
Columns = Sequence[tuple[str, Cell]]

_NAMES = {PENSTOCK: "Penstock", NATIVE: "PostgreSQL"}
_ROLES = (
    *("walsender", "log reader", "intake", "engine", "jvm", "spark workers", "server", "other"),
    *("target sessions", "background"),
)
_NATIVE_ROLES = ("walsender", "apply", "receiver", "background")
_WAY = ("technique", "netted", "transactions_per_commit", "row_changes", "seconds", "rows_per_s")
_CPU, _MEMORY, _WRITTEN = "CPU seconds for a million row changes", "peak memory, MB", "written in a round, MB"


def by_mode(documents: Sequence[Document]) -> Iterator[Table]:
    """One table for each measured mode."""
    for mode, title, columns in _TABLES:
        chosen = [document for document in documents if document["mode"] == mode.value]
        if chosen:
            yield title, chosen, _rows(columns, chosen)


def of_techniques(documents: Sequence[Document]) -> Iterator[Table]:
    """The rate of each apply technique in every run of `techniques`."""
    for document in documents:
        if document["mode"] == Mode.TECHNIQUES.value:
            head = ("into DuckDB", "netted", "transactions in a commit", "row changes", "seconds", "rows/s")
            rows = [[one[key] for key in _WAY] for one in document["techniques"]]
            yield "Ways to apply", [document], [head, *rows]


def of_scaling(documents: Sequence[Document]) -> Iterator[Table]:
    """The throughput of the Spark stages by number of cores."""
    found = [
        document for document in documents if document["mode"] == Mode.SCALING.value and "scaling_ratio" in document
    ]
    if found:
        rows = [[d["workload"], d["rows_per_s"]["1"], d["rows_per_s"]["2"], d["scaling_ratio"]] for d in found]
        yield "Spark stages by cores", found, [("", "rows/s on 1 core", "rows/s on 2 cores", "ratio"), *rows]


def of_lanes(documents: Sequence[Document]) -> Iterator[Table]:
    """Transactions a second to a remote target over one connection and over two, for every run."""
    for document in documents:
        if document["mode"] == Mode.LANES.value and document["rounds"]:
            trip = document["delay"]["round_trip_measured_ms"]
            head = (
                f"transactions to a target, each round trip {trip:.2g} ms",
                *("transactions/s, one connection", "transactions/s, two", "two, times one (all rounds)"),
                "one lane, times one connection",
            )
            yield "Lanes to a target that is far away", [document], [head, *_pairs(document)]


def _pairs(document: Document) -> Iterator[Row]:
    rates = {name: figures["transactions_per_s"] for name, figures in document["summary"].items() if name != "ratio"}
    for name, one, two in PAIRS:
        ratios = [round_["ratios"][name] for round_ in document["rounds"]]
        ahead = None if one == ONE.name else f"{rates[ONE.name] / rates[one]:.1f}"
        yield name, rates[one], rates[two], _spread(statistics.median(ratios), ratios), ahead


def of_nodes(documents: Sequence[Document]) -> Iterator[Table]:
    """Records a second by number of nodes, the merge's share, and waits over several nodes, for every run."""
    for document in documents:
        if document["mode"] == Mode.NODES.value and document["rounds"]:
            waits = document["waits"]
            rows = [[name, document["summary"][name]["records_per_s"]] for name in document["sides"]]
            merge = [
                [f"share of the merge in the {whole} processor time", f"{statistics.median(shares):.1%}"]
                for whole, shares in (
                    ("capture's", [each["merge_share"] for each in document["rounds"]]),
                    ("reader's", [each["merge_share_of_reader"] for each in document["rounds"]]),
                )
            ]
            waited = [f"median wait over {waits['nodes']} nodes, ms", waits["p50_ms"]]
            yield "Logs of several nodes", [document], [("", "records/s"), *rows, *merge, waited]


def of_captures(documents: Sequence[Document]) -> Iterator[Table]:
    """What each way to capture costs writers, and how fast it is read, with the goals for triggers."""
    for document in documents:
        if document["mode"] == Mode.CAPTURES.value and document["rounds"]:
            head = (
                *("capture", "transactions/s of the writers", "of the uncaptured (all rounds)"),
                "added time, of what CSV triggers add (all rounds)",
                *("rows/s drained", "in multiples of the CSV reader's (all rounds)", "median wait, ms", "p99, ms"),
            )
            yield "Ways to capture", [document], [head, *_captured(document), captures.GOALS]


def of_initial_copies(documents: Sequence[Document]) -> Iterator[Table]:
    """What the first copy of each table takes on each side, with the goals for Penstock."""
    for document in documents:
        if document["mode"] == Mode.COPY.value and document["rounds"]:
            head = (
                *("table", "copied by", "rows", "seconds", "rows/s", "times PostgreSQL's rate (all rounds)"),
                *("CPU seconds of the source", "of the side's own processes", "peak memory, MB"),
            )
            times, memory = f"at least {initial_copy.LEAST_TIMES:.1f}", f"at most {initial_copy.MOST_MB:,}"
            goals = ("goals for Penstock", *[None] * 4, times, None, None, memory)
            yield f"First copies: {label(document)}", [document], [head, *_copied(document), goals]


def _copied(document: Document) -> Iterator[Row]:
    for table in document["rounds"][0]["sides"][PENSTOCK]:
        for side in document["sides"]:
            figures = document["summary"][side][table]
            times = [round_["sides"][side][table].get("times_native") for round_ in document["rounds"]]
            known = [each for each in times if each is not None]
            yield (
                table,
                _NAMES.get(side, side),
                *(figures[key] for key in ("rows", "seconds", "rows_per_s")),
                _spread(statistics.median(known), known) if known else None,
                *(figures[key] for key in ("source_cpu_s", "cpu_s_total", "peak_pss_mb_total")),
            )


def _captured(document: Document) -> Iterator[Row]:
    for way in document["sides"]:
        figures, waits = document["summary"][way], document["waits"].get(way, {}).get("waits", {})
        kept = [captures.kept(round_["sides"], way) for round_ in document["rounds"]]
        share = None if way == captures.NONE else _spread(statistics.median(kept), kept)
        added = (
            []
            if way in {captures.NONE, captures.CSV}
            else [captures.added(r["sides"], way) for r in document["rounds"]]
        )
        known = [each for each in added if each is not None]
        longer = _spread(statistics.median(known), known) if known else None
        # Results of earlier releases have no CSV reader.
        read = [r["sides"] for r in document["rounds"] if "drain_rows_per_s" in r["sides"][captures.CSV]]
        faster = [captures.faster(sides, way) for sides in read] if way in captures.FOLLOWED else []
        yield (
            way,
            figures["transactions_per_s"],
            share,
            longer,
            figures.get("drain_rows_per_s"),
            _spread(statistics.median(faster), faster) if faster else None,
            waits.get("p50_ms"),
            waits.get("p99_ms"),
        )


def of_processes(documents: Sequence[Document]) -> Iterator[Table]:
    """CPU time and memory by role of the process, one table for each side."""
    for side, roles in ((PENSTOCK, _ROLES), (NATIVE, _NATIVE_ROLES)):
        for title, key, total in (
            (_CPU, "cpu_s_per_million_rows", "cpu_s_per_million_rows_total"),
            (_MEMORY, "peak_pss_mb", "peak_pss_mb_total"),
            (_WRITTEN, "written_mb", None),
        ):
            found = [(document, _figure(side, key)(document) or {}) for document in documents]
            found = [(document, figures) for document, figures in found if figures]
            # Memory excludes the source's sender: most of its memory is shared with the source.
            counted = [role for role in roles if title is _CPU or role != SENDER]
            present = [role for role in counted if any(role in figures for _, figures in found)]
            if found:
                rows = [
                    [_run(document), *(figures.get(role) for role in present), *_total(side, total, document)]
                    for document, figures in found
                ]
                head = ("workload", *present, *(["total"] if total else []))
                yield f"{_NAMES[side]}, by process: {title}", [], [head, *rows]


def _total(side: str, key: str | None, document: Document) -> list[Any]:
    return [] if key is None else [_figure(side, key)(document)]


def _rows(columns: Columns, documents: Sequence[Document]) -> list[Row]:
    """The header and a row for each result, without columns that are empty in all of them."""
    cells = [(name, [cell(document) for document in documents]) for name, cell in columns]
    filled = [(name, values) for name, values in cells if any(value is not None for value in values)]
    return [[name for name, _ in filled], *zip(*(values for _, values in filled), strict=True)]


def _figure(side: str, *path: str) -> Cell:
    """The median of a figure of one side; None if it was not measured."""

    def cell(document: Document) -> Any:
        value: Any = document["summary"].get(side)
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    return cell


def _both(title: str, *path: str) -> list[tuple[str, Cell]]:
    return [(f"{title}, {_NAMES[side]}", _figure(side, *path)) for side in (PENSTOCK, NATIVE)]


def _sender(side: str, part: str) -> Cell:
    """CPU seconds of the sending process in one processor mode (user or system), per million row changes."""

    def cell(document: Document) -> Any:
        seconds = _figure(side, "walsender_cpu_s", part)(document)
        return None if seconds is None else seconds / document["rounds"][0]["row_changes"] * 1e6

    return cell


def _decoding(document: Document) -> float:
    values = sorted(round_["decoding_alone"]["cpu_s_per_million_rows"] for round_ in document["rounds"])
    return float(values[len(values) // 2])


def _ratio(document: Document) -> str | None:
    ratio = document["summary"].get("ratio")
    return None if ratio is None else _spread(ratio["median"], ratio["rounds"])


def _spread(median: float, each: Sequence[float]) -> str:
    """The median; with its minimum and maximum if there are several values."""
    return f"{median:.2f}" + (f" ({min(each):.2f} to {max(each):.2f})" if len(each) > 1 else "")


def _cpu_ratio(document: Document) -> float | None:
    found = document["summary"].get("cpu_ratio")
    return None if found is None else float(found["median"])


def _workload(document: Document) -> str:
    return label(document)


def _run(document: Document) -> str:
    return f"{label(document)}, {document['mode']}"


def _first_side(key: str) -> Cell:
    return lambda document: document["rounds"][0]["sides"][PENSTOCK].get(key)


_DRAINED: Columns = (
    ("workload", _workload),
    ("row changes a round", lambda d: d["rounds"][0]["row_changes"]),
    ("rounds", lambda d: len(d["rounds"])),
    *_both("rows/s", "rows_per_s"),
    ("times PostgreSQL's rate (all rounds)", _ratio),
    ("share of its CPU time", _cpu_ratio),
    *_both("log GB/h", "log_gb_per_h"),
)

_TABLES: tuple[tuple[Mode, str, Columns], ...] = (
    (
        Mode.BACKLOG,
        "Draining a backlog",
        (*_DRAINED, ("transactions/s, Penstock", _figure(PENSTOCK, "transactions_per_s"))),
    ),
    (
        Mode.SUSTAINED,
        "At a steady rate",
        (
            ("workload", _workload),
            *_both("transactions/s", "transactions_per_s"),
            ("rows/s, Penstock", _figure(PENSTOCK, "rows_per_s")),
            *(pair for key in ("p50", "p95", "p99", "max") for pair in _both(f"wait {key} ms", "waits", f"{key}_ms")),
            ("lag p99 ms, Penstock", _figure(PENSTOCK, "lag", "p99_ms")),
        ),
    ),
    (
        Mode.LIVE,
        "Followed while it is written",
        (
            ("workload", _workload),
            ("row changes", _first_side("row_changes")),
            *_both("seconds to write", "generate_s"),
            *_both("seconds from commit to visible", "commit_to_visible_s"),
            *_both("peak memory MB", "peak_pss_mb_total"),
            *_both("spilled on the source MB", "source_spilled_mb"),
        ),
    ),
    (
        Mode.OPEN,
        "Small transactions with very many open ones",
        (
            ("workload", _workload),
            ("open", _figure(PENSTOCK, "transactions")),
            ("of them streamed", _figure(PENSTOCK, "streamed_transactions")),
            *((f"wait {key} ms", _figure(PENSTOCK, "waits", f"{key}_ms")) for key in ("p50", "p99", "max")),
            *((f"before, {key}", _figure(PENSTOCK, "waits_before", f"{key}_ms")) for key in ("p50", "p99")),
            ("lag p99 ms", _figure(PENSTOCK, "lag", "p99_ms")),
            ("seconds to decide", _figure(PENSTOCK, "decide_s")),
            ("seconds until all is visible", _figure(PENSTOCK, "all_visible_s")),
            ("peak memory MB", _figure(PENSTOCK, "peak_pss_mb_total")),
            ("growth while open MB", _figure(PENSTOCK, "memory_growth_while_open_mb")),
        ),
    ),
    (
        Mode.TABLE_LIFE,
        "One table is added, breaks and is removed, next to the others",
        (
            ("workload", _workload),
            ("rows in it", lambda document: f"{document['size']['amount']:,}"),
            ("rounds of its life", _figure(PENSTOCK, "rounds_of_life")),
            *(
                (f"others' waits {key} ms, quiet", _figure(PENSTOCK, "waits_quiet", f"{key}_ms"))
                for key in ("p50", "p99")
            ),
            *((f"{key} ms, during its life", _figure(PENSTOCK, "waits", f"{key}_ms")) for key in ("p50", "p99")),
            ("p99 rises to", _figure(PENSTOCK, "p99_rise")),
        ),
    ),
    (
        Mode.IDLE,
        "Nothing happens",
        (
            ("workload", _workload),
            ("seconds", _figure(PENSTOCK, "seconds")),
            *_both("CPU, % of a core", "cpu_percent_total"),
            *_both("memory MB", "peak_pss_mb_total"),
            *_both("growth MB", "memory_growth_mb"),
        ),
    ),
    (
        Mode.CAPTURE,
        "The log reader alone, compared with pg_recvlogical",
        (
            *_DRAINED,
            ("sent MB a round", _figure(PENSTOCK, "sent_mb")),
            ("CPU s per million rows: decoding inside the source", _decoding),
            *((f"walsender in user mode, {_NAMES[side]}", _sender(side, "user")) for side in (PENSTOCK, NATIVE)),
            *((f"walsender in the kernel, {_NAMES[side]}", _sender(side, "system")) for side in (PENSTOCK, NATIVE)),
        ),
    ),
)
