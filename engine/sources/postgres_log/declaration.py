"""PostgreSQL's log as a kind of source: its settings in a subscription, and its terms."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from engine.kinds import SPEC, Capture, Imported, Policy, SourceKind, SourceQueries, Text
from engine.model.subscription import GuardPolicy, OriginFilter
from engine.postgres.declaration import POSTGRES_CONNECTION
from engine.sources.postgres_log.terms import POSTGRES_LOG_TERMS

_GUARD = GuardPolicy()
_NAME_BYTES = 63
"""Longest name of PostgreSQL."""


def _is_short(name: str) -> str:
    if len(name.encode()) > _NAME_BYTES:
        raise ValueError(f"names have at most {_NAME_BYTES} bytes")
    return name


SourceName = Annotated[Text, AfterValidator(_is_short)]
SlotName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]{1,63}$")]


class GuardBody(Policy):
    """Shares of the budget from which the retained log has a consequence, in ascending order."""

    warn_share: float = Field(
        default=_GUARD.warn_share,
        gt=0,
        le=1,
        description="A warning event is recorded, and health shows the subscription as at risk.",
    )
    persist_share: float = Field(
        default=_GUARD.persist_share,
        gt=0,
        le=1,
        description="Only for a queue in mode auto: it is made durable, so that the source can release its log earlier.",
    )
    stop_copies_share: float = Field(
        default=_GUARD.stop_copies_share,
        gt=0,
        le=1,
        description="Copies and reloads are suspended until less log is retained; they retain log too.",
    )
    name_transaction_share: float = Field(
        default=_GUARD.name_transaction_share,
        gt=0,
        le=1,
        description="An event names the open transaction on the source that retains the log.",
    )
    drop_slot_share: float = Field(
        default=_GUARD.drop_slot_share,
        gt=0,
        le=1,
        description="The slot is dropped, as the last resort to keep the source's disk from filling; all tables must then be copied again.",
    )
    drop_slot: bool = Field(
        default=_GUARD.drop_slot,
        description="If false, the slot is never dropped, and only the source's max_slot_wal_keep_size limits the log.",
    )

    @model_validator(mode="after")
    def _in_order(self) -> GuardBody:
        shares = [
            self.warn_share,
            self.persist_share,
            self.stop_copies_share,
            self.name_transaction_share,
            self.drop_slot_share,
        ]
        if shares != sorted(shares):
            raise ValueError(
                "warn, persist, stop_copies, name_transaction and drop_slot must not decrease in this order"
            )
        return self


class SlotCapture(Capture):
    """Base of captures by replication slots."""

    slot_budget_bytes: int = Field(
        default=SPEC["retained_log_budget_bytes"],
        ge=1024**2,
        description="Log that the source may retain for this subscription. The shares of the guard refer to it, or to the source's own"
        " limit if that is lower.",
    )
    guard: GuardBody = Field(default_factory=GuardBody)

    def log_budget(self) -> tuple[int, float]:
        return self.slot_budget_bytes, self.guard.warn_share


class PostgresLogCapture(SlotCapture):
    """How changes are read from the source."""

    title: ClassVar[str] = "Source's log"
    words: ClassVar[str] = (
        "The source's log is read by logical decoding, which needs wal_level = logical and a user with REPLICATION. Each transaction"
        " arrives whole, in the order of commits, at no cost for the transactions that write. A replication slot and publications are"
        " created on the source, named penstock_, the subscription's name and eight hexadecimal digits, unless existing ones are named."
    )

    kind: Literal["postgres_log"] = Field(default="postgres_log", description=words)
    origin: OriginFilter = Field(
        default=SPEC["origin"],
        description="Which changes are followed. any: all; none: only those made on the source itself, not those that replication wrote"
        " there, which prevents replication loops; requires PostgreSQL 16 or newer as the source. A copy contains all rows. A change"
        " takes effect at the next start; rows already replicated stay.",
    )
    publication: SourceName | None = Field(
        default=None,
        description="An existing publication by which the tables are sent. Penstock never creates, alters or drops it, so its user need"
        " not own the tables. Tables that it does not send in full are parked (table_not_published). A change takes effect with a reload"
        " of the subscription. null: Penstock makes publications of its own.",
    )
    slot: SlotName | None = Field(
        default=None,
        description="An existing logical replication slot of the plugin pgoutput that no other client reads. Penstock never drops it, not"
        " even to protect the source's disk. A change takes effect with a reload of the subscription. null: Penstock makes its own.",
    )

    def assigned(self) -> dict[str, Any]:
        named = {"publication": self.publication, "slot": self.slot}
        guard = self.guard.model_dump()
        return {
            "capture": {
                "kind": self.kind,
                "settings": {name: text for name, text in named.items() if text is not None},
            },
            "slot_budget_bytes": self.slot_budget_bytes,
            "origin": self.origin.value,
            "guard": guard if self.slot is None else {**guard, "drop_slot": False},
        }


POSTGRES_LOG = SourceKind(
    POSTGRES_CONNECTION,
    PostgresLogCapture,
    POSTGRES_LOG_TERMS,
    Imported("engine.sources.postgres_log.source:PostgresSource"),
    Imported("engine.sources.postgres.frames:warm"),
    preloaded=("engine.sources.postgres_log.source",),
    queries=SourceQueries(
        Imported("engine.sources.postgres.queries:rows_of"),
        Imported("engine.sources.postgres.queries:run_query"),
    ),
)
