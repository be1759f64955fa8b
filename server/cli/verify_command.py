"""`verify`: compares source and target, with an exit code for each outcome."""

from __future__ import annotations

from time import monotonic, sleep
from typing import Annotated

import typer
from rich.markup import escape

from engine.model.verification import RepairMode, VerificationMethod
from server.cli.client import Api, Document, segment
from server.cli.data_commands import qualified_name
from server.cli.exit_codes import ExitCode, for_problem
from server.cli.options import (
    AllTables,
    Subscription,
    TableNames,
    Timeout,
    chosen_subscription,
    duration,
    server_command,
    tables,
)
from server.cli.output import Answer, err, left_out, out, show_problem, state
from server.cli.output import table as print_table
from server.wording import format_share, format_size

Repair = Annotated[
    RepairMode,
    typer.Option(
        "--repair",
        help="What happens to rows that differ. preview: print what a repair would write; apply: replace them by the source's rows.",
    ),
]
Sample = Annotated[
    float | None,
    typer.Option(
        "--sample",
        help="Compare about this share of each table, in key ranges chosen at random: 0.01. It does not verify the whole table.",
    ),
]
Budget = Annotated[
    float | None,
    typer.Option(
        "--budget",
        help="Compare in at most this share of the time, and rest in between, so that others wait less: 0.3. It takes as much longer.",
    ),
]
_ENDED = frozenset({"succeeded", "failed", "cancelled"})


@server_command
def verify(
    api: Api,
    subscription: Subscription = None,
    table: TableNames = None,
    repair: Repair = RepairMode.NONE,
    timeout: Timeout = "1h",
    all_tables: AllTables = False,
    method: Annotated[
        VerificationMethod,
        typer.Option(help="checksum: read only rows of key ranges whose checksums differ, where that is possible."),
    ] = VerificationMethod.ROWS,
    sample: Sample = None,
    budget: Budget = None,
) -> Answer:
    """Compare the rows of source and target at one position, under load. Exit code 1: they differ, with --repair apply still after the
    repair; 4: not ended in time; 5: nothing could be compared, or with --all-tables a table was left out; 7: failed, with the printed
    reason."""
    name = chosen_subscription(api, subscription)
    body: Document = {"tables": tables(table)} if table else {}
    if method is not VerificationMethod.ROWS:
        body["method"] = method.value
    if repair is not RepairMode.NONE:
        body["repair"] = repair.value
    if sample is not None:
        body["sample"] = sample
    if budget is not None:
        body["budget"] = budget
    answer = run_verification(api, name, body, duration(timeout) / 1000)
    code = _exit_code(answer, all_tables=all_tables)
    return Answer(answer, lambda: _show(answer), lambda: _explain(answer, code), code)


def run_verification(api: Api, subscription: str, body: Document, timeout_s: float) -> Document:
    """Request a verification and poll it until it has ended or the timeout has passed; returned in its last known state."""
    path = f"/subscriptions/{segment(subscription)}/verifications"
    answer = api.post(path, body)
    deadline = monotonic() + timeout_s
    while answer["state"] not in _ENDED and monotonic() < deadline:
        sleep(0.2)
        answer = api.get(f"{path}/{segment(str(answer['id']))}")
    return answer


def verified_equal(answer: Document) -> bool:
    """Whether a verification ended and found every table equal. False if it compared no table."""
    return _exit_code(answer, all_tables=False) is ExitCode.DONE


def _exit_code(answer: Document, *, all_tables: bool) -> ExitCode:
    """A difference determines the exit code, whatever the result of the other tables."""
    compared = answer.get("tables") or []
    if not all(table["equal"] for table in compared):
        return ExitCode.DIFFERENT
    if answer["state"] not in _ENDED:
        return ExitCode.TIMEOUT
    if answer["state"] == "failed":
        problem = answer.get("problem") or {}
        return for_problem(max(500, int(problem.get("status") or 500)), str(problem.get("code", "")))
    whole = answer["state"] == "succeeded" and compared and not (all_tables and answer.get("left_out"))
    return ExitCode.DONE if whole else ExitCode.UNREACHABLE


def _show(answer: Document) -> None:
    rows = []
    for item in answer.get("tables") or []:
        verdict = "[green]equal[/]" if item["equal"] else "[red]different[/]"
        read = format_size(item.get("bytes_from_source") or None)
        rows.append([qualified_name(item), verdict, item.get("source_rows"), item.get("target_rows"), _how(item), read])
    print_table(["table", "verdict", "source rows", "target rows", "method", "read"], rows)
    for item in answer.get("tables") or []:
        if item.get("by_rows_because"):
            err.print(escape(f"  {qualified_name(item)}: compared by rows because of {item['by_rows_because']}"))
        if item.get("whole_because"):
            err.print(escape(f"  {qualified_name(item)}: compared as a whole because of {item['whole_because']}"))
    for item in answer.get("tables") or []:
        for difference in [] if item["equal"] else (item.get("differing") or [])[:100]:
            columns = f" in {', '.join(difference['columns'])}" if difference.get("columns") else ""
            err.print(escape(f"  {qualified_name(item)}: {difference.get('kind')} {difference.get('key')}{columns}"))
        _show_repair(item)
    out.print(f"Compared at {answer.get('position') or '–'}: {state(answer['state'])}")


def _how(item: Document) -> str:
    """How a table was compared."""
    how = VerificationMethod.ROWS.value
    if item.get("method") == VerificationMethod.CHECKSUM.value:
        how = f"checksum, {item.get('ranges_different')} of {item.get('ranges')} ranges differ"
    return how if item.get("sample", 1) >= 1 else f"{how}, a sample of {format_share(item['sample'])}"


def _show_repair(item: Document) -> None:
    for field, words in (("would_repair", "a repair would write"), ("repaired", "repaired")):
        if counts := item.get(field):
            numbers = ", ".join(f"{counts[kind]} {kind}" for kind in ("inserted", "updated", "deleted"))
            out.print(escape(f"{qualified_name(item)}: {words}: {numbers}"))
    if item.get("not_repaired"):
        err.print(escape(f"{qualified_name(item)} was not repaired: {item['not_repaired']}"))


def _explain(answer: Document, code: ExitCode) -> None:
    """Explain why no table, or not all, could be compared."""
    left_out(answer.get("left_out"), "not compared")
    if answer.get("problem"):
        show_problem({"title": "The verification failed", **answer["problem"]})
    elif code is ExitCode.TIMEOUT:
        err.print(f"The verification {escape(str(answer.get('id')))} has not ended in time, and continues.")
    elif answer["state"] == "cancelled":
        err.print("The verification was cancelled before it had compared every table.")
    elif code is ExitCode.UNREACHABLE and not answer.get("tables"):
        err.print("Nothing was compared: no table is live.")
