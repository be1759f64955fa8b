"""How changes are read from a source: one class for each kind of capture.

A new kind is a class here and in `AnyCapture`, and a name in `captures` of the kinds of connection that it can read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, get_args

from pydantic import Field, TypeAdapter, ValidationError, WrapValidator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from engine.model.positions import DEFAULT_CAPTURE
from engine.model.subscription import GuardPolicy, OriginFilter
from server.declarations.policy import SPEC, Policy

_GUARD = GuardPolicy()


class Capture(Policy):
    """Base of all kinds of capture. `title` and `words` describe one where a user chooses among them."""

    title: ClassVar[str]
    words: ClassVar[str]

    kind: str

    def assigned(self) -> dict[str, Any]:
        """What the command `assign` says of it."""
        return {"capture": {"kind": self.kind}}

    def log_budget(self) -> tuple[int, float]:
        """Bytes of log that may be held back on the source, and the share of them from which a subscription is at risk."""
        raise NotImplementedError


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


class PostgresLogCapture(Capture):
    """How changes are read from the source."""

    title: ClassVar[str] = "Source's log"
    words: ClassVar[str] = (
        "The source's log is read by logical decoding. A replication slot and publications are created on the source, named penstock_, the"
        " subscription's name and eight hexadecimal digits."
    )

    kind: Literal["postgres_log"] = Field(default="postgres_log", description=words)
    slot_budget_bytes: int = Field(
        default=SPEC["retained_log_budget_bytes"],
        ge=1024**2,
        description="Log that the source may retain for this subscription. The shares of the guard refer to it, or to the source's own"
        " limit if that is lower.",
    )
    origin: OriginFilter = Field(
        default=SPEC["origin"],
        description="Which changes are followed. any: all; none: only those made on the source itself, not those that replication wrote"
        " there, which prevents replication loops; requires PostgreSQL 16 or newer as the source. A copy contains all rows. A change"
        " takes effect at the next start; rows already replicated stay.",
    )
    guard: GuardBody = Field(default_factory=GuardBody)

    def assigned(self) -> dict[str, Any]:
        return {
            **super().assigned(),
            "slot_budget_bytes": self.slot_budget_bytes,
            "origin": self.origin.value,
            "guard": self.guard.model_dump(),
        }

    def log_budget(self) -> tuple[int, float]:
        return self.slot_budget_bytes, self.guard.warn_share


AnyCapture: TypeAlias = PostgresLogCapture
"""The union of all kinds."""

_CLASSES: tuple[type[Capture], ...] = get_args(AnyCapture) or (AnyCapture,)
CAPTURES: dict[str, type[Capture]] = {each.model_fields["kind"].default: each for each in _CLASSES}
"""By kind."""


def _read(given: Any, read: Any) -> Any:
    """Reads a document as the class of its `kind`, without one as the usual class."""
    if not isinstance(given, Mapping):
        return read(given)
    kind = given.get("kind", DEFAULT_CAPTURE)
    if isinstance(kind, str) and kind in CAPTURES:
        return CAPTURES[kind].model_validate(given)
    error = PydanticCustomError("capture_kind", f"There is no such kind of capture; there are {', '.join(CAPTURES)}.")
    raise ValidationError.from_exception_data("capture", [InitErrorDetails(type=error, loc=("kind",), input=kind)])


CapturePolicy = Annotated[AnyCapture, WrapValidator(_read)]
_CAPTURE: TypeAdapter[AnyCapture] = TypeAdapter(CapturePolicy)


def read_capture(document: Mapping[str, Any]) -> AnyCapture:
    """The capture that is stored as this document.

    Raises:
        ValidationError: it is none.
    """
    return _CAPTURE.validate_python(document)
