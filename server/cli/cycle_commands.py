"""`cycles`: readings of a source that is only queried: list them, show one, start one."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer
from rich.markup import escape

from server.cli.client import Api, Document, segment
from server.cli.data_commands import GRACE_S, qualified_name
from server.cli.options import Subscription, Timeout, chosen_subscription, duration, server_command
from server.cli.output import Answer, err, out, state
from server.cli.output import table as print_table
from server.wording import format_seconds, format_size

cycles = typer.Typer(
    help="Readings of a source that is only queried (capture query_diff).", invoke_without_command=True
)

_SHOWN = 20
Number = Annotated[int, typer.Argument(min=1, help="Number of the cycle.")]


@cycles.callback()
@server_command
def list_cycles(
    api: Api,
    context: typer.Context,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many of the newest.")] = _SHOWN,
    subscription: Subscription = None,
) -> Answer | None:
    """Cycles of a subscription, the newest first, and how old the rows are that readers see."""
    if context.invoked_subcommand is not None:
        return None
    name = chosen_subscription(api, subscription)
    found = api.get(f"/subscriptions/{segment(name)}/cycles", page_size=limit)
    shown = list(islice(found["items"], limit))

    def show() -> None:
        rows = [
            [
                item["number"],
                state(item["state"]),
                item["taken_at"],
                None if item["seconds"] is None else format_seconds(item["seconds"]),
                *_counts(item, ended=item["ended_at"] is not None and item["fault"] is None),
                _trouble(item),
            ]
            for item in shown
        ]
        print_table(["cycle", "state", "snapshot taken at", "time", *_COUNTS, "note"], rows)

    def note() -> None:
        if found["as_of"] is not None:
            err.print(f"Readers see the source as of {found['as_of']}.")
        if found["next_at"] is not None:
            err.print(f"The next cycle begins at {found['next_at']}, or when it is requested.")

    times = {"as_of": found["as_of"], "next_at": found["next_at"]}
    return Answer({"subscription": name, **times, "cycles": shown}, show, note)


def _trouble(item: Document) -> str | None:
    """Why it failed, or how many tables it could not read."""
    if item["fault"] is not None:
        return f"[red]{escape(item['fault'])}[/]" + (
            f" at {escape(item['fault_table'])}" if item["fault_table"] else ""
        )
    unread = sum(table["fault"] is not None for table in item["tables"])
    return f"[yellow]{unread} of {len(item['tables'])} tables not read[/]" if unread else None


_COUNTS = ("inserted", "updated", "deleted", "rows read", "rows hashed", "rows shared", "bytes read")


def _counts(item: Document, *, ended: bool = True) -> list[str | None]:
    if not ended:
        return [None] * len(_COUNTS)
    counts = ("inserted", "updated", "deleted", "rows_read", "rows_hashed", "rows_shared")
    return [*(f"{item[name]:,}" for name in counts), format_size(item["bytes_read"])]


@cycles.command("show")
@server_command
def show_cycle(api: Api, number: Number, subscription: Subscription = None) -> Answer:
    """One cycle, with what it read and found in each table."""
    name = chosen_subscription(api, subscription)
    found = api.get(f"/subscriptions/{segment(name)}/cycles/{number}")
    return Answer(found, lambda: _show(found))


@cycles.command("start")
@server_command
def start(
    api: Api,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Stay until everything that it finds is visible on the target.")
    ] = False,
    timeout: Timeout = "5m",
    subscription: Subscription = None,
) -> Answer:
    """Begin a cycle now, or as soon as no other one runs. With --wait, exit code 4: not in time; 5: it cannot become visible."""
    path = f"/subscriptions/{segment(chosen_subscription(api, subscription))}"
    found = api.post(f"{path}/cycles", None)
    if not wait:
        line = (
            f"Cycle {found['number']} is requested; a wait for {found['position']} ends when its changes are visible."
        )
        return Answer(found, lambda: out.print(escape(line)))
    timeout_ms = duration(timeout)
    body: Document = {"position": found["position"], "timeout_ms": timeout_ms}
    waited = api.post(f"{path}/freshness-waits", body, timeout_s=timeout_ms / 1000 + GRACE_S)
    took = format_seconds((waited.get("waited_ms") or 0) / 1000)
    line = f"[green]visible[/] {escape(str(waited['position']))} after {took}"
    return Answer({**found, "wait": waited}, lambda: out.print(line))


def _show(found: Document) -> None:
    out.print(f"Cycle {found['number']}, {escape(found['position'])}: {state(found['state'])}")
    if found["ended_at"] is None:
        return
    if found["fault"] is not None:
        where = f" while it read {found['fault_table']}" if found["fault_table"] else ""
        out.print(f"failed at {found['ended_at']}{escape(where)}: [red]{escape(found['fault'])}[/]")
        out.print(escape(str(found["fault_detail"])))
        return
    out.print(f"snapshot taken at {found['taken_at']}; read and compared in {format_seconds(found['seconds'])}")
    if not found["one_snapshot"]:
        out.print("[yellow]Its tables were not read in one snapshot.[/]")
    for what, count in found["source_reads"].items():
        out.print(f"{escape(what)}: {count:,}")
    rows = [
        [qualified_name(item), escape(item["method"]), *_counts(item), format_seconds(item["seconds"]), _note(item)]
        for item in found["tables"]
    ]
    print_table(["table", "method", *_COUNTS, "time", "note"], rows)


def _note(item: Document) -> str | None:
    if item["fault"] is not None:
        return f"[red]not read: {escape(item['fault'])}: {escape(str(item['fault_detail']))}[/]"
    if item["copied_again"]:
        return "[yellow]not compared: it is copied again, or parked[/]"
    if item["first"]:
        return "read for the first time"
    if item.get("snapshots", 1) > 1:
        return f"[yellow]ranges of its key in {item['snapshots']:,} snapshots[/]"
    if item["since_stamp"]:
        return "by stamps"
    return f"{item['ranges_different']:,} of {item['ranges']:,} ranges differed" if item["ranges"] else None
