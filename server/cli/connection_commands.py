"""Commands about connections: `connections kinds`."""

from __future__ import annotations

import typer
from rich.markup import escape

from server.cli.options import AsJson, Token, Url, open_api
from server.cli.output import print_json, reported, table

connections = typer.Typer(name="connections", help="What can be connected.", no_args_is_help=True)


@connections.callback()
def _group() -> None:
    pass


@connections.command("kinds")
@reported
def kinds(url: Url = None, token: Token = None, as_json: AsJson = False) -> None:
    """Kinds of connections, their settings, and how changes are read from those that can be a source. With --json: the JSON schemas."""
    with open_api(url, token) as api:
        found = list(api.items("/connection-kinds"))
    if as_json:
        print_json(found)
        return
    table(
        ["kind", "as", "captures", "settings"],
        [
            [
                item["kind"],
                " or ".join(role for role in ("source", "target") if item[role]),
                ", ".join(capture["kind"] for capture in item["captures"]) or None,
                ", ".join(_marked(item["settings"])),
            ]
            for item in found
        ],
    )


def _marked(schema: dict[str, dict[str, object]]) -> list[str]:
    """Names of settings as markup; those that can be left out are in brackets."""
    required = schema.get("required", {})
    return [name if name in required else escape(f"[{name}]") for name in schema["properties"]]
