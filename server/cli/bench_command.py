"""`bench`: the benchmark's commands, if its package is installed. It is part of a checkout, not of the wheel."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

import typer
from rich.markup import escape
from typer.core import TyperGroup

from server.cli.exit_codes import ExitCode
from server.cli.output import err

_MODULE = "bench.commands"
_ABSENT = "the benchmark is not installed here; in a checkout of Penstock: pip install -e '.[bench]'"


def load_bench() -> typer.Typer:
    """The commands of `bench`; if the package or a dependency is missing, one command that says how to install it."""
    if find_spec("bench") is not None and find_spec(_MODULE) is not None and find_spec("hdrh") is not None:
        return cast("typer.Typer", import_module(_MODULE).bench)
    return _absent()


class _Absent(TyperGroup):
    """Any arguments lead to the explanation; a group would first refuse the commands that it does not have."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--help" not in args:
            err.print(escape(f"penstock bench: {_ABSENT}"))
            ctx.exit(ExitCode.USAGE)
        return super().parse_args(ctx, args)


def _absent() -> typer.Typer:
    app = typer.Typer(cls=_Absent, help=escape(f"Measure workloads ({_ABSENT})."))
    app.callback()(lambda: None)
    return app
