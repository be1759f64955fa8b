"""`subscriptions`: reload, pause, resume and delete a subscription."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from server.cli.client import Api, Document, segment
from server.cli.options import Yes, chosen_subscription, confirm, server_command
from server.cli.output import Answer, out

subscriptions = typer.Typer(
    help="Reload, pause, resume and delete a subscription; `apply` creates and changes them.", no_args_is_help=True
)

Name = Annotated[str | None, typer.Argument(metavar="NAME", help="Name of the subscription; default: the only one.")]


@subscriptions.command("reload")
@server_command
def reload(api: Api, name: Name = None) -> Answer:
    """Copy all tables again; old rows stay readable until the new ones replace them. A lost slot is created again."""
    chosen = chosen_subscription(api, name)
    answer = api.post(f"{_path(chosen)}/reloads")
    line = (
        f"All tables of {escape(chosen)} are copied again (reload {answer['id']}); old rows stay readable until then."
    )
    return Answer(answer, lambda: out.print(line))


@subscriptions.command("pause")
@server_command
def pause(api: Api, name: Name = None) -> Answer:
    """Apply no changes to any of its tables; the source keeps its log meanwhile, within the slot's budget."""
    return _wanted(api, name, "paused", "A pause")


@subscriptions.command("resume")
@server_command
def resume(api: Api, name: Name = None) -> Answer:
    """Continue a paused, stopped or failed subscription from the target's position."""
    return _wanted(api, name, "running", "A resume")


def _wanted(api: Api, name: str | None, state: str, what: str) -> Answer:
    chosen = chosen_subscription(api, name)
    answer = api.patch(_path(chosen), {"desired_state": state})
    return Answer(answer, lambda: out.print(f"{what} of {escape(chosen)} was requested; it is {answer['state']} now."))


@subscriptions.command("delete")
@server_command
def delete(
    api: Api,
    name: Annotated[str, typer.Argument(help="Name of the subscription.")],
    force: Annotated[
        bool, typer.Option("--force", help="Do not wait for the engine; an event names what may remain on the source.")
    ] = False,
    yes: Yes = False,
) -> Answer:
    """Delete a subscription with its slot and publications. The target's tables and the connections stay."""
    api.get(_path(name))
    confirm(f"Delete the subscription {name}? Its place in the source's log and its history are lost.", yes=yes)
    answer: Document = api.delete(_path(name), **({"force": "true"} if force else {}))
    done = "was deleted" if not answer else "is deleted as soon as the engine has dropped its slot and publications"
    return Answer(answer or {"name": name, "deleted": True}, lambda: out.print(f"{escape(name)} {done}."))


def _path(name: str) -> str:
    return f"/subscriptions/{segment(name)}"
