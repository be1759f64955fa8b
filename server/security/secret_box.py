"""Seals the secrets of connections for the control database, with keys that can be rotated."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from pydantic import SecretStr

from server.errors import Conflict
from server.settings import Settings, SettingsError

KEY_FILE = "secret.key"


class SecretsUnreadable(Conflict):
    code = "secrets_unreadable"
    title = "Stored secrets cannot be opened"
    default_remedy = "Bring back the key that sealed them (secret.key or PENSTOCK_SECRET_KEYS), or PUT the connection with its secrets."


class SecretBox:
    """Seals with the first key and opens with any of them."""

    def __init__(self, keys: list[bytes]) -> None:
        fernets = [Fernet(key) for key in keys]
        self._first = fernets[0]
        self._all = MultiFernet(fernets)

    def seal(self, secrets: Mapping[str, str]) -> str:
        return self._all.encrypt(json.dumps(dict(secrets)).encode()).decode()

    def open(self, sealed: str | None) -> dict[str, str]:
        """The secrets in `sealed`; none if it is empty.

        Raises:
            SecretsUnreadable: no key fits.
        """
        if sealed is None:
            return {}
        try:
            content = json.loads(self._all.decrypt(sealed.encode()))
        except InvalidToken:
            raise SecretsUnreadable("None of the present keys opens the secrets of this connection.") from None
        return {str(name): str(value) for name, value in content.items()}

    def renewed(self, sealed: str) -> str | None:
        """The same secrets sealed with the first key; None if they already are.

        Raises:
            SecretsUnreadable: no key fits.
        """
        try:
            self._first.decrypt(sealed.encode())
        except InvalidToken:
            return self.seal(self.open(sealed))
        return None


def load_box(settings: Settings) -> SecretBox:
    """The box with the keys of the environment, else of the key file, which is created if missing.

    Raises:
        SettingsError: a key is malformed, or other users can read the key file.
    """
    keys = _split(settings.secret_keys) or _read_key_file(settings.home / KEY_FILE)
    try:
        return SecretBox(keys)
    except ValueError:
        raise SettingsError(
            "a key for secrets is 32 bytes in URL-safe base64; make one with Fernet.generate_key()"
        ) from None


def _split(value: SecretStr | None) -> list[bytes]:
    text = value.get_secret_value() if value is not None else ""
    return [part.strip().encode() for part in text.split(",") if part.strip()]


def _read_key_file(path: Path) -> list[bytes]:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        pass
    else:
        with os.fdopen(descriptor, "wb") as file:
            file.write(Fernet.generate_key() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    if path.stat().st_mode & 0o077:
        raise SettingsError(f"{path} may be read by others; run: chmod 600 {path}")
    keys = path.read_bytes().split()
    if not keys:
        raise SettingsError(f"{path} is empty; bring the key back, or delete the file and set all secrets again")
    return keys
