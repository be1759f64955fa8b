"""Commands about the replicated data: `status`, `wait`, `query`, `sequences`."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from server.cli.client import Api, Document, segment
from server.cli.exit_codes import ExitCode
from server.cli.manifest import ManifestError
from server.cli.options import (
    AllTables,
    AsJson,
    RefuseEarly,
    Subscription,
    TableNames,
    Timeout,
    chosen_subscription,
    duration,
    server_command,
    tables,
)
from server.cli.output import Answer, err, health, left_out, out, print_json, remedy_line
from server.cli.output import table as print_table
from server.wording import format_seconds, format_share, format_size

GRACE_S = 15.0
"""Seconds beyond a request's own deadline after which the client gives up."""


_ReadPoint = Annotated[
    str | None, typer.Option("--read-point", metavar="NAME", help="Read the state of this read point.")
]


class Freshness(StrEnum):
    """Required freshness of a query's rows."""

    ANY = "any"
    LATEST = "latest"
    POSITION = "position"


class OnUnavailable(StrEnum):
    """Treatment of tables that do not follow their source."""

    ERROR = "error"
    INCLUDE = "include"
    SOURCE = "source"


class OnTimeoutOfWait(StrEnum):
    """What a wait does at its deadline."""

    ERROR = "error"
    STALE = "stale"


class OnTimeout(StrEnum):
    """What a query does if its rows are not fresh enough at the deadline."""

    ERROR = "error"
    STALE = "stale"
    SOURCE = "source"


class Format(StrEnum):
    """Output format of a query's rows."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"
    PARQUET = "parquet"


@server_command
def status(api: Api) -> Answer:
    """Subscriptions with their health, positions and lag."""
    subscriptions = list(api.items("/subscriptions"))
    return Answer({"url": api.url, "subscriptions": subscriptions}, lambda: _show_subscriptions(subscriptions))


def _show_subscriptions(subscriptions: list[Document]) -> None:
    if not subscriptions:
        out.print("No subscriptions yet. Create some with [bold]penstock apply FILE[/].")
        return
    rows = []
    for item in subscriptions:
        lag, positions = item.get("lag") or {}, item.get("positions") or {}
        behind = f"{format_seconds(lag.get('seconds'))}, {format_size(lag.get('bytes'))}"
        route = escape(f"{item['source']} → {item['target']}")
        how = health(item.get("health"))
        verified = _verified_share(item.get("verified"))
        consistency = item.get("consistency")
        rows.append(
            [
                escape(item["name"]),
                route,
                how,
                escape(item["state"]),
                positions.get("applied"),
                behind,
                None if consistency == "transactions" else consistency,
                verified,
            ]
        )
    columns = ["subscription", "route", "health", "state", "applied", "lag", "consistency", "verified"]
    # The last two are left out where they say nothing: without other captures than of transactions, and without schedules.
    shown = [place for place in range(len(columns)) if place < len(columns) - 2 or any(row[place] for row in rows)]
    print_table([columns[place] for place in shown], [[row[place] for place in shown] for row in rows])
    for item in subscriptions:
        _explain_health(item)


def _verified_share(share: Document | None) -> str | None:
    """How many rows are verified within the schedule's interval; None without a schedule."""
    if share is None or share["rows_ratio"] is None:
        return None
    return f"{format_share(share['rows_ratio'])} of the rows"


def _explain_health(item: Document) -> None:
    """Print the reason of every health that is not good."""
    assessment = item.get("health") or {}
    if assessment.get("status") == "running":
        return
    err.print(f"{escape(item['name'])}: {health(assessment)}: {escape(str(assessment.get('reason')))}")
    if assessment.get("remedy"):
        err.print(f"  {remedy_line(assessment, subscription=item.get('name'))}")


@server_command
def wait(
    api: Api,
    position: Annotated[str | None, typer.Argument(help="Like 0/16B3748; left out: everything committed now.")] = None,
    subscription: Subscription = None,
    table: TableNames = None,
    timeout: Timeout = "30s",
    on_timeout: Annotated[
        OnTimeoutOfWait,
        typer.Option("--on-timeout", help="At the deadline: an error, or how far the target is behind; exit code 4."),
    ] = OnTimeoutOfWait.ERROR,
    refuse_early: RefuseEarly = False,
    all_tables: AllTables = False,
    patient: Annotated[
        bool,
        typer.Option(
            "--patient",
            help="Continue to wait until the deadline if no engine is connected or the source is unavailable.",
        ),
    ] = False,
) -> Answer:
    """Wait until a position is visible on the target. Exit code 0: it is; 4: not in time; 5: it cannot become visible, or with
    --all-tables a table was left out; 7: engine or source are unavailable."""
    timeout_ms = duration(timeout)
    body: Document = {"timeout_ms": timeout_ms}
    if position is not None:
        body["position"] = position
    if table:
        body["tables"] = tables(table)
    if patient:
        body["on_unreachable"] = "wait"
    if on_timeout is not OnTimeoutOfWait.ERROR:
        body["on_timeout"] = on_timeout.value
    if refuse_early:
        body["refuse_early"] = True
    name = chosen_subscription(api, subscription)
    path = f"/subscriptions/{segment(name)}/freshness-waits"
    answer = api.post(path, body, timeout_s=timeout_ms / 1000 + GRACE_S)
    receipt = answer.get("receipt") or {}
    waited = format_seconds((answer.get("waited_ms") or 0) / 1000)
    line = f"[green]visible[/] {answer.get('position')} (applied {answer.get('applied')}) after {waited}"
    code = ExitCode.UNREACHABLE if all_tables and receipt.get("left_out") else ExitCode.DONE
    stale = answer.get("stale")

    def explain_rest() -> None:
        _explain_age(stale)
        _explain_receipt(receipt)

    return Answer(answer, lambda: out.print(line), explain_rest, code if stale is None else ExitCode.TIMEOUT)


