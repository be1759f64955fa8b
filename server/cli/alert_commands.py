"""Commands about alert channels: `alerts list`, `show`, `delete`, `test`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from server.cli.client import Api, segment
from server.cli.exit_codes import ExitCode
from server.cli.options import Yes, confirm, server_command
from server.cli.output import Answer, out, table

alerts = typer.Typer(name="alerts", help="Alert channels: receivers of notices of faults.", no_args_is_help=True)

_TESTED_S = 60.0
"""Timeout of a test: the server contacts the receiver."""
Name = Annotated[str, typer.Argument(metavar="CHANNEL", help="Name of the alert channel.")]


@alerts.callback()
def _group() -> None:
    pass


@alerts.command("list")
@server_command
def list_channels(api: Api) -> Answer:
    """Alert channels with their kinds and filters; never their secrets."""
    found = list(api.items("/alert-channels"))
    rows = [
        [
            escape(item["name"]),
            item["kind"],
            ", ".join(item["causes"]) or "all",
            escape(", ".join(item["subscriptions"])) or "all",
            item["delivered_at"],
            escape(item["last_error"] or "") or None,
        ]
        for item in found
    ]
    columns = ["channel", "kind", "causes", "subscriptions", "delivered at", "last error"]
    return Answer({"alert_channels": found}, lambda: table(columns, rows))


@alerts.command("show")
@server_command
def show(api: Api, channel: Name) -> Answer:
    """An alert channel with its settings; never its secrets."""
    found = api.get(_path(channel))
    rows = [[name, escape(_text(value))] for name, value in found.items()]
    return Answer(found, lambda: table(["member", "value"], rows))


@alerts.command("delete")
@server_command
def delete(api: Api, channel: Name, yes: Yes = False) -> Answer:
    """Delete an alert channel with its secrets and the notices that are not delivered yet."""
    api.get(_path(channel))
    confirm(f"Delete the alert channel {channel} with its secrets?", yes=yes)
    api.delete(_path(channel))
    return Answer({"name": channel, "deleted": True}, lambda: out.print(f"{escape(channel)} was deleted."))


@alerts.command("test")
@server_command
def test(api: Api, channel: Name) -> Answer:
    """Send a test notice. Exit code 1: the receiver did not accept it."""
    found = api.post(f"{_path(channel)}/test", {}, timeout_s=_TESTED_S)
    word = "accepted" if found["delivered"] else "not accepted"
    code = ExitCode.DONE if found["delivered"] else ExitCode.DIFFERENT
    return Answer(found, lambda: out.print(f"{escape(channel)}: {word}. {escape(found['detail'])}"), exit_code=code)


def _path(channel: str) -> str:
    return f"/alert-channels/{segment(channel)}"


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={_text(inner)}" for name, inner in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else "none" if value is None else str(value)
