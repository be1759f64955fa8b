"""PostgreSQL as a kind of target."""

from __future__ import annotations

from engine.kinds import Imported, TargetKind
from engine.postgres.declaration import POSTGRES_CONNECTION

POSTGRES = TargetKind(
    POSTGRES_CONNECTION,
    Imported("engine.targets.postgres.opening:open_connection"),
    map_others_as="source",
    computes_here=Imported("engine.postgres.sessions:is_on_this_machine"),
    preloaded=("engine.targets.postgres.opening", "engine.postgres.query_process"),
)
