"""How SQL clients reach the engine on this machine: its ports, and what a person pastes to connect."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from server.processes.ports import why_not_listen
from server.security.principal import PRESET_ADMIN

LOOPBACK = "127.0.0.1"
_HOST = "PENSTOCK_SQL_HOST"


@dataclass(frozen=True, slots=True)
class SqlPorts:
    """Ports of the SQL endpoint: of PostgreSQL's protocol, and of Arrow Flight SQL. None: not spoken."""

    postgres: int | None = None
    flight: int | None = None

    @property
    def environment(self) -> dict[str, str]:
        """The engine's settings."""
        given = {"PENSTOCK_SQL_PORT": self.postgres, "PENSTOCK_FLIGHT_PORT": self.flight}
        return {name: str(port) for name, port in given.items() if port is not None}

    def trouble(self, environment: Mapping[str, str]) -> str | None:
        """Why the engine cannot listen on them, with a remedy; None if it can. `environment`: of the engine."""
        for option, port in (("--sql-port", self.postgres), ("--flight-port", self.flight)):
            found = None if port is None else why_not_listen(environment.get(_HOST) or LOOPBACK, port, option)
            if found is not None:
                return found
        return None

    def lines(self, subscription: str, token_file: Path | None) -> list[str]:
        """A line for each protocol, which does not contain the token. `token_file`: None if no token is needed."""
        found = []
        if self.postgres is not None:
            password = "" if token_file is None else f"PGPASSWORD=$(cat {shlex.quote(str(token_file))}) "
            address = f"host={LOOPBACK} port={self.postgres} user={PRESET_ADMIN} dbname={subscription}"
            found.append(f'SQL clients: {password}psql "{address}"')
        if self.flight is not None:
            login = "" if token_file is None else f"user {PRESET_ADMIN}, password in {token_file}, "
            address = f"grpc://{LOOPBACK}:{self.flight}"
            found.append(f"Flight SQL: {address} ({login}call header penstock-subscription: {subscription})")
        return found
