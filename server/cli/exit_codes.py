"""What the exit code of `penstock` says. Scripts rely on the numbers."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command; 2 is also what a wrong option or argument gives."""

    DONE = 0
    DIFFERENT = 1
    """A verification or the demonstration found a difference, a sequence could not be brought forward, or a child process could not be
    kept running."""
    USAGE = 2
    """Wrong options or settings, a file that cannot be read as what it should be, or a control database of another version."""
    REFUSED = 3
    """The server refused the request: the problem's detail and remedy say why."""
    TIMEOUT = 4
    """The deadline passed first."""
    UNREACHABLE = 5
    """The wait cannot be satisfied: subscription or table is paused, parked or failed. Or nothing was compared; or a table was left out
    where all were asked for."""
    NO_SERVER = 6
    """No server answers at the address."""
    PIPELINE = 7
    """The server is there, but your database, its engine or the pipeline is not."""
    INTERRUPTED = 130


def for_problem(status: int, code: str) -> ExitCode:
    """The exit code for a problem document with this HTTP status and `code`."""
    if code == "freshness_unreachable":
        return ExitCode.UNREACHABLE
    if status == 504:
        return ExitCode.TIMEOUT
    return ExitCode.PIPELINE if status >= 500 else ExitCode.REFUSED


HELP = """Exit codes: 0 done · 1 different · 2 usage · 3 refused · 4 timeout · 5 unreachable (paused, parked, failed, left out) ·
6 no server · 7 your database, engine or pipeline is not available · 130 interrupted."""
