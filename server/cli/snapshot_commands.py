"""`snapshot`: consistent states of a copy as files on the engine's machine, and their schedule."""

from __future__ import annotations

from time import monotonic, sleep
from typing import Annotated

import typer
from rich.markup import escape

from engine.model.snapshots import SnapshotFormat
from server.cli.client import Api, Document, segment
from server.cli.data_commands import qualified_name
from server.cli.exit_codes import ExitCode, for_problem
from server.cli.manifest import ManifestError
from server.cli.options import (
    RefuseEarly,
    Subscription,
    TableNames,
    Timeout,
    Yes,
    chosen_subscription,
    confirm,
    duration,
    server_command,
    tables,
)
from server.cli.output import Answer, err, left_out, out, show_problem, state
from server.cli.output import table as print_table
from server.wording import format_size

snapshot = typer.Typer(help="Consistent states of a copy, as Parquet or DuckDB files.", no_args_is_help=True)
schedule = typer.Typer(help="When snapshots are taken, and how many are kept.", no_args_is_help=True)
snapshot.add_typer(schedule, name="schedule")

_ENDED = frozenset({"succeeded", "failed", "cancelled"})
_GRACE_S = 15.0
_SHOWN = 20
Format = Annotated[SnapshotFormat, typer.Option("--format", help="parquet: one file for each table; duckdb: one file.")]
LeaveOut = Annotated[
    bool, typer.Option("--leave-out", help="Leave out tables that are not live, instead of failing with their name.")
]
SnapshotId = Annotated[str, typer.Argument(metavar="SNAPSHOT", help="Its id.")]
Limit = Annotated[str, typer.Option("--limit", metavar="DURATION", help="Maximum time to write it.")]


