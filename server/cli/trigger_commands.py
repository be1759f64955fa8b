"""Commands about the triggers that record a source's changes: `triggers show`, `plan`, `install`, `remove`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from server.cli import options
from server.cli.client import Api, Document, segment
from server.cli.data_commands import qualified_name
from server.cli.options import server_command
from server.cli.output import Answer, out
from server.cli.output import table as print_table

triggers = typer.Typer(
    name="triggers",
    help="Triggers that record a source's changes.",
    no_args_is_help=True,
)

Connection = Annotated[str, typer.Argument(help="Name of the source's connection.")]
Tables = Annotated[list[str] | None, typer.Option("--table", "-t", help="schema.name; repeat for several.")]


@triggers.command("show")
@server_command
def show(api: Api, connection: Connection) -> Answer:
    """The tables with triggers, and the statements that would bring them up to date and remove them."""
    found = api.get(_path(connection))
    return Answer(found, lambda: _print_found(connection, found, statements=True))


@triggers.command("plan")
@server_command
def plan(api: Api, connection: Connection, table: Tables = None) -> Answer:
    """The statements that `install` would run, with the locks that each takes and what it costs."""
    found = api.post(f"{_path(connection)}/plans", {"tables": options.tables(table)})
    return Answer(found, lambda: _print_plan(found))


@triggers.command("install")
@server_command
def install(api: Api, connection: Connection, table: Tables = None) -> Answer:
    """Install triggers on tables, or bring what is there up to date; as an admin."""
    found = api.put(_path(connection), {"tables": options.tables(table)})
    return Answer(found, lambda: _print_found(connection, found))


@triggers.command("remove")
@server_command
def remove(api: Api, connection: Connection) -> Answer:
    """Remove all triggers and the recorded changes, if no subscription reads them; as an admin."""
    found = api.delete(_path(connection))
    return Answer(found, lambda: _print_found(connection, found))


def _path(connection: str) -> str:
    return f"/connections/{segment(connection)}/change-triggers"


def _print_plan(found: Document) -> None:
    if not found["statements"]:
        out.print("Nothing has to be done.")
        return
    for statement in found["statements"]:
        out.print(
            f"-- locks: {statement['lock']}\n-- cost: {statement['cost']}", markup=False, soft_wrap=True, style="dim"
        )
        out.print(f"{statement['sql']};", markup=False, soft_wrap=True, highlight=False)
    out.print("\n-- If another role than the connection's user runs these, in addition:", style="dim")
    for grant in found["grants"]:
        out.print(f"{grant};", markup=False, soft_wrap=True, highlight=False)


def _print_found(connection: str, found: Document, *, statements: bool = False) -> None:
    version = "" if found.get("version") is None else f", layout {found['version']}"
    state = "not installed"
    if found["installed"]:
        state = "installed" if found["current"] else "[yellow]outdated or incomplete[/]"
    out.print(f"{escape(connection)}: {state}{version}")
    if found["tables"]:
        rows = [
            [qualified_name(t), escape(t["variant"]), "yes" if t["current"] else "[yellow]no[/]"]
            for t in found["tables"]
        ]
        print_table(["table", "recorded as", "current"], rows)
    for name in ("install", "remove") if statements else ():
        if found[f"{name}_sql"] and found["installed"]:
            out.print(f"\n[bold]{name}[/] would run:")
            out.print(";\n".join(found[f"{name}_sql"]) + ";", markup=False, soft_wrap=True, highlight=False)
