"""`sample`: a small PostgreSQL under a light load, run by the server, as a source for first experiments."""

from __future__ import annotations

from time import monotonic, sleep

import typer
from rich.markup import escape

from server.cli.client import Api, Document
from server.cli.exit_codes import ExitCode
from server.cli.options import server_command
from server.cli.output import Answer, err, out, state

sample = typer.Typer(
    name="sample",
    help="A small PostgreSQL under a light load, run by the server, as a source for first experiments.",
    no_args_is_help=True,
)

_PATH = "/sample-source"
_START_TIMEOUT_S = 120.0


@sample.command("start")
@server_command
def start(api: Api) -> Answer:
    """Start it and wait until it runs. Exit code 7: it failed."""
    found = _started(api, api.put(_PATH, {}))
    return _answer(found, ExitCode.DONE if found["state"] == "running" else ExitCode.PIPELINE)


@sample.command("show")
@server_command
def show(api: Api) -> Answer:
    """How it is."""
    return _answer(api.get(_PATH))


@sample.command("remove")
@server_command
def remove(api: Api) -> Answer:
    """Stop it, and delete its database and its connection. Its subscriptions have to be deleted before."""
    api.delete(_PATH)
    return _answer(api.get(_PATH))


def _started(api: Api, found: Document) -> Document:
    deadline = monotonic() + _START_TIMEOUT_S
    while found["state"] == "starting" and monotonic() < deadline:
        sleep(0.2)
        found = api.get(_PATH)
    return found


def _answer(found: Document, exit_code: ExitCode = ExitCode.DONE) -> Answer:
    return Answer(found, lambda: _show(found), exit_code=exit_code)


def _show(found: Document) -> None:
    out.print(f"sample source: {state(found['state'])}")
    if found["state"] == "running":
        rate = f"{found['transactions_per_second']:g} transactions a second, {found['transactions']:,} so far"
        out.print(f"connection: {escape(found['connection'])}; {rate}")
    for name in ("reason", "remedy"):
        if found.get(name):
            err.print(escape(found[name]))
