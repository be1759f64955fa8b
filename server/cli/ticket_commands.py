"""`ticket`: measures how long a change takes from source to target, by stage, and the throughput between two tickets."""

from __future__ import annotations

from time import monotonic, sleep
from typing import Annotated, Any

import typer
from rich.markup import escape

from server.cli.client import Api, Document, segment
from server.cli.data_commands import explain
from server.cli.exit_codes import ExitCode
from server.cli.manifest import ManifestError
from server.cli.options import Subscription, chosen_subscription, duration, server_command
from server.cli.output import Answer, out, state
from server.cli.output import table as print_table
from server.wording import format_seconds

ticket = typer.Typer(
    help="Measure the time from source to target with a marker, by stage.", invoke_without_command=True
)

_ENDED = frozenset({"applied", "lost"})
_STAGES = ("capture", "seal", "compute", "apply", "total")
_SHOWN = 20
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TICKET", help="Show the throughput since this earlier ticket."),
]


@ticket.callback()
@server_command
def create(
    api: Api,
    context: typer.Context,
    subscription: Subscription = None,
    name: Annotated[str | None, typer.Option("--name", help="Label of the ticket.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is applied on the target.")] = False,
    since: Since = None,
    timeout: Annotated[str, typer.Option("--timeout", metavar="DURATION", help="How long to wait at most.")] = "60s",
) -> Answer | None:
    """Write a marker to the source's log. Exit codes with --wait: 4: not applied in time; 7: lost."""
    if context.invoked_subcommand is not None:
        return None
    if since is not None and not wait:
        raise ManifestError("--since needs --wait")
    timeout_s = duration(timeout) / 1000
    path = f"/subscriptions/{segment(chosen_subscription(api, subscription))}/tickets"
    made = api.post(path, {} if name is None else {"name": name})
    found = _await(api, path, made, since, timeout_s) if wait else made
    exit_code = ExitCode.DONE
    if wait and found["state"] != "applied":
        exit_code = ExitCode.PIPELINE if found["state"] == "lost" else ExitCode.TIMEOUT
    return Answer(found, lambda: _show(found), exit_code=exit_code)


@ticket.command("show")
@server_command
def show(
    api: Api,
    ticket_id: Annotated[str, typer.Argument(metavar="TICKET", help="Its id.")],
    since: Since = None,
    subscription: Subscription = None,
) -> Answer:
    """One ticket, and what was replicated since an earlier one."""
    path = f"/subscriptions/{segment(chosen_subscription(api, subscription))}/tickets"
    found = _get(api, path, ticket_id, since)
    return Answer(found, lambda: _show(found))


@ticket.command("list")
@server_command
def list_tickets(
    api: Api,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Most tickets to show.")] = _SHOWN,
    subscription: Subscription = None,
) -> Answer:
    """The last tickets of a subscription, the newest first."""
    name = chosen_subscription(api, subscription)
    found = api.get(f"/subscriptions/{segment(name)}/tickets", page_size=limit)["items"]

    def show() -> None:
        rows = [[escape(item["id"]), _text(item["name"]), state(item["state"]), *_durations(item)] for item in found]
        print_table(["ticket", "name", "state", *_STAGES], rows)
        explain(found)

    return Answer({"subscription": name, "tickets": found}, show)


def _await(api: Api, path: str, made: Document, since: str | None, timeout_s: float) -> Document:
    """Poll a ticket until it has ended or the timeout has passed; returned in its last known state."""
    deadline, found = monotonic() + timeout_s, made
    while found["state"] not in _ENDED and monotonic() < deadline:
        sleep(0.1)
        found = _get(api, path, str(made["id"]), since)
    return found


def _get(api: Api, path: str, ticket_id: str, since: str | None) -> Document:
    query = {} if since is None else {"since": since}
    return api.get(f"{path}/{segment(ticket_id)}", **query)


def _show(found: Document) -> None:
    out.print(f"{escape(found['id'])} {state(found['state'])} {found['position'] or ''}".rstrip())
    if found["times"]["captured_at"] is not None:
        print_table(list(_STAGES), [_durations(found)])
    throughput = found.get("throughput")
    if throughput is not None:
        rates = ("log_gib_per_hour", "commands_per_second", "transactions_per_second")
        row = [*(_rate(throughput[rate]) for rate in rates), format_seconds(throughput["seconds"])]
        print_table(["log GiB/h", "commands/s", "transactions/s", "in"], [row])
    explain([found])


def _durations(item: Document) -> list[str]:
    found = (item["durations"][f"{stage}_ms"] for stage in _STAGES)
    return [format_seconds(None if value is None else value / 1000) for value in found]


def _rate(value: float | None) -> str | None:
    return None if value is None else f"{value:,.2f}"


def _text(value: Any) -> str | None:
    return None if value is None else escape(str(value))
