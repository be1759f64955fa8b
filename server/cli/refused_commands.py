"""`refused`: lists the quarantined rows of a table, retries them, or marks them as skipped."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from server.cli.client import Api, Document, segment
from server.cli.options import AsJson, Subscription, server_command
from server.cli.output import out, print_json
from server.cli.output import table as print_table
from server.cli.table_commands import TableName, table_path

refused = typer.Typer(help="Rows that the target refused: list, retry and skip them.", no_args_is_help=True)

_ASKED_S = 60.0
"""Many rows may be tried one by one."""
Row = Annotated[str | None, typer.Option("--row", help="Id of one row; without it, all quarantined rows.")]


@refused.command("list")
@server_command
def list_refused(api: Api, table: TableName, subscription: Subscription = None, as_json: AsJson = False) -> None:
    """Refused rows of a table, with why the target did not take them."""
    found = list(api.items(f"{table_path(api, subscription, table)}/refused-rows"))
    if as_json:
        print_json({"refused_rows": found})
        return
    rows = []
    for item in found:
        key = ", ".join("NULL" if value is None else value for value in item["key"])
        cause = item["cause"]
        rows.append([item["state"], item["operation"], escape(key), escape(cause["detail"]), item["id"]])
    print_table(["state", "change", "key", "why", "id"], rows)


@refused.command("retry")
@server_command
def retry(
    api: Api, table: TableName, row: Row = None, subscription: Subscription = None, as_json: AsJson = False
) -> None:
    """Insert quarantined rows into their table. Rows that are rejected again stay quarantined, with the new cause."""
    answer = api.post(f"{_path(api, subscription, table, row)}/retries", timeout_s=_ASKED_S)
    _show(answer, "are in the table", as_json=as_json)


@refused.command("skip")
@server_command
def skip(
    api: Api, table: TableName, row: Row = None, subscription: Subscription = None, as_json: AsJson = False
) -> None:
    """Mark quarantined rows as skipped: they stay out of their table. They remain listed, with the user."""
    answer = api.post(f"{_path(api, subscription, table, row)}/skips", timeout_s=_ASKED_S)
    _show(answer, "are skipped", as_json=as_json)


def _path(api: Api, subscription: str | None, table: str, row: str | None) -> str:
    path = f"{table_path(api, subscription, table)}/refused-rows"
    return path if row is None else f"{path}/{segment(row)}"


def _show(answer: Document, words: str, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    out.print(f"{len(answer['done'])} rows {words}; {answer['rows_set_aside']} are in quarantine.")
