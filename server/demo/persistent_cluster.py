"""An embedded PostgreSQL cluster with folder, port and password stored in a file, so that they survive a restart."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from pathlib import Path

from server.demo.binaries import server_user
from server.demo.embedded import EmbeddedPostgres, server_folder
from server.private_file import write_private_file
from server.processes.ports import free_port


def persistent_cluster(
    file: Path, folder: Path | None, *, prefix: str, settings: Mapping[str, str]
) -> EmbeddedPostgres:
    """The cluster that `file` describes, or a new one, which is then stored in `file`. It is not started.

    A new cluster is created in `folder`; if that is None, or this process is root (the server's user could not reach
    it), in a temporary folder whose name begins with `prefix`. `settings`: of postgresql.conf, by name.

    Raises:
        PostgresMissingError: there is no PostgreSQL on this machine.
    """
    if file.is_file():
        stored = json.loads(file.read_text())
    else:
        place = server_folder(prefix) if folder is None or server_user() is not None else folder
        stored = {"folder": str(place), "port": free_port(), "password": secrets.token_urlsafe(18)}
        write_private_file(file, json.dumps(stored))
    return EmbeddedPostgres(
        Path(stored["folder"]),
        port=int(stored["port"]),
        durable=True,
        password=stored["password"],
        settings=settings,
    )
