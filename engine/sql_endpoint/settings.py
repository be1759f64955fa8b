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
    port: int | None = 5433
    """Of PostgreSQL's protocol; None: it is not spoken."""
    flight_port: int | None = None
    """Of Arrow Flight SQL; None: it is not spoken."""
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    sessions: int = 200
    """Most sessions at once."""
    endpoint: str = ""
    """Id under which the engine passes rows to this process: 32 hexadecimal digits."""
