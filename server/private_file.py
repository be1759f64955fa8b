"""Writes files that contain secrets."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_private_file(file: Path, text: str) -> None:
    """Write a file that only its owner can read, and replace it atomically: readers see the old text or the new one."""
    beside = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)
    beside.replace(file)
