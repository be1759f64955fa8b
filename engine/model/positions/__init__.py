"""How positions of each kind of capture are written and measured. Pure: the server translates without a database.

The stages compare one 64-bit place in a subscription's order (`engine.model.position.Lsn`); a form is what people and clients see of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.model.positions.form import PositionForm, text_of
from engine.model.positions.marks import ONLY_LOG, Mark, Marks, Reached, first_uncovered, single_mark
from engine.model.positions.postgres_log import PostgresLogForm
from engine.model.positions.whole_number import WholeNumberForm

DEFAULT_CAPTURE = "postgres_log"
FORMS: Mapping[str, PositionForm] = {DEFAULT_CAPTURE: PostgresLogForm()}
"""By kind of capture."""

__all__ = [
    "DEFAULT_CAPTURE",
    "FORMS",
    "ONLY_LOG",
    "Mark",
    "Marks",
    "PositionForm",
    "PostgresLogForm",
    "Reached",
    "WholeNumberForm",
    "first_uncovered",
    "single_mark",
    "text_of",
]
