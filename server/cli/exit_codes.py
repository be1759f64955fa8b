"""The exit codes of `penstock`. Scripts rely on the numbers."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of all commands; invalid options and arguments also give 2."""

    DONE = 0
    DIFFERENT = 1
    """A difference was found by a verification or the demonstration, a sequence could not be set, a check
    of a connection found an error, or a child process could not be kept running.
    """
    USAGE = 2
    """Invalid options or settings, a file with invalid content, or a control database of another version."""
    REFUSED = 3
    """The server refused the request: the problem's detail and remedy say why."""
    TIMEOUT = 4
    """The deadline passed."""
    UNREACHABLE = 5
    """The wait cannot be satisfied: subscription or table is paused, parked or failed.

    Also: no table was compared, or one was left out although all were requested.
    """
    NO_SERVER = 6
    """No server answers at the address."""
    PIPELINE = 7
    """The server answers, but a user's database, its engine or the pipeline is unavailable."""
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
