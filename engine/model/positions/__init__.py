"""Text forms and distances of positions, for each kind of capture. Pure: the server uses them without a database.

The engine compares 64-bit integers (`engine.model.position.Lsn`); a form is their representation for users and clients.
"""

from __future__ import annotations

from engine.model.positions.form import POSITION_EXAMPLE, PositionForm, is_position, text_of
from engine.model.positions.marks import ONLY_LOG, Mark, Marks, Reached, first_uncovered, single_mark
from engine.model.positions.several_logs import SeveralLogsForm
from engine.model.positions.whole_number import WholeNumberForm

__all__ = [
    "ONLY_LOG",
    "POSITION_EXAMPLE",
    "Mark",
    "Marks",
    "PositionForm",
    "Reached",
    "SeveralLogsForm",
    "WholeNumberForm",
    "first_uncovered",
    "is_position",
    "single_mark",
    "text_of",
]
