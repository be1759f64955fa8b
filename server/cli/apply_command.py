"""`apply FILE`: makes connections, subscriptions and alert channels match a file. `export`: writes such a file from the present ones."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from pydantic import TypeAdapter
from rich.markup import escape

from server.cli.client import Api, Document, ProblemError, segment
from server.cli.manifest import DECLARED, ManifestError, Resource, parse, path_of
from server.cli.options import AsJson, server_command
from server.cli.output import Answer, out, print_json, setting_text

_COLOURS = {
    "created": "green",
    "changed": "yellow",
    "unchanged": "dim",
    "added": "green",
    "removed": "red",
    "kept": "dim",
}
_EXAMPLE = """
connections:
  shop:
    kind: postgres
    settings: {host: db.internal, port: 5432, database: shop, user: penstock}
    secrets: {password: "${SHOP_PASSWORD}"}
  mart:
    kind: duckdb
    settings: {path: /var/lib/penstock/mart.duckdb}
subscriptions:
  shop:
    source: shop
    target: mart
    tables:
      - {schema: public, name: orders}
      - {schema: public, name: events, insert_only: true}
      - {schema: sales, name: "*"}
alert_channels:
  ops:
    kind: webhook
    settings: {url: "https://ops.internal/penstock"}
    secrets: {signing_key: "${ALERT_OPS_SIGNING_KEY}"}
"""
HELP = f"""Create or change connections, subscriptions and alert channels as FILE says, after printing what that changes. Safe to repeat.

What FILE does not name stays as it is. Tables that a subscription in FILE does not name stay in it,
unless --prune is given; the rows of a table that leaves stay on the target. 'penstock export' writes such a file.

Example of a file:

\b{_EXAMPLE}"""
EXPORT_HELP = """Print connections, subscriptions and alert channels as a file for 'penstock apply'.

