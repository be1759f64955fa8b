"""The data folder of a local Penstock, and the tokens that `penstock up` stores there for the same user."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from server.private_file import write_private_file
from server.settings import default_home

DEFAULT_URL = "http://127.0.0.1:8470"


@dataclass(frozen=True, slots=True)
class Home:
    """Files in the data folder. Secret ones are readable by the owner only."""

    folder: Path

    @property
    def admin_token_file(self) -> Path:
        return self.folder / "admin.token"

    @property
    def engine_token_file(self) -> Path:
        return self.folder / "engine.token"

    @property
    def url_file(self) -> Path:
        return self.folder / "server.url"

    def make(self) -> None:
        """Create the folder, for its owner only, if it is missing."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def token(self, file: Path) -> tuple[str, bool]:
        """The token in `file`, generated if there is none. The second value says whether it is new."""
        present = read_token(file)
        if present is not None:
            return present, False
        token = secrets.token_urlsafe(32)
        write_private_file(file, token + "\n")
        return token, True


def read_token(file: Path) -> str | None:
    """The token in a file; None if the file is missing, empty or unreadable."""
    try:
        return file.read_text().strip() or None
    except OSError:
        return None


def server_url(given: str | None) -> str:
    """The server's address: `given`, `PENSTOCK_URL`, the one that `up` stored in the data folder, or the default."""
    return given or os.environ.get("PENSTOCK_URL") or read_token(Home(default_home()).url_file) or DEFAULT_URL


def access_token(given: str | None) -> str | None:
    """The token to use: `given`, `PENSTOCK_TOKEN`, or the one that `up` stored in the data folder."""
    return given or os.environ.get("PENSTOCK_TOKEN") or read_token(Home(default_home()).admin_token_file)


def console_link(url: str, token: str | None) -> str:
    """The console's address; with a token, one that signs in. The token is in the fragment, which browsers do not send."""
    return f"{url.rstrip('/')}/" if token is None else f"{url.rstrip('/')}/#token={quote(token, safe='')}"
