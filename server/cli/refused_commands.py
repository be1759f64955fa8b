"""`refused`: lists the quarantined rows of a table, retries them, or marks them as skipped."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from server.cli.client import segment
from server.cli.options import AsJson, Subscription, Token, Url, open_api
from server.cli.output import out, print_json, reported
from server.cli.output import table as print_table
from server.cli.table_commands import TableName, table_path

refused = typer.Typer(
    help="Rows that the target did not take: list them, try them again, leave them out.", no_args_is_help=True
)

_ASKED_S = 60.0
"""Many rows may be tried one by one."""
Row = Annotated[str | None, typer.Option("--row", help="Id of one row; without it, all quarantined rows.")]


@refused.command("list")
@reported
def list_refused(
    table: TableName, subscription: Subscription = None, url: Url = None, token: Token = None, as_json: AsJson = False
) -> None:
    """Refused rows of a table, with why the target did not take them."""
    with open_api(url, token) as api:
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
@reported
def retry(
    table: TableName,
    row: Row = None,
    subscription: Subscription = None,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Put rows that stand aside into their table. What is refused again stays aside, with its new cause."""
    _deal("retries", "are in the table", table, row, subscription, url, token, as_json=as_json)


@refused.command("skip")
@reported
def skip(
    table: TableName,
    row: Row = None,
    subscription: Subscription = None,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Note that rows that stand aside are to stay out of their table. They stay on record, with who said so."""
    _deal("skips", "are to stay out of the table", table, row, subscription, url, token, as_json=as_json)


def _deal(
    what: str,
    words: str,
    table: str,
    row: str | None,
    subscription: str | None,
    url: str | None,
    token: str | None,
    *,
    as_json: bool,
) -> None:
    with open_api(url, token) as api:
        path = f"{table_path(api, subscription, table)}/refused-rows"
        path = path if row is None else f"{path}/{segment(row)}"
        answer = api.post(f"{path}/{what}", timeout_s=_ASKED_S)
    if as_json:
        print_json(answer)
        return
    out.print(f"{len(answer['done'])} rows {words}; {answer['rows_set_aside']} are in quarantine.")
