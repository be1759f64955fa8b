"""Commands that show what happened: `events`, `batches`, `engines`, `nodes`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import islice
from typing import Annotated

import typer
from rich.markup import escape

from server.cli.client import Api, Document, segment
from server.cli.options import AsJson, Subscription, chosen_subscription, server_command
from server.cli.output import Answer, err, out, print_json, remedy_line, state
from server.cli.output import table as print_table
from server.wording import format_seconds, format_size

_SILENCE_S = 60.0
"""The server sends a comment at least every 15 s."""
_MOST_NODES = 1000
"""Page size that has all nodes of a source."""
Limit = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many of the newest.")]


class Severity(StrEnum):
    """Severity of an event."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@server_command
def events(
    api: Api,
    subscription: Annotated[
        str | None, typer.Option("--subscription", "-s", help="Only events of this subscription.")
    ] = None,
    severity: Annotated[Severity | None, typer.Option("--severity", help="Only events of this severity.")] = None,
    kind: Annotated[str | None, typer.Option("--kind", help="Only events of this kind.")] = None,
    limit: Limit = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new events. With --json: one document a line.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """What happened, the newest last."""
    wanted = {"subscription": subscription, "severity": severity and severity.value, "kind": kind}
    query = {name: value for name, value in wanted.items() if value is not None}
    # All events count for the place in the stream, also those that are not printed.
    newest = next(iter(api.get("/events", page_size=1)["items"]), None) if follow else None
    found = list(islice(api.items("/events", **query), limit))[::-1]
    if as_json and not follow:
        print_json({"events": found})
        return
    _print_events(found, as_json=as_json)
    if follow:
        after = max((int(item["id"]) for item in found), default=0)
        after = max(after, int(newest["id"]) if newest else 0)
        new = (item for item in _followed(api, subscription, after) if _matches(item, query))
        _print_events(new, as_json=as_json)


def _matches(item: Document, query: dict[str, str]) -> bool:
    return all(item.get(name) == value for name, value in query.items())


def _followed(api: Api, subscription: str | None, after: int) -> Iterator[Document]:
    """Events after this id as they are sent."""
    path = "/events/stream" + ("" if subscription is None else f"?subscription={segment(subscription)}")
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
    kind, rest = "", b""
    for piece in api.stream("GET", path, None, headers=headers, timeout_s=_SILENCE_S):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            name, _, value = line.decode().rstrip("\r").partition(": ")
            if name == "event":
                kind = value
            elif name == "data" and kind == "event":
                yield json.loads(value)


def _print_events(found: Iterable[Document], *, as_json: bool) -> None:
    for item in found:
        if as_json:
            typer.echo(json.dumps(item, ensure_ascii=False))
            continue
        about = ": ".join(escape(str(item[name])) for name in ("subscription", "subject") if item.get(name))
        out.print(f"{item['at']} {state(item['severity'])} {escape(item['kind'])} {about}")
        out.print(f"  {escape(item['detail'])}")
        if item.get("remedy"):
            out.print(f"  {remedy_line(item)}")


@server_command
def batches(api: Api, subscription: Subscription = None, limit: Limit = 20) -> Answer:
    """Batches that were committed on the target, the newest first."""
    name = chosen_subscription(api, subscription)
    found = list(islice(api.items(f"/subscriptions/{segment(name)}/batches"), limit))
    columns = ["batch", "committed at", "end", "transactions", "rows written", "mode", "path", "time"]
    rows = [
        [
            item["batch"],
            item["committed_at"],
            item["end"],
            item["transactions"],
            item["net_rows"],
            item["mode"],
            item["path"],
            format_seconds(sum(value for stage, value in item["seconds"].items() if stage != "capture_age")),
        ]
        for item in found
    ]
    return Answer({"subscription": name, "batches": found}, lambda: print_table(columns, rows))


@server_command
def engines(api: Api) -> Answer:
    """Engines with their subscriptions."""
    found = list(api.get("/engines")["items"])
    rows = [
        [
            escape(item["name"]),
            item["version"],
            "connected" if item["connected"] else "[red]not connected[/]",
            escape(", ".join(item["subscriptions"])) or None,
            item["seen_at"],
        ]
        for item in found
    ]
    columns = ["engine", "version", "connection", "subscriptions", "last report"]
    return Answer({"engines": found}, lambda: print_table(columns, rows))


def _node_note(item: Document) -> str | None:
    if item["away"] is not None:
        away = item["away"]
        return f"[red]cannot be read since {escape(away['since'])}: {escape(away['reason'])}[/]"
    return "[red]others wait for it[/]" if item["late"] else None


@server_command
def nodes(api: Api, subscription: Subscription = None) -> Answer:
    """Nodes of a source that consists of several databases: how far each is read and applied, and which ones delay the others."""
    name = chosen_subscription(api, subscription)
    page = api.get(f"/subscriptions/{segment(name)}/nodes", page_size=_MOST_NODES)
    rows = [
        [
            escape(item["name"]),
            item["applied"],
            item["read"],
            item["source_end"],
            None if item["lag_bytes"] is None else format_size(item["lag_bytes"]),
            _node_note(item),
            item["at"],
        ]
        for item in page["items"]
    ]
    columns = ["node", "applied", "read", "end of its log", "behind", "note", "reported at"]

    def note() -> None:
        if not rows:
            err.print("The source is one database.")
        elif page["applied"] is not None:
            err.print(f"As one position, which waits accept: {escape(page['applied'])}")

    ends = {field: page[field] for field in ("applied", "source_end")}
    return Answer({"subscription": name, **ends, "nodes": page["items"]}, lambda: print_table(columns, rows), note)