Secrets are not printed: each becomes the name of an environment variable, which 'apply' reads."""


@server_command
def apply(
    api: Api,
    file: Annotated[Path, typer.Argument(help="YAML or JSON; '-' reads stdin. ${NAME} is an environment variable.")],
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Remove tables that FILE leaves out from the subscriptions that it declares."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and change nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """The command; its help is `HELP`."""
    resources = parse(_read(file), os.environ)
    plans = plans_of(api, resources, prune=prune)
    if not as_json:
        for resource, plan in zip(resources, plans, strict=True):
            _show(resource, plan, prune=prune)
    if not dry_run:
        for resource, plan in zip(resources, plans, strict=True):
            _put(api, resource, plan, prune=prune)
    if as_json:
        results = [_result(resource, plan) for resource, plan in zip(resources, plans, strict=True)]
        print_json({"dry_run": dry_run, "results": results})
    elif dry_run:
        out.print("[dim]Nothing was changed (--dry-run).[/]")


@server_command
def export(api: Api) -> Answer:
    """The command; its help is `EXPORT_HELP`."""
    document = {
        collection: {item["name"]: _body(collection, item) for item in api.items(path_of(collection))}
        for collection in DECLARED
    }
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)
    return Answer(document, lambda: typer.echo(text, nl=False))


def plans_of(api: Api, resources: Sequence[Resource], *, prune: bool) -> list[Document]:
    """The server's plans for a PUT of each resource.

    The server cannot plan what names a connection that does not exist yet: a subscription with it is new, and a connection of which it is a
    node is new or changed.
    """
    plans: list[Document] = []
    new: set[str] = set()
    for resource in resources:
        if resource.collection == "subscriptions" and new & {resource.body.get("source"), resource.body.get("target")}:
            plans.append({"result": "created", "fields": [], "tables": _named(resource), "etag": None})
            continue
        if new & set(resource.nodes):
            plans.append(_plan_with_new_nodes(api, resource))
            if plans[-1]["result"] == "created":
                new.add(resource.name)
            continue
        answer = api.send("POST", f"{_path(resource)}/plans", resource.body, query=_keep(resource, prune=prune))
        plan: Document = answer.json()
        if resource.collection == "connections" and plan["result"] == "created":
            new.add(resource.name)
        plans.append(plan)
    return plans


def _plan_with_new_nodes(api: Api, resource: Resource) -> Document:
    """The plan of a connection with nodes that the same file makes. Its secrets are not compared."""
    try:
        answer = api.send("GET", _path(resource))
    except ProblemError as problem:
        if problem.status != 404:
            raise
        return {"result": "created", "fields": [], "secrets": sorted(resource.body.get("secrets") or {}), "etag": None}
    before, after = answer.json()["settings"].get("nodes"), resource.body["settings"]["nodes"]
    change = {"field": "settings.nodes", "before": before, "after": after}
    return {"result": "changed", "fields": [change], "secrets": [], "etag": answer.headers["ETag"]}


def _put(api: Api, resource: Resource, plan: Document, *, prune: bool) -> None:
    """PUT the resource as planned; refused if it was changed since."""
    condition = {"If-Match": plan["etag"]} if plan.get("etag") else {"If-None-Match": "*"}
    api.send("PUT", _path(resource), resource.body, query=_keep(resource, prune=prune), headers=condition)


def _path(resource: Resource) -> str:
    return f"{path_of(resource.collection)}/{segment(resource.name)}"


def _keep(resource: Resource, *, prune: bool) -> dict[str, str]:
    return {"keep_tables": "true"} if resource.collection == "subscriptions" and not prune else {}


def _named(resource: Resource) -> list[Document]:
    tables = resource.body.get("tables")
    return [
        {"schema": table.get("schema"), "name": table.get("name"), "action": "added"}
        for table in (tables if isinstance(tables, list) else [])
        if isinstance(table, dict)
    ]


def _show(resource: Resource, plan: Document, *, prune: bool) -> None:
    kind = resource.kind.replace("_", " ")
    out.print(f"{_word(plan['result'], 9)} {kind} {escape(resource.name)}")
    for change in plan.get("fields", []):
        out.print(f"            {escape(change['field'])}: {_value(change['before'])} → {_value(change['after'])}")
    for name in plan.get("secrets", []):
        out.print(f"            secret {escape(name)} is set")
    kept = 0
    for table in plan.get("tables", []):
        kept += table["action"] == "kept"
        if table["action"] != "kept":
            name = escape(f"{table['schema']}.{table['name']}")
            what = "; its rows stay on the target" if table["action"] == "removed" else ""
            out.print(f"  {_word(table['action'], 9)} table {name}{what}")
    if kept and not prune:
        out.print(f"            tables kept that the file leaves out: {kept}; --prune removes them")


def _word(word: str, width: int) -> str:
    return f"[{_COLOURS[word]}]{word:>{width}}[/]"


def _value(value: Any) -> str:
    return escape("none" if value is None else setting_text(value))


def _result(resource: Resource, plan: Document) -> Document:
    tables = plan.get("tables", [])
    touched = [table for table in tables if table["action"] != "kept"]
    fields = sorted({change["field"].partition(".")[0] for change in plan.get("fields", [])})
    if plan["result"] == "changed" and touched:
        fields.append("tables")
    if plan["result"] == "changed" and plan.get("secrets"):
        fields.append("secrets")
    shown = {"tables": tables} if resource.collection == "subscriptions" else {}
    return {
        "kind": resource.kind,
        "name": resource.name,
        "result": plan["result"],
        "fields": fields,
        "changes": plan.get("fields", []),
        **shown,
    }


def _body(collection: str, item: Document) -> Document:
    """The body for a PUT of a resource, without members that have their default."""
    from engine.connectors import DEFAULT_CAPTURE  # noqa: PLC0415  the other commands start faster without them
    from server.alerts.schemas import AlertChannelPut  # noqa: PLC0415
    from server.declarations.policies import POLICIES  # noqa: PLC0415
    from server.declarations.table_body import TableBody  # noqa: PLC0415

    body = {name: item[name] for name in DECLARED[collection] if item.get(name) is not None}
    if collection == "subscriptions":
        kind = body["capture"]["kind"]
        body |= {name: _said(policy, body[name]) for name, policy in POLICIES.items() if name in body}
        if kind != DEFAULT_CAPTURE:
            # The default of its own class; a document without a kind is read as the usual one.
            body["capture"] = {"kind": kind, **body["capture"]}
        if not body["staging"]:
            del body["staging"]
        body["tables"] = [_said(TypeAdapter(TableBody), table) for table in body["tables"]]
    if collection == "alert_channels":
        body = _said(TypeAdapter(AlertChannelPut), body)
    body = _literal(body)
    if item.get("secrets_set"):
        owner = f"alert_{item['name']}" if collection == "alert_channels" else item["name"]
        body["secrets"] = {name: f"${{{_variable(owner, name)}}}" for name in item["secrets_set"]}
    return {name: value for name, value in body.items() if value != {}}


def _said(shape: TypeAdapter[Any], document: Document) -> Document:
    said: Document = shape.validate_python(document).model_dump(by_alias=True, exclude_defaults=True, mode="json")
    return said


def _literal(value: Any) -> Any:
    """The value with `${` escaped in all its strings, so that none is read as a variable."""
    if isinstance(value, dict):
        return {name: _literal(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_literal(inner) for inner in value]
    return value.replace("${", "$${") if isinstance(value, str) else value


def _variable(owner: str, secret: str) -> str:
    name = re.sub(r"\W", "_", f"{owner}_{secret}", flags=re.ASCII).upper()
    return f"_{name}" if name[0].isdigit() else name


def _read(file: Path) -> str:
    if str(file) == "-":
        return sys.stdin.read()
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(f"{file} cannot be read: {_why(error)}") from error


def _why(error: Any) -> str:
    return str(getattr(error, "strerror", None) or "it is not UTF-8 text")
