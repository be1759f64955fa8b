"""Commands about freshness goals: `goals show`, `set`, `remove`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from server.cli.arguments import duration_ms
from server.cli.client import Api, Document, segment
from server.cli.data_commands import qualified_name
from server.cli.exit_codes import ExitCode
from server.cli.manifest import ManifestError
from server.cli.options import Subscription, chosen_subscription, server_command
from server.cli.output import Answer, out
from server.cli.output import table as print_table
from server.cli.table_commands import table_path
from server.wording import format_seconds

goals = typer.Typer(
    name="goals",
    help="Freshness goals of a subscription and its tables, and their error budgets.",
    no_args_is_help=True,
)

OfTable = Annotated[
    str | None,
    typer.Option("--table", "-t", metavar="TABLE", help="A table, for its own goal: schema.name, or its id."),
]
_MEMBERS = ("goal_percent", "window_hours", "count_pauses")


@goals.command("show")
@server_command
def show(api: Api, subscription: Subscription = None) -> Answer:
    """The goals with how far they are met, and what is left of their error budgets. Exit code 1: a budget is spent."""
    name = chosen_subscription(api, subscription)
    found = api.get(f"/subscriptions/{segment(name)}/freshness-goals")["items"]
    spent = any(not item["met"] for item in found)
    code = ExitCode.DIFFERENT if spent else ExitCode.DONE
    return Answer({"subscription": name, "goals": found}, lambda: _show(name, found), exit_code=code)


@goals.command("set")
@server_command
def set_goal(
    api: Api,
    percent: Annotated[
        float | None, typer.Option("--percent", help="Share of the time, such as 99.5; default: as it is.")
    ] = None,
    lag: Annotated[
        str | None, typer.Option("--lag", metavar="DURATION", help="Largest lag, such as 10s; default: as it is.")
    ] = None,
    window: Annotated[
        str | None, typer.Option("--window", metavar="DURATION", help="Length of the window: 168h; default: as it is.")
    ] = None,
    count_pauses: Annotated[
        bool | None,
        typer.Option(
            "--count-pauses/--exclude-pauses", help="Whether pauses by a user count as late; default: as it is."
        ),
    ] = None,
    table: OfTable = None,
    subscription: Subscription = None,
) -> Answer:
    """Set the goal of a subscription, or of one of its tables. A changed lag begins a new measurement."""
    asked: Document = {
        "goal_percent": percent,
        "goal_seconds": None if lag is None else _seconds(lag),
        "window_hours": None if window is None else _hours(window),
        "count_pauses": count_pauses,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    if not given:
        raise ManifestError("name what to set: --percent, --lag, --window, --count-pauses or --exclude-pauses")
    answer = api.patch(_path(api, subscription, table), {"freshness": given})
    return Answer(answer, lambda: out.print(f"The freshness goal of {_whose(answer, table)} was set."))


@goals.command("remove")
@server_command
def remove(api: Api, table: OfTable = None, subscription: Subscription = None) -> Answer:
    """Measure the goal no longer; what was measured is deleted. A table has that of its subscription from then on."""
    gone: Document | None = dict.fromkeys(_MEMBERS) if table is None else None
    answer = api.patch(_path(api, subscription, table), {"freshness": gone})
    return Answer(answer, lambda: out.print(f"The freshness goal of {_whose(answer, table)} was removed."))


def _path(api: Api, subscription: str | None, table: str | None) -> str:
    if table is not None:
        return table_path(api, subscription, table)
    return f"/subscriptions/{segment(chosen_subscription(api, subscription))}"


def _whose(answer: Document, table: str | None) -> str:
    return escape(answer["name"]) if table is None else qualified_name(answer)


def _seconds(text: str) -> float:
    try:
        return duration_ms(text) / 1000
    except ValueError as error:
        raise ManifestError(f"--lag: {error}") from None


def _hours(text: str) -> int:
    try:
        hours, rest = divmod(duration_ms(text), 3_600_000)
    except ValueError as error:
        raise ManifestError(f"--window: {error}") from None
    if rest:
        raise ManifestError("--window: a window is a number of full hours; write it like 168h")
    return hours


def _show(name: str, found: list[Document]) -> None:
    if not found:
        out.print(f"{escape(name)} has no freshness goal; 'penstock goals set' sets one.")
        return
    columns = ["goal of", "goal", "met", "budget left", "burn 1 h", "burn 6 h", "unknown", "late since", "worst"]
    print_table(columns, [_row(name, item) for item in found])


def _row(name: str, item: Document) -> list[str | None]:
    goal, budget, worst = item["goal"], item["budget"], item["worst"]
    compliance, left = item["compliance_percent"], budget["left_seconds"]
    color = "green" if item["met"] else "red"
    sign = "-" if left < 0 else ""
    days = f"{goal['window_hours'] / 24:g} days"
    return [
        escape(name) if item["table"] is None else qualified_name(item["table"]),
        f"{goal['percent']:g} % in {format_seconds(goal['lag_seconds'])} over {days}",
        None if compliance is None else f"[{color}]{compliance:.3f} %[/]",
        f"{sign}{format_seconds(abs(left))} of {format_seconds(budget['total_seconds'])}",
        f"{item['burn_rate']['last_hour']:.1f}",
        f"{item['burn_rate']['last_6_hours']:.1f}",
        format_seconds(item["shares_seconds"]["unknown"]),
        item["late_since"],
        None if worst is None else f"{format_seconds(worst['seconds'])} from {worst['begin']}",
    ]
