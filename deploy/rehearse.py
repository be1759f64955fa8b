# ruff: noqa: S607, PLW1509  (tools are found on PATH; no other threads run during the change of root)
"""Executes the Dockerfile without Docker: each stage in a separate Debian tree, then server and engine like the image.

    python -m deploy.rehearse WORK --python PREFIX [--share PATH ...] [--context FOLDER]

WORK receives the stages. It also holds `base`, which is made with debootstrap if missing. PREFIX is the folder of a
Python that replaces the one of the base image, such as the output of `python3.12 -c 'import sys;
print(sys.base_prefix)'`. `--share` mounts a file or folder of this machine read-only at the same path while images are
built: a pip configuration, a package mirror. PIP_* variables are passed on. Needs Linux, root and debootstrap.

Exit code 0 if every step succeeded and the running image behaved; the steps and their times are printed on stdout.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic

from deploy.dockerfile import Stage, expand, pairs, read

ROOT = Path(__file__).parents[1]
DEBIAN = "bookworm"
# Parts of the base image that a minimal Debian lacks: certificates, time zones, the libraries of its Python.
BASE_PACKAGES = "ca-certificates,netbase,tzdata,libssl3,libffi8,libsqlite3-0,libbz2-1.0,liblzma5,libreadline8,zlib1g,libexpat1,libuuid1"
_NEW_MOUNTS, _NEW_NETWORK = 0x00020000, 0x40000000
_PRIVATE, _BIND, _READ_ONLY, _REMOUNT, _RECURSIVE = 1 << 18, 1 << 12, 1, 1 << 5, 1 << 14
_libc = ctypes.CDLL(None, use_errno=True)
_never = threading.Event()


class RehearsalError(RuntimeError):
    """A step failed, or the image misbehaved."""


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _checked(answer: int, what: str) -> None:
    if answer != 0:
        raise RehearsalError(f"{what}: {os.strerror(ctypes.get_errno())}")


def _mount(source: str, target: Path, flags: int, kind: str | None = None) -> None:
    encoded = kind.encode() if kind else None
    _checked(_libc.mount(source.encode(), bytes(target), encoded, flags, None), f"mount {target}")


def _share(source: Path, root: Path) -> None:
    """Mount a file or folder of this machine inside the tree, read-only, at the same path."""
    target = root / source.relative_to("/")
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    _mount(str(source), target, _BIND | _RECURSIVE)
    _mount(str(source), target, _BIND | _REMOUNT | _READ_ONLY)


class Tree:
    """The files of one stage, and the environment, folder and user that its instructions have set so far."""

    def __init__(self, root: Path, base: Path, shared: Sequence[Path]) -> None:
        shutil.rmtree(root, ignore_errors=True)
        subprocess.run(["cp", "-a", "--reflink=auto", str(base), str(root)], check=True)
        self.root = root
        self.environment = {"PATH": "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"}
        self.folder = "/"
        self.user: tuple[int, int] | None = None
        for place, kind in (("proc", "proc"), ("tmp", "tmpfs")):
            _mount(kind, root / place, 0, kind)
        _mount("/dev", root / "dev", _BIND | _RECURSIVE)
        for source in shared:
            _share(source, root)

    def start(self, command: Sequence[str], extra: dict[str, str], **options: object) -> subprocess.Popen[str]:
        """Start a process inside the tree, with the stage's environment, folder and user."""
        # In a container, init has the process id 1. Here the process must be declared a subreaper to receive its
        # orphans.
        home = {"HOME": "/" if self.user else "/root", "TINI_SUBREAPER": "1"}

        def enter() -> None:
            os.chroot(self.root)
            os.chdir(self.folder)
            if self.user is not None:
                os.setgroups([])
                os.setgid(self.user[1])
                os.setuid(self.user[0])

        environment = {**home, **self.environment, **extra}
        # The shell searches PATH inside the tree; Popen would search it before the change of root.
        words = ["/bin/sh", "-c", 'exec "$@"', "sh", *command]
        return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
            words, env=environment, preexec_fn=enter, text=True, start_new_session=True, **options
        )

    def run(self, command: Sequence[str], extra: dict[str, str]) -> tuple[int, str]:
        process = self.start(command, extra, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output, _ = process.communicate()
        return process.returncode, output

    def inside(self, path: str) -> Path:
        return self.root / os.path.normpath(os.path.join("/", self.folder, path)).lstrip("/")  # noqa: PTH118


def prepare_base(work: Path, python: Path) -> Path:
    """A minimal Debian of the base image's release, with `python` as its /usr/local."""
    base = work / "base"
    if not (base / "etc" / "debian_version").is_file():
        _say(f"debootstrap {DEBIAN}")
        subprocess.run(
            ["debootstrap", "--variant=minbase", f"--include={BASE_PACKAGES}", DEBIAN, str(base)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    if not (base / "usr" / "local" / "bin" / "python").exists():
        subprocess.run(["cp", "-a", f"{python}/.", str(base / "usr" / "local")], check=True)
        # Launchers other than python itself name the folder they come from.
        for launcher in (base / "usr" / "local" / "bin").glob("pip*"):
            launcher.unlink()
        subprocess.run(["chroot", str(base), "/sbin/ldconfig"], check=True)
    for name in ("resolv.conf", "hosts"):
        shutil.copyfile(Path("/etc") / name, base / "etc" / name)
    return base


def build(stage: Stage, tree: Tree, context: Path, others: dict[str, Tree]) -> None:
    """Execute a stage's instructions in order."""
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    for instruction, argument in stage.steps:
        began = monotonic()
        if instruction == "ENV":
            tree.environment.update({key: expand(value, tree.environment) for key, value in pairs(argument)})
        elif instruction == "WORKDIR":
            tree.folder = argument
            tree.inside(".").mkdir(parents=True, exist_ok=True)
        elif instruction == "USER":
            user, _, group = argument.partition(":")
            tree.user = int(user), int(group or user)
        elif instruction == "COPY":
            _copy(argument, tree, context, others)
        elif instruction == "RUN":
            code, output = tree.run(["/bin/sh", "-c", argument], pip)
            if code != 0:
                raise RehearsalError(f"RUN {argument}\nexit code {code}\n{output[-4000:]}")
        if instruction in {"RUN", "COPY"}:
            _say(f"  {monotonic() - began:6.1f} s  {instruction} {argument[:100]}")


def _copy(argument: str, tree: Tree, context: Path, others: dict[str, Tree]) -> None:
    words = argument.split()
    origin = others[words.pop(0).removeprefix("--from=")].root if words[0].startswith("--from=") else context
    *sources, target = words
    for source in sources:
        found = origin / source.lstrip("/")
        place = tree.inside(target)
        if not found.is_dir():
            into = place / found.name if target.endswith("/") or place.is_dir() else place
            shutil.copyfile(found, into)
        elif origin is context:
            shutil.copytree(found, place, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        else:
            subprocess.run(["cp", "-a", str(found), str(place)], check=True)


def _private_network() -> None:
    """Move to a network namespace with a loopback only, so that the image's port is free."""
    _checked(_libc.unshare(_NEW_NETWORK), "a network of our own")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("16sh14x", b"lo", 0)
        up = struct.unpack("16sh14x", fcntl.ioctl(probe, 0x8913, request))[1] | 1
        fcntl.ioctl(probe, 0x8914, struct.pack("16sh14x", b"lo", up))


def _until(done: Callable[[], bool], timeout_s: float, what: str) -> None:
    began = monotonic()
    while not done():
        if monotonic() - began > timeout_s:
            raise RehearsalError(f"not within {timeout_s:g} s: {what}")
        _never.wait(0.5)
    _say(f"  {monotonic() - began:6.1f} s  {what}")


def _curl(tree: Tree, path: str) -> bool:
    program = f"import urllib.request; urllib.request.urlopen('http://127.0.0.1:8470{path}', timeout=5)"
    return tree.run(["python", "-c", program], {})[0] == 0


def use(image: Stage, tree: Tree) -> None:
    """Run server and engine at the same time, each as its container would start it; then the demo as a whole pipeline."""
    tokens = {"PENSTOCK_ADMIN_TOKEN": "rehearsal-admin-token", "PENSTOCK_ENGINE_TOKEN": "rehearsal-engine-token"}
    health = image.health_check
    if tree.run(health, {})[0] == 0:
        raise RehearsalError("the health check is content though nothing runs")
    running: list[subprocess.Popen[str]] = []
    names = ["server", "engine"]
    try:
        running.append(tree.start([*image.entry_point, *image.command], tokens))
        _until(lambda: tree.run(health, {})[0] == 0, 60, "the health check is content with the server")
        running.append(tree.start([*image.entry_point, "engine"], tokens))
        _until(lambda: _curl(tree, "/readyz"), 120, "the engine is registered: /readyz")
        for process in reversed(running):
            process.send_signal(signal.SIGTERM)
            code = process.wait(20)
            _say(f"  exit code {code} after SIGTERM: {names.pop()}")
            if code not in {0, 128 + signal.SIGTERM}:
                raise RehearsalError("it did not stop cleanly")
        _until(lambda: tree.run(health, {})[0] != 0, 10, "the health check is not content any more")
    finally:
        for process in running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    _demo(image, tree)


def _demo(image: Stage, tree: Tree) -> None:
    command = [*image.entry_point, "demo", "--seconds", "20", "--rate", "50", "--json"]
    process = tree.start(command, {}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, errors = process.communicate(timeout=300)
    if process.returncode != 0 or not json.loads(output)["equal"]:
        raise RehearsalError(f"demo: exit code {process.returncode}\n{output}\n{errors[-3000:]}")
    _say(f"  demo in the image: {output.strip()[:300]}")


def main() -> int:
    """Parse the arguments and run the rehearsal; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="deploy.rehearse")
    parser.add_argument("work", type=Path)
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--context", type=Path, default=ROOT)
    parser.add_argument("--share", type=Path, action="append", default=[])
    options = parser.parse_args()
    work: Path = options.work.absolute()
    _checked(_libc.unshare(_NEW_MOUNTS), "mounts of our own (are you root?)")
    _mount("none", Path("/"), _PRIVATE | _RECURSIVE)
    base = prepare_base(work, options.python)
    stages = read(options.context / "Dockerfile")
    trees: dict[str, Tree] = {}
    try:
        for number, stage in enumerate(stages):
            _say(f"stage {stage.name}: {stage.base}")
            shared = [path.absolute() for path in options.share] if number < len(stages) - 1 else []
            trees[stage.name] = Tree(work / f"stage-{stage.name}", base, shared)
            build(stage, trees[stage.name], options.context, trees)
        _private_network()
        _say("the image in use")
        use(stages[-1], trees[stages[-1].name])
    except RehearsalError as error:
        _say(f"FAILED: {error}")
        return 1
    _say("all steps succeeded")
    return 0


if __name__ == "__main__":
    sys.exit(main())
