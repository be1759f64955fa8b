"""`bench`: the benchmark's commands, if its package is installed. It is part of a checkout, not of the wheel."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import cast

import typer
from rich.markup import escape

from server.cli.exit_codes import ExitCode
from server.cli.output import err

_MODULE = "bench.commands"
_ABSENT = "the benchmark is not installed here; in a checkout of Penstock: pip install -e '.[bench]'"


def load_bench() -> typer.Typer:
    """The commands of `bench`; if the package or a dependency is missing, one command that says how to install it."""
    if find_spec("bench") is not None and find_spec(_MODULE) is not None and find_spec("hdrh") is not None:
        return cast("typer.Typer", import_module(_MODULE).bench)
    return _absent()


def _absent() -> typer.Typer:
    app = typer.Typer(
        help="Measure workloads (not installed).",
        invoke_without_command=True,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )

    @app.callback()
    def _explain() -> None:
        err.print(escape(f"penstock bench: {_ABSENT}"))
        raise typer.Exit(ExitCode.USAGE)

    return app
