"""What a subscription names of the source that exists already: a publication, a slot. Penstock uses it and never changes or drops it."""

from __future__ import annotations

from dataclasses import dataclass

from engine.model.subscription import ConnectionSpec
from engine.sources.postgres_log.publications import names


@dataclass(frozen=True, slots=True)
class Given:
    """None: Penstock makes its own, by the reader's name."""

    publication: str | None = None
    slot: str | None = None

    def publications(self, reader: str) -> tuple[str, ...]:
        """The publications through which the tables are sent."""
        return names(reader) if self.publication is None else (self.publication,)

    def slot_of(self, reader: str) -> str:
        """The slot that is read."""
        return self.slot or reader


NOTHING_GIVEN = Given()


def given_by(spec: ConnectionSpec) -> Given:
    """What the capture of this connection names."""
    settings = spec.capture.settings if spec.capture is not None else {}
    publication, slot = settings.get("publication"), settings.get("slot")
    return Given(None if publication is None else str(publication), None if slot is None else str(slot))
