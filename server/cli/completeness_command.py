"""`completeness`: whether a table has everything up to a position or a time; for schedulers."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from server.cli.client import Api, Document
from server.cli.exit_codes import ExitCode
from server.cli.options import Subscription, server_command
from server.cli.output import Answer, err, out
from server.cli.table_commands import TableName, table_path
from server.wording import format_seconds


@server_command
def completeness(
    api: Api,
    table: TableName,
    until: Annotated[
        str, typer.Option("--until", help="A position like 0/16B3748, or a time like 2026-01-31T06:00:00Z.")
    ],
    subscription: Subscription = None,
) -> Answer:
    """Whether everything committed up to a position or a time is visible in a table. Exit code 0: it is; 4: not yet; 5: not until a user
    acts."""
    answer = api.get(f"{table_path(api, subscription, table)}/completeness", until=until)
    code = ExitCode.UNREACHABLE if answer["blocked"] else ExitCode.TIMEOUT
    return Answer(
        answer, lambda: _show(table, answer), lambda: _explain(answer), ExitCode.DONE if answer["complete"] else code
    )


def _show(table: str, answer: Document) -> None:
    verdict = "[green]complete[/]" if answer["complete"] else "[yellow]not complete[/]"
    out.print(f"{escape(table)} is {verdict} up to {escape(answer['until'])}")
    reached = answer["complete_to"]
    if reached["position"] is not None:
        moment = reached["time"] or "a time that is not known"
        out.print(f"it is complete up to {escape(reached['position'])}, and up to {escape(moment)}")


def _explain(answer: Document) -> None:
    if answer["reason"]:
        err.print(escape(answer["reason"]))
    if answer["estimate_ms"] is not None:
        err.print(f"estimate: {format_seconds(answer['estimate_ms'] / 1000)}")
    if answer["remedy"]:
        err.print(f"  [green]→[/] {escape(answer['remedy'])}")