def _explain_receipt(receipt: Document) -> None:
    """The tables that were left out, and the ways in which others do not fully follow their source, as declared."""
    left_out(receipt.get("left_out"), "not waited for")
    for item in receipt.get("exceptions") or []:
        how = "without its updates and deletes (insert_only)"
        if item.get("kind") == "operations":
            how = "without the operations that are not followed"
        if item.get("kind") == "rows_set_aside":
            how = f"without {item.get('rows')} quarantined rows"
        err.print(f"[yellow]{qualified_name(item)}[/]: {how}")


@server_command
def query(
    api: Api,
    sql: Annotated[str, typer.Argument(help="One read in the target's SQL; '-' reads stdin.")],
    subscription: Subscription = None,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="TEXT", help="The value of $1, and of $2, … when repeated."),
    ] = None,
    fresh: Annotated[Freshness, typer.Option("--fresh", help="Required freshness of the rows.")] = Freshness.ANY,
    position: Annotated[str | None, typer.Option("--position", help="Wait for this position first.")] = None,
    on_unavailable: Annotated[
        OnUnavailable,
        typer.Option(
            "--on-unavailable",
            help="If a table of the query is paused, parked or absent: refuse the query, include the table's old rows, or ask the source.",
        ),
    ] = OnUnavailable.ERROR,
    on_timeout: Annotated[
        OnTimeout,
        typer.Option(
            "--on-timeout",
            help="With --fresh, at the deadline: an error, the rows that are there, or those of the source.",
        ),
    ] = OnTimeout.ERROR,
    refuse_early: RefuseEarly = False,
    read_point: _ReadPoint = None,
    timeout: Timeout = "30s",
    time_limit: Annotated[
        str,
        typer.Option(
            "--time-limit", metavar="DURATION", help="Maximum time for the query and the transfer of its rows."
        ),
    ] = "30s",
    max_rows: Annotated[
        int | None,
        typer.Option(
            "--max-rows",
            min=1,
            help="Maximum rows; default 10000 for table and json. With csv, arrow and parquet, more rows are an error.",
        ),
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="How to print the rows.")] = Format.TABLE,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write csv, arrow or parquet to a file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run one SELECT on the target, at a batch boundary."""
    mode, timeout_ms = Freshness.POSITION if position else fresh, duration(timeout)
    if mode is Freshness.POSITION and not position:
        raise ManifestError("--fresh position needs --position")
    freshness: Document = {"mode": mode.value, **({"position": position} if position else {})}
    if mode is not Freshness.ANY:
        freshness |= _deadline(timeout_ms, on_timeout, refuse_early=refuse_early)
    if on_unavailable is not OnUnavailable.ERROR:
        freshness["on_unavailable"] = on_unavailable.value
    limit_ms = duration(time_limit)
    body: Document = {"sql": sys.stdin.read() if sql == "-" else sql, "freshness": freshness, "timeout_ms": limit_ms}
    body |= {"parameters": param} if param else {}
    body |= {"read_point": read_point} if read_point is not None else {}
    body |= {"max_rows": max_rows} if max_rows is not None else {}
    raw = _is_raw(form, output, as_json=as_json)
    path = f"/subscriptions/{segment(chosen_subscription(api, subscription))}/queries"
    patience_s = (timeout_ms + limit_ms) / 1000 + GRACE_S
    if raw:
        _raw(api, path, body, form, output, patience_s)
    else:
        _print_rows(api.post(path, body, timeout_s=patience_s), as_json=as_json or form is Format.JSON)


def _print_rows(answer: Document, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        _show_rows(answer)


def _deadline(timeout_ms: int, on_timeout: OnTimeout, *, refuse_early: bool) -> Document:
    """The part of a query's freshness that concerns its wait."""
    late = {} if on_timeout is OnTimeout.ERROR else {"on_timeout": on_timeout.value}
    return {"timeout_ms": timeout_ms, **late, **({"refuse_early": True} if refuse_early else {})}


