"""Commands that run something: `up`, `serve`, `engine`, `db upgrade`."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from server.cli.child_logs import ChildLog, follow
from server.cli.exit_codes import ExitCode
from server.cli.home import Home, console_link
from server.cli.options import HomeFolder, Host, NoAuth, Port
from server.cli.output import err, out, reported, state
from server.cli.running import Interrupt, Running, StartError, UpOptions
from server.cli.sql_access import SqlPorts
from server.processes.ports import free_port, why_not_listen
from server.processes.supervisor import ChildDied
from server.settings import Settings, SettingsError, default_home, load_settings

database = typer.Typer(help="The control database.", no_args_is_help=True)


@reported
def up(
    host: Host = "127.0.0.1",
    port: Port = 8470,
    home: HomeFolder = None,
    insecure_no_auth: NoAuth = False,
    sql_port: Annotated[
        int | None,
        typer.Option(
            "--sql-port",
            envvar="PENSTOCK_SQL_PORT",
            min=1,
            max=65535,
            help="Let SQL clients read the copies on this port, by PostgreSQL's protocol; default: not at all.",
        ),
    ] = None,
    flight_port: Annotated[
        int | None,
        typer.Option(
            "--flight-port",
            envvar="PENSTOCK_FLIGHT_PORT",
            min=1,
            max=65535,
            help="Let clients of Arrow Flight SQL read the copies on this port; default: not at all.",
        ),
    ] = None,
    log_to_stderr: Annotated[
        bool, typer.Option("--log-to-stderr", help="JSON logs on stderr; default: files in the folder logs of --home.")
    ] = False,
) -> None:
    """Run server and engine on this machine until Ctrl-C."""
    folder = home or default_home()
    settings = load_settings(home=folder, host=host, port=port, insecure_no_auth=insecure_no_auth or None)
    _require_usable(settings)
    logs = None if log_to_stderr else folder.expanduser().absolute() / "logs"
    sql = SqlPorts(sql_port, flight_port)
    options = UpOptions(folder, host, port or free_port(), insecure_no_auth, logs, sql=sql)
    running = Running(options, _tell_death)
    interrupt = Interrupt()
    if logs is not None:
        followed = [ChildLog(name, logs / f"{name}.log", _show_log_line) for name in ("server", "engine")]
        threading.Thread(target=follow, args=(followed, interrupt.event, _tell_trouble), daemon=True).start()
    try:
        running.start()
    except StartError as error:
        err.print(f"[bold red]Penstock did not start[/]\n{escape(str(error))}")
        if logs is not None:
            err.print(f"Logs: {escape(str(logs))}")
        raise typer.Exit(ExitCode.DIFFERENT) from None
    _greet(running)
    try:
        interrupt.event.wait()
    finally:
        err.print("Stopping …")
        running.stop()


def _show_log_line(level: str, child: str, text: str) -> None:
    err.print(f"{state(level)} {child}: {escape(text)}")


def _tell_trouble(why: str) -> None:
    err.print(f"[yellow]{escape(why)}[/]")


def _require_usable(settings: Settings) -> None:
    """Check settings before the children start: later errors would appear only in the server's log.

    Raises:
        SettingsError: the remedy is in its text.
    """
    # The other commands start faster without these.
    from server.db.migrate import require_usable  # noqa: PLC0415
    from server.security.secret_box import load_box  # noqa: PLC0415

    settings.make_home()
    load_box(settings)
    require_usable(settings.control_database)


def _greet(running: Running) -> None:
    out.print(f"[bold]Penstock is running[/] at {running.options.url}")
    out.print(f"Data folder: {escape(str(running.home.folder))}")
    if running.options.insecure_no_auth:
        out.print("[yellow]Every user of this machine is administrator (--insecure-no-auth).[/]")
    elif running.admin_token_is_new:
        out.print(f"Administrator's token, shown only once: [bold]{running.admin_token}[/]")
        out.print(f"[dim]Commands of this user find it in {escape(str(running.home.admin_token_file))}.[/]")
        out.print(f"Open the console, signed in: [bold]{console_link(running.options.url, running.admin_token)}[/]")
    else:
        out.print("To open the console: penstock console")
    command = own_command(sys.argv[0], shutil.which("penstock"))
    if command != "penstock":
        out.print(
            f"'penstock' is not on the PATH. Call it as [bold]{escape(command)}[/], for example {escape(command)} status"
        )
    for line in running.sql_lines("SUBSCRIPTION"):
        out.print(escape(line))
    if running.options.logs is not None:
        out.print(f"Logs: {escape(str(running.options.logs))}; warnings are shown here.")
    out.print("Ctrl-C stops everything.")


def own_command(started_as: str, on_path: str | None) -> str:
    """How to call this program in this folder: `penstock`, if that finds it; else its path, or the module. `started_as`: argv[0]."""
    script = Path(started_as)
    if script.name != "penstock":
        return f"{shlex.quote(sys.executable)} -m server.cli.main"
    path = script.absolute()
    if on_path is not None and Path(on_path).absolute() == path:
        return "penstock"
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))


def _tell_death(death: ChildDied) -> None:
    how = f"by signal {-death.exit_code}" if death.exit_code < 0 else f"with exit code {death.exit_code}"
    err.print(f"[yellow]{death.name} ended {how}; restarting it in {death.pause_s:g} s[/]")


@reported
def serve(
    host: Host = "127.0.0.1", port: Port = 8470, home: HomeFolder = None, insecure_no_auth: NoAuth = False
) -> None:
    """Run only the server; engines register with PENSTOCK_ENGINE_TOKEN."""
    settings = load_settings(home=home, host=host, port=port, insecure_no_auth=insecure_no_auth or None)
    _require_usable(settings)
    trouble = why_not_listen(settings.host, settings.port)
    if trouble is not None:
        raise SettingsError(trouble)
    # Importing these takes seconds, which the other commands, and settings that cannot work, do without.
    from server.app import create_app  # noqa: PLC0415
    from server.serving import run  # noqa: PLC0415

    run(create_app(settings), settings.host, settings.port)


@reported
def engine() -> None:
    """Run only an engine, configured by PENSTOCK_URL, PENSTOCK_ENGINE_TOKEN, PENSTOCK_HOME and PENSTOCK_SPARK_MASTER."""
    environment = dict(os.environ)
    token = Home(default_home()).engine_token_file
    if not environment.get("PENSTOCK_ENGINE_TOKEN") and token.is_file():
        environment["PENSTOCK_ENGINE_TOKEN"] = token.read_text().strip()
    os.execve(sys.executable, [sys.executable, "-m", "engine.control"], environment)  # noqa: S606


@database.command("upgrade")
@reported
def upgrade(home: HomeFolder = None) -> None:
    """Upgrade the control database to this version's schema. `serve` upgrades a local database itself."""
    from server.db.migrate import upgrade as migrate  # noqa: PLC0415

    migrate(load_settings(home=home).control_database)
    out.print("The control database is up to date.")
