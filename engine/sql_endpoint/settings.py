"""What the endpoint's process has to know."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """Passed to the process when it starts."""

    url: str
    engine_token: str = field(repr=False)
    host: str = "127.0.0.1"
    port: int = 5433
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    sessions: int = 200
    """Most sessions at once."""
    endpoint: str = ""
    """Id under which the engine passes rows to this process: 32 hexadecimal digits."""
