"""`lag`: why the target lags."""

from __future__ import annotations

import typer
from rich.markup import escape

from server.cli.client import Api, Document, segment
from server.cli.options import Subscription, chosen_subscription, server_command
from server.cli.output import Answer, out
from server.cli.output import table as print_table
from server.wording import format_seconds

lag = typer.Typer(help="Explain why the target lags.", no_args_is_help=True)


@lag.command("explain")
@server_command
def explain(api: Api, subscription: Subscription = None) -> Answer:
    """The causes of the current lag with their shares, the largest first; with what was measured, and what to do."""
    name = chosen_subscription(api, subscription)
    found = api.get(f"/subscriptions/{segment(name)}/lag/explanation")
    return Answer({"subscription": name, **found}, lambda: _show(found))


def _show(found: Document) -> None:
    lag_s, commit_s = (format_seconds(found[field] / 1000) for field in ("lag_ms", "commit_lag_ms"))
    out.print(f"Oldest change that readers do not see: {lag_s}; oldest commit: {commit_s}.")
    if not found["causes"]:
        return
    rows = [
        [item["cause"], format_seconds(item["share_ms"] / 1000), f"{item['share']:.0%}"] for item in found["causes"]
    ]
    print_table(["cause", "time", "share"], rows)
    for item in found["causes"]:
        measured = ", ".join(f"{what}: {value}" for what, value in item["evidence"].items())
        out.print(
            f"{escape(item['cause'])}: {escape(item['explanation'])}{escape(f' ({measured})') if measured else ''}"
        )
        out.print(f"  [green]→[/] {escape(item['remedy'])}")
