"""The application name under which a session of a reader is known on the source."""

from __future__ import annotations


def family_of(application: str) -> str:
    """The application name of a session without the number of its engine's epoch at the end."""
    return application.encode()[:63].decode(errors="ignore").rstrip("0123456789")
