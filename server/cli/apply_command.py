"""`apply FILE`: brings connections and subscriptions to what a file says."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from server.cli.client import Api, Document, segment
from server.cli.manifest import ManifestError, Resource, parse
from server.cli.options import AsJson, Token, Url, open_api
from server.cli.output import out, print_json, reported

_COLOURS = {"created": "green", "changed": "yellow", "unchanged": "dim"}


@reported
def apply(
    file: Annotated[Path, typer.Argument(help="YAML or JSON; '-' reads stdin. ${NAME} is an environment variable.")],
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Create or change connections and subscriptions as FILE says. Nothing is removed. Safe to repeat."""
    resources = parse(_read(file), os.environ)
    with open_api(url, token) as api:
        results = [apply_resource(api, resource) for resource in resources]
    if as_json:
        print_json({"results": results})
        return
    for result in results:
        colour = _COLOURS[result["result"]]
        fields = f" ({', '.join(result['fields'])})" if result["fields"] else ""
        out.print(f"[{colour}]{result['result']:>9}[/] {result['kind']} {escape(result['name'] + fields)}")


def apply_resource(api: Api, resource: Resource) -> Document:
    """PUT one resource. Tells whether it was created, changed (and in which fields) or was so already.

    Secrets are never returned, so a changed secret does not count as a change; the new value is set all the same.
    """
    path = f"/{resource.collection}/{segment(resource.name)}"
    before = api.find(path)
    after = api.put(path, resource.body)
    fields = [] if before is None else changed_fields(before, after)
    result = "created" if before is None else "changed" if fields else "unchanged"
    return {"kind": resource.collection[:-1], "name": resource.name, "result": result, "fields": fields}


_OBSERVED = frozenset(
    {
        "state",
        "state_since",
        "code",
        "reason",
        "remedy",
        "deleting",
        "positions",
        "lag",
        "retained_bytes",
        "table_states",
    }
    | {"slot", "secrets_set", "created_at", "updated_at"}
)


def changed_fields(before: Document, after: Document) -> list[str]:
    """Names of declared fields that differ; what the server observes does not count."""
    names = sorted((before.keys() | after.keys()) - _OBSERVED)
    return [name for name in names if before.get(name) != after.get(name)]


def _read(file: Path) -> str:
    if str(file) == "-":
        return sys.stdin.read()
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(f"{file} cannot be read: {_why(error)}") from error


def _why(error: Any) -> str:
    return str(getattr(error, "strerror", None) or "it is not UTF-8 text")
