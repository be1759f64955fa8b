"""`verifications`: lists verifications, and sets the schedule on which tables are verified."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from typing import Annotated

import typer
from rich.markup import escape

from engine.model.verification import VerificationMethod
from server.cli.arguments import duration_ms
from server.cli.client import Api, Document, segment
from server.cli.data_commands import qualified_name
from server.cli.options import Subscription, chosen_subscription, server_command
from server.cli.output import Answer, err, out, remedy_line, state
from server.cli.output import table as print_table
from server.cli.table_commands import verified
from server.verifications.trigger import Trigger
from server.wording import format_share

verifications = typer.Typer(help="Verifications of a subscription, and their schedule.", no_args_is_help=True)
schedule = typer.Typer(help="When tables are verified again.", no_args_is_help=True)
verifications.add_typer(schedule, name="schedule")

_SHOWN = 20


@verifications.command("list")
@server_command
def list_verifications(
    api: Api,
    trigger: Annotated[Trigger | None, typer.Option("--trigger", help="Only those that this began.")] = None,
    subscription: Subscription = None,
) -> Answer:
    """The newest 20 verifications."""
    name = chosen_subscription(api, subscription)
    given = {} if trigger is None else {"trigger": trigger.value}
    found = list(islice(api.items(f"/subscriptions/{segment(name)}/verifications", **given), _SHOWN))

    def show() -> None:
        columns = ["verification", "begun by", "state", "tables", "different", "position", "requested"]
        print_table(columns, [_row(item) for item in found])

    return Answer({"subscription": name, "verifications": found}, show)


def _row(item: Document) -> list[str | int | None]:
    compared = item["tables"]
    which = qualified_name(compared[0]) if len(compared) == 1 else len(compared)
    different = sum(not table["equal"] for table in compared)
    begun = "schedule" if item["trigger"] == Trigger.SCHEDULE else "user"
    found = f"[red]{different}[/]" if different else "0"
    return [escape(item["id"]), begun, state(item["state"]), which, found, item["position"], item["created_at"]]


@schedule.command("set")
@server_command
def set_schedule(
    api: Api,
    every: Annotated[
        str, typer.Option("--every", metavar="DURATION", help="Each table is compared again after this time: 24h.")
    ],
    budget: Annotated[
        float | None,
        typer.Option("--budget", help="Largest share of the time in which it compares: 0.1; default: as it is."),
    ] = None,
    method: Annotated[
        VerificationMethod | None, typer.Option("--method", help="How tables are compared; default: as it is.")
    ] = None,
    sample: Annotated[
        float | None,
        typer.Option(
            "--sample",
            help="About which share of each table is compared, in key ranges chosen at random: 0.01; 1: everything; default: as it is.",
        ),
    ] = None,
    subscription: Subscription = None,
) -> Answer:
    """Verify one table after another, each again after a time, within a share of the time."""
    try:
        given: Document = {"every_seconds": duration_ms(every) // 1000}
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--every") from None
    chosen = {"budget": budget, "method": method, "sample": sample}
    return _changed(api, subscription, given | {name: value for name, value in chosen.items() if value is not None})


@schedule.command("show")
@server_command
def show_schedule(api: Api, subscription: Subscription = None) -> Answer:
    """The schedule, how much is verified, and the tables of which that cannot be said."""
    name = chosen_subscription(api, subscription)
    found = api.get(f"/subscriptions/{segment(name)}")
    tables = list(api.items(f"/subscriptions/{segment(name)}/tables"))
    answer = {"subscription": name, "verify": found["verify"], "verified": found["verified"]}

    def show() -> None:
        _show(found)
        if found["verified"] is not None:
            _show_tables(tables)

    return Answer(answer, show)


@schedule.command("remove")
@server_command
def remove_schedule(api: Api, subscription: Subscription = None) -> Answer:
    """Verify no more by schedule. A comparison that is under way is cancelled."""
    return _changed(api, subscription, {"every_seconds": None, "budget": None, "method": None, "sample": None})


def _changed(api: Api, subscription: str | None, verify: Document) -> Answer:
    name = chosen_subscription(api, subscription)
    found = api.patch(f"/subscriptions/{segment(name)}", {"verify": verify})
    return Answer(found, lambda: _show(found))


def _show(found: Document) -> None:
    name, policy, share = escape(found["name"]), found["verify"], found["verified"]
    if policy["every_seconds"] is None:
        out.print(f"{name} is not verified on a schedule.")
        return
    every = timedelta(seconds=policy["every_seconds"])
    what = (
        "Each table" if policy.get("sample", 1) >= 1 else f"A sample of {format_share(policy['sample'])} of each table"
    )
    out.print(
        f"{what} of {name} is {'verified' if policy.get('sample', 1) >= 1 else 'compared'} every {every} by {policy['method']}, in at most"
        f" {format_share(policy['budget'])} of the time."
    )
    if share is not None and share["rows_ratio"] is not None:
        out.print(
            f"Verified within that time: {share['verified_tables']} of {share['tables']} tables,"
            f" {format_share(share['rows_ratio'])} of the rows."
        )
    if share is not None and share.get("sampled_tables"):
        out.print(f"Only a sample was found equal of {share['sampled_tables']} other tables.")


def _show_tables(tables: list[Document]) -> None:
    """Tables that do not count as verified, with the reason where there is one."""
    for item in tables:
        last, problem = item["verified"], item["verification_problem"]
        fresh = last is not None and last["equal"] and not last["before_copy"] and not last["overdue"]
        if fresh and last.get("sample", 1) >= 1:
            continue
        err.print(f"{qualified_name(item)}: {verified(item) or 'not compared yet'}")
        if problem is not None:
            err.print(
                f"  {escape(problem['detail'])} Tried {problem['attempts']} times, again after {problem['retry_at']}."
            )
            if problem["remedy"]:
                err.print(f"  {remedy_line(problem)}")
