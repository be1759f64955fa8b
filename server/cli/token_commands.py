"""`token create`, `token list`, `token configure`, `token revoke`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from rich.markup import escape

from server.cli.client import Api, Document, segment
from server.cli.manifest import ManifestError
from server.cli.options import named_values, server_command
from server.cli.output import Answer, err, out
from server.cli.output import table as print_table

tokens = typer.Typer(help="Access tokens, managed by administrators.", no_args_is_help=True)


class TokenRole(StrEnum):
    """Rights of the holder of a token."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    ENGINE = "engine"


TokenName = Annotated[str, typer.Argument(help="Name or id of the token.")]
SettingsSet = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting with which its SQL sessions begin, such as penstock.freshness=latest. Repeat for several.",
    ),
]
SettingsReset = Annotated[
    list[str] | None,
    typer.Option("--reset", metavar="NAME", help="A setting to remove. Repeat for several."),
]


@tokens.command("create")
@server_command
def create(
    api: Api,
    name: Annotated[str, typer.Argument(help="Who or what will use it.")],
    role: Annotated[TokenRole, typer.Option("--role", help="What it allows.")] = TokenRole.VIEWER,
    settings_set: SettingsSet = None,
) -> Answer:
    """Create a token and print it; it cannot be read again."""
    body: Document = {"name": name, "role": role.value}
    if settings_set:
        body["settings"] = named_values(settings_set)
    made = api.post("/tokens", body)

    def show() -> None:
        err.print("[dim]Shown only once:[/]")
        out.print(str(made["token"]), markup=False)

    return Answer(made, show)


@tokens.command("list")
@server_command
def list_tokens(api: Api) -> Answer:
    """Names, roles and settings of all tokens; never the tokens."""
    found = list(api.items("/tokens"))
    rows = [
        [escape(item["name"]), item["role"], _shown(item), item.get("created_at"), escape(item["id"])] for item in found
    ]
    return Answer({"tokens": found}, lambda: print_table(["name", "role", "settings", "created", "id"], rows))


@tokens.command("configure")
@server_command
def configure(
    api: Api,
    name: TokenName,
    settings_set: SettingsSet = None,
    settings_reset: SettingsReset = None,
) -> Answer:
    """Change the settings with which SQL sessions of a token begin."""
    if not settings_set and not settings_reset:
        raise ManifestError("name a setting with --set NAME=VALUE or --reset NAME")
    settings = named_values(settings_set)
    if twice := settings.keys() & set(settings_reset or []):
        raise ManifestError(f"{min(twice)} is in both --set and --reset")
    body: Document = {"settings": {**settings, **dict.fromkeys(settings_reset or [])}}
    answer = api.patch(f"/tokens/{segment(_id_of(api, name))}", body)

    def show() -> None:
        out.print(f"SQL sessions of {escape(answer['name'])} begin with: {_shown(answer) or 'the defaults'}.")

    return Answer(answer, show)


@tokens.command("revoke")
@server_command
def revoke(api: Api, name: TokenName) -> Answer:
    """Make a token useless from now on."""
    token_id = _id_of(api, name)
    api.delete(f"/tokens/{segment(token_id)}")
    return Answer({"id": token_id, "revoked": True}, lambda: out.print(f"Revoked {escape(name)}."))


def _id_of(api: Api, name: str) -> str:
    ids = [str(item["id"]) for item in api.items("/tokens") if name in (item["id"], item["name"])]
    if not ids:
        raise ManifestError(f"there is no token named {name!r}; 'penstock token list' lists them")
    return ids[0]


def _shown(token: Document) -> str:
    """The settings of a token on one line; empty if it has none."""
    return escape(", ".join(f"{name}={value}" for name, value in (token.get("settings") or {}).items()))
