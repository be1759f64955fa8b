"""`tables`: lists the tables of a subscription with their states, and acts on one of them."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.markup import escape

from server.cli import options
from server.cli.client import Api, Document, segment
from server.cli.data_commands import explain, qualified_name
from server.cli.manifest import ManifestError
from server.cli.options import Subscription, chosen_subscription, server_command
from server.cli.output import Answer, err, out, state
from server.cli.output import table as print_table
from server.wording import format_seconds, format_share, format_size

tables = typer.Typer(help="Tables of a subscription with their states and copy progress.", invoke_without_command=True)

_ASKED_S = 60.0
"""Timeout of a retry: the engine first checks source and target."""
OptionsSet = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="An option of the table, with its value as JSON; null restores the default. Repeat for several.",
    ),
]
TableName = Annotated[str, typer.Argument(metavar="TABLE", help="schema.name on the source, or the table's id.")]


@tables.callback()
@server_command
def list_tables(api: Api, context: typer.Context, subscription: Subscription = None) -> Answer | None:
    """Tables of a subscription with their states and copy progress."""
    if context.invoked_subcommand is not None:
        return None
    name = chosen_subscription(api, subscription)
    found = list(api.items(f"/subscriptions/{segment(name)}/tables"))

    def show() -> None:
        rows = [
            [qualified_name(i), _how(i), *_copy(i.get("copied") or {}), verified(i), escape(i["id"])] for i in found
        ]
        print_table(["table", "state", "rows copied", "of size", "copy", "rows/s", "left", "verified", "id"], rows)
        explain(found)

    return Answer({"subscription": name, "tables": found}, show)


def _copy(copied: Document) -> list[str | None]:
    """Rows, bytes, share, rate and remaining time of a copy, as far as they are known."""
    count, total = copied.get("rows"), copied.get("total_rows")
    rows = None if count is None else f"{count:,}" if total in (None, count) else f"{count:,} of ~{total:,}"
    of_size = (
        f"{format_size(copied.get('bytes'))} of {format_size(copied['total_bytes'])}"
        if copied.get("total_bytes")
        else None
    )
    percent, rate, eta = copied.get("percent"), copied.get("rows_per_second"), copied.get("eta_seconds")
    return [
        rows,
        of_size,
        None if percent is None else format_share(percent / 100),
        None if rate is None else f"{rate:,.0f}",
        format_seconds(eta) if eta else None,
    ]


def _how(item: Document) -> str:
    """The table's state; `live` is green only while the table is actually followed."""
    assessment = item.get("health") or {}
    if item.get("state") == "live" and not assessment.get("following"):
        return "[yellow]live, not followed[/]"
    return state(item.get("state"))


def verified(item: Document) -> str | None:
    """When a table was last compared with its source, and what speaks against its result; None if it never was."""
    last, problem = item.get("verified"), item.get("verification_problem")
    if last is None:
        return "[yellow]not compared[/]" if problem else None
    if last["before_copy"]:
        return "[yellow]before its copy[/]"
    if not last["equal"]:
        return f"[red]different[/] {last['at']}"
    if last["overdue"]:
        return f"[yellow]overdue[/] {last['at']}"
    return str(last["at"]) if last.get("sample", 1) >= 1 else f"a sample of {format_share(last['sample'])} {last['at']}"


@tables.command("remove")
@server_command
def remove(
    api: Api,
    table: TableName,
    drop_target: Annotated[
        bool, typer.Option("--drop-target", help="Drop its table on the target too; by default it stays.")
    ] = False,
    subscription: Subscription = None,
) -> Answer:
    """Replicate a table no longer."""
    path = table_path(api, subscription, table)
    api.delete(path, target_table="drop" if drop_target else "keep")
    answer = api.get(path)
    fate = "is dropped as soon as the subscription runs" if drop_target else "stays"
    target = escape(f"{answer['target']['schema']}.{answer['target']['name']}")
    shown = answer.get("shared_into")
    if shown is not None and not drop_target:
        fate += f", and {qualified_name(shown)} still shows its rows"
    return Answer(answer, lambda: out.print(f"Removed {qualified_name(answer)}; {target} on the target {fate}."))


@tables.command("shared")
@server_command
def shared(
    api: Api,
    connection: Annotated[str, typer.Argument(metavar="TARGET", help="Name of the connection that is the target.")],
) -> Answer:
    """Shared tables of a target, with the tables whose rows each shows."""
    found = list(api.items(f"/connections/{segment(connection)}/shared-tables"))
    rows = [
        [
            qualified_name(item),
            escape(f"{item['source_column']} = {member['source_value']}"),
            escape(member["subscription"]),
            qualified_name(member["target"]),
            state(member["state"]),
            member.get("position"),
        ]
        for item in found
        for member in item["members"]
    ]
    columns = ["shared table", "rows where", "subscription", "stored in", "state", "position"]
    return Answer({"target": connection, "shared_tables": found}, lambda: print_table(columns, rows))


@tables.command("reload")
@server_command
def reload(
    api: Api,
    table: TableName,
    partition: Annotated[
        list[str] | None,
        typer.Option(
            "--partition", metavar="NAME", help="Reload only this partition, schema.name on the source; repeatable."
        ),
    ] = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="Reload only the partitions whose rows differ from the source's.")
    ] = False,
    subscription: Subscription = None,
) -> Answer:
    """Copy a table, or some of its partitions, again; old rows stay readable until the new ones replace them."""
    if partition and changed:
        raise ManifestError("use either --partition or --changed, not both")
    body: Document = {"partitions": "changed"} if changed else {"partitions": partition} if partition else {}
    what = f"{', '.join(partition)} of {table}" if partition else table
    what = f"Every differing partition of {table}" if changed else what
    return _copied_again(api, f"{table_path(api, subscription, table)}/reloads", body, what)


