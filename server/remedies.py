"""The operations that remedies name: as data for programs, and as commands for people. One table; pure.

A remedy is text for users of the REST interface. Its operations are found in it by the exact words of `OPERATIONS`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

from pydantic import BaseModel, Field, PrivateAttr, model_validator

LATE_NODE_REMEDY = (
    "Look at the node: whether it runs, its load, its open and prepared transactions, and its network to the engine."
)
"""What to do about a node that others wait for."""


class RemedyAction(BaseModel):
    """An operation that a remedy names."""

    action: str = Field(description="Stable name of the operation.", examples=["table.reload"])
    arguments: dict[str, str] = Field(
        description="Its arguments, as far as they are known: `subscription`, `table` (schema.name or id), `connection`.",
        examples=[{"subscription": "shop", "table": "public.orders"}],
    )
    command: str = Field(
        description="The operation as a command of the command line; unknown arguments are in capitals.",
        examples=["penstock tables reload public.orders -s shop"],
    )


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation in the words of each surface. `{subscription}`, `{table}` and `{connection}` are its arguments."""

    action: str
    operation_id: str
    """In the OpenAPI document."""
    command: str
    """Of the command line, without the first word."""
    texts: tuple[str, ...]
    """How remedies write it."""


_S = "/subscriptions/{subscription}"
_T = f"{_S}/tables/{{table}}"
_C = "/connections/{connection}"
_OF_TABLE = "{table} -s {subscription}"

OPERATIONS: tuple[Operation, ...] = (
    Operation("table.reload", "table_reloads_create", f"tables reload {_OF_TABLE}", (f"POST {_T}/reloads",)),
    Operation(
        "table.retry",
        "table_retries_create",
        f"tables retry {_OF_TABLE}",
        (f"POST {_T}/retries", "POST …/tables/{table}/retries"),
    ),
    Operation("table.approve", "table_approvals_create", f"tables approve {_OF_TABLE}", (f"POST {_T}/approvals",)),
    Operation(
        "table.partitions",
        "table_partitions_list",
        f"tables partitions {_OF_TABLE}",
        (f"GET {_T}/partitions", "GET …/partitions"),
    ),
    Operation("table.refused_rows", "refused_rows_list", f"refused list {_OF_TABLE}", (f"GET {_T}/refused-rows",)),
    Operation("table.list", "tables_list", "tables -s {subscription}", (f"GET {_S}/tables",)),
    Operation("subscription.reload", "reloads_create", "subscriptions reload {subscription}", (f"POST {_S}/reloads",)),
    Operation(
        "subscription.resume",
        "subscriptions_patch",
        "subscriptions resume {subscription}",
        ("set desired_state to running", "Set desired_state to running"),
    ),
    Operation("subscription.get", "subscriptions_get", "status --json", (f"GET {_S}",)),
    Operation("subscription.list", "subscriptions_list", "status", ("GET /subscriptions",)),
    Operation("connection.change", "connections_patch", "apply FILE", (f"PATCH {_C}",)),
    Operation("connection.list", "connections_list", "connections list", ("GET /connections",)),
    Operation("connection.tables", "connections_tables", "connections tables {connection}", (f"GET {_C}/tables",)),
    Operation("connection.kinds", "connection_kinds_list", "connections kinds", ("GET /connection-kinds",)),
    Operation(
        "ddl_capture.show", "connections_ddl_capture_get", "ddl-capture show {connection}", (f"GET {_C}/ddl-capture",)
    ),
    Operation(
        "ddl_capture.install",
        "connections_ddl_capture_put",
        "ddl-capture install {connection}",
        (f"PUT {_C}/ddl-capture",),
    ),
    Operation(
        "ddl_capture.remove",
        "connections_ddl_capture_delete",
        "ddl-capture remove {connection}",
        (f"DELETE {_C}/ddl-capture",),
    ),
    Operation("token.list", "tokens_list", "token list", ("GET /tokens",)),
    Operation("alert_channel.list", "alert_channels_list", "alerts list", ("GET /alert-channels",)),
)

_ARGUMENT = re.compile(r"\{(subscription|table|connection)\}")
_VERBS = {"set ": "run ", "Set ": "Run "}
"""A text that begins with a verb needs another one before a command; methods of HTTP need none."""
_VALUE = r"[A-Za-z0-9_.%-]*[A-Za-z0-9_%-]"


