"""What a subscription says about its triggers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from engine.model.subscription import ConnectionSpec, TableSpec
from engine.sources.postgres_triggers.change_triggers import Asked


@dataclass(frozen=True, slots=True)
class Given:
    """`install`: Penstock creates and drops objects on the source; else an administrator does. `audit`: who changed a row is recorded.
    `by_application`: the application writes the recorded changes itself, and the tables have no triggers. `changed`: tables, as
    `schema.name`, of whose updates only the changed columns are recorded."""

    install: bool = True
    audit: bool = False
    by_application: bool = False
    changed: frozenset[str] = frozenset()

    def asked(self, tables: Iterable[TableSpec]) -> Asked:
        """What the subscription asks of the recording of these tables."""
        return Asked(self.audit, self.changed, frozenset(table.source for table in tables if table.where is not None))


def given_by(spec: ConnectionSpec) -> Given:
    """The settings of the capture of this connection."""
    settings = spec.capture.settings if spec.capture is not None else {}
    by_application = settings.get("recorder") == "application"
    changed = frozenset(json.loads(str(settings.get("changed_columns", "[]"))))
    return Given(bool(settings.get("install", 1)), bool(settings.get("audit", 0)), by_application, changed)
