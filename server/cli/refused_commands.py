"""`refused`: lists the quarantined rows of a table, retries them, or marks them as skipped."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from server.cli.client import Api, segment
from server.cli.options import Subscription, server_command
from server.cli.output import Answer, out
from server.cli.output import table as print_table
from server.cli.table_commands import TableName, table_path

refused = typer.Typer(help="Rows that the target refused: list, retry and skip them.", no_args_is_help=True)

_ASKED_S = 60.0
"""Many rows may be tried one by one."""
Row = Annotated[str | None, typer.Option("--row", help="Id of one row; without it, all quarantined rows.")]


@refused.command("list")
@server_command
def list_refused(api: Api, table: TableName, subscription: Subscription = None) -> Answer:
    """Refused rows of a table, with why the target did not take them."""
    found = list(api.items(f"{table_path(api, subscription, table)}/refused-rows"))
    rows = []
    for item in found:
        key = ", ".join("NULL" if value is None else value for value in item["key"])
        cause = item["cause"]
        rows.append([item["state"], item["operation"], escape(key), escape(cause["detail"]), item["id"]])
    return Answer({"refused_rows": found}, lambda: print_table(["state", "change", "key", "why", "id"], rows))


@refused.command("retry")
@server_command
def retry(api: Api, table: TableName, row: Row = None, subscription: Subscription = None) -> Answer:
    """Insert quarantined rows into their table. Rows that are rejected again stay quarantined, with the new cause."""
    return _act(api, f"{_path(api, subscription, table, row)}/retries", "are in the table")


@refused.command("skip")
@server_command
def skip(api: Api, table: TableName, row: Row = None, subscription: Subscription = None) -> Answer:
    """Mark quarantined rows as skipped: they stay out of their table. They remain listed, with the user."""
    return _act(api, f"{_path(api, subscription, table, row)}/skips", "are skipped")


def _path(api: Api, subscription: str | None, table: str, row: str | None) -> str:
    path = f"{table_path(api, subscription, table)}/refused-rows"
    return path if row is None else f"{path}/{segment(row)}"


def _act(api: Api, path: str, words: str) -> Answer:
    answer = api.post(path, timeout_s=_ASKED_S)
    line = f"{len(answer['done'])} rows {words}; {answer['rows_set_aside']} are in quarantine."
    return Answer(answer, lambda: out.print(line))
