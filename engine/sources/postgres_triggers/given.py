"""What a subscription says about its triggers."""

from __future__ import annotations

from dataclasses import dataclass

from engine.model.subscription import ConnectionSpec


@dataclass(frozen=True, slots=True)
class Given:
    """`install`: Penstock creates and drops objects on the source; else an administrator does. `audit`: who changed a row is recorded.
    `by_application`: the application writes the recorded changes itself, and the tables have no triggers."""

    install: bool = True
    audit: bool = False
    by_application: bool = False


def given_by(spec: ConnectionSpec) -> Given:
    """The settings of the capture of this connection."""
    settings = spec.capture.settings if spec.capture is not None else {}
    by_application = settings.get("recorder") == "application"
    return Given(bool(settings.get("install", 1)), bool(settings.get("audit", 0)), by_application)
