"""Runs what Dockerfile and compose file say with this environment's interpreter, in homes of the test's own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from deploy.dockerfile import Stage, read
from tests.fixtures.waiting import wait_until

ROOT = Path(__file__).parents[2]
VARIABLE = re.compile(r"\$\{(\w+)(?::\?[^}]*)?\}")


def image() -> Stage:
    """The stage that is the image."""
    return read(ROOT / "Dockerfile")[-1]


def compose() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    return services


def without_init(words: Sequence[str]) -> list[str]:
    """The command after `tini --`: an init process that the image installs and this machine need not have."""
    assert list(words[:2]) == ["tini", "--"]
    return list(words[2:])


def environment(home: Path, **more: str) -> dict[str, str]:
    """What a container would see: nothing of ours but PATH, with this environment's programs first."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(home), "PENSTOCK_HOME": str(home), "LANG": "C.UTF-8", **more}


def filled(text: str, values: Mapping[str, str]) -> str:
    """With `${NAME}` and `${NAME:?hint}` replaced, and `$$` by `$`, as compose does; an unknown name is a KeyError."""
    return VARIABLE.sub(lambda match: values[match[1]], text).replace("$$", "$")


def exit_code(command: Sequence[str], env: Mapping[str, str]) -> int:
    return subprocess.run(
        command, check=False, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60
    ).returncode


@contextmanager
def process(command: Sequence[str], env: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A running command; killed at the end if it has not ended by itself."""
    with log.open("ab") as output:
        running = subprocess.Popen(command, env=env, stdout=output, stderr=output)
    try:
        yield running
    finally:
        if running.poll() is None:
            running.terminate()
            try:
                running.wait(15)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()


def wait_or_show_log(done: Callable[[], bool], log: Path, timeout_s: float = 60) -> None:
    """Poll until `done` returns true. AssertionError with the end of the log after `timeout_s`."""
    try:
        wait_until(done, timeout_s)
    except AssertionError:
        raise AssertionError(log.read_text()[-3000:]) from None
