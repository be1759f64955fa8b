"""Commands about the event triggers for schema changes in a source: `ddl-capture show`, `install`, `remove`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from server.cli.client import Api, Document, segment
from server.cli.options import server_command
from server.cli.output import Answer, out

ddl_capture = typer.Typer(
    name="ddl-capture",
    help="Event triggers that report DDL in a source's log.",
    no_args_is_help=True,
)

Connection = Annotated[str, typer.Argument(help="Name of the source's connection.")]


@ddl_capture.command("show")
@server_command
def show(api: Api, connection: Connection) -> Answer:
    """What is installed, and the statements that `install` or `remove` would run."""
    found = api.get(_path(connection))
    return Answer(found, lambda: _print_statements(connection, found))


@ddl_capture.command("install")
@server_command
def install(api: Api, connection: Connection) -> Answer:
    """Install the event triggers, or bring them up to date; as an admin, with a superuser of the source."""
    found = api.put(_path(connection), {})
    return Answer(found, lambda: _print_capture(connection, found))


@ddl_capture.command("remove")
@server_command
def remove(api: Api, connection: Connection) -> Answer:
    """Remove the event triggers and all that came with them; as an admin."""
    found = api.delete(_path(connection))
    return Answer(found, lambda: _print_capture(connection, found))


def _path(connection: str) -> str:
    return f"/connections/{segment(connection)}/ddl-capture"


def _print_statements(connection: str, found: Document) -> None:
    _print_capture(connection, found)
    parts = (
        ("install", found["install_sql"], not found["current"]),
        ("remove", found["remove_sql"], found["installed"]),
    )
    for name, statements, wanted in parts:
        if wanted:
            out.print(f"\n[bold]{name}[/] would run, in one transaction:")
            out.print(escape(";\n".join(["BEGIN", *statements, "COMMIT"]) + ";"), soft_wrap=True, highlight=False)


def _print_capture(connection: str, found: Document) -> None:
    version = "" if found.get("version") is None else f", version {found['version']}"
    state = (
        "installed"
        if found["current"]
        else "[yellow]outdated or incomplete[/]"
        if found["installed"]
        else "not installed"
    )
    out.print(f"{escape(connection)}: {state}{version}")
