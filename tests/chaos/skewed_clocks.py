"""Servers whose clocks differ from the machine's, by libfaketime."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from server.demo.binaries import bundled
from server.demo.embedded import server_folder

_SCRIPT = """#!/bin/sh
export LD_PRELOAD='{library}' FAKETIME='{skew:+d}s' FAKETIME_DONT_FAKE_MONOTONIC=1 DONT_FAKE_MONOTONIC=1
exec '{postgres}' "$@"
"""


class NoFakeTimeError(RuntimeError):
    """libfaketime is not installed."""


def installation(skew_s: int) -> Path:
    """A folder of PostgreSQL's programs in which the clock of `postgres` is so many seconds ahead of the machine's; below 0: after it.

    The caller removes it. Raises NoFakeTimeError.
    """
    real = bundled(18)
    library = _library()
    found = server_folder("penstock-skewed-")
    (found / "bin").mkdir(mode=0o755)
    for program in (real / "bin").iterdir():
        (found / "bin" / program.name).symlink_to(program)
    script = found / "bin" / "postgres"
    script.unlink()
    script.write_text(_SCRIPT.format(library=library, skew=skew_s, postgres=real / "bin" / "postgres"))
    script.chmod(0o755)
    return found


def _library() -> str:
    """What the program `faketime` preloads."""
    program = shutil.which("faketime")
    if program is None:
        raise NoFakeTimeError("--skew needs the program faketime: install the package 'faketime'")
    shown = subprocess.run([program, "now", "env"], capture_output=True, text=True, check=True).stdout
    return next(line.partition("=")[2] for line in shown.splitlines() if line.startswith("LD_PRELOAD="))