@snapshot.command("create")
@server_command
def create(
    api: Api,
    subscription: Subscription = None,
    table: TableNames = None,
    format: Format = SnapshotFormat.PARQUET,  # noqa: A002 - the option's name
    at_least: Annotated[
        str | None,
        typer.Option("--at-least", metavar="POSITION", help="Wait until it is visible, as with 'wait'."),
    ] = None,
    latest: Annotated[bool, typer.Option("--latest", help="Wait for everything committed by now.")] = False,
    timeout: Timeout = "30s",
    refuse_early: RefuseEarly = False,
    leave_out: LeaveOut = False,
    link: Annotated[
        bool, typer.Option("--link/--no-link", help="Let the link latest-parquet or latest-duckdb lead to it.")
    ] = True,
    limit: Limit = "1h",
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Stay until it has ended.")] = True,
) -> Answer:
    """Write the copy, as it is at one position, to files on the engine's machine. --timeout is for the wait, --limit for the writing. Exit
    code 4: one of them was exceeded; 5: a table or the subscription does not follow; 7: failed, with the printed reason."""
    if at_least is not None and latest:
        raise ManifestError("--at-least and --latest exclude each other")
    mode = "position" if at_least is not None else "latest" if latest else "any"
    timeout_ms = duration(timeout)
    freshness: Document = {"mode": mode, "timeout_ms": timeout_ms, "refuse_early": refuse_early}
    if at_least is not None:
        freshness["position"] = at_least
    limit_s = max(1, duration(limit) // 1000)
    body = {**_options(format, table, limit_s, leave_out=leave_out), "freshness": freshness, "latest": link}
    path = f"/subscriptions/{segment(chosen_subscription(api, subscription))}/snapshots"
    found = api.post(path, body, timeout_s=timeout_ms / 1000 + _GRACE_S)
    if wait:
        found = _await(api, f"{path}/{segment(str(found['id']))}", found, limit_s + _GRACE_S)
    return Answer(found, lambda: _show(found), lambda: _explain(found), _exit_code(found, wait=wait))


@snapshot.command("list")
@server_command
def list_snapshots(
    api: Api,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Most snapshots to show.")] = _SHOWN,
    subscription: Subscription = None,
) -> Answer:
    """The last snapshots of a subscription, the newest first."""
    name = chosen_subscription(api, subscription)
    found = api.get(f"/subscriptions/{segment(name)}/snapshots", page_size=limit)["items"]

    def show() -> None:
        rows = [
            [item["id"], _state(item), item["format"], item["position"], len(item["tables"]), _size(item), item["name"]]
            for item in found
        ]
        print_table(["snapshot", "state", "format", "position", "tables", "size", "name"], rows)

    return Answer({"subscription": name, "snapshots": found}, show)


@snapshot.command("show")
@server_command
def show(api: Api, snapshot_id: SnapshotId, subscription: Subscription = None) -> Answer:
    """One snapshot, with its tables and where it is."""
    found = api.get(_path(api, subscription, snapshot_id))
    return Answer(found, lambda: _show(found), lambda: _explain(found))


@snapshot.command("delete")
@server_command
def delete(api: Api, snapshot_id: SnapshotId, subscription: Subscription = None, yes: Yes = False) -> Answer:
    """Delete a snapshot with its files, or cancel one that has not ended."""
    path = _path(api, subscription, snapshot_id)
    found = api.get(path)
    if found["state"] == "succeeded":
        confirm(f"Delete the files of snapshot {found['name']}?", yes=yes)
    api.delete(path)
    verb = "is being deleted" if found["state"] in _ENDED else "is cancelled"
    return Answer({"id": snapshot_id}, lambda: out.print(f"Snapshot {escape(snapshot_id)} {verb}."))


@schedule.command("set")
@server_command
def set_schedule(
    api: Api,
    every: Annotated[str, typer.Option("--every", metavar="DURATION", help="Time between two snapshots.")],
    keep: Annotated[int, typer.Option("--keep", min=1, help="How many of its snapshots are kept.")] = 24,
    table: TableNames = None,
    format: Format = SnapshotFormat.PARQUET,  # noqa: A002 - the option's name
    leave_out: LeaveOut = False,
    limit: Limit = "1h",
    subscription: Subscription = None,
) -> Answer:
    """Take snapshots at an interval, from now on, and keep the newest."""
    name = chosen_subscription(api, subscription)
    options = _options(format, table, max(1, duration(limit) // 1000), leave_out=leave_out)
    body = {**options, "interval_seconds": duration(every) // 1000, "keep": keep}
    found = api.put(f"/subscriptions/{segment(name)}/snapshot-schedule", body)
    return Answer(found, lambda: _show_schedule(found))


@schedule.command("show")
@server_command
def show_schedule(api: Api, subscription: Subscription = None) -> Answer:
    """The schedule of a subscription."""
    found = api.get(f"/subscriptions/{segment(chosen_subscription(api, subscription))}/snapshot-schedule")
    return Answer(found, lambda: _show_schedule(found))


@schedule.command("remove")
@server_command
def remove_schedule(api: Api, subscription: Subscription = None) -> Answer:
    """Take no more snapshots by schedule. Those that exist stay."""
    name = chosen_subscription(api, subscription)
    api.delete(f"/subscriptions/{segment(name)}/snapshot-schedule")
    return Answer({"subscription": name}, lambda: out.print("The schedule is removed; its snapshots stay."))


def _options(kind: SnapshotFormat, table: list[str] | None, limit_s: int, *, leave_out: bool) -> Document:
    body: Document = {
        "format": kind.value,
        "on_unavailable": "leave_out" if leave_out else "error",
        "limit_seconds": limit_s,
    }
    return {**body, "tables": tables(table)} if table else body


def _path(api: Api, subscription: str | None, snapshot_id: str) -> str:
    return f"/subscriptions/{segment(chosen_subscription(api, subscription))}/snapshots/{segment(snapshot_id)}"


def _await(api: Api, path: str, begun: Document, timeout_s: float) -> Document:
    """Poll a snapshot until it has ended or the timeout has passed; returned in its last known state."""
    deadline, found = monotonic() + timeout_s, begun
    while found["state"] not in _ENDED and monotonic() < deadline:
        sleep(0.2)
        found = api.get(path)
    return found


def _exit_code(found: Document, *, wait: bool) -> ExitCode:
    if found["state"] == "succeeded" or not wait:
        return ExitCode.DONE
    if found["state"] not in _ENDED:
        return ExitCode.TIMEOUT
    problem = found.get("problem") or {}
    if problem.get("code") == "table_not_live" or found["state"] == "cancelled":
        return ExitCode.UNREACHABLE
    return for_problem(max(500, int(problem.get("status") or 500)), str(problem.get("code", "")))


def _show(found: Document) -> None:
    out.print(f"{escape(found['id'])} {_state(found)} {found['position'] or ''} {_size(found) or ''}".rstrip())
    if found["folder"] is not None:
        out.print(escape(found["folder"]))
    if found["tables"]:
        rows = [[qualified_name(item), item["rows"], item["file"]] for item in found["tables"]]
        print_table(["table", "rows", "file"], rows)


def _explain(found: Document) -> None:
    left_out(found.get("left_out"), "left out")
    if found.get("problem"):
        show_problem({"title": "The snapshot failed", **found["problem"]})
    elif found["state"] not in _ENDED:
        err.print(f"The snapshot {escape(found['id'])} is being written: 'penstock snapshot show' shows it.")


def _state(found: Document) -> str:
    return "deleting" if found["deleting"] else str(state(found["state"]))


def _size(found: Document) -> str | None:
    return None if found["bytes"] is None else format_size(found["bytes"])


def _show_schedule(found: Document) -> None:
    which = "every table" if found["tables"] is None else ", ".join(map(qualified_name, found["tables"]))
    out.print(
        f"{found['format']} of {escape(which)} every {found['interval_seconds']} s; the newest {found['keep']} are kept"
    )
    out.print(f"next: {found['next_at']}")