def _show_rows(answer: Document) -> None:
    print_table([column["name"] for column in answer["columns"]], [_escaped(row) for row in answer["rows"]])
    more = ", more rows exist" if answer.get("truncated") else ""
    for item in answer.get("left_out") or []:
        err.print(f"[yellow]{qualified_name(item)} is {escape(item['state'])}: its rows are old[/]")
    _explain_age(answer.get("stale"))
    err.print(f"[dim]{len(answer['rows'])} rows at {answer.get('position')} on the {answer.get('ran_on')}{more}[/]")


def _explain_age(stale: Document | None) -> None:
    if stale is not None:
        seconds = stale.get("seconds_behind")
        behind = "an unknown time" if seconds is None else format_seconds(seconds)
        wanted = stale.get("wanted") or "the source's current position, which is unknown"
        err.print(f"[yellow]the target is {behind} behind[/]: it shows {stale.get('position')}, not yet {wanted}")


_MEDIA = {
    Format.CSV: "text/csv",
    Format.ARROW: "application/vnd.apache.arrow.stream",
    Format.PARQUET: "application/vnd.apache.parquet",
}


def _is_raw(form: Format, output: Path | None, *, as_json: bool) -> bool:
    """Whether rows are written as the server sends them. Raises ManifestError where they cannot be written."""
    raw = form in _MEDIA and not as_json
    if output is not None and not raw:
        raise ManifestError("--output is for --format csv, arrow and parquet; redirect stdout for what is printed")
    if raw and output is None and form is not Format.CSV and prints_to_terminal():
        raise ManifestError(f"{form.value.capitalize()} is binary; name a file with --output, or redirect stdout")
    return raw


def prints_to_terminal() -> bool:
    return sys.stdout.isatty()


def _raw(api: Api, path: str, body: Document, form: Format, output: Path | None, timeout_s: float) -> None:
    """Write the rows as they arrive. An output file is created only once it is complete."""
    pieces = api.stream("POST", path, body, headers={"Accept": _MEDIA[form]}, timeout_s=timeout_s)
    if output is None:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    if output.exists() and not output.is_file():  # a pipe or a device
        with output.open("wb") as device:
            device.writelines(pieces)
        return
    unfinished = output.with_name(f"{output.name}.unfinished")
    try:
        with unfinished.open("wb") as file:
            file.writelines(pieces)
        unfinished.replace(output)
    except OSError as error:
        raise ManifestError(f"{output} cannot be written: {error.strerror}") from None
    finally:
        unfinished.unlink(missing_ok=True)


@server_command
def sequences(
    api: Api,
    subscription: Subscription = None,
    table: TableNames = None,
    margin: Annotated[int, typer.Option("--margin", min=0, help="Values to leave out after the source's last.")] = 0,
) -> Answer:
    """Before a cut-over: set the target's sequences to the source's values. Exit code 1: at least one could not be set."""
    body: Document = {"margin": margin}
    if table:
        body["tables"] = tables(table)
    path = f"/subscriptions/{segment(chosen_subscription(api, subscription))}/sequences"
    answer = api.post(path, body, timeout_s=GRACE_S * 3)
    code = ExitCode.DONE if answer["complete"] else ExitCode.DIFFERENT
    return Answer(answer, lambda: _show_sequences(answer["sequences"]), exit_code=code)


def _show_sequences(found: list[Document]) -> None:
    rows = []
    for item in found:
        column = escape(f"{item['schema']}.{item['name']}.{item['column']}")
        values = [_stand(item[side]) for side in ("source_value", "value_before", "value_after")]
        on_target = item["target_sequence"] and qualified_name(item["target_sequence"])
        rows.append(
            [column, qualified_name(item["source_sequence"]), values[0], on_target, *values[1:], item["outcome"]]
        )
    print_table(["column", "source sequence", "value", "target sequence", "before", "after", "outcome"], rows)
    for outcome, remedy in sorted({(item["outcome"], item["remedy"]) for item in found if item.get("remedy")}):
        err.print(f"[red]{escape(outcome)}[/]\n  {remedy_line({'remedy': remedy})}")


def _stand(value: Document | None) -> str | None:
    """A sequence's last value; if it has issued none, its first."""
    if value is None:
        return None
    return str(value["last_value"]) if value["is_called"] else f"{value['last_value']} (next)"


def qualified_name(item: Document) -> str:
    return escape(f"{item.get('schema')}.{item.get('name')}")


def _escaped(row: list[object]) -> list[object]:
    return [escape(value) if isinstance(value, str) else value for value in row]


def explain(items: list[Document]) -> None:
    """Print the reason and remedy of every item that has one."""
    for item in items:
        if item.get("reason"):
            subject = item.get("name") or item.get("id")
            colour = "yellow" if item.get("state") == "reloading" else "red"
            err.print(f"[{colour}]{escape(str(subject))}[/]: {escape(str(item['reason']))}")
            if item.get("remedy"):
                err.print(f"  {remedy_line(item)}")
