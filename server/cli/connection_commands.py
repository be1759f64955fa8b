"""Commands about connections: `connections kinds`."""

from __future__ import annotations

import typer
from rich.markup import escape

from server.cli.client import Api
from server.cli.options import server_command
from server.cli.output import Answer, table

connections = typer.Typer(name="connections", help="What can be connected.", no_args_is_help=True)


@connections.callback()
def _group() -> None:
    pass


@connections.command("kinds")
@server_command
def kinds(api: Api) -> Answer:
    """Kinds of connections, their settings, and how changes are read from those that can be a source. With --json: the JSON schemas."""
    found = list(api.items("/connection-kinds"))
    rows = [
        [
            item["kind"],
            " or ".join(role for role in ("source", "target") if item[role]),
            ", ".join(capture["kind"] for capture in item["captures"]) or None,
            ", ".join(_marked(item["settings"])),
        ]
        for item in found
    ]
    return Answer(found, lambda: table(["kind", "as", "captures", "settings"], rows))


def _marked(schema: dict[str, dict[str, object]]) -> list[str]:
    """Names of settings as markup; those that can be left out are in brackets."""
    required = schema.get("required", {})
    return [name if name in required else escape(f"[{name}]") for name in schema["properties"]]
