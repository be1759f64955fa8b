"""Uninstall developers' packages from the environment that runs this: `prune.py pyproject.toml [package …]`."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def developer_packages(pyproject: Path) -> list[str]:
    """Names in the extras `dev` and `bench` that are not also dependencies."""
    project = tomllib.loads(pyproject.read_text())["project"]
    needed = {_name(line) for line in project["dependencies"]}
    extras = project["optional-dependencies"]
    return [name for line in [*extras["dev"], *extras.get("bench", [])] if (name := _name(line)) not in needed]


def _name(requirement: str) -> str:
    match = _NAME.match(requirement)
    if match is None:
        raise ValueError(f"{requirement!r} names no package")
    return match[0].lower()


if __name__ == "__main__":
    names = [*developer_packages(Path(sys.argv[1])), *sys.argv[2:]]
    subprocess.run([sys.executable, "-m", "pip", "uninstall", "--yes", "--quiet", *names], check=True)
