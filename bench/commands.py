"""`bench`: measures Penstock on this machine, and PostgreSQL's own logical replication for comparison."""

from __future__ import annotations

import signal
import traceback
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from server.cli.exit_codes import ExitCode
from server.cli.options import AsJson
from server.cli.output import err, out, print_json, reported
from server.cli.output import table as print_table

if TYPE_CHECKING:
    from bench.suite import Order
    from bench.workload import Workload

bench = typer.Typer(help="Measure workloads; PostgreSQL and everything else is embedded.", no_args_is_help=True)

Folder = Annotated[Path, typer.Option("--out", help="Folder of the results.")]
_FOLDER = Path("bench-results")
_ALL = "all"


class Against(StrEnum):
    """The other system that drains the same log."""

    NATIVE = "native"


class TargetName(StrEnum):
    """The kind of Penstock's target."""

    DUCKDB = "duckdb"
    POSTGRES = "postgres"


class ApplyName(StrEnum):
    """The apply mode of Penstock's subscription."""

    AUTO = "auto"
    BATCH = "batch"
    GROUPED = "grouped"
    TRANSACTIONAL = "transactional"
    RELAXED = "relaxed"
    """`batch` with relaxed visibility."""


class ModeName(StrEnum):
    """The mode of measurement."""

    BACKLOG = "backlog"
    SUSTAINED = "sustained"
    LIVE = "live"
    OPEN = "open"
    IDLE = "idle"
    CAPTURE = "capture"
    TECHNIQUES = "techniques"
    LANES = "lanes"
    CAPTURES = "captures"
    NODES = "nodes"
    COPY = "copy"
    SCALING = "scaling"


@bench.command("list")
@reported
def list_workloads(as_json: AsJson = False) -> None:
    """The workloads there are, with the modes and sizes in which they run."""
    from bench.workloads import WORKLOADS  # noqa: PLC0415  the other commands start faster without it

    if as_json:
        names = ("name", "description", "unit")
        print_json(
            [
                {**{name: getattr(one, name) for name in names}, "modes": [mode.value for mode in one.modes]}
                for one in WORKLOADS.values()
            ]
        )
        return
    rows = [[one.name, ", ".join(mode.value for mode in one.modes), one.description] for one in WORKLOADS.values()]
    print_table(["workload", "modes", "what it is"], rows)


@bench.command("run")
@reported
def run(
    workload: Annotated[str, typer.Argument(help="A name of 'bench list', or 'all'.")],
    against: Annotated[Against | None, typer.Option("--against", help="Measure this too, and the ratio.")] = None,
    target: Annotated[TargetName, typer.Option("--target", help="What our side fills.")] = TargetName.DUCKDB,
    apply: Annotated[
        ApplyName, typer.Option("--apply", help="How the subscription applies. A DuckDB target: auto or batch.")
    ] = ApplyName.AUTO,
    mode: Annotated[ModeName | None, typer.Option("--mode", help="Else the first one that the workload has.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes and one round.")] = False,
    amount: Annotated[
        int | None, typer.Option("--amount", "--transactions", min=1, help="Of the workload's unit, a round.")
    ] = None,
    rounds: Annotated[int | None, typer.Option("--rounds", min=1, help="How often it is measured.")] = None,
    scale: Annotated[int | None, typer.Option("--scale", min=1, help="Size of the tables at the start.")] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=1, help="Sustained, idle: how long. Techniques: each at most.")
    ] = None,
    rate: Annotated[float | None, typer.Option("--rate", min=1, help="Sustained: transactions a second.")] = None,
    warm_up: Annotated[float, typer.Option("--warm-up", min=0, help="Sustained: seconds before.")] = 8.0,
    waits: Annotated[float, typer.Option("--waits", min=0.1, help="Sustained: waits a second.")] = 20.0,
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Compare source and copy at the end.")] = True,
    folder: Folder = _FOLDER,
    as_json: AsJson = False,
) -> None:
    """Measure a workload, and write the result as JSON. Exit code 1: a copy was not equal, or a wait failed or was too long."""
    order = _order(
        mode=_mode(mode),
        against=against is not None,
        target=target.value,
        apply=apply.value,
        quick=quick,
        verify=verify,
        amount=amount,
        scale=scale,
        rounds=rounds,
        seconds=seconds,
        rate=rate,
        warm_up=warm_up,
        waits=waits,
    )
    signal.signal(signal.SIGTERM, _interrupt)
    documents, fine = _run_each(_chosen(workload, order), folder)
    if as_json:
        print_json(documents if workload == _ALL else next(iter(documents), None))
    if not fine:
        raise typer.Exit(ExitCode.DIFFERENT)


