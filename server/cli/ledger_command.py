"""`ledger`: the outcome of each captured change."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.markup import escape

from server.cli.client import Api, Document, segment
from server.cli.data_commands import qualified_name
from server.cli.options import Subscription, chosen_subscription, server_command
from server.cli.output import Answer
from server.cli.output import table as print_table

_COUNTS = (
    "captured", "retained", "applied", "netted", "filtered", "quarantined", "rolled_back", "known", "held", "parked",
)  # fmt: skip
_SHOWN = 20
_MOST = 10_000


@server_command
def ledger(
    api: Api,
    batches: Annotated[int, typer.Option("--batches", min=1, max=_MOST, help="Number of last batches.")] = _SHOWN,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header line.")] = False,
    subscription: Subscription = None,
) -> Answer:
    """The outcome of each captured change, by batch and table, the newest batch first: applied, replaced by later changes, quarantined
    and so on. In each line, captured + retained is the sum of the other counts."""
    name = chosen_subscription(api, subscription)
    path = f"/subscriptions/{segment(name)}"
    lines = api.get(f"{path}/ledger", batches=batches)["lines"]
    if as_csv:
        columns = ["batch", "epoch", "end", "committed_at", "table_id", *_COUNTS]
        return Answer({"subscription": name, "lines": lines}, lambda: _print_csv(columns, lines))
    names = {table["id"]: qualified_name(table) for table in api.items(f"{path}/tables")}

    def show() -> None:
        shown = [count for count in _COUNTS if any(line[count] for line in lines)]
        rows = [
            [str(line["batch"]), line["end"], escape(names.get(line["table_id"], line["table_id"])),
             *(str(line[count]) for count in shown)]
            for line in lines
        ]  # fmt: skip
        print_table(["batch", "end", "table", *shown], rows)

    return Answer({"subscription": name, "lines": lines}, show)


def _print_csv(columns: Sequence[str], lines: Sequence[Document]) -> None:
    writer = csv.DictWriter(sys.stdout, columns)
    writer.writeheader()
    writer.writerows(lines)
