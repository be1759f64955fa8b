"""Output of commands: tables for people, one JSON document for programs, and errors with their remedy."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from server.cli.client import Document, NoServerError, ProblemError
from server.cli.exit_codes import ExitCode, for_problem
from server.cli.manifest import ManifestError
from server.remedies import in_commands
from server.settings import SettingsError
from server.wording import UNKNOWN

P = ParamSpec("P")

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)
if not out.is_terminal:
    out.width = 10_000  # Wider than any table: programs read lines.
_COLOURS = {
    "live": "green",
    "running": "green",
    "satisfied": "green",
    "applied": "green",
    "failed": "red",
    "parked": "red",
    "lost": "red",
    "error": "red",
    "paused": "yellow",
    "reloading": "yellow",
    "stopped": "yellow",
    "warning": "yellow",
}
_HEALTH_COLOURS = {
    "failed": "red",
    "attention": "yellow",
    "unknown": "magenta",
    "moving": "cyan",
    "running": "green",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a command: one JSON document, and the same for people."""

    document: Any
    show: Callable[[], None]
    """Prints it for people; not called with --json."""
    notes: Callable[[], None] | None = None
    """Prints on stderr, after either form."""
    exit_code: ExitCode = ExitCode.DONE

    def deliver(self, *, as_json: bool) -> None:
        """Print it in the wanted form. Raises typer.Exit if the exit code is not 0."""
        if as_json:
            print_json(self.document)
        else:
            self.show()
        if self.notes is not None:
            self.notes()
        if self.exit_code is not ExitCode.DONE:
            raise typer.Exit(self.exit_code)


def print_json(document: Any) -> None:
    """One JSON document on stdout, and nothing else."""
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False, default=str))


def setting_text(value: Any) -> str:
    """A setting on one line; each entry of a list as its members with colons between them."""
    if not isinstance(value, list):
        return str(value)
    return " ".join(":".join(map(str, each.values())) if isinstance(each, dict) else str(each) for each in value)


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table for people; None is shown as a dash. Cells are plain text. Only a terminal's width folds them."""
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        grid.add_column(escape(column), overflow="fold")
    for row in rows:
        grid.add_row(*[_cell(value) for value in row])
    out.print(grid)


def state(text: str | None) -> str:
    """A state as markup in its colour."""
    colour = _COLOURS.get(text or "")
    return f"[{colour}]{escape(text or '')}[/]" if colour else escape(text or "–")


def health(assessment: Document | None) -> str:
    """The word of a subscription's health as markup in the colour of its status; only good health is green."""
    if not assessment:
        return UNKNOWN
    word = escape(str(assessment.get("word", "unknown")).replace("_", " "))
    colour = _HEALTH_COLOURS.get(str(assessment.get("status")))
    return f"[{colour}]{word}[/]" if colour else word


def left_out(found: Sequence[Document] | None, what: str) -> None:
    """Print on stderr the tables that a command left out; `what` names what was not done with them."""
    for item in found or []:
        name = f"{item.get('schema')}.{item.get('name')}"
        because = f": {item['reason']}" if item.get("reason") else ""
        err.print(f"[yellow]{escape(name)}[/] was {what}: it is {escape(str(item.get('state')) + because)}")


def remedy_line(document: Document, **known: str | None) -> str:
    """The remedy of a problem, fault, finding or event as markup, with commands for the operations that it names.

    `known`: arguments of these commands that the document does not have.
    """
    return f"[green]→[/] {escape(in_commands(str(document['remedy']), document.get('actions') or (), known))}"


def reported(command: Callable[P, None]) -> Callable[P, None]:
    """Decorator of commands: prints exceptions with their remedy and turns them into an exit code.

    A command whose option `as_json` is set prints a problem as the one JSON document.
    """

    @functools.wraps(command)
    def wrapper(*arguments: P.args, **options: P.kwargs) -> None:
        try:
            command(*arguments, **options)
        except ProblemError as problem:
            code = for_problem(problem.status, problem.code)
            _fail(problem.document, code, as_json=bool(options.get("as_json")))
        except NoServerError as error:
            _fail(_no_server(error), ExitCode.NO_SERVER, as_json=bool(options.get("as_json")))
        except (ManifestError, SettingsError) as error:
            wrong = {"title": "Invalid input", "code": "usage", "detail": str(error)}
            _fail(wrong, ExitCode.USAGE, as_json=bool(options.get("as_json")))
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None

    return wrapper


def show_problem(document: Document) -> None:
    """Print title, detail, invalid parts and remedy on stderr."""
    err.print(f"[bold red]{escape(str(document.get('title') or 'Error'))}[/]")
    if document.get("detail"):
        err.print(escape(str(document["detail"])))
    for part in document.get("errors") or []:
        err.print(f"  [bold]{escape(str(part.get('pointer', '')))}[/] {escape(str(part.get('detail', '')))}")
    if document.get("remedy"):
        err.print(remedy_line(document))
    if document.get("trace_id"):
        err.print(f"[dim]trace {escape(str(document['trace_id']))}[/]")


def _fail(document: Document, code: ExitCode, *, as_json: bool) -> None:
    if as_json:
        print_json(document)
    show_problem(document)
    raise typer.Exit(code)


def _no_server(error: NoServerError) -> Document:
    return {
        "title": "No Penstock server answers",
        "code": "no_server",
        "detail": f"{error.url} does not answer: {error.why}",
        "remedy": "Start it with 'penstock up', or name another address with --url or PENSTOCK_URL.",
    }


def _cell(value: Any) -> Any:
    if value is None:
        return "–"
    return value if isinstance(value, str) else escape(str(value))