@bench.command("report")
@reported
def report(
    folder: Annotated[Path, typer.Argument(help="Folder of the results; the report is written there too.")] = _FOLDER,
) -> None:
    """Make a table and plots of the latest results."""
    from bench import report as page  # noqa: PLC0415
    from bench.errors import BenchError  # noqa: PLC0415
    from bench.results import read  # noqa: PLC0415

    try:
        for file in page.write(folder, read(folder)):
            out.print(escape(str(file)))
    except BenchError as error:
        raise typer.BadParameter(str(error)) from None


def _order(**said: Any) -> Order:
    """The order; BadParameter if the target does not have the apply mode."""
    from bench.errors import BenchError  # noqa: PLC0415
    from bench.suite import Order  # noqa: PLC0415

    try:
        return Order(**said)
    except BenchError as error:
        raise typer.BadParameter(str(error)) from None


def _chosen(workload: str, order: Order) -> list[tuple[Workload, Order]]:
    """The workloads to run; BadParameter if a name is unknown, or has not this mode."""
    from bench.errors import BenchError  # noqa: PLC0415
    from bench.workloads import ONE_SIDED, WORKLOADS, everything  # noqa: PLC0415

    if workload == _ALL:
        chosen = everything(order.mode, quick=order.quick)
        return [
            (one, replace(order, mode=mode, against=order.against and mode not in ONE_SIDED)) for one, mode in chosen
        ]
    if workload not in WORKLOADS:
        raise typer.BadParameter(f"there is no workload {workload}; there are {', '.join(WORKLOADS)} and {_ALL}")
    try:
        order.mode_of(WORKLOADS[workload])
    except BenchError as error:
        raise typer.BadParameter(str(error)) from None
    return [(WORKLOADS[workload], order)]


def _run_each(chosen: list[tuple[Workload, Order]], folder: Path) -> tuple[list[dict[str, Any]], bool]:
    """Run the workloads in sequence. A failure is printed and stored as a document; the next workload runs."""
    from bench import budget, results, suite  # noqa: PLC0415

    documents: list[dict[str, Any]] = []
    fine, began = True, monotonic()
    _say(budget.plan(chosen))
    for number, (workload, order) in enumerate(chosen, start=1):
        begins = monotonic()
        document = _measured(workload, order)
        document["took_s"] = round(monotonic() - begins, 1)
        documents.append(document)
        good = suite.is_good(document)
        fine = fine and good
        written = escape(str(results.write(folder, document)))
        err.print(f"{workload.name}: {'' if good else '[bold red]not good:[/] see '}{written}")
        rest = sum(budget.seconds(*one) for one in chosen[number:])
        took, thought, so_far = document["took_s"], budget.seconds(workload, order), monotonic() - began
        times = [budget.clock(each) for each in (took, thought, so_far, rest)]
        _say("{}: took {} of about {}; {} since the start, about {} to go".format(workload.name, *times))
    return documents, fine


def _measured(workload: Workload, order: Order) -> dict[str, Any]:
    """The document of a run, or of its failure. An unexpected failure is a defect of the suite: printed with a traceback."""
    from bench import suite  # noqa: PLC0415

    try:
        return suite.run(workload, order, _say)
    except suite.FAILURES as error:
        told = "\n".join([str(error), *getattr(error, "__notes__", [])])
    except Exception as error:  # the others are measured all the same
        told = "".join(traceback.format_exception(error))
    err.print(f"[bold red]{workload.name} could not be measured[/]\n{escape(told)}")
    return suite.failure(workload, order, told)


_BEGAN = monotonic()


def _say(line: str) -> None:
    from bench.budget import clock  # noqa: PLC0415

    err.print(f"[dim]{clock(monotonic() - _BEGAN):>5} {escape(line)}[/]")


def _mode(name: ModeName | None) -> Any:
    from bench.workload import Mode  # noqa: PLC0415

    return Mode(name.value) if name is not None else None


def _interrupt(_number: int, _frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would break into the tidying up
    raise KeyboardInterrupt
