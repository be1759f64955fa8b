"""How changes are read from a source: a subscription's `capture`, read as the class of its kind."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import TypeAdapter, ValidationError, WrapValidator
from pydantic_core import InitErrorDetails, PydanticCustomError

from engine.connectors import DEFAULT_CAPTURE, SOURCES
from engine.kinds import OF_ANY_SOURCE, Capture, SourceKind
from engine.model.positions import PositionForm

_FIRST: dict[str, SourceKind] = {}
"""By kind of capture, of the first kind of connection that has it."""
for _kind in SOURCES.values():
    _FIRST.setdefault(_kind.name, _kind)
CAPTURES: dict[str, type[Capture]] = {name: kind.capture for name, kind in _FIRST.items()}
"""By kind. Where several kinds of connection have a capture of one name, the first has the settings of all; those of the others are checked
with the source."""
FORMS: dict[str, PositionForm] = {name: kind.terms.form for name, kind in _FIRST.items()}
"""Of the positions of their sources, by kind. Captures of one name have forms that differ in `origin` only."""
CONSISTENCY = (
    "Which states of the source readers see. `transactions`: those after its transactions, in the order of"
    " their commits; `windows`: those at the ends of windows, a fraction of a second apart; `snapshots`: those that cycles of queries read;"
    " `ranges`: each table as a cycle read it, at a moment of its own."
)
"""The description of `Consistency`."""
if TYPE_CHECKING:
    AnyCapture: TypeAlias = Capture
else:
    AnyCapture = reduce(or_, CAPTURES.values())
"""The union of all kinds, as the description of the interface shows it."""


def _read(given: Any, read: Any) -> Any:
    """Reads a document as the class of its `kind`, without one as the usual class."""
    if isinstance(given, Capture):
        return given
    if not isinstance(given, Mapping):
        return read(given)
    kind = given.get("kind", DEFAULT_CAPTURE)
    if isinstance(kind, str) and kind in CAPTURES:
        return CAPTURES[kind].model_validate(given, context=OF_ANY_SOURCE)
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
