"""The console script `penstock`."""

from __future__ import annotations

from importlib.metadata import version as package_version
from typing import Annotated

import typer

from server.cli import (
    alert_commands,
    apply_command,
    bench_command,
    completeness_command,
    connection_commands,
    console_command,
    cycle_commands,
    data_commands,
    ddl_commands,
    demo_command,
    goal_commands,
    lag_command,
    ledger_command,
    observe_commands,
    process_commands,
    read_point_commands,
    refused_commands,
    sample_commands,
    snapshot_commands,
    subscription_commands,
    table_commands,
    ticket_commands,
    token_commands,
    trigger_commands,
    verification_commands,
    verify_command,
)
from server.cli.exit_codes import HELP

app = typer.Typer(
    name="penstock",
    help="Replicate operational tables to an analytic database; queries wait until a commit is visible.",
    epilog=HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

app.command("up")(process_commands.up)
app.command("serve")(process_commands.serve)
app.command("engine")(process_commands.engine)
app.command("console")(console_command.console)
app.command("demo")(demo_command.demo)
app.command("apply", help=apply_command.HELP)(apply_command.apply)
app.command("export", help=apply_command.EXPORT_HELP)(apply_command.export)
app.command("status")(data_commands.status)
app.command("wait")(data_commands.wait)
app.command("query")(data_commands.query)
app.command("completeness")(completeness_command.completeness)
app.command("verify")(verify_command.verify)
app.command("sequences")(data_commands.sequences)
app.command("ledger")(ledger_command.ledger)
app.command("events")(observe_commands.events)
app.command("batches")(observe_commands.batches)
app.command("engines")(observe_commands.engines)
app.command("nodes")(observe_commands.nodes)
app.add_typer(subscription_commands.subscriptions, name="subscriptions")
app.add_typer(connection_commands.connections, name="connections")
app.add_typer(alert_commands.alerts, name="alerts")
app.add_typer(ticket_commands.ticket, name="ticket")
app.add_typer(read_point_commands.read_points, name="read-point")
app.add_typer(lag_command.lag, name="lag")
app.add_typer(cycle_commands.cycles, name="cycles")
app.add_typer(goal_commands.goals, name="goals")
app.add_typer(table_commands.tables, name="tables")
app.add_typer(refused_commands.refused, name="refused")
app.add_typer(snapshot_commands.snapshot, name="snapshot")
app.add_typer(verification_commands.verifications, name="verifications")
app.add_typer(sample_commands.sample, name="sample")
app.add_typer(process_commands.database, name="db")
app.add_typer(ddl_commands.ddl_capture, name="ddl-capture")
app.add_typer(trigger_commands.triggers, name="triggers")
app.add_typer(token_commands.tokens, name="token")
app.add_typer(bench_command.load_bench(), name="bench")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(package_version("penstock"))
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; ends the process with an exit code of `server.cli.exit_codes`."""
    app()


if __name__ == "__main__":
    main()