@cache
def _pattern() -> re.Pattern[str]:
    """Every text of the table; the name of the group is its number, `arg_…` those of its arguments."""
    texts = [text for operation in OPERATIONS for text in operation.texts]
    return re.compile("|".join(_expression(number, text) for number, text in enumerate(texts)))


def _expression(number: int, text: str) -> str:
    method, slash, path = text.partition(" /")
    parts = _ARGUMENT.split(f"{method} (?:/api/v1)?/{path}" if slash else text)
    for place in range(1, len(parts), 2):
        parts[place] = rf"(?:\{{\w+\}}|(?P<arg_{number}_{parts[place]}>{_VALUE}))"
    return f"(?P<text_{number}>{''.join(parts)})(?![/\\w-])"


@dataclass(frozen=True, slots=True)
class _Found:
    operation: Operation
    arguments: Mapping[str, str]
    """Those that the text itself names."""
    start: int
    end: int


def _found(remedy: str) -> Iterator[_Found]:
    texts = [operation for operation in OPERATIONS for _ in operation.texts]
    for match in _pattern().finditer(remedy):
        groups = {name: value for name, value in match.groupdict().items() if value is not None}
        number = next(name.removeprefix("text_") for name in groups if name.startswith("text_"))
        prefix = f"arg_{number}_"
        arguments = {name.removeprefix(prefix): value for name, value in groups.items() if name.startswith(prefix)}
        yield _Found(texts[int(number)], arguments, *match.span())


def arguments_of(operation: Operation) -> tuple[str, ...]:
    """Names of an operation's arguments."""
    return tuple(dict.fromkeys(name for text in operation.texts for name in _ARGUMENT.findall(text))) or tuple(
        _ARGUMENT.findall(operation.command)
    )


def actions_of(remedy: str | None, known: Mapping[str, str | None]) -> list[RemedyAction]:
    """The operations that a remedy names, in its order. `known`: arguments from where the remedy is shown."""
    actions: dict[str, RemedyAction] = {}
    for found in _found(remedy or ""):
        given = {**{name: value for name, value in known.items() if value is not None}, **found.arguments}
        arguments = {name: given[name] for name in arguments_of(found.operation) if name in given}
        action = RemedyAction(
            action=found.operation.action, arguments=arguments, command=_command(found.operation, arguments)
        )
        actions.setdefault(found.operation.action, action)
    return list(actions.values())


def in_commands(
    remedy: str, actions: Iterable[Mapping[str, Any]], known: Mapping[str, str | None] | None = None
) -> str:
    """The remedy with commands of the command line in place of operations of the REST interface.

    `actions`: as in the document that contains the remedy. `known`: further arguments. Unknown ones are shown in capitals.
    """
    listed = {item["action"]: item["arguments"] for item in actions}
    written, at = "", 0
    for found in _found(remedy):
        context = {name: value for name, value in (known or {}).items() if value is not None}
        arguments = {**context, **listed.get(found.operation.action, {}), **found.arguments}
        verb = _VERBS.get(remedy[found.start : found.start + 4], "")
        written += f"{remedy[at : found.start]}{verb}'{_command(found.operation, arguments)}'"
        at = found.end
    return written + remedy[at:]


def _command(operation: Operation, arguments: Mapping[str, str]) -> str:
    def value(name: re.Match[str]) -> str:
        return shlex.quote(arguments[name[1]]) if name[1] in arguments else name[1].upper()

    return f"penstock {_ARGUMENT.sub(value, operation.command)}"


class Remedied(BaseModel):
    """Base of bodies with a remedy that may name operations."""

    remedy: str | None = None
    actions: list[RemedyAction] = Field(default_factory=list, description="The operations that `remedy` names.")
    _containing: Mapping[str, str | None] = PrivateAttr(default_factory=dict)
    """Arguments from the body that contains this one: the answer is validated again before it is sent."""

    def known_arguments(self) -> dict[str, str | None]:
        """Arguments of operations that the body itself shows."""
        return {}

    @model_validator(mode="after")
    def _name_actions(self) -> Self:
        self.name_actions(self._containing)
        return self

    def name_actions(self, known: Mapping[str, str | None]) -> None:
        """Set `actions`. `known`: arguments from the body that contains this one."""
        self._containing = known
        self.actions = actions_of(self.remedy, {**known, **self.known_arguments()})
