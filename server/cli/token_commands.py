"""`token create`, `token list`, `token revoke`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from rich.markup import escape

from server.cli.client import Api, segment
from server.cli.manifest import ManifestError
from server.cli.options import server_command
from server.cli.output import Answer, err, out
from server.cli.output import table as print_table

tokens = typer.Typer(help="Access tokens, managed by administrators.", no_args_is_help=True)


class TokenRole(StrEnum):
    """Rights of the holder of a token."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    ENGINE = "engine"


@tokens.command("create")
@server_command
def create(
    api: Api,
    name: Annotated[str, typer.Argument(help="Who or what will use it.")],
    role: Annotated[TokenRole, typer.Option("--role", help="What it allows.")] = TokenRole.VIEWER,
) -> Answer:
    """Create a token and print it; it cannot be read again."""
    made = api.post("/tokens", {"name": name, "role": role.value})

    def show() -> None:
        err.print("[dim]Shown only once:[/]")
        out.print(str(made["token"]), markup=False)

    return Answer(made, show)


@tokens.command("list")
@server_command
def list_tokens(api: Api) -> Answer:
    """Names and roles of all tokens; never the tokens."""
    found = list(api.items("/tokens"))
    rows = [[escape(item["name"]), item["role"], item.get("created_at"), escape(item["id"])] for item in found]
    return Answer({"tokens": found}, lambda: print_table(["name", "role", "created", "id"], rows))


@tokens.command("revoke")
@server_command
def revoke(api: Api, name: Annotated[str, typer.Argument(help="Name or id of the token.")]) -> Answer:
    """Make a token useless from now on."""
    ids = [str(item["id"]) for item in api.items("/tokens") if name in (item["id"], item["name"])]
    if not ids:
        raise ManifestError(f"there is no token named {name!r}; 'penstock token list' lists them")
    api.delete(f"/tokens/{segment(ids[0])}")
    return Answer({"id": ids[0], "revoked": True}, lambda: out.print(f"Revoked {escape(name)}."))
