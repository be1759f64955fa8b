"""Commands about connections: `connections list`, `check`, `tables`, `delete`, `kinds`."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer
from rich.markup import escape

from server.cli.client import Api, Document, segment
from server.cli.exit_codes import ExitCode
from server.cli.options import TableNames, Yes, confirm, server_command, tables
from server.cli.output import Answer, out, remedy_line, setting_text, state, table

connections = typer.Typer(
    name="connections",
    help="Connections to databases, checks of them, and what can be connected.",
    no_args_is_help=True,
)

_ASKED_S = 60.0
"""Timeout of a check: the engine contacts the database."""


@connections.callback()
def _group() -> None:
    pass


@connections.command("kinds")
@server_command
def kinds(api: Api) -> Answer:
    """Kinds of connections, their settings, and how changes are read from those that can be a source. With --json: the JSON schemas."""
    found = list(api.items("/connection-kinds"))
    rows = [
        [
            item["kind"],
            " or ".join(role for role in ("source", "target") if item[role]),
            ", ".join(capture["kind"] for capture in item["captures"]) or None,
            ", ".join(_marked(item["settings"])),
        ]
        for item in found
    ]
    return Answer(found, lambda: table(["kind", "as", "captures", "settings"], rows))


Name = Annotated[str, typer.Argument(metavar="CONNECTION", help="Name of the connection.")]


class CheckedRole(StrEnum):
    """Intended use of a connection."""

    SOURCE = "source"
    TARGET = "target"


@connections.command("list")
@server_command
def list_connections(api: Api) -> Answer:
    """Connections with their kinds and settings; never their secrets."""
    found = list(api.items("/connections"))
    rows = []
    for item in found:
        settings = ", ".join(f"{name}={setting_text(value)}" for name, value in item["settings"].items())
        rows.append([escape(item["name"]), item["kind"], escape(settings)])
    return Answer({"connections": found}, lambda: table(["connection", "kind", "settings"], rows))


@connections.command("check")
@server_command
def check(
    api: Api,
    connection: Name,
    role: Annotated[
        CheckedRole | None, typer.Option("--role", help="Intended use; default: source, if the kind can be one.")
    ] = None,
    table_names: TableNames = None,
    publication: Annotated[
        str | None, typer.Option("--publication", help="Existing publication that the subscription will name.")
    ] = None,
    slot: Annotated[
        str | None, typer.Option("--slot", help="Existing replication slot that the subscription will name.")
    ] = None,
    capture: Annotated[
        str | None,
        typer.Option(
            "--capture", help="Intended capture of a source: its kind, or an object as in a subscription, in JSON."
        ),
    ] = None,
) -> Answer:
    """Contact the database, and check what replication needs there. Exit code 1: a finding is an error."""
    body: Document = {} if role is None else {"role": role.value}
    if table_names:
        body["tables"] = tables(table_names)
    named = {name: text for name, text in (("publication", publication), ("slot", slot)) if text is not None}
    if named or capture:
        body["capture"] = {**(_capture(capture) if capture else {}), **named}
    answer = api.post(f"{_path(connection)}/checks", body, timeout_s=_ASKED_S)
    code = ExitCode.DONE if answer["ok"] else ExitCode.DIFFERENT
    return Answer(answer, lambda: _show_findings(connection, answer["findings"]), exit_code=code)


def _capture(text: str) -> Document:
    """The kind, or the object."""
    if not text.lstrip().startswith("{"):
        return {"kind": text}
    try:
        found: Document = json.loads(text)
    except json.JSONDecodeError as error:
        raise typer.BadParameter(f"--capture: {error}") from None
    return found


def _show_findings(connection: str, findings: list[Document]) -> None:
    if not findings:
        out.print(f"{escape(connection)}: nothing was found.")
    for item in findings:
        out.print(f"{state(item['severity'])} {escape(item['code'])}: {escape(item['what'])}")
        if item.get("remedy"):
            out.print(f"  {remedy_line(item)}")
        for statement in item.get("sql") or []:
            out.print(f"    {escape(statement)};")


@connections.command("tables")
@server_command
def list_tables(
    api: Api,
    connection: Name,
    capture: Annotated[
        str | None,
        typer.Option("--capture", help="Intended kind of capture. query_diff lists views of PostgreSQL too."),
    ] = None,
) -> Answer:
    """Tables that a source has, with their keys."""
    asked = {} if capture is None else {"capture": capture}
    found = list(api.items(f"{_path(connection)}/tables", **asked))
    rows = [
        [
            escape(f"{item['schema']}.{item['name']}"),
            escape(", ".join(item.get("key") or [])) or None,
            item.get("rows_estimate"),
            escape("; ".join(problem["what"] for problem in item.get("problems") or [])) or None,
        ]
        for item in found
    ]
    columns = ["table", "key", "rows, estimated", "problems"]
    return Answer({"connection": connection, "tables": found}, lambda: table(columns, rows))


@connections.command("delete")
@server_command
def delete(api: Api, connection: Name, yes: Yes = False) -> Answer:
    """Delete a connection that no subscription uses, with its secrets. The database is not contacted."""
    api.get(_path(connection))
    confirm(f"Delete the connection {connection} with its secrets?", yes=yes)
    api.delete(_path(connection))
    return Answer({"name": connection, "deleted": True}, lambda: out.print(f"{escape(connection)} was deleted."))


def _path(connection: str) -> str:
    return f"/connections/{segment(connection)}"


def _marked(schema: dict[str, dict[str, object]]) -> list[str]:
    """Names of settings as markup; those that can be left out are in brackets."""
    required = schema.get("required", {})
    return [name if name in required else escape(f"[{name}]") for name in schema["properties"]]
