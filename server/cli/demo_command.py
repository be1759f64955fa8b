"""`demo`: everything on one machine, with nothing to set up."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from server.cli.options import AsJson, Host
from server.cli.output import reported


@reported
def demo(
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=1, help="Duration of the load; default: until Ctrl-C.")
    ] = None,
    rate: Annotated[float, typer.Option("--rate", min=0.1, help="Transactions a second on the source.")] = 200.0,
    home: Annotated[Path | None, typer.Option("--home", help="Folder for all files; default: a temporary one.")] = None,
    host: Host = "127.0.0.1",
    port: Annotated[int | None, typer.Option("--port", help="Port of the server; default: a free one.")] = None,
    sql_port: Annotated[
        int | None,
        typer.Option("--sql-port", min=1, max=65535, help="Port of the copy for SQL clients; default: a free one."),
    ] = None,
    flight_port: Annotated[
        int | None,
        typer.Option("--flight-port", min=1, max=65535, help="Port of the copy for Flight SQL; default: a free one."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a live copy of a busy PostgreSQL. With --seconds, compares every row at four cuts; exit code 1 if any differs."""
    # The other commands start faster without these.
    from server.cli.demo.run import run_demo  # noqa: PLC0415
    from server.cli.demo.stage import StageOptions  # noqa: PLC0415

    options = StageOptions(home, host, port, sql_port, flight_port)
    run_demo(options, rate=rate, seconds=seconds, as_json=as_json)
