"""The sender of a request and its rights."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

PRESET_ADMIN = "preset-admin"
"""Name of the administrator's token that the settings preset, as `penstock up` does."""


class Role(StrEnum):
    """Roles of tokens. `viewer`, `operator` and `admin` each include the rights of the previous one; `engine` may only call the engine's
    endpoints."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    ENGINE = "engine"


_RANK = {Role.VIEWER: 1, Role.OPERATOR: 2, Role.ADMIN: 3}


@dataclass(frozen=True, slots=True)
class Principal:
    """The holder of the token with this `id`; `everything` if authentication is disabled."""

    id: str
    name: str
    role: Role
    everything: bool = False

    def has_role(self, needed: Role) -> bool:
        """Whether the principal has the rights of `needed`."""
        if self.everything or self.role is needed:
            return True
        return needed in _RANK and _RANK.get(self.role, 0) >= _RANK[needed]


ANYBODY = Principal(id="anybody", name="anybody", role=Role.ADMIN, everything=True)