@tables.command("partitions")
@server_command
def partitions(api: Api, table: TableName, subscription: Subscription = None) -> Answer:
    """A table's partitions on the source with their bounds, and when each was loaded."""
    answer = api.get(f"{table_path(api, subscription, table)}/partitions")
    rows = [
        [escape(p["name"]), escape(p["bound"]), p["generation"], p["reason"], p["loaded_at"], p["obstacle"]]
        for p in answer["partitions"]
    ]
    columns = ["partition", "bound", "generation", "reason", "loaded at", "not separately, because"]
    return Answer(answer, lambda: print_table(columns, rows))


@tables.command("retry")
@server_command
def retry(api: Api, table: TableName, subscription: Subscription = None) -> Answer:
    """Retry a parked table after its cause was corrected. If the cause remains, it is shown and nothing is changed."""
    return _copied_again(api, f"{table_path(api, subscription, table)}/retries", None, table)


@tables.command("add")
@server_command
def add(
    api: Api,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="schema.name on the source.")],
    target: Annotated[
        str | None, typer.Option("--target", metavar="TABLE", help="schema.name on the target; default: the same.")
    ] = None,
    options_set: OptionsSet = None,
    subscription: Subscription = None,
) -> Answer:
    """Replicate one more table. It is copied while the others are replicated."""
    body: Document = {**_options_body(options_set), **options.tables([table])[0], "exact": True}
    if target is not None:
        body["target"] = options.tables([target])[0]
    name = chosen_subscription(api, subscription)
    answer = api.post(f"/subscriptions/{segment(name)}/tables", body)
    return Answer(answer, lambda: out.print(f"{qualified_name(answer)} was added to {escape(name)}."))


@tables.command("configure")
@server_command
def configure(
    api: Api,
    table: TableName,
    options_set: OptionsSet = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show what the change would do, for example a new copy; change nothing.")
    ] = False,
    subscription: Subscription = None,
) -> Answer:
    """Change options of a table. A changed key, condition, mapping, mask, deletes or history means a new copy; --plan shows it before."""
    if not options_set:
        raise ManifestError("name an option with --set NAME=VALUE")
    path = table_path(api, subscription, table)
    if plan:
        planned = api.post(f"{path}/plans", _options_body(options_set))
        return Answer(planned, lambda: _show_plan(planned))
    answer = api.patch(path, _options_body(options_set))
    return Answer(answer, lambda: out.print(f"The options of {qualified_name(answer)} were changed."))


def _show_plan(plan: Document) -> None:
    rows = [
        [change["field"], *(escape(json.dumps(change[side])) for side in ("before", "after")), change["effect"]]
        for change in plan["fields"]
    ]
    print_table(["option", "before", "after", "effect"], rows)
    if plan["new_start"]:
        out.print("The subscription's run starts again.")


@tables.command("pause")
@server_command
def pause(api: Api, table: TableName, subscription: Subscription = None) -> Answer:
    """Apply no changes of a table; they are kept meanwhile, within a budget. The other tables continue."""
    return _wanted(api, subscription, table, "paused", "A pause")


@tables.command("resume")
@server_command
def resume(api: Api, table: TableName, subscription: Subscription = None) -> Answer:
    """Continue a paused table."""
    return _wanted(api, subscription, table, "running", "A resume")


def _wanted(api: Api, subscription: str | None, table: str, wanted: str, what: str) -> Answer:
    answer = api.patch(table_path(api, subscription, table), {"desired_state": wanted})
    line = f"{what} of {qualified_name(answer)} was requested; it is {answer['state']} now."
    return Answer(answer, lambda: out.print(line))


@tables.command("approve")
@server_command
def approve(
    api: Api,
    table: TableName,
    reason: Annotated[
        str | None,
        typer.Option("--reason", help="The table's reason as you read it; if another change now waits, it is refused."),
    ] = None,
    subscription: Subscription = None,
) -> Answer:
    """Approve the schema change that a table waits with. Without --reason, the waiting change is shown and confirmed first."""
    path = table_path(api, subscription, table)
    waiting = api.get(path).get("reason") if reason is None else reason
    if reason is None and waiting is not None:
        err.print(escape(str(waiting)))
        options.confirm("Make this change on the target?", yes=False, instead="--reason with this text")
    answer = api.post(f"{path}/approvals", {} if waiting is None else {"reason": waiting}, timeout_s=_ASKED_S)
    return Answer(answer, lambda: out.print(f"The change of {escape(table)} was approved."))


def _options_body(given: list[str] | None) -> Document:
    """`--set` options as members of a body. A value is JSON, or else text."""
    body: Document = {}
    for name, value in options.named_values(given).items():
        try:
            body[name] = json.loads(value)
        except ValueError:
            body[name] = value
    return body


def _copied_again(api: Api, path: str, body: Document | None, what: str) -> Answer:
    answer = api.post(path, body, timeout_s=_ASKED_S)
    line = f"{escape(what)} is copied again (reload {answer['id']}); its old rows stay readable until then."
    return Answer(answer, lambda: out.print(line))


def table_path(api: Api, subscription: str | None, table: str) -> str:
    """The path of the only table with this name, or of that with this id. Raises ManifestError if there is none."""
    name = chosen_subscription(api, subscription)
    path = f"/subscriptions/{segment(name)}/tables"
    if "." not in table:
        return f"{path}/{segment(table)}"
    wanted = options.tables([table])[0]
    found: list[Document] = list(api.items(path, **wanted))
    if not found:
        raise ManifestError(f"'{name}' has no table '{table}'; 'penstock tables' lists its tables")
    return f"{path}/{segment(str(found[0]['id']))}"
