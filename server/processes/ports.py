"""TCP ports of this machine."""

from __future__ import annotations

import socket
from contextlib import ExitStack


def free_port() -> int:
    """A TCP port on 127.0.0.1 that was free a moment ago."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """So many TCP ports on 127.0.0.1 that were free a moment ago, each another one."""
    with ExitStack() as probes:
        sockets = [probes.enter_context(socket.socket()) for _ in range(count)]
        for probe in sockets:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in sockets]


def why_not_listen(host: str, port: int, options: str = "--port or --host") -> str | None:
    """Why a server cannot listen at the address, with a remedy that names `options`; None if it can."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), port))
        except OSError as error:
            return f"{host}:{port} cannot be listened on ({error.strerror}); choose another {options}"
    return None


def is_listened_on(host: str, port: int) -> bool:
    """Whether connections to the address are accepted."""
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return False
    return True
