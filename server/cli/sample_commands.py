"""`sample`: a small PostgreSQL under a light load, run by the server, as a source for first experiments."""

from __future__ import annotations

from time import monotonic, sleep

import typer
from rich.markup import escape

from server.cli.client import Api, Document
from server.cli.exit_codes import ExitCode
from server.cli.options import AsJson, server_command
from server.cli.output import err, out, print_json, state

sample = typer.Typer(
    name="sample",
    help="A small PostgreSQL under a light load, run by the server, as a source for first experiments.",
    no_args_is_help=True,
)

_PATH = "/sample-source"
_START_TIMEOUT_S = 120.0


@sample.command("start")
@server_command
def start(api: Api, as_json: AsJson = False) -> None:
    """Start it and wait until it runs. Exit code 7: it failed."""
    found = _started(api, api.put(_PATH, {}))
    _show(found, as_json=as_json)
    if found["state"] != "running":
        raise typer.Exit(ExitCode.PIPELINE)


@sample.command("show")
@server_command
def show(api: Api, as_json: AsJson = False) -> None:
    """How it is."""
    found = api.get(_PATH)
    _show(found, as_json=as_json)


@sample.command("remove")
@server_command
def remove(api: Api, as_json: AsJson = False) -> None:
    """Stop it, and delete its database and its connection. Its subscriptions have to be deleted before."""
    api.delete(_PATH)
    found = api.get(_PATH)
    _show(found, as_json=as_json)


def _started(api: Api, found: Document) -> Document:
    deadline = monotonic() + _START_TIMEOUT_S
    while found["state"] == "starting" and monotonic() < deadline:
        sleep(0.2)
        found = api.get(_PATH)
    return found


def _show(found: Document, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    out.print(f"sample source: {state(found['state'])}")
    if found["state"] == "running":
        rate = f"{found['transactions_per_second']:g} transactions a second, {found['transactions']:,} so far"
        out.print(f"connection: {escape(found['connection'])}; {rate}")
    for name in ("reason", "remedy"):
        if found.get(name):
            err.print(escape(found[name]))
