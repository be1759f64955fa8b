"""Options that several commands share."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Concatenate, ParamSpec, cast

import typer

from server.cli.arguments import duration_ms, table_name
from server.cli.client import Api
from server.cli.exit_codes import ExitCode
from server.cli.home import access_token, server_url
from server.cli.manifest import ManifestError
from server.cli.output import Answer, reported

Url = Annotated[
    str | None, typer.Option("--url", help="Address of the server; default: PENSTOCK_URL, or http://127.0.0.1:8470.")
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        help="Access token; default: PENSTOCK_TOKEN, or the one that 'penstock up' stored in its data folder.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout; everything else on stderr.")]
Subscription = Annotated[
    str | None, typer.Option("--subscription", "-s", help="Name of the subscription; default: the only one.")
]
TableNames = Annotated[
    list[str] | None, typer.Option("--table", "-t", help="schema.name; repeat for several. Default: every table.")
]
Timeout = Annotated[str, typer.Option("--timeout", metavar="DURATION", help="500ms, 30s, 5m.")]
RefuseEarly = Annotated[
    bool,
    typer.Option(
        "--refuse-early", help="End at once if, at the recent rate, the deadline would not be met; exit code 4."
    ),
]
AllTables = Annotated[
    bool, typer.Option("--all-tables", help="Exit code 5 if a table was left out, as paused and parked ones are.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask. Required where stdin is not a terminal.")]
Host = Annotated[str, typer.Option("--host", envvar="PENSTOCK_HOST", help="Address to listen on.")]
Port = Annotated[int, typer.Option("--port", envvar="PENSTOCK_PORT", help="Port to listen on; 0: a free one.")]
HomeFolder = Annotated[
    Path | None, typer.Option("--home", envvar="PENSTOCK_HOME", help="Data folder; default ~/.penstock.")
]
NoAuth = Annotated[bool, typer.Option("--insecure-no-auth", help="Require no token; only on loopback addresses.")]

_WHERE = {"url": Url, "token": Token}
_KEYWORD = inspect.Parameter.POSITIONAL_OR_KEYWORD
P = ParamSpec("P")


def open_api(url: str | None, token: str | None, *, timeout_s: float = 30.0) -> Api:
    """A client for the address and token of options, environment or data folder."""
    return Api(server_url(url), access_token(token), timeout_s=timeout_s)


def server_command(command: Callable[Concatenate[Api, P], Answer | None]) -> Callable[..., None]:
    """Decorator of commands that talk to the server: as `reported`, and opens the client that is their first argument.

    The command gets the options `--url`, `--token` and `--json`, and its answer is delivered in the wanted form. One that prints by
    itself has the parameter `as_json`, and returns None.
    """
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "as_json"][1:]
    shared = [inspect.Parameter(name, _KEYWORD, default=None, annotation=kind) for name, kind in _WHERE.items()]
    shared.append(inspect.Parameter("as_json", _KEYWORD, default=False, annotation=AsJson))
    prints_itself = "as_json" in signature.parameters

    @functools.wraps(command)
    def opened(*arguments: P.args, **options: P.kwargs) -> None:
        url, token = (cast("str | None", options.pop(name)) for name in _WHERE)
        as_json = bool(options["as_json"] if prints_itself else options.pop("as_json"))
        with open_api(url, token) as api:
            answer = command(api, *arguments, **options)
        if answer is not None:
            answer.deliver(as_json=as_json)

    # The command line is made from this signature.
    opened.__signature__ = signature.replace(parameters=[*own, *shared])  # type: ignore[attr-defined]
    return reported(opened)


def chosen_subscription(api: Api, given: str | None) -> str:
    """The named subscription, or the only one; ManifestError if there are none or several."""
    if given:
        return given
    names = [str(item["name"]) for item in api.items("/subscriptions")]
    if len(names) == 1:
        return names[0]
    if not names:
        raise ManifestError("there is no subscription yet; create one with 'penstock apply FILE'")
    raise ManifestError(f"name one with --subscription: {', '.join(sorted(names))}")


def named_values(given: list[str] | None) -> dict[str, str]:
    """The values of `--set NAME=VALUE` options by name. Raises ManifestError."""
    found: dict[str, str] = {}
    for text in given or []:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ManifestError(f"{text!r} is not NAME=VALUE")
        found[name] = value
    return found


def confirm(question: str, *, yes: bool, instead: str = "--yes") -> None:
    """Ask on a terminal before something is lost, and end the command if the answer is no. `instead`: the option that answers.

    Raises ManifestError where stdin is not a terminal, unless `yes`.
    """
    if yes:
        return
    if not is_interactive():
        raise ManifestError(f"this needs a confirmation, and stdin is not a terminal; add {instead}")
    if not typer.confirm(question, err=True):
        raise typer.Exit(ExitCode.INTERRUPTED)


def is_interactive() -> bool:
    """Whether a person can answer a question on stdin."""
    return sys.stdin.isatty()


def duration(text: str) -> int:
    """Milliseconds of a `--timeout` option."""
    try:
        return duration_ms(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--timeout") from None


def tables(names: list[str] | None) -> list[dict[str, str]]:
    """`--table` options in the form of the REST interface."""
    result = []
    for text in names or []:
        try:
            schema, name = table_name(text)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--table") from None
        result.append({"schema": schema, "name": name})
    return result
