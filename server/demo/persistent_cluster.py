"""An embedded PostgreSQL that a file remembers: its folder, port and password are the same at every start."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from pathlib import Path

from server.demo.binaries import server_user
from server.demo.embedded import EmbeddedPostgres, server_folder
from server.private_file import write_private_file
from server.processes.ports import free_port


def kept_server(file: Path, folder: Path | None, *, prefix: str, settings: Mapping[str, str]) -> EmbeddedPostgres:
    """The server that `file` remembers, or a new one; not started.

    A new one lies in `folder`; in a temporary one that begins with `prefix` where that is None, and where we are root, since the
    server's user has to reach it.

    Raises:
        PostgresMissingError: there is no PostgreSQL on this machine.
    """
    if file.is_file():
        kept = json.loads(file.read_text())
    else:
        place = server_folder(prefix) if folder is None or server_user() is not None else folder
        kept = {"folder": str(place), "port": free_port(), "password": secrets.token_urlsafe(18)}
        write_private_file(file, json.dumps(kept))
    return EmbeddedPostgres(
        Path(kept["folder"]),
        version=18,
        port=int(kept["port"]),
        durable=True,
        password=kept["password"],
        settings=settings,
    )
