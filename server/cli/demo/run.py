"""Runs the demonstration for a terminal or a program."""

from __future__ import annotations

from time import monotonic
from types import TracebackType
from typing import Self

import typer
from rich.live import Live
from rich.markup import escape

from server.cli.client import NoServerError, ProblemError
from server.cli.demo.show import Show
from server.cli.demo.stage import SUBSCRIPTION, DemoError, Stage, StageOptions
from server.cli.demo.view import View
from server.cli.exit_codes import ExitCode
from server.cli.home import console_link
from server.cli.output import err, out, print_json, show_problem
from server.cli.running import Interrupt, StartError
from server.demo.binaries import PostgresMissingError
from server.demo.embedded import PostgresFailedError

_LINE_EVERY_S = 5.0


def run_demo(options: StageOptions, *, rate: float, seconds: float | None, as_json: bool) -> None:
    """Run the demonstration to its end, print its report, and raise typer.Exit with the exit code."""
    interrupt = Interrupt()
    stage = Stage(options, lambda line: err.print(f"[dim]{escape(line)}[/]"))
    try:
        with Screen(View(stage.running.options.url), live=out.is_terminal and not as_json) as screen:
            show = Show(stage, rate, seconds, screen.update)
            interrupt.on_interrupt(show.interrupt)
            trouble = _run(stage, show, interrupt)
        err.print("[dim]stopping[/]")
    finally:  # also if the terminal is closed, and no output is possible
        stage.tear_down()
    _account(show, trouble, as_json=as_json, interrupted=interrupt.event.is_set())


class Screen:
    """Output of a run: a live panel on a terminal, else a line on stderr at intervals."""

    def __init__(self, view: View, *, live: bool) -> None:
        self._view = view
        self._live = Live(console=out, auto_refresh=False) if live else None
        self._shown = monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, show: Show) -> None:
        """Show the current state of a run."""
        if self._live is not None:
            self._live.start()
            self._live.update(self._view.render(show), refresh=True)
        elif monotonic() - self._shown > _LINE_EVERY_S:
            self._shown = monotonic()
            err.print(self._view.line(show), markup=False)


def _run(stage: Stage, show: Show, interrupt: Interrupt) -> str | None:
    """Run it; returns a description of the failure, or None."""
    try:
        stage.set_up()
        err.print(f"Penstock is at [bold]{console_link(stage.running.options.url, stage.running.admin_token)}[/]")
        for line in stage.running.sql_lines(SUBSCRIPTION):
            err.print(escape(line))
        show.run()
    except KeyboardInterrupt:
        return None
    except (DemoError, StartError, PostgresFailedError, PostgresMissingError, ProblemError, NoServerError) as error:
        if interrupt.event.is_set():
            return None
        if isinstance(error, ProblemError):
            show_problem(error.document)
        return f"{error}\n{stage.log_tail('engine')}".rstrip()
    return show.trouble()


def _account(show: Show, trouble: str | None, *, as_json: bool, interrupted: bool) -> None:
    """Print the report of a complete run, and exit with its exit code."""
    if interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED if as_json or show.seconds is not None else ExitCode.DONE)
    document = show.document()
    if as_json:
        print_json(document)
    elif document["cuts"]:
        verdict = "[green]equal[/]" if document["equal"] else "[red]different[/]"
        out.print(f"{document['cuts']} cuts: {verdict}; {document['target']['rows']:,} rows on the target")
        lag, waits = document["lag_ms"], document["waits"]
        out.print(f"lag: p50 {lag['p50']:.0f} ms, p95 {lag['p95']:.0f} ms, most {lag['max']:.0f} ms")
        of_waits = f"p50 {waits['p50_ms']:.0f} ms, p95 {waits['p95_ms']:.0f} ms, p99 {waits['p99_ms']:.0f} ms"
        out.print(f"waits: {of_waits} of {waits['count']}; {waits['timed_out']} timed out")
    if trouble is not None:
        err.print(f"[bold red]The demonstration failed[/]\n{escape(trouble)}")
        raise typer.Exit(ExitCode.DIFFERENT)
