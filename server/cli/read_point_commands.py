"""`read-point create`, `read-point list`, `read-point delete`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from server.cli.client import Api, Document, segment
from server.cli.data_commands import GRACE_S, Freshness
from server.cli.manifest import ManifestError
from server.cli.options import Subscription, Timeout, chosen_subscription, duration, server_command
from server.cli.output import Answer, err, out
from server.cli.output import table as print_table

read_points = typer.Typer(
    help="Read points: the state of all tables at one position, kept for queries.", no_args_is_help=True
)
_Name = Annotated[str, typer.Argument(help="Name of the read point.")]


@read_points.command("create")
@server_command
def create(
    api: Api,
    name: _Name,
    subscription: Subscription = None,
    ttl: Annotated[str, typer.Option("--ttl", metavar="DURATION", help="How long it is kept.")] = "10m",
    fresh: Annotated[Freshness, typer.Option("--fresh", help="Which state it has at least.")] = Freshness.ANY,
    position: Annotated[str | None, typer.Option("--position", help="Wait for this position first.")] = None,
    timeout: Timeout = "30s",
) -> Answer:
    """Keep the present state of all tables for queries: penstock query --read-point NAME."""
    mode, timeout_ms = Freshness.POSITION if position else fresh, duration(timeout)
    if mode is Freshness.POSITION and not position:
        raise ManifestError("--fresh position needs --position")
    freshness: Document = {"mode": mode.value, "timeout_ms": timeout_ms}
    freshness |= {"position": position} if position else {}
    body = {"name": name, "ttl_seconds": max(1, duration(ttl) // 1000), "freshness": freshness}
    made = api.post(_path(api, subscription), body, timeout_s=timeout_ms / 1000 + GRACE_S)
    return Answer(made, lambda: _show([made]))


@read_points.command("list")
@server_command
def list_read_points(api: Api, subscription: Subscription = None) -> Answer:
    """Read points, including those that ended within the last week."""
    found = list(api.items(_path(api, subscription)))
    return Answer({"read_points": found}, lambda: _show(found))


@read_points.command("delete")
@server_command
def delete(api: Api, name: _Name, subscription: Subscription = None) -> Answer:
    """End a read point, and the queries that read at it."""
    api.delete(f"{_path(api, subscription)}/{segment(name)}")
    return Answer({"name": name, "deleted": True}, lambda: out.print(f"Deleted {escape(name)}."))


def _path(api: Api, subscription: str | None) -> str:
    return f"/subscriptions/{segment(chosen_subscription(api, subscription))}/read-points"


def _show(found: list[Document]) -> None:
    columns = ("position", "committed_at", "expires_at")
    rows = [[escape(item["name"]), item["state"], *(item.get(column) for column in columns)] for item in found]
    print_table(["name", "state", "position", "committed", "expires"], rows)
    for item in found:
        if item.get("reason"):
            err.print(f"{escape(item['name'])} has ended: {escape(item['reason'])}")
        partial = [f"{table['schema']}.{table['name']}" for table in item["tables"] if not table["complete"]]
        if partial:
            err.print(f"[yellow]not complete in {escape(item['name'])}[/]: {escape(', '.join(partial))}")
